//! What a scrape needs beside the snapshot, made ready by the poll thread: which caches get series, and how the process fares.

use std::{path::Path, sync::Arc};

use tokio::sync::watch;

use crate::{
    config::Config,
    host::process::ProcessReader,
    metrics::{BuildInfo, MetricsContext, ProcessStats},
    model::{
        limits::{CachePatterns, LimitsError, SeriesBudget},
        snapshot::Snapshot,
    },
    report::BUILD,
};

/// Keeps the context of the newest snapshot.
pub struct Exposition {
    budget: SeriesBudget,
    process: Option<ProcessReader>,
    publisher: watch::Sender<Arc<MetricsContext>>,
}

impl Exposition {
    /// With the configuration's patterns and series budget; the receiver is the scrapes' side.
    pub fn new(config: &Config) -> Result<(Self, watch::Receiver<Arc<MetricsContext>>), LimitsError> {
        let words = |patterns: &[regex::Regex]| patterns.iter().map(|p| p.as_str().to_owned()).collect::<Vec<_>>();
        let patterns = CachePatterns::new(&words(config.cache_include()), &words(config.cache_exclude()))?;
        let (publisher, receiver) = watch::channel(Arc::default());
        let exposition = Self {
            budget: SeriesBudget::new(patterns, config.max_series() as usize),
            // This process's own files, whatever the root.
            process: ProcessReader::open(Path::new("/")).ok(),
            publisher,
        };
        Ok((exposition, receiver))
    }

    /// Makes the context for `snapshot`, before it is published.
    pub fn refresh(&mut self, snapshot: &Snapshot) {
        let context = MetricsContext {
            build: BuildInfo {
                version: BUILD.version,
                revision: BUILD.revision.unwrap_or_default(),
                rustc: option_env!("SLABMON_RUSTC").unwrap_or_default(),
            },
            process: self.process.as_mut().map(read_process).unwrap_or_default(),
            series: Arc::new(self.budget.choose(&snapshot.caches)),
        };
        self.publisher.send_replace(Arc::new(context));
    }
}

fn read_process(reader: &mut ProcessReader) -> ProcessStats {
    match reader.read() {
        Ok(usage) => ProcessStats {
            cpu_seconds: Some(usage.cpu_seconds),
            open_fds: Some(usage.open_fds),
            max_fds: usage.max_fds,
            virtual_bytes: Some(usage.virtual_bytes),
            resident_bytes: Some(usage.resident_bytes),
            start_time_unix_seconds: Some(usage.start_time_unix_seconds),
        },
        Err(error) => {
            tracing::debug!(%error, "the process's own figures could not be read");
            ProcessStats::default()
        }
    }
}
