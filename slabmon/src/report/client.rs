//! Asks a running daemon, for `slabmon top` and `slabmon report`.

use std::{io, time::Duration};

use super::{Format, sections::ReportOptions, table::safe};
use crate::model::query::{Grouping, TopQuery};

/// Longest answer that is read, bytes.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// Why the daemon gave no table.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not one that can be asked.
    #[error("--url {url}: {problem}; write it like http://127.0.0.1:9853")]
    Url {
        /// As given.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Nothing listens there.
    #[error("{url}: connection refused: no slabmon daemon listens there; start it, or name its address with --url")]
    Refused {
        /// What was asked.
        url: String,
    },
    /// No answer in time.
    #[error("{url}: no answer within {}", humantime::format_duration(*.timeout))]
    Timeout {
        /// What was asked.
        url: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The daemon refused the question.
    #[error("{url}: the daemon answered {status}: {message}")]
    Status {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// The answer, on one line.
        message: String,
    },
    /// Anything else on the way.
    #[error("{url}: {problem}")]
    Transport {
        /// What was asked.
        url: String,
        /// What went wrong.
        problem: String,
    },
}

impl ClientError {
    /// Whether nothing listens there, so that tracing in this process is the way out.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

/// The query string that asks a daemon for `query`.
pub fn top_query_string(query: &TopQuery, format: Format) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.append_pair("by", query.by.as_str());
    if let Some(limit) = query.limit {
        pairs.append_pair("limit", &limit.to_string());
    }
    if let Some(filter) = &query.filter {
        pairs.append_pair("filter", filter.as_str());
    }
    if query.grouping == Grouping::Class {
        pairs.append_pair("group", "class");
    }
    pairs.append_pair("format", format.as_str());
    pairs.finish()
}

/// Fetches `/caches/top` from the daemon at `base_url` (`http://address:port`), all within `timeout`. Blocks.
///
/// Proxies from the environment are not used. Text is made safe for the terminal once more, since what
/// listens there may not be slabmon.
pub fn fetch_top(base_url: &str, query: &TopQuery, format: Format, timeout: Duration) -> Result<String, ClientError> {
    fetch(base_url, &format!("/caches/top?{}", top_query_string(query, format)), format, timeout)
}

/// Fetches `/report` from the daemon, in the same way.
///
/// # Errors
/// Any [`ClientError`].
pub fn fetch_report(
    base_url: &str,
    options: &ReportOptions,
    format: Format,
    timeout: Duration,
) -> Result<String, ClientError> {
    fetch(base_url, &format!("/report?{}", report_query_string(options, format)), format, timeout)
}

/// The query string that asks a daemon for a report.
pub fn report_query_string(options: &ReportOptions, format: Format) -> String {
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    if !options.sections.is_empty() {
        let names: Vec<&str> = options.sections.iter().map(|section| section.as_str()).collect();
        pairs.append_pair("section", &names.join(","));
    }
    let numbers = [
        ("limit", options.limit.map(|limit| limit.to_string())),
        ("debug_bytes_per_object", options.debug_bytes_per_object.map(|bytes| bytes.to_string())),
        ("price_per_gib", options.price_per_gib.map(|price| price.to_string())),
        ("cache", options.cache.clone()),
        ("size", options.wish.size_bytes.map(|bytes| bytes.to_string())),
        ("order", options.wish.order.map(|order| order.to_string())),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            pairs.append_pair(name, &value);
        }
    }
    pairs.append_pair("format", format.as_str());
    pairs.finish()
}

fn fetch(base_url: &str, path_and_query: &str, format: Format, timeout: Duration) -> Result<String, ClientError> {
    let invalid = |problem: &str| ClientError::Url { url: base_url.into(), problem: problem.into() };
    if base_url.starts_with("https://") {
        return Err(invalid("TLS is not spoken here"));
    }
    if !base_url.starts_with("http://") {
        return Err(invalid("not an http URL"));
    }
    if base_url.contains(['?', '#']) {
        return Err(invalid("only scheme, address and port, please"));
    }
    let url = format!("{}{path_and_query}", base_url.trim_end_matches('/'));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent(concat!("slabmon/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let mut response = agent.get(&url).call().map_err(|error| from_transport(base_url, timeout, error))?;
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_BODY_BYTES)
        .read_to_string()
        .map_err(|error| from_transport(base_url, timeout, error))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(ClientError::Status { url: base_url.into(), status, message: one_line(&body) });
    }
    Ok(match format {
        Format::Text => body.split_inclusive('\n').map(safe_line).collect(),
        Format::Json | Format::Csv | Format::Markdown => body,
    })
}

fn safe_line(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => safe(line) + "\n",
        None => safe(line),
    }
}

fn one_line(body: &str) -> String {
    let words: Vec<&str> = body.split_whitespace().take(60).collect();
    safe(&words.join(" "))
}

fn from_transport(base_url: &str, timeout: Duration, error: ureq::Error) -> ClientError {
    let url = base_url.to_owned();
    match error {
        ureq::Error::Timeout(_) => ClientError::Timeout { url, timeout },
        ureq::Error::ConnectionFailed => ClientError::Refused { url },
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => ClientError::Refused { url },
        ureq::Error::BadUri(problem) => ClientError::Url { url, problem },
        ureq::Error::Http(error) => ClientError::Url { url, problem: error.to_string() },
        other => ClientError::Transport { url, problem: other.to_string() },
    }
}
