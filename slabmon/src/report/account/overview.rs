//! The report on one screen: where slab memory goes, what is worth shrinking, what `struct page` costs, and a verdict.

use super::{
    changes::{struct_page_block, what_if_block},
    debug_block, name, not_covered, total_block,
    verdicts::verdict_block,
    whole_block,
};
use crate::{
    model::{
        rank::{RankBy, rank},
        snapshot::Snapshot,
        struct_page::struct_page,
        verdict::reclaims,
        waste::cache_waste,
    },
    report::{
        BUILD,
        document::{Block, Cell},
        sections::{ReportOptions, Section},
        units::bytes,
    },
};

/// Rows of a table.
const ROWS: usize = 5;
/// Structs that are worth shrinking.
const STRUCTS: usize = 3;
/// Verdicts.
const VERDICTS: usize = 4;

/// All blocks; one of which nothing is known is left out.
pub(super) fn overview(snapshot: &Snapshot, options: &ReportOptions) -> Vec<Block> {
    let limit = |rows| options.limit.unwrap_or(rows);
    let mut blocks = vec![Block { lines: vec![head(snapshot)], ..Block::new("machine", "") }, short_whole(snapshot)];
    if snapshot.memory.caches_bytes.is_some() {
        blocks.push(compact(total_block(snapshot)));
        blocks.push(caches_block(snapshot, limit(ROWS)));
        if options.debug_bytes_per_object.is_some() {
            blocks.push(compact(without_cut(debug_block(snapshot, options, limit(ROWS)))));
        }
        let mut structs = without_cut(what_if_block(snapshot, limit(STRUCTS)));
        structs.title = "MOST WORTH SHRINKING".to_owned();
        blocks.push(compact(structs));
    }
    blocks.push(short_struct_page(snapshot, options));
    let mut verdicts = verdict_block(snapshot, limit(VERDICTS));
    verdicts.notes.push(format!("more of each: section {}", Section::NAMES.join(", ")));
    blocks.push(verdicts);
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn compact(block: Block) -> Block {
    Block { is_compact: true, ..block }
}

/// Without the sentence that says how many rows were left out.
fn without_cut(mut block: Block) -> Block {
    block.notes.retain(|note| !note.contains(" more: --section "));
    block
}

/// What is reported, in a line.
fn head(snapshot: &Snapshot) -> String {
    let fact = |name: &str| snapshot.host.iter().find(|fact| fact.name == name).map(|fact| &*fact.value);
    let mut parts = vec![format!("slabmon {}", BUILD.version)];
    match fact("kernel_release") {
        Some(release) => parts.push(format!("Linux {release} {}", fact("architecture").unwrap_or_default())),
        None => parts.push("saved files".to_owned()),
    }
    if let Some(ram) = struct_page(snapshot).ram_bytes {
        parts.push(format!("{} RAM", bytes(ram)));
    }
    if let Some(uptime) = snapshot.evidence.machine.uptime {
        parts.push(format!("up {} h", uptime.as_secs() / 3600));
    }
    if !snapshot.host.is_empty() {
        let traced = snapshot.table.is_some();
        let minutes = snapshot.uptime.as_secs() / 60;
        parts.push(if traced { format!("traced for {minutes} min") } else { "nothing traced".to_owned() });
    }
    parts.join(" | ")
}

fn short_whole(snapshot: &Snapshot) -> Block {
    if snapshot.memory.slab_bytes.or(snapshot.memory.caches_bytes).is_none() {
        return Block::default();
    }
    let mut block = compact(whole_block(snapshot));
    block.title = "SLAB MEMORY".to_owned();
    block.rows.retain(|row| !matches!(row.get(1), Some(Cell::Bytes(None) | Cell::Change(None))));
    block.rows.retain(|row| !matches!(row.first(), Some(Cell::Text(part)) if part.ends_with(" caches")));
    let is_known = snapshot.memory.slab_bytes.is_some();
    block.notes.retain(|note| is_known || *note != not_covered());
    block
}

/// The caches that hold most, with what of it nobody uses.
fn caches_block(snapshot: &Snapshot, limit: usize) -> Block {
    let mut block = compact(Block::new("caches", "CACHES THAT HOLD MOST")).columns(&[
        ("CACHE", "cache"),
        ("HELD", "held_bytes"),
        ("OF ALL", "share_of_caches"),
        ("OBJECTS", "space_bytes"),
        ("FREE", "free_objects_bytes"),
        ("TAIL", "slab_tail_bytes"),
        ("ACTIVE", "active_objects"),
        ("SIZE", "size_bytes"),
        ("RECLAIM", "reclaimable"),
    ]);
    for ranked in rank(snapshot, RankBy::Held).into_iter().take(limit).filter(|ranked| ranked.held_bytes > 0) {
        let waterfall = cache_waste(ranked.cache).map(|waste| waste.waterfall).unwrap_or_default();
        let slab = ranked.cache.slab.as_ref();
        let reclaimable = match reclaims(ranked.cache) {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        block.rows.push(vec![
            name(ranked.cache),
            Cell::Bytes(Some(ranked.held_bytes)),
            Cell::Share(Some(ranked.share_of_caches)),
            Cell::Bytes(ranked.space_bytes),
            Cell::Bytes(waterfall.free_bytes),
            Cell::Bytes(waterfall.tail_bytes),
            Cell::Count(slab.map(|slab| slab.active_objects)),
            Cell::Exact(slab.and_then(|slab| slab.object_size_bytes)),
            Cell::Text(reclaimable.to_owned()),
        ]);
    }
    block
}

/// In sentences what `struct page` costs; empty where nothing is known of it.
fn short_struct_page(snapshot: &Snapshot, options: &ReportOptions) -> Block {
    let page = struct_page(snapshot);
    let mut lines = Vec::new();
    if let Some((memmap, source)) = page.memmap {
        let size = page.size_bytes.map_or_else(String::new, |size| format!("{size} bytes "));
        let padding = page.padding_bytes.map_or_else(String::new, |padding| format!("({padding} of padding) "));
        let pages = page.pages.map_or_else(String::new, |(pages, _)| format!("for each of {pages} pages: "));
        let share = page.share_of_ram.map_or_else(String::new, |share| format!(", {:.2}% of RAM", share * 100.0));
        lines.push(format!("{size}{padding}{pages}{} ({}){share}", bytes(memmap), source.as_str()));
    }
    if let Some(less) = page.per_8_bytes_less_bytes {
        let share = page.slab_part_share().map_or_else(String::new, |share| format!(" ({:.1}%)", share * 100.0));
        let slab = page.slab_part_bytes.map(|slab| format!("; {}{share} describe slab pages", bytes(slab)));
        lines.push(format!("8 bytes less return {}{}", bytes(less), slab.unwrap_or_default()));
    }
    if let Some(reserved) = page.boot_reserved_bytes {
        lines.push(format!("reserved at boot, the memory map among it: {}", bytes(reserved)));
    }
    if let Some(money) = options.price_per_gib.and_then(|price| page.money(price)) {
        lines.push(format!("price: {:.2} for all, {:.2} for 8 bytes less", money.memmap, money.per_8_bytes_less));
    }
    if page.memmap.is_none() || lines.is_empty() {
        return Block::new("struct_page", "");
    }
    let mut block = struct_page_block(snapshot, options).told(lines);
    block.notes.clear();
    block
}
