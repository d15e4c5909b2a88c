//! The HTTP API over a canned snapshot: golden answers, refusals, headers, and the server under rude clients.
//!
//! `UPDATE_GOLDEN=1` writes the golden files anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod canned;

use std::{path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode, header},
};
use http_body_util::BodyExt;
use proptest::prelude::*;
use serde_json::Value;
use slabmon::{
    http::{AppState, EncodeMetrics, bind, render_top, router, run},
    model::{
        query::{Grouping, SortBy, TopQuery, compile_pattern},
        snapshot::Snapshot,
    },
    report::{
        BUILD, Build, Context, Format,
        client::{ClientError, fetch_top},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const AGE: Duration = Duration::from_millis(400);
const BUILD_OF_TESTS: Build = Build { version: "0.0.0-test", revision: Some("abc123") };

fn fake_metrics() -> EncodeMetrics {
    Arc::new(|snapshot, accept| {
        Ok((
            "text/plain; version=0.0.4; charset=utf-8",
            format!("caches {} accept {accept:?}\n", snapshot.caches.len()),
        ))
    })
}

fn state_of(snapshot: Option<Snapshot>) -> AppState {
    let (_, receiver) = watch::channel(snapshot.map(Arc::new));
    let mut state = AppState::new(
        receiver,
        fake_metrics(),
        "/metrics".parse().unwrap(),
        Duration::from_secs(1),
        std::time::Instant::now(),
    );
    state.build = BUILD_OF_TESTS;
    state.uptime = Arc::new(|| canned::UPTIME + AGE);
    state
}

fn canned_router() -> Router {
    router(state_of(Some(canned::snapshot())))
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn content_type(&self) -> &str {
        self.headers[header::CONTENT_TYPE].to_str().unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

async fn send(router: Router, method: &str, uri: &str, accept: Option<&str>) -> Answer {
    let mut request = Request::builder().method(method).uri(uri);
    if let Some(accept) = accept {
        request = request.header(header::ACCEPT, accept);
    }
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, body: String::from_utf8(bytes.to_vec()).unwrap() }
}

async fn get(uri: &str) -> Answer {
    send(canned_router(), "GET", uri, Some("*/*")).await
}

fn golden(name: &str, actual: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name} differs; if that is right, run the test with UPDATE_GOLDEN=1");
}

#[tokio::test]
async fn answers_are_as_the_golden_files_say() {
    for (path, name) in [
        ("/caches", "caches"),
        ("/caches?group=class", "caches-class"),
        ("/caches/top", "top"),
        ("/caches/top?by=alloc_rate&limit=3", "top-alloc_rate-3"),
        ("/caches/top?group=class&by=growth", "top-class-growth"),
        ("/caches/top?filter=configfs", "top-filter-alias"),
        ("/caches/kmalloc-64", "one-kmalloc-64"),
        ("/caches/configfs_dir_cache", "one-alias"),
        ("/caches/newborn", "one-newborn"),
        ("/caches/192?group=class", "one-class-192"),
        ("/status", "status"),
    ] {
        for (format, extension) in [("text", "txt"), ("json", "json"), ("csv", "csv")] {
            if name == "status" && format == "csv" {
                continue;
            }
            let separator = if path.contains('?') { '&' } else { '?' };
            let answer = get(&format!("{path}{separator}format={format}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            golden(&format!("{name}.{extension}"), &answer.body);
        }
    }
    golden("index.html", &get("/").await.body);
}

#[tokio::test]
async fn the_report_is_as_the_golden_files_say() {
    for (query, name) in [
        ("", "report"),
        ("section=waterfall,debug,waste,verdict", "report-sections"),
        ("cache=dentry&size=184&order=1", "report-wish"),
    ] {
        for (format, extension) in [("text", "txt"), ("json", "json"), ("csv", "csv"), ("markdown", "md")] {
            let answer = get(&format!("/report?{query}&format={format}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{query}: {}", answer.body);
            golden(&format!("{name}.{extension}"), &answer.body);
        }
    }
    let markdown = get("/report?format=markdown").await;
    assert_eq!(markdown.content_type(), "text/markdown; charset=utf-8");
}

#[tokio::test]
async fn a_wrong_parameter_of_the_report_is_named() {
    let sections = "whole, waterfall, rank, waste, debug, what_if, struct_page, verdict";
    for (query, text) in [
        ("section=all", format!("`section`: unknown value `all`\nallowed: {sections}\n")),
        ("size=8", "`cache`: `size` and `order` are of a cache: name it\n".into()),
        ("cache=dentry&size=0", "`size`: `0` is no whole number in range\nallowed: 1..=1073741824\n".into()),
        ("cache=dentry&order=11", "`order`: `11` is no whole number in range\nallowed: 0..=10\n".into()),
        ("price_per_gib=-1", "`price_per_gib`: give a number of your currency for a GiB, such as 3.50\n".into()),
        ("format=xml", "`format`: unknown value `xml`\nallowed: text, json, csv, markdown\n".into()),
    ] {
        let answer = get(&format!("/report?{query}")).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::BAD_REQUEST, text.as_str()), "{query}");
    }
    assert!(get("/report?cache=nothing").await.body.contains("there is no such cache"));
    let cut = get("/report?section=rank&limit=1&format=json").await.json();
    assert_eq!(cut["caches"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_cache_carries_its_waterfall_what_if_and_verdict() {
    let account = get("/caches/kmalloc-64?format=json").await.json()["account"].take();
    let waterfall = account["waterfall"].as_object().unwrap();
    let parts = waterfall.iter().filter(|(part, _)| *part != "held_bytes");
    assert_eq!(waterfall["held_bytes"], parts.filter_map(|(_, bytes)| bytes.as_u64()).sum::<u64>());
    assert_eq!(account["what_if"]["one_more"]["shave_bytes"], 8);
    assert_eq!(account["verdicts"][0]["verdict"], "too_little_data");
    let text = get("/caches/kmalloc-64").await.body;
    for title in ["WHERE ITS BYTES GO", "WHAT IF", "VERDICT"] {
        assert!(text.contains(title), "{title}");
    }
    assert_eq!(get("/caches/192?group=class&format=json").await.json()["account"], Value::Null);
}

#[tokio::test]
async fn what_is_not_known_is_never_shown_as_zero() {
    let router = router(state_of(Some(canned::unknown_snapshot())));
    for (uri, name) in [
        ("/caches/top?limit=2&format=text", "unknown-top.txt"),
        ("/caches/top?limit=2&format=json", "unknown-top.json"),
        ("/caches/top?limit=2&format=csv", "unknown-top.csv"),
        ("/caches/dentry?format=text", "unknown-one.txt"),
        ("/status?format=text", "unknown-status.txt"),
        ("/report?format=text", "unknown-report.txt"),
        ("/report?format=json", "unknown-report.json"),
    ] {
        golden(name, &send(router.clone(), "GET", uri, None).await.body);
    }
}

#[tokio::test]
async fn no_table_is_wider_than_a_terminal_of_120_columns() {
    let mut snapshot = canned::snapshot();
    snapshot.caches.retain(|cache| &*cache.name != canned::ODD_NAME);
    let answer = send(router(state_of(Some(snapshot))), "GET", "/caches/top", None).await;
    for line in answer.body.lines() {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[tokio::test]
async fn the_format_follows_the_accept_header_unless_the_query_says_it() {
    for (accept, uri, content_type) in [
        (None, "/caches/top", "text/plain; charset=utf-8"),
        (Some("*/*"), "/caches/top", "text/plain; charset=utf-8"),
        (Some("text/html,*/*;q=0.8"), "/caches/top", "text/plain; charset=utf-8"),
        (Some("application/json"), "/caches/top", "application/json"),
        (Some("application/json;q=0.1,text/csv"), "/caches", "text/csv; charset=utf-8; header=present"),
        (Some("application/json"), "/caches?format=csv", "text/csv; charset=utf-8; header=present"),
        (Some("application/json"), "/status?format=text", "text/plain; charset=utf-8"),
        (Some("text/csv,application/json;q=0.5"), "/status", "application/json"),
    ] {
        let answer = send(canned_router(), "GET", uri, accept).await;
        assert_eq!(answer.content_type(), content_type, "{accept:?} {uri}");
    }
}

#[tokio::test]
async fn two_accept_lines_are_one_list() {
    let request = Request::builder()
        .uri("/caches")
        .header(header::ACCEPT, "text/plain;q=0.1")
        .header(header::ACCEPT, "application/json")
        .body(Body::empty())
        .unwrap();
    let response = canned_router().oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
}

#[tokio::test]
async fn every_answer_has_the_safety_headers() {
    for (method, uri) in [
        ("GET", "/"),
        ("GET", "/caches"),
        ("GET", "/nothing"),
        ("POST", "/caches"),
        ("GET", "/caches?x=1"),
        ("HEAD", "/"),
    ] {
        let headers = send(canned_router(), method, uri, None).await.headers;
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{method} {uri}");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store", "{method} {uri}");
        assert_eq!(headers[header::VARY], "Accept", "{method} {uri}");
    }
    let index = get("/").await;
    assert!(index.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'none'"));
    assert!(!index.body.contains("<script"));
}

#[tokio::test]
async fn a_wrong_parameter_is_named_with_what_is_allowed() {
    let orders = "bytes, objects, alloc_rate, free_rate, growth, requested, name";
    for (uri, text) in [
        ("/caches/top?by=size", format!("`by`: unknown value `size`\nallowed: {orders}\n")),
        ("/caches/top?by=", format!("`by`: unknown value ``\nallowed: {orders}\n")),
        ("/caches/top?limit=0", "`limit`: `0` is out of range\nallowed: 1..=10000\n".into()),
        ("/caches/top?limit=10001", "`limit`: `10001` is out of range\nallowed: 1..=10000\n".into()),
        (
            "/caches/top?limit=99999999999999999999",
            "`limit`: `99999999999999999999` is out of range\nallowed: 1..=10000\n".into(),
        ),
        ("/caches/top?limit=ten", "`limit`: `ten` is not a whole number\nallowed: 1..=10000\n".into()),
        ("/caches/top?limit=-1", "`limit`: `-1` is not a whole number\nallowed: 1..=10000\n".into()),
        ("/caches/top?limit=", "`limit`: `` is not a whole number\nallowed: 1..=10000\n".into()),
        ("/caches/top?filter=(", "`filter`: not a regular expression that can be used: unclosed group\n".into()),
        ("/caches/top?group=kind", "`group`: unknown value `kind`\nallowed: class\n".into()),
        ("/caches/top?format=xml", "`format`: unknown value `xml`\nallowed: text, json, csv\n".into()),
        ("/status?format=csv", "`format`: unknown value `csv`\nallowed: text, json\n".into()),
        ("/caches/top?limt=3", "`limt`: unknown parameter\nallowed: by, limit, filter, group, format\n".into()),
        ("/caches?by=bytes", "`by`: unknown parameter\nallowed: filter, group, format\n".into()),
        ("/caches/dentry?limit=1", "`limit`: unknown parameter\nallowed: group, format\n".into()),
        ("/status?x", "`x`: unknown parameter\nallowed: format\n".into()),
        ("/caches/top?by=name&by=bytes", "`by`: given twice\n".into()),
        ("/caches/top?by=%1b[2J", format!("`by`: unknown value `\\u{{1b}}[2J`\nallowed: {orders}\n")),
    ] {
        let answer = get(uri).await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::BAD_REQUEST, text.as_str()), "{uri}");
        assert_eq!(answer.content_type(), "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn a_pattern_that_would_cost_too_much_is_refused() {
    let answer = get("/caches/top?filter=a%7B1000%7D%7B1000%7D%7B1000%7D").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.body.starts_with("`filter`: "), "{}", answer.body);
}

#[tokio::test]
async fn refusals_are_json_where_json_was_asked() {
    let by_accept = send(canned_router(), "GET", "/caches/top?by=size", Some("application/json")).await;
    let by_query = get("/caches/top?format=json&by=size").await;
    for answer in [by_accept, by_query] {
        assert_eq!((answer.status, answer.content_type()), (StatusCode::BAD_REQUEST, "application/json"));
        let error = &answer.json()["error"];
        assert_eq!(error["status"], 400);
        assert_eq!(error["parameter"], "by");
        assert_eq!(error["allowed"][0], "bytes");
        assert_eq!(error["near"], Value::Null);
    }
}

#[tokio::test]
async fn an_unknown_cache_is_told_with_near_names() {
    let answer = get("/caches/dentri").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.body, "no cache and no alias is called `dentri`\nnear: dentry\n");
    let near = get("/caches/kmalloc-6?format=json").await.json()["error"]["near"].clone();
    assert_eq!(near[0], "kmalloc-64");
    assert!(near.as_array().unwrap().len() <= 5);
    assert_eq!(get("/caches/zzzzzzzzzz").await.body, "no cache and no alias is called `zzzzzzzzzz`\n");
}

#[tokio::test]
async fn an_unknown_class_is_told_with_all_classes() {
    let answer = get("/caches/dentry?group=class").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(
        answer.body,
        "`dentry` is no size class and no cache of one\nallowed: kmalloc-64, kmalloc-192, kmalloc-1k\n"
    );
}

#[tokio::test]
async fn an_unknown_path_is_404_and_another_method_405() {
    for path in ["/nothing", "/caches/", "/metrics/x", "/status/"] {
        assert_eq!(get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get("/nothing?format=json").await.json()["error"]["status"], 404);
    for path in
        ["/", "/metrics", "/caches", "/caches/top", "/caches/dentry", "/report", "/status", "/healthz", "/readyz"]
    {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let answer = send(canned_router(), method, path, None).await;
            assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(answer.headers[header::ALLOW], "GET, HEAD");
            assert_eq!(answer.body, "only GET and HEAD are answered\n");
        }
        let head = send(canned_router(), "HEAD", path, None).await;
        assert_eq!((head.status, head.body.as_str()), (StatusCode::OK, ""), "{path}");
    }
}

#[tokio::test]
async fn an_alias_leads_to_its_cache() {
    let json = get("/caches/pid%20%222%22?format=json").await.json();
    assert_eq!(json["asked"], "pid \"2\"");
    assert_eq!(json["alias_of"], "eventpoll_pwq");
    assert_eq!(json["cache"]["name"], "eventpoll_pwq");
    assert_eq!(json["cache"]["attributes"]["aliases"], serde_json::json!(["configfs_dir_cache", "pid \"2\""]));
    assert_eq!(get("/caches/dentry?format=json").await.json()["alias_of"], Value::Null);
}

#[tokio::test]
async fn a_class_adds_all_its_kinds() {
    for name in ["192", "kmalloc-192", "kmalloc-rnd-14-192"] {
        let json = get(&format!("/caches/{name}?group=class&format=json")).await.json();
        assert_eq!(json["cache"]["name"], "kmalloc-192");
        assert_eq!(json["cache"]["slab"]["memory_bytes"], (40 + 2) * 4096);
        assert_eq!(json["cache"]["slab"]["active_objects"], 701);
        assert_eq!(json["cache"]["size_class"]["kind"], Value::Null);
        assert_eq!(json["members"][1]["name"], "kmalloc-rnd-14-192");
    }
    let sum = |json: &Value| -> u64 {
        json["caches"].as_array().unwrap().iter().filter_map(|cache| cache["slab"]["memory_bytes"].as_u64()).sum()
    };
    let plain = sum(&get("/caches?format=json").await.json());
    assert_eq!(sum(&get("/caches?format=json&group=class").await.json()), plain, "grouping loses nothing");
}

#[tokio::test]
async fn odd_names_come_through_every_output() {
    let path: String = canned::ODD_NAME.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let uri = format!("/caches/{path}");
    assert_eq!(get(&format!("{uri}?format=json")).await.json()["cache"]["name"], canned::ODD_NAME);

    let csv = get(&format!("{uri}?format=csv")).await.body;
    let record = csv::Reader::from_reader(csv.as_bytes()).records().next().unwrap().unwrap();
    assert_eq!(&record[0], canned::ODD_NAME);

    for text in [get(&uri).await.body, get("/caches").await.body] {
        assert!(text.contains("ipc \"po,rts\" \\ a/b\\u{1b}[2J\\n=é漢<b>&"), "{text}");
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
    }
    let refusal = get("/caches/no%1b%0asuch").await;
    assert_eq!(refusal.body, "no cache and no alias is called `no\\u{1b}\\nsuch`\n");
}

#[tokio::test]
async fn a_name_may_hold_a_slash_or_be_top() {
    let mut snapshot = canned::snapshot();
    snapshot.caches[0].name = "a/b".into();
    snapshot.caches[1].name = "top".into();
    let router = router(state_of(Some(snapshot)));
    for (path, name) in [("/caches/a/b", "a/b"), ("/caches/a%2Fb", "a/b"), ("/caches/%74op", "top")] {
        let answer = send(router.clone(), "GET", &format!("{path}?format=json"), None).await;
        assert_eq!(answer.json()["cache"]["name"], name, "{path}");
    }
}

#[tokio::test]
async fn a_name_that_is_not_utf_8_is_not_found() {
    let answer = get("/caches/%ff?format=json").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.json()["error"]["message"], "the name in the path is not UTF-8");
}

#[tokio::test]
async fn the_metrics_are_where_the_configuration_says_and_take_any_query() {
    let answer = send(canned_router(), "GET", "/metrics?name[]=x&limit=none", Some("text/plain;version=0.0.4")).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.content_type(), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(answer.body, "caches 11 accept Some(\"text/plain;version=0.0.4\")\n");

    let mut state = state_of(Some(canned::snapshot()));
    state.telemetry_path = "/m-1/x".parse().unwrap();
    let router = router(state);
    assert_eq!(send(router.clone(), "GET", "/m-1/x", None).await.status, StatusCode::OK);
    assert_eq!(send(router.clone(), "GET", "/metrics", None).await.status, StatusCode::NOT_FOUND);
    assert!(send(router, "GET", "/", None).await.body.contains("href=\"/m-1/x\""));
}

#[tokio::test]
async fn before_the_first_snapshot_there_is_503_with_retry_after() {
    let router = router(state_of(None));
    for path in ["/metrics", "/caches", "/caches/top", "/caches/x", "/status", "/readyz"] {
        let answer = send(router.clone(), "GET", path, None).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(answer.headers[header::RETRY_AFTER], "1");
    }
    assert_eq!(send(router.clone(), "GET", "/healthz", None).await.status, StatusCode::OK);
    assert_eq!(send(router, "GET", "/", None).await.status, StatusCode::OK);
}

#[tokio::test]
async fn readiness_ends_when_snapshots_stop_coming() {
    let ready_at = async |age: Duration| {
        let mut state = state_of(Some(canned::snapshot()));
        state.uptime = Arc::new(move || canned::UPTIME + age);
        send(router(state), "GET", "/readyz", None).await
    };
    assert_eq!(ready_at(Duration::from_secs(3)).await.status, StatusCode::OK);
    let stale = ready_at(Duration::from_millis(3100)).await;
    assert_eq!(stale.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(stale.body, "not ready: the newest snapshot is 3.1 s old, more than 3 poll intervals of 1.0 s\n");
}

#[tokio::test]
async fn a_handler_that_panics_is_answered_with_500() {
    let mut state = state_of(Some(canned::snapshot()));
    state.encode_metrics = Arc::new(|_, _| panic!("on purpose"));
    let router = router(state);
    // More often than there are scrape slots: none may leak.
    for _ in 0..20 {
        let answer = send(router.clone(), "GET", "/metrics", None).await;
        assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(answer.body, "an error in slabmon itself; its log has more\n");
    }
    assert_eq!(send(router, "GET", "/healthz", None).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrapes_beyond_the_limit_are_turned_away() {
    let (entered, mut entries) = tokio::sync::mpsc::unbounded_channel();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let mut state = state_of(Some(canned::snapshot()));
    state.encode_metrics = Arc::new(move |_, _| {
        entered.send(()).unwrap();
        let _ = blocked.lock().unwrap().recv();
        Ok(("text/plain", String::new()))
    });
    let router = router(state);
    let scrapes: Vec<_> = (0..8).map(|_| tokio::spawn(send(router.clone(), "GET", "/metrics", None))).collect();
    for _ in 0..8 {
        entries.recv().await.unwrap();
    }
    let turned_away = send(router, "GET", "/metrics", None).await;
    assert_eq!(turned_away.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(release);
    for scrape in scrapes {
        assert_eq!(scrape.await.unwrap().status, StatusCode::OK);
    }
}

fn any_uri_part() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            Just("by=".to_owned()),
            Just("&limit=".to_owned()),
            Just("&filter=".to_owned()),
            Just("&group=class".to_owned()),
            Just("&format=json".to_owned()),
            "[!-~]{0,12}".prop_map(|text| text.replace(['#', '"', '<', '>', '\\', '^', '`', '{', '|', '}'], "%")),
            "%[0-9a-fA-F]{2}",
        ],
        0..6,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_request_makes_the_api_fail(
        path in prop_oneof![Just("/caches".to_owned()), Just("/caches/top".to_owned()), Just("/status".to_owned()),
            "[a-z0-9%/-]{0,12}".prop_map(|name| format!("/caches/{name}"))],
        query in any_uri_part(),
        accept in "[ -~]{0,40}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let uri = format!("{path}?{query}");
        prop_assume!(uri.parse::<axum::http::Uri>().is_ok());
        let answer = runtime.block_on(send(canned_router(), "GET", &uri, Some(&accept)));
        prop_assert!(
            matches!(answer.status, StatusCode::OK | StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND),
            "{} {} {}", answer.status, uri, answer.body
        );
    }
}

/// A server on a free port of the loopback, and the token that stops it.
async fn serve(state: AppState) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
    let listener = bind(&"127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(run(listener, state, shutdown.clone()));
    (address, shutdown, server)
}

async fn talk(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    // A server that refuses early may reset the connection; what came before is the answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn the_server_answers_over_tcp_and_stops_when_told() {
    let (address, shutdown, server) = serve(state_of(Some(canned::snapshot()))).await;
    let answer = talk(address, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nalive\n"), "{answer}");

    // An idle connection does not hold up the stop.
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    shutdown.cancel();
    server.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let (address, shutdown, server) = serve(state_of(Some(canned::snapshot()))).await;
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let many = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(100));
    for request in [long, many] {
        let answer = talk(address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    shutdown.cancel();
    server.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_request_is_hung_up_on() {
    let (address, shutdown, server) = serve(state_of(Some(canned::snapshot()))).await;
    for start in [&b""[..], b"GET / HT", b"PRI * "] {
        // The clock is tokio's paused one, which jumps from timer to timer: this is which timer fired, not how fast we are.
        let began = tokio::time::Instant::now();
        assert_eq!(talk(address, start).await.matches("200 OK").count(), 0);
        assert!(began.elapsed() < Duration::from_secs(30), "the limit on heads fired, not the one on connections");
    }
    shutdown.cancel();
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_at_the_same_time_are_all_answered() {
    let (address, shutdown, server) = serve(state_of(Some(canned::snapshot()))).await;
    let request = b"GET /caches/top HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let clients: Vec<_> = (0..200).map(|_| tokio::spawn(talk(address, request))).collect();
    for client in clients {
        assert!(client.await.unwrap().starts_with("HTTP/1.1 200 OK"));
    }
    shutdown.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn a_port_alone_means_all_addresses() {
    let listener = bind(&":0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    assert!(address.ip().is_unspecified());
    assert!(TcpStream::connect(("127.0.0.1", address.port())).await.is_ok());
}

async fn fetch(url: String, query: TopQuery, format: Format) -> Result<String, ClientError> {
    tokio::task::spawn_blocking(move || fetch_top(&url, &query, format, Duration::from_secs(10))).await.unwrap()
}

#[tokio::test]
async fn top_from_the_daemon_is_top_from_the_snapshot() {
    let (address, shutdown, server) = serve(state_of(Some(canned::snapshot()))).await;
    let context = Context { build: BUILD_OF_TESTS, age: AGE };
    let query = TopQuery {
        by: SortBy::Growth,
        limit: Some(7),
        filter: Some(compile_pattern("k.*[&+ 1]|é").unwrap()),
        grouping: Grouping::Class,
    };
    for format in [Format::Text, Format::Json, Format::Csv] {
        let here = render_top(&canned::snapshot(), &query, format, &context).unwrap();
        assert_eq!(fetch(format!("http://{address}/"), query.clone(), format).await.unwrap(), here);
    }
    shutdown.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_told_from_one_that_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = fetch(format!("http://{address}"), TopQuery::default(), Format::Text).await.unwrap_err();
    assert!(error.is_refused(), "{error:?}");

    let (address, shutdown, server) = serve(state_of(None)).await;
    let error = fetch(format!("http://{address}"), TopQuery::default(), Format::Text).await.unwrap_err();
    assert!(!error.is_refused());
    assert_eq!(
        error.to_string(),
        format!(
            "http://{address}: the daemon answered 503: no snapshot yet: slabmon has just started; ask again in a second"
        )
    );
    shutdown.cancel();
    server.await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = url.clone();
    let error = tokio::task::spawn_blocking(move || {
        fetch_top(&asked, &TopQuery::default(), Format::Text, Duration::from_millis(100)).unwrap_err()
    })
    .await
    .unwrap();
    assert_eq!(error.to_string(), format!("{url}: no answer within 100ms"));
}

#[tokio::test]
async fn what_another_server_sends_cannot_drive_the_terminal() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        let _ = stream.read(&mut head).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\na\x1b[2J\nbc\n";
        stream.write_all(answer).await.unwrap();
    });
    let text = fetch(format!("http://{address}"), TopQuery::default(), Format::Text).await.unwrap();
    assert_eq!(text, "a\\u{1b}[2J\nbc\n");
    server.await.unwrap();
}

#[tokio::test]
async fn urls_that_cannot_be_asked_are_refused() {
    for (url, problem) in [
        ("https://127.0.0.1", "TLS is not spoken here"),
        ("127.0.0.1:9853", "not an http URL"),
        ("http://127.0.0.1:9853/?x=1", "only scheme, address and port, please"),
    ] {
        let error = fetch(url.to_owned(), TopQuery::default(), Format::Text).await.unwrap_err();
        assert_eq!(error.to_string(), format!("--url {url}: {problem}; write it like http://127.0.0.1:9853"));
    }
}

#[test]
fn this_build_knows_its_version() {
    assert_eq!(BUILD.version, env!("CARGO_PKG_VERSION"));
}
