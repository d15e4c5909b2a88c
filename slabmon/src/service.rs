//! The service manager: readiness, watchdog, stopping (sd_notify(3)). Without one, nothing happens.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Tells the service manager that the daemon serves real numbers.
pub fn notify_ready() {
    notify(&[NotifyState::Ready]);
}

/// Tells the service manager that the daemon is on its way out.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager could not be told");
    }
}

/// Feeds the service manager's watchdog. Called when the poll thread has made progress, never by a timer of its own: a
/// daemon that serves stale numbers is to be restarted.
pub struct Watchdog {
    every: Option<Duration>,
    last: Option<Instant>,
}

impl Watchdog {
    /// What the environment asks for (`WATCHDOG_USEC`).
    pub fn from_environment() -> Self {
        Self { every: sd_notify::watchdog_enabled().map(|limit| limit / 4), last: None }
    }

    /// Notes progress at `now`.
    pub fn feed(&mut self, now: Instant) {
        let Some(every) = self.every else { return };
        if self.last.is_none_or(|last| now.duration_since(last) >= every) {
            notify(&[NotifyState::Watchdog]);
            self.last = Some(now);
        }
    }
}
