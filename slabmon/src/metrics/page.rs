//! The page of all metrics, docs/metrics.md.

use std::fmt::Write;

use super::table::{METRICS, MetricUnit};

/// docs/metrics.md.
pub fn metrics_markdown() -> String {
    let mut page = String::from(MARKDOWN_HEAD);
    for metric in METRICS {
        let unit = metric.unit.map_or("", MetricUnit::as_str);
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {unit} | {} | {} |",
            metric.name,
            metric.kind.as_str(),
            labels.join(", "),
            metric.help
        );
    }
    page.push_str(MARKDOWN_FOOT);
    page
}

const MARKDOWN_HEAD: &str = "\
# Metrics

Generated from the table in `slabmon/src/metrics/table.rs` by `UPDATE_GOLDEN=1 cargo test -p slabmon --test metrics`.

`/metrics` serves the Prometheus text format 0.0.4, or OpenMetrics 1.0 to a scraper that prefers it in its `Accept` header.
A scrape reads nothing from the kernel: it shows the last snapshot, whose age two timestamps below tell.
What is not known on a host has no series; it is never shown as zero.

| Name | Type | Unit | Labels | Meaning |
|---|---|---|---|---|
";

const MARKDOWN_FOOT: &str = "
## Labels

- `cache`: the name that `/proc/slabinfo` prints. The slabinfo collector of node_exporter calls the same thing `slab`; to join the two,
  `label_replace(node_slabinfo_objects, \"cache\", \"$1\", \"slab\", \"(.*)\")`. Caches of one name are summed.
  `kmalloc-large` holds the kmallocs above the largest size class: whole pages that are in no cache, so they have counters and no gauges.
  `kmalloc-class-<size>` holds what could be put down to a size class only: all kmallocs of that size, whatever their cache, while there is
  no page lookup, and failed ones that have no cache to count for.
- `kind`: a part of what a cache holds. `rounding` (a kmalloc size less what was asked for; known once enough allocations were traced),
  `debug_and_alignment` (slot less object; for all but kmalloc sizes it needs `/sys/kernel/slab`), `free_objects`, `slab_tail` (the end of
  each slab, where no object fits). For all caches together also `unknown`: live bytes that cannot be told apart.
- `source`: who says so: `vmstat` or `computed` (pages times size) of the memory map; `zoneinfo` or `MemTotal` of the pages.
- `feature`, `reason`: an optional part, and why it does not work here; `reason` is empty where it works.
- `program`: the event or the function that a program counts.
- `reason` of `slabmon_events_dropped_total`: `table_full` (no slot left near the place of the cache), `claim_busy` (the event
  interrupted the first event of another cache on its CPU), `read_failed` (kernel memory could not be read).
- `reason` of `slabmon_series_dropped`: `budget` or `pattern`.
- `collector`: a reader of the machine.

## Drift

`slabmon_cache_drift_objects` is allocations less frees less the change of slabinfo's active objects, since the daemon first had both. What
lives in a cache is slabinfo's figure. A drift above `slabmon_cache_drift_bound_objects` is frees that nobody saw: they fire no event, and
this host lets no hook count them (`slabmon_feature_enabled` of the features `hook_*` says why). The bound is what slabinfo itself can be
wrong by: free objects parked per CPU and in sheaves count as active, and above 10,000 partial slabs the kernel estimates.

## Counters

Counters of a cache count from the moment that tracing began, or from the birth of the cache: one that is destroyed and created again
starts anew at zero. A cache that is gone has no series any more. Counters are 64-bit integers, written digit by digit.

## Series budget

The largest caches get series until the budget is used up; pseudo-caches come first. A cache that has series keeps them until one without
holds more than twice its memory. The 40 largest also get series of their waste and of their drift. `slabmon_series_dropped` counts the series left out, and `slabmon_memory_caches_bytes` includes all caches.
";
