//! Caches by the space that their objects take, as the 2007 kernel-list post ranked them, and by what they hold.

use super::snapshot::{CacheView, Snapshot};

/// One cache in the ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked<'a> {
    /// The cache.
    pub cache: &'a CacheView,
    /// Active objects × size. `None` where several rows of one name differ in size.
    pub space_bytes: Option<u64>,
    /// Slabs × pages × page size.
    pub held_bytes: u64,
    /// What it holds of all that caches hold, 0 to 1; 0 if nothing is held at all.
    pub share_of_caches: f64,
}

/// What a ranking is by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankBy {
    /// Bytes held.
    #[default]
    Held,
    /// Active objects × size.
    Space,
}

/// All caches that slabinfo lists, the largest first, then by name; an unknown is last.
pub fn rank(snapshot: &Snapshot, by: RankBy) -> Vec<Ranked<'_>> {
    let mut ranked: Vec<Ranked<'_>> = snapshot.caches.iter().filter_map(ranked).collect();
    let all_bytes = ranked.iter().fold(0u64, |sum, row| sum.saturating_add(row.held_bytes));
    for row in &mut ranked {
        row.share_of_caches = if all_bytes == 0 { 0.0 } else { row.held_bytes as f64 / all_bytes as f64 };
    }
    ranked.sort_by(|a, b| {
        let by_key = match by {
            RankBy::Held => b.held_bytes.cmp(&a.held_bytes),
            RankBy::Space => b.space_bytes.cmp(&a.space_bytes),
        };
        by_key.then_with(|| a.cache.name.cmp(&b.cache.name))
    });
    ranked
}

fn ranked(cache: &CacheView) -> Option<Ranked<'_>> {
    let slab = cache.slab.as_ref()?;
    Some(Ranked {
        cache,
        space_bytes: slab.object_size_bytes.map(|size| slab.active_objects.saturating_mul(size)),
        held_bytes: slab.memory_bytes,
        share_of_caches: 0.0,
    })
}
