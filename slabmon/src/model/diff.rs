//! What changed between two readings of the caches: a kernel patch's before and after.

use std::collections::BTreeMap;

/// One cache as a saved reading has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedCache {
    /// Slabs × pages × page size.
    pub held_bytes: u64,
    /// Objects in use.
    pub active_objects: u64,
    /// Stride, bytes; `None` where rows of the name differ.
    pub size_bytes: Option<u64>,
    /// Objects a slab; `None` where rows of the name differ.
    pub objects_per_slab: Option<u64>,
}

/// A reading of all caches, by name.
pub type SavedCaches = BTreeMap<String, SavedCache>;

/// A cache before and after; `None` on the side where there was none of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheChange {
    /// The cache.
    pub name: String,
    /// Before.
    pub before: Option<SavedCache>,
    /// After.
    pub after: Option<SavedCache>,
}

impl CacheChange {
    /// Change of the bytes held.
    pub fn held_bytes(&self) -> i128 {
        let held = |side: Option<SavedCache>| i128::from(side.unwrap_or_default().held_bytes);
        held(self.after) - held(self.before)
    }

    /// Change of the objects in use.
    pub fn active_objects(&self) -> i128 {
        let active = |side: Option<SavedCache>| i128::from(side.unwrap_or_default().active_objects);
        active(self.after) - active(self.before)
    }

    /// Change of the size of an object; `None` where one side does not tell it.
    pub fn size_bytes(&self) -> Option<i128> {
        Some(i128::from(self.after?.size_bytes?) - i128::from(self.before?.size_bytes?))
    }
}

/// All changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Bytes held before, all caches.
    pub before_bytes: u128,
    /// Bytes held after, all caches.
    pub after_bytes: u128,
    /// The caches in which anything changed: by the change of the bytes held, whatever its sign, then by name.
    pub changes: Vec<CacheChange>,
}

/// Compares two readings.
pub fn diff(before: &SavedCaches, after: &SavedCaches) -> Diff {
    let held = |side: &SavedCaches| side.values().map(|cache| u128::from(cache.held_bytes)).sum();
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let mut changes: Vec<CacheChange> = names
        .map(|name| CacheChange {
            name: name.clone(),
            before: before.get(name).copied(),
            after: after.get(name).copied(),
        })
        .filter(|change| change.before != change.after)
        .collect();
    changes.sort_by(|a, b| {
        b.held_bytes().unsigned_abs().cmp(&a.held_bytes().unsigned_abs()).then_with(|| a.name.cmp(&b.name))
    });
    Diff { before_bytes: held(before), after_bytes: held(after), changes }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn cache(held_bytes: u64, active_objects: u64, size_bytes: u64) -> SavedCache {
        SavedCache { held_bytes, active_objects, size_bytes: Some(size_bytes), objects_per_slab: Some(2) }
    }

    #[test]
    fn changes_come_by_their_bytes_and_what_stayed_is_left_out() {
        let before: SavedCaches = [
            ("ext3_inode_cache", cache(20_410_368, 9966, 1400)),
            ("gone", cache(4096, 1, 64)),
            ("same", cache(1, 1, 1)),
        ]
        .map(|(name, cache)| (name.to_owned(), cache))
        .into();
        let after: SavedCaches = [
            ("ext3_inode_cache", cache(13_606_912, 9966, 1360)),
            ("new", cache(8192, 2, 64)),
            ("same", cache(1, 1, 1)),
        ]
        .map(|(name, cache)| (name.to_owned(), cache))
        .into();
        let diff = diff(&before, &after);
        let changes: Vec<_> = diff.changes.iter().map(|it| (&*it.name, it.held_bytes(), it.size_bytes())).collect();
        assert_eq!(changes, [("ext3_inode_cache", -6_803_456, Some(-40)), ("new", 8192, None), ("gone", -4096, None)]);
        assert_eq!((diff.before_bytes, diff.after_bytes), (20_414_465, 13_615_105));
    }

    #[test]
    fn a_change_of_all_64_bits_is_no_overflow() {
        let of = |held| [("c".to_owned(), cache(held, held, 8))].into();
        assert_eq!(diff(&of(0), &of(u64::MAX)).changes[0].held_bytes(), i128::from(u64::MAX));
    }
}
