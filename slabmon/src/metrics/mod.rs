//! From a snapshot to what Prometheus scrapes: pure text, made anew for each scrape, so that a vanished cache vanishes.

mod exposition;
mod negotiation;
mod page;
mod table;

use std::sync::Arc;

use crate::model::limits::SeriesChoice;

pub use exposition::{encode, encode_openmetrics, encode_text};
pub use negotiation::{CONTENT_TYPE_OPENMETRICS, CONTENT_TYPE_TEXT, Format, negotiate};
pub use page::metrics_markdown;
pub use table::{METRICS, Metric, MetricKind, MetricUnit};

/// Why there is no exposition.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The encoder refused a value.
    #[error("the metrics could not be encoded; this is a defect of slabmon, please report it")]
    Encode(#[from] std::fmt::Error),
}

/// What the daemon was built from; the labels of `slabmon_build_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildInfo {
    /// Of the release.
    pub version: &'static str,
    /// Commit; empty if it was not built from a repository.
    pub revision: &'static str,
    /// Version of the Rust compiler; empty if unknown.
    pub rustc: &'static str,
}

/// The daemon's own process; `None` where the kernel did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    /// User and system time, seconds.
    pub cpu_seconds: Option<f64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Soft limit of open file descriptors.
    pub max_fds: Option<u64>,
    /// Size of the address space, bytes.
    pub virtual_bytes: Option<u64>,
    /// Resident set, bytes.
    pub resident_bytes: Option<u64>,
    /// When it was started, Unix time, seconds.
    pub start_time_unix_seconds: Option<f64>,
}

/// What an exposition says beside the snapshot.
#[derive(Clone, Debug, Default)]
pub struct MetricsContext {
    /// What the daemon was built from.
    pub build: BuildInfo,
    /// Its process, as of now.
    pub process: ProcessStats,
    /// Which caches get series: what the series budget chose among the snapshot's caches.
    pub series: Arc<SeriesChoice>,
}
