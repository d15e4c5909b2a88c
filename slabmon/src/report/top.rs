//! The table of caches, and the lines above it that say what the machine as a whole holds.

use super::{
    Context,
    table::{Align, render, safe},
    units::{UNKNOWN, bytes, fractional_bytes, known, rate, seconds, signed_bytes},
};
use crate::model::{
    query::{Grouping, Row, Selection, TopQuery, select, use_ratio},
    sample::LossCounts,
    snapshot::Snapshot,
};

const COLUMNS: [(&str, Align); 10] = [
    ("CACHE", Align::Left),
    ("HELD", Align::Right),
    ("ACTIVE", Align::Right),
    ("OBJECTS", Align::Right),
    ("SIZE", Align::Right),
    ("USE%", Align::Right),
    ("ALLOC/s", Align::Right),
    ("FREE/s", Align::Right),
    ("GROWTH/s", Align::Right),
    ("REQ/s", Align::Right),
];

/// Answers `query` as text: head lines, an empty line, the table.
pub fn top(snapshot: &Snapshot, query: &TopQuery, context: &Context) -> String {
    let selection = select(snapshot, query);
    format!("{}{}\n\n{}", head(snapshot, context), caption(&selection, query), table(&selection.rows))
}

/// The caches, one a line.
pub fn table(rows: &[Row<'_>]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    render(&COLUMNS, &cells)
}

fn cells(row: &Row<'_>) -> Vec<String> {
    let view = &*row.view;
    let slab = view.slab;
    let rates = view.traced.and_then(|traced| traced.rates);
    let name = match &row.matched_alias {
        Some(alias) => format!("{} ({})", safe(&view.name), safe(alias)),
        None => safe(&view.name),
    };
    vec![
        name,
        known(slab, |slab| bytes(slab.memory_bytes)),
        known(slab, |slab| slab.active_objects.to_string()),
        known(slab, |slab| slab.objects.to_string()),
        known(slab.and_then(|slab| slab.object_size_bytes), |size| size.to_string()),
        known(slab.as_ref().and_then(use_ratio), percent),
        known(rates, |rates| rate(rates.allocations_per_second)),
        known(rates, |rates| rate(rates.frees_per_second)),
        known(slab.and_then(|slab| slab.growth_bytes_per_second), signed_bytes),
        known(rates, |rates| fractional_bytes(rates.requested_bytes_per_second)),
    ]
}

/// `98%`; what is not quite all is never shown as all, and what is not quite nothing never as nothing.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if ratio < 1.0 && percent >= 99.5 {
        "99%".to_owned()
    } else if ratio > 0.0 && percent < 0.5 {
        "<1%".to_owned()
    } else {
        format!("{percent:.0}%")
    }
}

fn caption(selection: &Selection<'_>, query: &TopQuery) -> String {
    let noun = match (query.grouping, selection.matched) {
        (Grouping::Cache, 1) => "cache",
        (Grouping::Cache, _) => "caches",
        (Grouping::Class, 1) => "size class or cache",
        (Grouping::Class, _) => "size classes and caches",
    };
    let filter = query.filter.as_ref().map_or_else(String::new, |filter| format!(", filter {}", safe(filter.as_str())));
    let shown = selection.rows.len();
    if shown == selection.matched {
        format!("{shown} {noun} by {}{filter}", query.by)
    } else {
        format!("{shown} of {} {noun} by {}{filter}", selection.matched, query.by)
    }
}

/// What the machine holds, how old the numbers are, and whether they are whole: three or four lines.
pub fn head(snapshot: &Snapshot, context: &Context) -> String {
    let memory = &snapshot.memory;
    let mut out = format!(
        "slab {}: reclaimable {}, unreclaimable {} | in caches {}, unexplained {}\n",
        known(memory.slab_bytes, bytes),
        known(memory.reclaimable_bytes, bytes),
        known(memory.unreclaimable_bytes, bytes),
        known(memory.caches_bytes, bytes),
        known(memory.unexplained_bytes, |gap| signed_bytes(gap as f64)),
    );
    out.push_str(&format!("{} | {}\n", tracing_state(snapshot), ages(snapshot, context)));
    if let Some(losses) = losses(snapshot) {
        out.push_str(&format!("events lost: {losses}\n"));
    }
    // What nobody can do anything about is not worth a line on every screen; /status has it.
    let off: Vec<&str> = snapshot
        .features
        .iter()
        .filter(|feature| !feature.enabled && !feature.remedy.is_empty())
        .map(|feature| feature.name)
        .collect();
    if !off.is_empty() {
        out.push_str(&format!("off: {} (/status says why)\n", off.join(", ")));
    }
    out
}

fn tracing_state(snapshot: &Snapshot) -> String {
    let misses = if total_missed(snapshot).is_none() { ", misses not counted by this kernel" } else { "" };
    match snapshot.programs.len() {
        0 => "tracing off".to_owned(),
        1 => format!("tracing on, 1 program{misses}"),
        count => format!("tracing on, {count} programs{misses}"),
    }
}

/// How old the counters and slabinfo's numbers are.
pub fn ages(snapshot: &Snapshot, context: &Context) -> String {
    let counters = if snapshot.programs.is_empty() { "snapshot" } else { "counters" };
    let slabinfo = slabinfo_age_seconds(snapshot, context).map(std::time::Duration::from_secs_f64);
    format!(
        "{counters} {} old, slabinfo {}",
        seconds(context.age),
        match slabinfo {
            Some(age) => format!("{} old", seconds(age)),
            None => UNKNOWN.to_owned(),
        }
    )
}

/// Age of slabinfo's numbers; `None` if there are none.
pub fn slabinfo_age_seconds(snapshot: &Snapshot, context: &Context) -> Option<f64> {
    let behind = snapshot.taken_at_unix_seconds - snapshot.slabinfo_at_unix_seconds?;
    let age = context.age.as_secs_f64() + behind.max(0.0);
    // A clock that was set while we ran may give nonsense; that is an unknown.
    (age.is_finite() && age < 1e9).then_some(age)
}

/// Losses of all programs, by reason.
pub fn total_losses(snapshot: &Snapshot) -> LossCounts {
    snapshot.programs.iter().fold(LossCounts::default(), |sum, program| LossCounts {
        table_full: sum.table_full.saturating_add(program.losses.table_full),
        claim_busy: sum.claim_busy.saturating_add(program.losses.claim_busy),
        read_failed: sum.read_failed.saturating_add(program.losses.read_failed),
        unattributed: sum.unattributed.saturating_add(program.losses.unattributed),
    })
}

/// Events that the kernel did not deliver, all programs; `None` if a program does not know.
pub fn total_missed(snapshot: &Snapshot) -> Option<u64> {
    snapshot.programs.iter().try_fold(0u64, |sum, program| Some(sum.saturating_add(program.missed?)))
}

/// `missed 12, table_full 3`; `None` if nothing was lost, as far as is known.
fn losses(snapshot: &Snapshot) -> Option<String> {
    let losses = total_losses(snapshot);
    let missed: u64 = snapshot.programs.iter().filter_map(|program| program.missed).fold(0, u64::saturating_add);
    let parts: Vec<String> = [
        ("missed", missed),
        ("table_full", losses.table_full),
        ("claim_busy", losses.claim_busy),
        ("read_failed", losses.read_failed),
        ("unattributed", losses.unattributed),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(reason, count)| format!("{reason} {count}"))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
