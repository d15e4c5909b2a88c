//! The routes and what each of them answers.

use std::{any::Any, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Path, RawQuery, State, rejection::PathRejection},
    http::{HeaderMap, HeaderValue, Response, header},
    middleware,
    routing::get,
};
use tower_http::catch_panic::CatchPanicLayer;

use super::{
    dto::{CachesDto, OneCacheDto, StatusDto, diff::DiffDto, report::ReportDto, to_json},
    error::ApiError,
    landing,
    params::Params,
    state::AppState,
};
use crate::{
    model::{
        diff::Diff,
        query::{DEFAULT_LIMIT, Grouping, Row, SortBy, TopQuery, class_names, find, find_class, near_names, select},
        snapshot::Snapshot,
    },
    report::{self, Context, Format, sections::ReportOptions},
};

type Answer = Response<Body>;

const TEXT: &str = "text/plain; charset=utf-8";
const TABLES: &[Format] = &[Format::Text, Format::Json, Format::Csv];
const DOCUMENTS: &[Format] = &[Format::Text, Format::Json];
const REPORTS: &[Format] = &[Format::Text, Format::Json, Format::Csv, Format::Markdown];
/// Names that a 404 suggests, at most.
const NEAR_NAMES: usize = 5;
/// Poll intervals without a new snapshot after which the daemon is not ready.
const STALE_INTERVALS: u32 = 3;

/// All routes.
pub fn router(state: AppState) -> Router {
    Router::new()
        .route("/", get(landing_page))
        .route(state.telemetry_path.as_str(), get(metrics))
        .route("/caches", get(caches))
        .route("/caches/top", get(caches_top))
        .route("/caches/{*name}", get(one_cache))
        .route("/report", get(report))
        .route("/status", get(status))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::map_response(add_headers))
}

/// Headers that every answer has.
async fn add_headers(mut response: Answer) -> Answer {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Answer {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    tracing::error!(message, "a request handler panicked");
    ApiError::internal("an error in slabmon itself; its log has more").into_response(Format::Text)
}

/// One `Accept` header from possibly several lines; what is not text is as if not sent.
fn accept_of(headers: &HeaderMap) -> Option<String> {
    let lines: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    (!lines.is_empty()).then(|| lines.join(","))
}

fn answer(content_type: &'static str, body: String) -> Answer {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn content_type(format: Format) -> &'static str {
    match format {
        Format::Text => TEXT,
        Format::Json => "application/json",
        Format::Csv => "text/csv; charset=utf-8; header=present",
        Format::Markdown => "text/markdown; charset=utf-8",
    }
}

async fn landing_page(State(state): State<AppState>) -> Answer {
    let mut response = answer("text/html; charset=utf-8", landing::page(state.build, state.telemetry_path.as_str()));
    let policy = HeaderValue::from_static(landing::CONTENT_SECURITY_POLICY);
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

async fn no_such_path(headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let format = Params::parse(query.as_deref()).format_or_default(accept_of(&headers).as_deref(), DOCUMENTS);
    ApiError::no_such_path().into_response(format)
}

async fn method_not_allowed(headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let format = Params::parse(query.as_deref()).format_or_default(accept_of(&headers).as_deref(), DOCUMENTS);
    let mut response = ApiError::method_not_allowed().into_response(format);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

fn no_snapshot_yet() -> ApiError {
    ApiError::unavailable("no snapshot yet: slabmon has just started; ask again in a second")
}

/// Renders on a thread where it may take its time. A panic goes on, to be answered as 500.
async fn render(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    match tokio::task::spawn_blocking(work).await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => ApiError::unavailable("slabmon is stopping").into_response(Format::Text),
        },
    }
}

async fn metrics(State(state): State<AppState>, headers: HeaderMap) -> Answer {
    let Some(snapshot) = state.snapshot() else { return no_snapshot_yet().into_response(Format::Text) };
    let Ok(slot) = state.scrape_slots.clone().try_acquire_owned() else {
        return ApiError::unavailable("too many scrapes at the same time").into_response(Format::Text);
    };
    let accept = accept_of(&headers);
    render(move || {
        let encoded = (state.encode_metrics)(&snapshot, accept.as_deref());
        drop(slot);
        match encoded {
            Ok((content_type, body)) => answer(content_type, body),
            Err(error) => ApiError::internal(error.to_string()).into_response(Format::Text),
        }
    })
    .await
}

/// A request for a table or document, before it is known to be right.
struct Request {
    params: Params,
    format: Format,
}

impl Request {
    fn new(headers: &HeaderMap, query: Option<&str>, offers: &[Format]) -> Self {
        let params = Params::parse(query);
        let format = params.format_or_default(accept_of(headers).as_deref(), offers);
        Self { params, format }
    }

    /// Answers by `write`, off the async threads; refusals are in the format of the request.
    async fn answer<F>(self, state: AppState, allowed: &[&str], offers: &[Format], write: F) -> Answer
    where
        F: FnOnce(&Snapshot, &Context, &Params, Format) -> Result<String, ApiError> + Send + 'static,
    {
        let Self { params, format } = self;
        if let Err(error) = params.check(allowed, offers) {
            return error.into_response(format);
        }
        let Some(snapshot) = state.snapshot() else { return no_snapshot_yet().into_response(format) };
        let context = state.context(&snapshot);
        render(move || match write(&snapshot, &context, &params, format) {
            Ok(body) => answer(content_type(format), body),
            Err(error) => error.into_response(format),
        })
        .await
    }
}

async fn caches(State(state): State<AppState>, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let request = Request::new(&headers, query.as_deref(), TABLES);
    request
        .answer(state, &["filter", "group", "format"], TABLES, |snapshot, context, params, format| {
            let query = params.top_query(TopQuery { by: SortBy::Name, ..TopQuery::default() })?;
            render_top(snapshot, &query, format, context).map_err(unwritable)
        })
        .await
}

async fn caches_top(State(state): State<AppState>, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let request = Request::new(&headers, query.as_deref(), TABLES);
    request
        .answer(state, &["by", "limit", "filter", "group", "format"], TABLES, |snapshot, context, params, format| {
            let query = params.top_query(TopQuery { limit: Some(DEFAULT_LIMIT), ..TopQuery::default() })?;
            render_top(snapshot, &query, format, context).map_err(unwritable)
        })
        .await
}

/// Answers `query` in any format: what `/caches/top` sends, and what `slabmon top` prints when it traces by itself.
pub fn render_top(
    snapshot: &Snapshot,
    query: &TopQuery,
    format: Format,
    context: &Context,
) -> Result<String, csv::Error> {
    Ok(match format {
        Format::Text | Format::Markdown => report::top::top(snapshot, query, context),
        Format::Json => to_json(&CachesDto::new(snapshot, query, &select(snapshot, query), context)),
        Format::Csv => report::csv::rows(&select(snapshot, query).rows)?,
    })
}

fn unwritable(error: csv::Error) -> ApiError {
    ApiError::internal(format!("the table could not be written: {error}"))
}

async fn one_cache(
    State(state): State<AppState>,
    name: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Answer {
    let request = Request::new(&headers, query.as_deref(), TABLES);
    let Ok(Path(name)) = name else {
        return ApiError::unknown_name("the name in the path is not UTF-8").into_response(request.format);
    };
    request
        .answer(state, &["group", "format"], TABLES, move |snapshot, context, params, format| {
            match params.grouping()? {
                Grouping::Cache => render_cache(snapshot, &name, format, context),
                Grouping::Class => render_class(snapshot, &name, format, context),
            }
        })
        .await
}

fn render_cache(snapshot: &Snapshot, name: &str, format: Format, context: &Context) -> Result<String, ApiError> {
    let found = find(snapshot, name).ok_or_else(|| {
        ApiError::unknown_name(format!("no cache and no alias is called `{name}`"))
            .with_near(near_names(snapshot, name, NEAR_NAMES))
    })?;
    let row = Row::of(found.cache);
    match format {
        Format::Text | Format::Markdown => {
            Ok(report::cache::cache(snapshot, found.cache, found.by_alias.then_some(name), context))
        }
        Format::Json => Ok(to_json(&OneCacheDto::cache(snapshot, name, &row, found.by_alias, context))),
        Format::Csv => report::csv::rows(&[row]).map_err(unwritable),
    }
}

fn render_class(snapshot: &Snapshot, name: &str, format: Format, context: &Context) -> Result<String, ApiError> {
    let row = find_class(snapshot, name).ok_or_else(|| {
        ApiError::unknown_name(format!("`{name}` is no size class and no cache of one"))
            .with_allowed(class_names(snapshot))
    })?;
    match format {
        Format::Text | Format::Markdown => Ok(report::cache::class(snapshot, &row, context)),
        Format::Json => Ok(to_json(&OneCacheDto::class(snapshot, name, &row, context))),
        Format::Csv => report::csv::rows(&[row]).map_err(unwritable),
    }
}

const REPORT_PARAMETERS: &[&str] =
    &["section", "limit", "debug_bytes_per_object", "price_per_gib", "cache", "size", "order", "format"];

async fn report(State(state): State<AppState>, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let request = Request::new(&headers, query.as_deref(), REPORTS);
    request
        .answer(state, REPORT_PARAMETERS, REPORTS, |snapshot, context, params, format| {
            render_report(snapshot, &params.report_options()?, format, context).map_err(unwritable)
        })
        .await
}

/// The account of slab memory in any format: what `/report` sends, and what `slabmon report` prints of saved files.
pub fn render_report(
    snapshot: &Snapshot,
    options: &ReportOptions,
    format: Format,
    context: &Context,
) -> Result<String, csv::Error> {
    Ok(match format {
        Format::Text => report::document::text(&report::account::account(snapshot, options)),
        Format::Markdown => report::document::markdown(&report::account::account(snapshot, options)),
        Format::Csv => report::document::csv(&report::account::account(snapshot, options))?,
        Format::Json => to_json(&ReportDto::new(snapshot, options, context)),
    })
}

/// A comparison as JSON.
pub fn render_diff(diff: &Diff, limit: usize) -> String {
    to_json(&DiffDto::new(diff, limit))
}

async fn status(State(state): State<AppState>, headers: HeaderMap, RawQuery(query): RawQuery) -> Answer {
    let request = Request::new(&headers, query.as_deref(), DOCUMENTS);
    request
        .answer(state, &["format"], DOCUMENTS, |snapshot, context, _, format| {
            Ok(match format {
                Format::Json => to_json(&StatusDto::new(snapshot, context)),
                Format::Text | Format::Csv | Format::Markdown => report::status::status(snapshot, context),
            })
        })
        .await
}

async fn healthz() -> Answer {
    answer(TEXT, "alive\n".to_owned())
}

async fn readyz(State(state): State<AppState>) -> Answer {
    match unreadiness(&state) {
        None => answer(TEXT, "ready\n".to_owned()),
        Some(reason) => ApiError::unavailable(format!("not ready: {reason}")).into_response(Format::Text),
    }
}

fn unreadiness(state: &AppState) -> Option<String> {
    let Some(snapshot): Option<Arc<Snapshot>> = state.snapshot() else { return Some("no snapshot yet".to_owned()) };
    let age = state.context(&snapshot).age;
    let limit = state.poll_interval.saturating_mul(STALE_INTERVALS);
    (age > limit).then(|| {
        format!(
            "the newest snapshot is {} old, more than {STALE_INTERVALS} poll intervals of {}",
            report::units::seconds(age),
            report::units::seconds(state.poll_interval)
        )
    })
}
