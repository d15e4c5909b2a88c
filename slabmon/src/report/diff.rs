//! Two readings of the caches, compared.

use super::{
    document::{Block, Cell},
    units::{bytes, signed_bytes},
};
use crate::model::diff::Diff;

/// The totals and the caches that changed most.
pub fn diff(diff: &Diff, limit: usize) -> Vec<Block> {
    let mut block = Block::new("diff", "CHANGE OF SLAB MEMORY").columns(&[
        ("CACHE", "cache"),
        ("CHANGE", "change_bytes"),
        ("BEFORE", "before_bytes"),
        ("AFTER", "after_bytes"),
        ("ACTIVE", "active_objects_change"),
        ("SIZE", "size_change_bytes"),
        ("SIZE AFTER", "size_after_bytes"),
    ]);
    let cut = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    let signed = |number: i128| i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX });
    block.lines.push(format!(
        "all caches: {} before, {} after, {}",
        bytes(cut(diff.before_bytes)),
        bytes(cut(diff.after_bytes)),
        signed_bytes(diff.after_bytes as f64 - diff.before_bytes as f64)
    ));
    for change in diff.changes.iter().take(limit) {
        block.rows.push(vec![
            Cell::Text(change.name.clone()),
            Cell::Change(Some(signed(change.held_bytes()))),
            Cell::Bytes(change.before.map(|cache| cache.held_bytes)),
            Cell::Bytes(change.after.map(|cache| cache.held_bytes)),
            Cell::Signed(Some(signed(change.active_objects()))),
            Cell::Signed(change.size_bytes().map(signed)),
            Cell::Exact(change.after.and_then(|cache| cache.size_bytes)),
        ]);
    }
    if diff.changes.is_empty() {
        block.notes.push("nothing changed".to_owned());
    } else if diff.changes.len() > limit {
        block.notes.push(format!("{} more: --limit {}", diff.changes.len() - limit, diff.changes.len()));
    }
    vec![block]
}
