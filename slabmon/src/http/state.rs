//! What every request is answered from.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{Semaphore, watch};

use crate::{
    config::TelemetryPath,
    metrics::MetricsError,
    model::snapshot::Snapshot,
    report::{BUILD, Build, Context},
};

/// Renders the exposition for a client's `Accept` header: content type and body.
pub type EncodeMetrics =
    Arc<dyn Fn(&Arc<Snapshot>, Option<&str>) -> Result<(&'static str, String), MetricsError> + Send + Sync>;

/// Tells how long the daemon runs, by the monotonic clock: the clock of [`Snapshot::uptime`].
pub type Uptime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Scrapes that are encoded at the same time, at most.
const CONCURRENT_SCRAPES: usize = 8;

/// Shared by all requests; cheap to clone.
#[derive(Clone)]
pub struct AppState {
    /// The newest snapshot; `None` until there is one.
    pub snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// The metrics encoder.
    pub encode_metrics: EncodeMetrics,
    /// Which build answers.
    pub build: Build,
    /// Where the metrics are.
    pub telemetry_path: TelemetryPath,
    /// How often a snapshot is due; three times that without one is not ready.
    pub poll_interval: Duration,
    /// The clock that ages are told by.
    pub uptime: Uptime,
    pub(super) scrape_slots: Arc<Semaphore>,
}

impl AppState {
    /// State of a daemon that began at `started`, the origin of [`Snapshot::uptime`].
    pub fn new(
        snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
        encode_metrics: EncodeMetrics,
        telemetry_path: TelemetryPath,
        poll_interval: Duration,
        started: Instant,
    ) -> Self {
        Self {
            snapshots,
            encode_metrics,
            build: BUILD,
            telemetry_path,
            poll_interval,
            uptime: Arc::new(move || started.elapsed()),
            scrape_slots: Arc::new(Semaphore::new(CONCURRENT_SCRAPES)),
        }
    }

    /// The newest snapshot.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    /// What a rendering of `snapshot` needs beside it, as of now.
    pub(super) fn context(&self, snapshot: &Snapshot) -> Context {
        Context { build: self.build, age: (self.uptime)().saturating_sub(snapshot.uptime) }
    }
}
