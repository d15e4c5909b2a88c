//! The built daemon on the live kernel: what it serves moves with the load, and it leaves nothing behind.

use std::time::{Duration, Instant};

use crate::support::{Daemon, bpf_objects, eventually};

#[test]
fn live_rates_move_under_load_and_the_table_shows_them() {
    let mut daemon = Daemon::start(&[], &["--poll.counters-interval=200ms"]);
    daemon.wait_ready();
    for feature in ["tracing", "page_lookup", "slabinfo", "slab_sysfs"] {
        assert!(daemon.feature(feature).0, "{feature}: {:?}", daemon.feature(feature));
    }
    let before = daemon.json("/caches/filp?format=json")["cache"]["traced"]["allocations"].as_u64().unwrap();
    let moved = eventually(Duration::from_secs(10), || {
        drop(slabmon_load::held::pipes(1000).unwrap());
        let cache = daemon.json("/caches/filp?format=json");
        let traced = &cache["cache"]["traced"];
        let counted = traced["allocations"].as_u64().unwrap() - before;
        match traced["rates"]["allocations_per_second"].as_f64() {
            Some(rate) if rate > 0.0 && counted >= 2000 => Ok(()),
            rate => Err(format!("{counted} allocations, rate {rate:?}")),
        }
    });
    moved.unwrap();
    let (status, table) = daemon.get("/caches/top?by=alloc_rate&limit=5").unwrap();
    assert_eq!(status, 200);
    assert!(table.lines().count() >= 6, "{table}");
    let (status, metrics) = daemon.get("/metrics").unwrap();
    assert_eq!(status, 200);
    let filp =
        metrics.lines().find(|line| line.starts_with("slabmon_cache_allocations_total{cache=\"filp\"}")).unwrap();
    assert!(filp.rsplit(' ').next().unwrap().parse::<u64>().unwrap() >= 2000, "{filp}");
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.log());
}

#[test]
fn sigterm_ends_it_cleanly_within_five_seconds_and_leaves_no_program_or_map() {
    let before = bpf_objects();
    let mut daemon = Daemon::start(&[], &[]);
    daemon.wait_ready();
    // Ids are never used twice, so what is not in `before` is the daemon's.
    let (programs, maps) = new_since(&before, &bpf_objects());
    assert!(programs.len() >= 4 && maps.len() >= 2, "{programs:?} {maps:?}");
    let asked = Instant::now();
    let status = daemon.terminate();
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(asked.elapsed() < Duration::from_secs(5));
    // The kernel frees programs and maps after a grace period.
    eventually(Duration::from_secs(5), || match new_since(&before, &bpf_objects()) {
        (programs, maps) if programs.is_empty() && maps.is_empty() => Ok(()),
        left => Err(format!("left behind: {left:?}")),
    })
    .unwrap();
}

fn new_since(before: &(Vec<u64>, Vec<u64>), after: &(Vec<u64>, Vec<u64>)) -> (Vec<u64>, Vec<u64>) {
    let new = |before: &[u64], after: &[u64]| after.iter().copied().filter(|id| !before.contains(id)).collect();
    (new(&before.0, &after.0), new(&before.1, &after.1))
}

#[test]
fn no_kernel_address_is_in_any_answer_or_log_line() {
    let mut daemon = Daemon::start(&[], &["--log.level=trace"]);
    daemon.wait_ready();
    let address = regex::Regex::new(r"(?i)\bf{4}[0-9a-f]{12}\b|0x[0-9a-f]{9,}").unwrap();
    let mut texts = vec![("log".to_owned(), daemon.log())];
    for path in [
        "/",
        "/metrics",
        "/caches",
        "/caches/top",
        "/caches?format=json",
        "/caches?format=csv",
        "/status",
        "/status?format=json",
        "/healthz",
        "/readyz",
        "/caches/nothing",
        "/caches/top?by=x",
    ] {
        texts.push((path.to_owned(), daemon.get(path).unwrap().1));
    }
    for (what, text) in texts {
        assert!(!text.is_empty(), "{what}");
        if let Some(found) = address.find(&text) {
            panic!("{what} holds what may be an address: {}", &text[found.start().saturating_sub(80)..found.end()]);
        }
    }
}

#[test]
fn check_says_that_this_host_has_all_it_takes() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_slabmon")).arg("check").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for feature in ["tracing", "page_lookup", "slabinfo"] {
        assert!(text.contains(feature), "{text}");
    }
}

#[test]
fn top_traces_by_itself_when_no_daemon_runs() {
    let port = crate::support::free_port();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_slabmon"))
        .args(["top", "--once", "--limit", "5", "--url", &format!("http://127.0.0.1:{port}")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("CACHE") && text.lines().count() >= 6, "{text}");
}
