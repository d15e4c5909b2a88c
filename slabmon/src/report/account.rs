//! The account of slab memory: from a snapshot to the blocks of the report.

mod changes;
mod overview;
mod verdicts;

use changes::{cases_block, struct_page_block, what_if_block, wish};
use verdicts::{cache_verdicts_block, verdict_block};

use super::{
    document::{Block, Cell},
    sections::{ReportOptions, Section},
    units::{bytes, known},
};
use crate::model::{
    debug::{DebugEstimate, DebugParts, cache_debug_parts, layout_of, total_debug},
    rank::{RankBy, rank},
    snapshot::{CacheView, Snapshot},
    waste::{CacheWaste, Part, Waterfall, cache_waste, object_bytes, total_waste},
    whole::{NOT_COVERED, Whole, whole},
};

/// Rows of a section's own table unless asked otherwise.
const SECTION_ROWS: usize = 20;

/// The blocks of a report: the sections that are wanted, or the overview.
pub fn account(snapshot: &Snapshot, options: &ReportOptions) -> Vec<Block> {
    let mut blocks: Vec<Block> = wish(snapshot, options).into_iter().collect();
    if options.sections.is_empty() {
        return if blocks.is_empty() { overview::overview(snapshot, options) } else { blocks };
    }
    let limit = options.limit.unwrap_or(SECTION_ROWS);
    for section in &options.sections {
        blocks.push(match section {
            Section::Whole => whole_block(snapshot),
            Section::Waterfall => total_block(snapshot),
            Section::Rank => rank_block(snapshot, limit),
            Section::Waste => waste_block(snapshot, limit),
            Section::Debug => debug_block(snapshot, options, limit),
            Section::WhatIf => what_if_block(snapshot, limit),
            Section::StructPage => struct_page_block(snapshot, options),
            Section::Verdict => verdict_block(snapshot, limit),
        });
        if *section == Section::Waterfall {
            blocks.push(waterfall_block(snapshot, limit));
        }
    }
    blocks
}

/// The blocks on one cache: where its bytes go, what a change would give back, what the numbers mean.
pub fn cache_account(snapshot: &Snapshot, cache: &CacheView) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(waste) = cache_waste(cache) {
        let mut block = Block::new("waterfall", "WHERE ITS BYTES GO").columns(WATERFALL_COLUMNS);
        block.is_compact = true;
        block.rows = waterfall_rows(&waste.waterfall);
        block.notes.extend(anomalies(cache, &waste));
        blocks.push(block);
        blocks.push(cases_block(snapshot, cache, &ReportOptions::default(), "WHAT IF"));
        blocks.push(cache_verdicts_block(snapshot, cache));
    }
    blocks
}

fn name(cache: &CacheView) -> Cell {
    Cell::Text(cache.name.to_string())
}

/// Says how many rows a table left out.
fn cut(block: &mut Block, limit: usize) {
    let all = block.rows.len();
    if all > limit {
        block.rows.truncate(limit);
        block.notes.push(format!("{} more: --section {} --limit {all}", all - limit, block.section));
    }
}

fn whole_block(snapshot: &Snapshot) -> Block {
    let whole = whole(snapshot);
    let mut block =
        Block::new("whole", "THE WHOLE").columns(&[("PART", "part"), ("BYTES", "bytes"), ("OF SLAB", "share")]);
    let share = |part: Option<u64>| {
        Cell::Share(
            part.zip(whole.slab_bytes).filter(|(_, slab)| *slab > 0).map(|(part, slab)| part as f64 / slab as f64),
        )
    };
    let mut add = |name: &str, part: Option<u64>| {
        block.rows.push(vec![Cell::Text(name.to_owned()), Cell::Bytes(part), share(part)]);
    };
    add("Slab of meminfo", whole.slab_bytes);
    add("SReclaimable", whole.reclaimable_bytes);
    add("SUnreclaim", whole.unreclaimable_bytes);
    add("in caches (slabinfo)", whole.caches_bytes);
    add("reclaimable caches", whole.reclaimable_caches_bytes);
    add("other caches", whole.unreclaimable_caches_bytes);
    add("large kmalloc since attach", whole.large_kmalloc_bytes);
    block.rows.push(vec![
        Cell::Text("gap".to_owned()),
        Cell::Change(whole.gap_bytes),
        Cell::Share(whole.gap_share().map(f64::abs)),
    ]);
    block.notes.push(gap_in_words(snapshot, &whole));
    block.notes.push(not_covered());
    block
}

fn not_covered() -> String {
    format!("no slab, and so not covered: {}", NOT_COVERED.join(", "))
}

fn gap_in_words(snapshot: &Snapshot, whole: &Whole) -> String {
    let off = snapshot.features.iter().find(|feature| feature.name == "slabinfo" && !feature.enabled);
    if let Some(feature) = off.filter(|_| whole.caches_bytes.is_none()) {
        return format!("no cache is known: {}", feature.reason);
    }
    match (whole.gap_bytes, whole.large_kmalloc_bytes) {
        (None, _) if whole.caches_bytes.is_none() => "the gap is not known without slabinfo".to_owned(),
        (None, _) => "the gap is not known without meminfo".to_owned(),
        (Some(gap), None) if gap >= 0 => {
            "the gap is large kmalloc (whole pages, in no cache; not traced here) and drift of counters".to_owned()
        }
        (Some(gap), Some(_)) if gap >= 0 => {
            "the gap is large kmalloc older than the tracing, and drift of counters".to_owned()
        }
        (Some(_), _) => {
            "the caches hold more than Slab says: two files are two moments, and long lists are estimated".to_owned()
        }
    }
}

const PART_TITLES: [(Part, &str); 6] = [
    (Part::Requested, "requested by live objects"),
    (Part::Rounding, "rounding to kmalloc sizes"),
    (Part::Debug, "debugging and alignment"),
    (Part::Free, "free objects"),
    (Part::Tail, "slab tail"),
    (Part::Unknown, "live, cannot be told apart"),
];

/// The parts of a waterfall as rows; the last is the whole.
pub fn waterfall_rows(waterfall: &Waterfall) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = PART_TITLES
        .iter()
        .map(|(part, title)| {
            let part_bytes = waterfall.part_bytes(*part);
            vec![Cell::Text((*title).to_owned()), Cell::Bytes(part_bytes), Cell::Share(waterfall.share(*part))]
        })
        .collect();
    let whole = (waterfall.held_bytes > 0).then_some(1.0);
    rows.push(vec![Cell::Text("held".to_owned()), Cell::Bytes(Some(waterfall.held_bytes)), Cell::Share(whole)]);
    rows
}

const WATERFALL_COLUMNS: &[(&str, &str)] = &[("PART", "part"), ("BYTES", "bytes"), ("OF HELD", "share")];

fn total_block(snapshot: &Snapshot) -> Block {
    let waterfall = total_waste(snapshot);
    let mut block = Block::new("waterfall", "WHERE EVERY BYTE GOES").columns(WATERFALL_COLUMNS);
    block.rows = waterfall_rows(&waterfall);
    if waterfall.unknown_bytes > 0 {
        block.notes.push(
            "more is told apart with /sys/kernel/slab (sizes of objects) and tracing (rounding of kmalloc)".to_owned(),
        );
    }
    block
}

fn wastes(snapshot: &Snapshot) -> Vec<(&CacheView, CacheWaste)> {
    let mut wastes: Vec<_> = snapshot.caches.iter().filter_map(|cache| Some((cache, cache_waste(cache)?))).collect();
    wastes.sort_by(|(a, a_waste), (b, b_waste)| {
        b_waste.waterfall.held_bytes.cmp(&a_waste.waterfall.held_bytes).then_with(|| a.name.cmp(&b.name))
    });
    wastes
}

/// What is odd about a cache's row, if anything is.
fn anomalies(cache: &CacheView, waste: &CacheWaste) -> Option<String> {
    let odd: Vec<_> = waste.anomalies.iter().map(|anomaly| anomaly.as_str()).collect();
    (!odd.is_empty()).then(|| format!("{}: {}; its figures are cut to what can be", cache.name, odd.join("; ")))
}

fn waterfall_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("waterfall", "WHERE EVERY BYTE GOES, BY CACHE").columns(&[
        ("CACHE", "cache"),
        ("HELD", "held_bytes"),
        ("REQUESTED", "requested_bytes"),
        ("ROUNDING", "rounding_bytes"),
        ("DEBUG+ALIGN", "debug_and_alignment_bytes"),
        ("FREE", "free_objects_bytes"),
        ("TAIL", "slab_tail_bytes"),
        ("UNKNOWN", "unknown_bytes"),
    ]);
    for (cache, waste) in wastes(snapshot) {
        let mut row = vec![name(cache), Cell::Bytes(Some(waste.waterfall.held_bytes))];
        row.extend(Part::ALL.iter().map(|part| Cell::Bytes(waste.waterfall.part_bytes(*part))));
        block.rows.push(row);
        block.notes.extend(anomalies(cache, &waste));
    }
    cut(&mut block, limit);
    block
}

fn rank_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("rank", "SPACE OF OBJECTS").columns(&[
        ("CACHE", "cache"),
        ("SPACE", "space_bytes"),
        ("HELD", "held_bytes"),
        ("OF ALL", "share_of_caches"),
        ("ACTIVE", "active_objects"),
        ("SIZE", "size_bytes"),
    ]);
    for ranked in rank(snapshot, RankBy::Space) {
        let slab = ranked.cache.slab.as_ref();
        block.rows.push(vec![
            name(ranked.cache),
            Cell::Bytes(ranked.space_bytes),
            Cell::Bytes(Some(ranked.held_bytes)),
            Cell::Share(Some(ranked.share_of_caches)),
            Cell::Count(slab.map(|slab| slab.active_objects)),
            Cell::Exact(slab.and_then(|slab| slab.object_size_bytes)),
        ]);
    }
    cut(&mut block, limit);
    block
}

fn waste_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("waste", "ENDS OF SLABS, WHERE NO OBJECT FITS").columns(&[
        ("CACHE", "cache"),
        ("WASTE", "waste_bytes"),
        ("USED/SLAB", "used_per_slab_bytes"),
        ("EMPTY/SLAB", "empty_per_slab_bytes"),
        ("SLABS", "slabs"),
    ]);
    let mut rows: Vec<(u64, &CacheView, CacheWaste)> = wastes(snapshot)
        .into_iter()
        .map(|(cache, waste)| {
            let slabs = cache.slab.map_or(0, |slab| slab.slabs);
            (waste.slab_waste_bytes(slabs).unwrap_or(0), cache, waste)
        })
        .collect();
    rows.sort_by(|(a, ..), (b, ..)| b.cmp(a));
    for (_, cache, waste) in rows {
        let slabs = cache.slab.map(|slab| slab.slabs);
        block.rows.push(vec![
            name(cache),
            Cell::Exact(slabs.and_then(|slabs| waste.slab_waste_bytes(slabs))),
            Cell::Exact(waste.used_per_slab_bytes),
            Cell::Exact(waste.empty_per_slab_bytes),
            Cell::Count(slabs),
        ]);
    }
    cut(&mut block, limit);
    block
}

fn debug_block(snapshot: &Snapshot, options: &ReportOptions, limit: usize) -> Block {
    match options.debug_bytes_per_object {
        Some(per_object) => debug_estimate_block(snapshot, per_object, limit),
        None => debug_parts_block(snapshot, limit),
    }
}

fn debug_estimate_block(snapshot: &Snapshot, per_object: u64, limit: usize) -> Block {
    let title = format!("DEBUG OVERHEAD AT {per_object} BYTES AN OBJECT");
    let mut block = Block::new("debug", title).columns(&[
        ("CACHE", "cache"),
        ("SPACE", "space_bytes"),
        ("OVERHEAD", "overhead_bytes"),
        ("PERCENT", "share"),
    ]);
    let mut total = DebugEstimate::default();
    for ranked in rank(snapshot, RankBy::Space) {
        let Some(slab) = ranked.cache.slab.as_ref() else { continue };
        let estimate = slab.object_size_bytes.map(|size| DebugEstimate::new(slab.active_objects, size, per_object));
        total = total.plus(estimate.unwrap_or_default());
        block.rows.push(vec![
            name(ranked.cache),
            Cell::Exact(estimate.map(|it| it.space_bytes)),
            Cell::Exact(estimate.map(|it| it.overhead_bytes)),
            Cell::Share(estimate.and_then(|it| it.share())),
        ]);
    }
    cut(&mut block, limit);
    block.lines.push(format!(
        "all caches: {} of {} ({})",
        bytes(total.overhead_bytes),
        bytes(total.space_bytes),
        known(total.share(), super::top::percent)
    ));
    block
}

fn debug_parts_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = Block::new("debug", "DEBUGGING AND ALIGNMENT").columns(&[
        ("CACHE", "cache"),
        ("BYTES", "overhead_bytes"),
        ("OBJECT", "object_bytes"),
        ("SLOT", "size_bytes"),
        ("RED ZONE", "red_zone_bytes"),
        ("TRACKING", "tracking_bytes"),
        ("POISON", "poison_bytes"),
        ("ALIGN", "alignment_bytes"),
    ]);
    let mut rows: Vec<(u64, Vec<Cell>)> = Vec::new();
    for (cache, waste) in wastes(snapshot) {
        let overhead = waste.waterfall.debug_bytes;
        let parts = cache_debug_parts(cache, layout_of(snapshot));
        let per_object = |part: fn(&DebugParts) -> u64| Cell::Exact(parts.as_ref().map(part));
        let row = vec![
            name(cache),
            Cell::Bytes(overhead),
            Cell::Exact(object_bytes(cache)),
            Cell::Exact(cache.slab.and_then(|slab| slab.object_size_bytes)),
            per_object(|parts| parts.red_zone_bytes),
            per_object(|parts| parts.tracking_bytes),
            per_object(|parts| parts.poison_bytes),
            per_object(|parts| parts.alignment_bytes),
        ];
        rows.push((overhead.unwrap_or(0), row));
    }
    rows.sort_by(|(a, _), (b, _)| b.cmp(a));
    block.rows = rows.into_iter().map(|(_, row)| row).collect();
    cut(&mut block, limit);
    let total = total_waste(snapshot);
    block.lines.push(format!(
        "all caches: {} of {} held ({}); columns after SLOT are bytes of one object",
        known(total.debug_bytes, bytes),
        bytes(total.held_bytes),
        known(total.share(Part::Debug), super::top::percent)
    ));
    if total.debug_bytes.is_some() {
        let all = total_debug(snapshot);
        let parts = [
            ("red zones", "red_zone_bytes", all.parts.red_zone_bytes),
            ("tracking", "tracking_bytes", all.parts.tracking_bytes),
            ("poison", "poison_bytes", all.parts.poison_bytes),
            ("alignment", "alignment_bytes", all.parts.alignment_bytes),
            ("not split", "not_split_bytes", all.not_split_bytes),
        ];
        let words: Vec<String> = parts.iter().map(|(name, _, part)| format!("{name} {}", bytes(*part))).collect();
        block.lines.push(words.join(", "));
        block.figures.extend(parts.map(|(_, field, part)| ("all caches".to_owned(), field, part.to_string())));
    }
    block
}
