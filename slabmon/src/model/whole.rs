//! The whole: what the caches and large kmalloc hold, against what the kernel says that slab takes.

use super::{
    query::is_reclaimable,
    snapshot::{CacheView, Snapshot},
};

/// Name of the pseudo-cache of large kmalloc.
pub const LARGE_KMALLOC: &str = "kmalloc-large";

/// Memory of the kernel that is often taken for slab and is in none of the figures.
pub const NOT_COVERED: &[&str] = &[
    "page cache",
    "page tables",
    "kernel stacks",
    "per-CPU memory",
    "vmalloc",
    "pages of drivers (network, GPU)",
    "huge pages",
    "the memory map",
];

/// The sums and what is left between them, bytes; `None` where a side is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// All caches of slabinfo.
    pub caches_bytes: Option<u64>,
    /// Large kmalloc that was allocated since attach and is not freed; `None` where nothing is traced, and where more was
    /// freed than allocated, for then some is older than the tracing.
    pub large_kmalloc_bytes: Option<u64>,
    /// meminfo's Slab.
    pub slab_bytes: Option<u64>,
    /// meminfo's SReclaimable.
    pub reclaimable_bytes: Option<u64>,
    /// Caches that sysfs calls reclaimable; `None` unless it tells of all caches that hold anything.
    pub reclaimable_caches_bytes: Option<u64>,
    /// meminfo's SUnreclaim.
    pub unreclaimable_bytes: Option<u64>,
    /// All other caches.
    pub unreclaimable_caches_bytes: Option<u64>,
    /// Slab − caches − large kmalloc as far as it is known: large kmalloc older than the tracing, and drift of the
    /// kernel's counters. Negative if the caches hold more than Slab says.
    pub gap_bytes: Option<i64>,
}

impl Whole {
    /// The gap as a share of Slab; negative if the caches hold more.
    pub fn gap_share(&self) -> Option<f64> {
        let slab = self.slab_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.gap_bytes? as f64 / slab as f64)
    }

    /// Slab less the caches alone.
    pub fn outside_caches_bytes(&self) -> Option<i64> {
        difference(self.slab_bytes?, self.caches_bytes?)
    }
}

fn difference(a: u64, b: u64) -> Option<i64> {
    i64::try_from(i128::from(a) - i128::from(b)).ok()
}

/// The sums of a snapshot.
pub fn whole(snapshot: &Snapshot) -> Whole {
    let memory = &snapshot.memory;
    let large_kmalloc_bytes = snapshot
        .caches
        .iter()
        .find(|cache| cache.pseudo && &*cache.name == LARGE_KMALLOC)
        .and_then(|cache| cache.traced)
        .and_then(|traced| traced.counts.allocated_bytes.checked_sub(traced.counts.freed_bytes));
    let gap_bytes = memory
        .slab_bytes
        .zip(memory.caches_bytes)
        .and_then(|(slab, caches)| difference(slab, caches.saturating_add(large_kmalloc_bytes.unwrap_or(0))));
    let known: Option<Vec<(bool, u64)>> =
        snapshot.caches.iter().filter_map(held).map(|(cache, held)| Some((is_reclaimable(cache)?, held))).collect();
    let sum = |wanted: bool| {
        known.as_ref().filter(|caches| !caches.is_empty()).map(|caches| {
            caches.iter().filter(|(is, _)| *is == wanted).fold(0u64, |sum, (_, held)| sum.saturating_add(*held))
        })
    };
    Whole {
        caches_bytes: memory.caches_bytes,
        large_kmalloc_bytes,
        slab_bytes: memory.slab_bytes,
        reclaimable_bytes: memory.reclaimable_bytes,
        reclaimable_caches_bytes: sum(true),
        unreclaimable_bytes: memory.unreclaimable_bytes,
        unreclaimable_caches_bytes: sum(false),
        gap_bytes,
    }
}

/// Caches that hold anything.
fn held(cache: &CacheView) -> Option<(&CacheView, u64)> {
    cache.slab.map(|slab| (cache, slab.memory_bytes)).filter(|(_, held)| *held > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use std::sync::Arc;

    use super::*;
    use crate::model::{
        sample::{EventCounts, MeminfoSample},
        samples::{row, snapshot_with},
        snapshot::{SlabAttributes, Traced},
    };

    /// Two caches that hold 8 KiB, beside so many bytes of Slab.
    fn of_slab(slab_bytes: u64) -> Snapshot {
        let rows = vec![row("dentry", [21, 21, 192, 21, 1, 1]), row("filp", [16, 16, 256, 16, 1, 1])];
        snapshot_with(rows, MeminfoSample { slab_bytes: Some(slab_bytes), ..MeminfoSample::default() })
    }

    fn with_large_kmalloc(mut snapshot: Snapshot, allocated_bytes: u64, freed_bytes: u64) -> Snapshot {
        let counts = EventCounts { allocated_bytes, freed_bytes, ..EventCounts::default() };
        let mut large = snapshot.caches[0].clone();
        (large.name, large.pseudo, large.slab) = (LARGE_KMALLOC.into(), true, None);
        large.traced = Some(Traced { counts, ..Traced::default() });
        snapshot.caches.push(large);
        snapshot
    }

    #[test]
    fn the_gap_is_what_neither_caches_nor_large_kmalloc_explain() {
        let untraced = whole(&of_slab(20_480));
        assert_eq!((untraced.gap_bytes, untraced.large_kmalloc_bytes), (Some(12_288), None));
        let traced = whole(&with_large_kmalloc(of_slab(20_480), 16_384, 8192));
        assert_eq!((traced.gap_bytes, traced.large_kmalloc_bytes), (Some(4096), Some(8192)));
        assert_eq!((traced.gap_share(), traced.outside_caches_bytes()), (Some(0.2), Some(12_288)));
    }

    #[test]
    fn more_in_caches_than_in_slab_is_a_negative_gap_and_older_frees_are_no_negative_memory() {
        assert_eq!(whole(&of_slab(4096)).gap_bytes, Some(-4096));
        let older = whole(&with_large_kmalloc(of_slab(8192), 4096, 8192));
        assert_eq!((older.large_kmalloc_bytes, older.gap_bytes), (None, Some(0)));
    }

    #[test]
    fn reclaimable_caches_are_summed_only_if_sysfs_tells_of_all() {
        let mut snapshot = of_slab(8192);
        let sums = |snapshot: &Snapshot| {
            let whole = whole(snapshot);
            (whole.reclaimable_caches_bytes, whole.unreclaimable_caches_bytes)
        };
        let with_flags = |flags: &[&'static str]| {
            Some(Arc::new(SlabAttributes { flags: flags.to_vec(), ..SlabAttributes::default() }))
        };
        snapshot.caches[0].attributes = with_flags(&["reclaim_account"]);
        assert_eq!(sums(&snapshot), (None, None));
        snapshot.caches[1].attributes = with_flags(&[]);
        assert_eq!(sums(&snapshot), (Some(4096), Some(4096)));
    }
}
