//! One cache, or one size class, with all that is known of it, a number a line; and the account of a cache.

use super::{
    Context,
    account::cache_account,
    document,
    table::{render_pairs, safe},
    top::{ages, percent, table},
    units::{UNKNOWN, bytes, fractional_bytes, known, rate, signed_bytes},
};
use crate::model::{
    drift::Drift,
    query::{Row, is_reclaimable, use_ratio},
    snapshot::{CacheView, ClassKind, SizeClass, Snapshot},
};

/// A cache; `asked` is the name that the reader used, where that is an alias.
pub fn cache(snapshot: &Snapshot, view: &CacheView, asked: Option<&str>, context: &Context) -> String {
    let mut lines = Lines::default();
    lines.add("cache", safe(&view.name));
    if let Some(alias) = asked {
        lines.add("asked for", format!("{}, an alias: the kernel merged it into this cache", safe(alias)));
    }
    lines.add(
        "aliases",
        known(view.attributes.as_ref(), |attributes| {
            if attributes.aliases.is_empty() {
                "none".to_owned()
            } else {
                attributes.aliases.iter().map(|alias| safe(alias)).collect::<Vec<_>>().join(", ")
            }
        }),
    );
    lines.add("size class", known(view.class, |class| size_class(&class)));
    numbers(&mut lines, view);
    lines.add("numbers", ages(snapshot, context));
    let account = document::text(&cache_account(snapshot, view));
    let separator = if account.is_empty() { "" } else { "\n" };
    format!("{}{separator}{account}", render_pairs(&lines.0))
}

/// A size class: its sum, then its caches as a table.
pub fn class(snapshot: &Snapshot, row: &Row<'_>, context: &Context) -> String {
    let mut lines = Lines::default();
    let members = row.members.as_deref().unwrap_or_default();
    lines.add("size class", row.view.class.map_or_else(|| safe(&row.view.name), |class| bytes(class.bytes)));
    lines.add("caches", members.len().to_string());
    numbers(&mut lines, &row.view);
    lines.add("numbers", ages(snapshot, context));
    let rows: Vec<Row<'_>> = members.iter().map(|member| Row::of(member)).collect();
    format!("{}\n{}", render_pairs(&lines.0), table(&rows))
}

#[derive(Default)]
struct Lines(Vec<(String, String)>);

impl Lines {
    fn add(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), value));
    }
}

fn size_class(class: &SizeClass) -> String {
    format!("{} ({})", bytes(class.bytes), kind_name(class.kind))
}

/// The word for a kind of size class, the same in all outputs.
pub fn kind_name(kind: ClassKind) -> &'static str {
    match kind {
        ClassKind::Normal => "normal",
        ClassKind::Reclaimable => "reclaimable",
        ClassKind::Accounted => "accounted",
        ClassKind::Dma => "dma",
        ClassKind::Partitioned => "partitioned",
        ClassKind::Other => "other",
    }
}

fn numbers(lines: &mut Lines, view: &CacheView) {
    let slab = view.slab;
    let count = |count: u64| count.to_string();
    lines.add("held", known(slab, |slab| format!("{} ({} bytes)", bytes(slab.memory_bytes), slab.memory_bytes)));
    lines.add(
        "growth",
        known(slab.and_then(|slab| slab.growth_bytes_per_second), |growth| format!("{}/s", signed_bytes(growth))),
    );
    lines.add("active objects", known(slab.map(|slab| slab.active_objects), count));
    lines.add("objects", known(slab.map(|slab| slab.objects), count));
    lines.add("use", known(slab.as_ref().and_then(use_ratio), percent));
    lines.add("object size (stride)", known(slab.and_then(|slab| slab.object_size_bytes), plain_bytes));
    lines.add("objects per slab", known(slab.and_then(|slab| slab.objects_per_slab), count));
    lines.add("pages per slab", known(slab.and_then(|slab| slab.pages_per_slab), count));
    lines.add("slabs", known(slab.map(|slab| slab.slabs), count));
    lines.add("slabinfo rows", known(slab, |slab| slab.rows.to_string()));

    let traced = view.traced;
    let counts = traced.map(|traced| traced.counts);
    let rates = traced.and_then(|traced| traced.rates);
    let per_second = |rate_of: f64| format!("{}/s", rate(rate_of));
    let bytes_per_second = |rate_of: f64| format!("{}/s", fractional_bytes(rate_of));
    lines.add("allocations", known(counts.map(|counts| counts.allocations), count));
    lines.add("frees", known(counts.map(|counts| counts.frees), count));
    lines.add(
        "frees without an event",
        known(traced, |traced| match traced.drift.map(|drift| drift.inferred_frees()) {
            Some(inferred @ 1..) => format!("{} counted by hooks, {inferred} inferred", traced.counts.untraced_frees),
            _ => format!("{} counted by hooks", traced.counts.untraced_frees),
        }),
    );
    lines.add("drift", known(traced.and_then(|traced| traced.drift), drift));
    lines.add("failed allocations", known(counts.map(|counts| counts.failures), count));
    lines.add("requested", known(counts.map(|counts| counts.requested_bytes), long_bytes));
    lines.add("allocated", known(counts.map(|counts| counts.allocated_bytes), long_bytes));
    lines.add("freed", known(counts.map(|counts| counts.freed_bytes), long_bytes));
    lines.add("allocation rate", known(rates.map(|rates| rates.allocations_per_second), per_second));
    lines.add("free rate", known(rates.map(|rates| rates.frees_per_second), per_second));
    lines.add("requested rate", known(rates.map(|rates| rates.requested_bytes_per_second), bytes_per_second));
    lines.add("allocated rate", known(rates.map(|rates| rates.allocated_bytes_per_second), bytes_per_second));
    lines.add("freed rate", known(rates.map(|rates| rates.freed_bytes_per_second), bytes_per_second));

    let attributes = view.attributes.as_ref();
    lines.add("size asked of the cache", known(attributes.and_then(|it| it.object_size_bytes), plain_bytes));
    lines.add("stride by sysfs", known(attributes.and_then(|it| it.slab_size_bytes), plain_bytes));
    lines.add("alignment", known(attributes.and_then(|it| it.align_bytes), plain_bytes));
    lines.add("slab order", known(attributes.and_then(|it| it.order), |order| order.to_string()));
    lines.add("objects per slab by sysfs", known(attributes.and_then(|it| it.objects_per_slab), count));
    lines.add("reclaimable", known(is_reclaimable(view), |yes| if yes { "yes" } else { "no" }.to_owned()));
    lines.add(
        "flags",
        match attributes {
            None => UNKNOWN.to_owned(),
            Some(attributes) if attributes.flags.is_empty() => "none".to_owned(),
            Some(attributes) => attributes.flags.join(", "),
        },
    );
}

fn drift(drift: Drift) -> String {
    let bound = known(drift.bound_objects, |bound| bound.to_string());
    format!(
        "{} objects, of which slabinfo's own error is {bound} at most; what lives is its active objects",
        drift.objects
    )
}

fn plain_bytes(count: u64) -> String {
    format!("{count} bytes")
}

fn long_bytes(count: u64) -> String {
    if count < 1024 { bytes(count) } else { format!("{} ({count} bytes)", bytes(count)) }
}
