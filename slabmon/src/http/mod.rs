//! The HTTP API over the newest snapshot. No request reads the kernel or takes a lock that the poll thread holds.
//!
//! | path | query | answer |
//! |---|---|---|
//! | the telemetry path, `/metrics` | any, not read | exposition, by `Accept` |
//! | `/caches` | `group=class` `filter=` `format=` | all caches by name |
//! | `/caches/top` | `by=` `limit=` `filter=` `group=class` `format=` | the first caches in that order |
//! | `/caches/{name}` | `group=class` `format=` | one cache (percent-encoded; aliases resolve), or one size class |
//! | `/report` | `section=` `limit=` `cache=` `size=` `order=` `debug_bytes_per_object=` `price_per_gib=` `format=text\|json\|csv\|markdown` | where every byte goes, and verdicts |
//! | `/status` | `format=text\|json` | features, host, losses, readers |
//! | `/healthz` | any, not read | 200 while the process lives |
//! | `/readyz` | any, not read | 200 while snapshots are fresh, else 503 with the reason |
//! | `/` | any, not read | links |
//!
//! A cache that is itself called `top` is at `/caches/%74op`.

mod accept;
mod dto;
mod error;
mod handlers;
mod landing;
mod params;
mod serve;
mod state;

pub use dto::diff::parse_caches;
pub use handlers::{render_diff, render_report, render_top, router};
pub use serve::{bind, run};
pub use state::{AppState, EncodeMetrics, Uptime};
