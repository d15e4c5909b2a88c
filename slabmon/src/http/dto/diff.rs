//! A comparison as JSON, and what is read of a saved answer of `/caches?format=json`.

use serde::{Deserialize, Serialize};

use crate::model::diff::{CacheChange, Diff, SavedCache, SavedCaches};

/// What `slabmon diff --format json` prints.
#[derive(Serialize)]
pub struct DiffDto<'a> {
    before_bytes: u128,
    after_bytes: u128,
    /// Caches in which anything changed.
    changed: usize,
    changes: Vec<ChangeDto<'a>>,
}

#[derive(Serialize)]
struct ChangeDto<'a> {
    cache: &'a str,
    change_bytes: i128,
    active_objects_change: i128,
    size_change_bytes: Option<i128>,
    before: Option<SavedCacheDto>,
    after: Option<SavedCacheDto>,
}

#[derive(Serialize)]
struct SavedCacheDto {
    held_bytes: u64,
    active_objects: u64,
    object_size_bytes: Option<u64>,
    objects_per_slab: Option<u64>,
}

impl From<SavedCache> for SavedCacheDto {
    fn from(cache: SavedCache) -> Self {
        Self {
            held_bytes: cache.held_bytes,
            active_objects: cache.active_objects,
            object_size_bytes: cache.size_bytes,
            objects_per_slab: cache.objects_per_slab,
        }
    }
}

impl<'a> DiffDto<'a> {
    /// The totals and the first changes.
    pub fn new(diff: &'a Diff, limit: usize) -> Self {
        let of = |change: &'a CacheChange| ChangeDto {
            cache: &change.name,
            change_bytes: change.held_bytes(),
            active_objects_change: change.active_objects(),
            size_change_bytes: change.size_bytes(),
            before: change.before.map(SavedCacheDto::from),
            after: change.after.map(SavedCacheDto::from),
        };
        Self {
            before_bytes: diff.before_bytes,
            after_bytes: diff.after_bytes,
            changed: diff.changes.len(),
            changes: diff.changes.iter().take(limit).map(of).collect(),
        }
    }
}

#[derive(Deserialize)]
struct SavedAnswer {
    query: SavedQuery,
    matched: usize,
    caches: Vec<SavedRow>,
}

#[derive(Deserialize)]
struct SavedQuery {
    group: Option<String>,
    filter: Option<String>,
}

#[derive(Deserialize)]
struct SavedRow {
    name: String,
    slab: Option<SavedSlab>,
}

#[derive(Deserialize)]
struct SavedSlab {
    memory_bytes: u64,
    active_objects: u64,
    object_size_bytes: Option<u64>,
    objects_per_slab: Option<u64>,
}

/// Reads a saved answer of `/caches?format=json`.
///
/// # Errors
/// What is wrong with the text. An answer that leaves caches out, or sums them, is refused: what it lacks would look
/// like a change.
pub fn parse_caches(text: &[u8]) -> Result<SavedCaches, String> {
    let answer: SavedAnswer = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if answer.query.group.is_some() || answer.query.filter.is_some() || answer.matched > answer.caches.len() {
        return Err("it does not have all caches one by one; save /caches?format=json without other parameters".into());
    }
    let saved = |row: SavedRow| {
        let slab = row.slab?;
        let cache = SavedCache {
            held_bytes: slab.memory_bytes,
            active_objects: slab.active_objects,
            size_bytes: slab.object_size_bytes,
            objects_per_slab: slab.objects_per_slab,
        };
        Some((row.name, cache))
    };
    Ok(answer.caches.into_iter().filter_map(saved).collect())
}
