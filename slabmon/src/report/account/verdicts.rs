//! Verdicts, each with its evidence and the next step.

use crate::{
    model::{
        snapshot::{CacheView, Snapshot},
        verdict::{Verdict, cache_verdicts, findings},
        waste::{Part, total_waste},
        whole::whole,
    },
    report::{document::Block, top::percent, words::words},
};

/// The machine's slab and the caches that are worth a word.
pub(super) fn verdict_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("verdict", "VERDICT");
    let findings = findings(snapshot);
    let limit = limit.max(1);
    for finding in findings.iter().take(limit) {
        let cache = finding.cache.as_deref();
        add(&mut block, cache.unwrap_or("slab as a whole"), cache.unwrap_or_default(), &finding.verdict);
    }
    if let Some(more) = findings.len().checked_sub(limit).filter(|more| *more > 0) {
        block.notes.push(format!("{more} more: --section verdict --limit {}", findings.len()));
    }
    let has = |verdict: &str| findings.iter().any(|finding| finding.verdict.as_str() == verdict);
    block.notes.extend(unremarkable(snapshot, has));
    block
}

/// One cache.
pub(super) fn cache_verdicts_block(snapshot: &Snapshot, cache: &CacheView) -> Block {
    let mut block = Block::new("verdict", "VERDICT");
    for verdict in cache_verdicts(snapshot, cache) {
        add(&mut block, &cache.name, &cache.name, &verdict);
    }
    block
}

fn add(block: &mut Block, subject: &str, name: &str, verdict: &Verdict) {
    let words = words(verdict);
    block.notes.push(format!("{subject}: {}: {}", words.verdict, words.evidence));
    block.notes.push(format!("    next: {}", words.next_step));
    for (field, value) in [("verdict", verdict.as_str()), ("evidence", &words.evidence), ("next_step", words.next_step)]
    {
        block.figures.push((name.to_owned(), field, value.to_owned()));
    }
}

/// What was looked at and gave no verdict, with its figure.
fn unremarkable(snapshot: &Snapshot, has: impl Fn(&str) -> bool) -> Option<String> {
    let total = total_waste(snapshot);
    let mut looked_at = Vec::new();
    let mut add = |verdict: &str, what: &str, share: Option<f64>| {
        if let Some(share) = share.filter(|_| !has(verdict)) {
            looked_at.push(format!("{what} {}", percent(share)));
        }
    };
    add("fragmented", "free objects", total.share(Part::Free));
    add("debug_padding", "debugging and alignment", total.share(Part::Debug));
    let gap_verdict = if has("counter_drift") { "counter_drift" } else { "not_in_any_cache" };
    add(gap_verdict, "outside caches", whole(snapshot).gap_share().map(f64::abs));
    let dentries = snapshot.evidence.machine.dentries.filter(|counts| counts.dentries > 0);
    let negative = dentries.map(|counts| counts.negative.min(counts.dentries) as f64 / counts.dentries as f64);
    add("negative_dentries", "negative dentries", negative);
    (!looked_at.is_empty()).then(|| format!("no verdict on: {}", looked_at.join(", ")))
}
