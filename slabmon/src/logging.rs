//! Logs to standard error, for people and for the journal.

use std::io::IsTerminal;

use tracing_subscriber::{
    EnvFilter, Layer, fmt,
    layer::SubscriberExt,
    registry::Registry,
    util::{SubscriberInitExt, TryInitError},
};

use crate::config::{LogFormat, LogLevel};

/// Libraries speak from `warn` on: what aya says below that may hold addresses of the kernel.
fn filter(level: LogLevel) -> EnvFilter {
    let libraries = match level {
        LogLevel::Error => "error",
        _ => "warn",
    };
    EnvFilter::new(format!("{libraries},slabmon={}", level.as_str()))
}

/// Starts logging. Fails if it was started before.
///
/// Under systemd (`JOURNAL_STREAM` is set, systemd.exec(5)) lines bear no time: the journal has its own.
pub fn start(level: LogLevel, format: LogFormat) -> Result<(), TryInitError> {
    let for_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Json => fmt::layer().json().with_writer(std::io::stderr).boxed(),
        LogFormat::Logfmt => tracing_logfmt::builder().layer().with_writer(std::io::stderr).boxed(),
        LogFormat::Text => {
            let text = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
            if for_journal { text.without_time().boxed() } else { text.boxed() }
        }
    };
    tracing_subscriber::registry().with(layer.with_filter(filter(level))).try_init()
}
