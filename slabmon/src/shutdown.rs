//! The signals that end the daemon.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT and tells which came.
pub async fn requested() -> std::io::Result<&'static str> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => Ok("SIGTERM"),
        _ = interrupt.recv() => Ok("SIGINT"),
    }
}
