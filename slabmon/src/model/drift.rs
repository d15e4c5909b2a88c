//! Traced allocations − traced frees − change of slabinfo's active objects, per cache: frees that nobody saw, when it grows.
//!
//! Taken when slabinfo was read anew, against the first reading of this life of the cache. slabinfo has an error of its own,
//! which [`Drift::bound_objects`] states: objects that were freed may be parked on a CPU and still count as active
//! (mm/slub.c, `get_slabinfo`, which knows only what is free on the nodes' lists).

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    sample::EventCounts,
    snapshot::{CacheView, SlabAttributes, SlabState, Traced},
};

/// Full and empty sheaves that a node's barn holds at most (mm/slub.c, `MAX_FULL_SHEAVES` and `MAX_EMPTY_SHEAVES`); only the
/// full ones hold objects.
const BARN_SHEAVES: u64 = 10;

/// Sheaves of a CPU: main, spare, and one that waits for a grace period (mm/slub.c, `struct slub_percpu_sheaves`).
const CPU_SHEAVES: u64 = 3;

/// Partial slabs of a node that slabinfo looks at (mm/slub.c, `MAX_PARTIAL_TO_SCAN`).
const SCANNED_SLABS: u64 = 10_000;

/// Where the counters and slabinfo part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    /// Positive: frees that nobody saw, or objects that slabinfo does not count. Negative: allocations that nobody saw, or
    /// objects that slabinfo counts as active and are free.
    pub objects: i64,
    /// How much of it slabinfo's own error can be. `None` where sysfs does not tell.
    pub bound_objects: Option<u64>,
}

impl Drift {
    /// Frees that must have happened unseen: what of the drift slabinfo's own error cannot explain. All of a positive drift
    /// where that error is not known.
    pub fn inferred_frees(&self) -> u64 {
        let unseen = u64::try_from(self.objects).unwrap_or(0);
        match self.bound_objects {
            Some(bound) if unseen <= bound => 0,
            _ => unseen,
        }
    }

    /// The sum of two caches.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            objects: self.objects.saturating_add(other.objects),
            bound_objects: self.bound_objects.zip(other.bound_objects).map(|(a, b)| a.saturating_add(b)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Baseline {
    counts: EventCounts,
    active_objects: u64,
    /// By how much slabinfo may have been off.
    estimate_error_objects: u64,
    rows: u32,
    objects: i64,
}

/// Frees that nobody saw, over all caches; `None` if no cache has a drift.
pub fn unseen_frees(caches: &[CacheView]) -> Option<u64> {
    let drifts = caches.iter().filter_map(|cache| cache.traced?.drift);
    drifts.map(|drift| drift.inferred_frees()).reduce(u64::saturating_add)
}

/// What is remembered of each cache between readings of slabinfo.
#[derive(Debug, Default)]
pub struct DriftHistory {
    slabinfo_at: Option<Duration>,
    baselines: HashMap<Arc<str>, Baseline>,
}

impl DriftHistory {
    /// Writes the drift into each cache that both sources know. `slabinfo_at` tells whether slabinfo was read anew.
    pub fn apply(&mut self, caches: &mut [CacheView], slabinfo_at: Option<Duration>, cpus: u32) {
        let is_new = slabinfo_at.is_some() && slabinfo_at != self.slabinfo_at;
        self.slabinfo_at = slabinfo_at;
        let mut baselines = HashMap::with_capacity(caches.len());
        for cache in caches.iter_mut().filter(|cache| !cache.pseudo) {
            let (Some(traced), Some(slab)) = (&mut cache.traced, &cache.slab) else { continue };
            let baseline = match self.baselines.get(&cache.name) {
                Some(known) if is_new => known.measure(traced, slab),
                Some(known) => *known,
                None if is_new => Baseline::new(traced, slab),
                None => continue,
            };
            let parked = parked_objects(slab, cache.attributes.as_deref(), cpus);
            let estimates = estimate_error_objects(slab).saturating_add(baseline.estimate_error_objects);
            traced.drift = Some(Drift {
                objects: baseline.objects,
                // At both ends of the measured time, so twice.
                bound_objects: parked.map(|parked| parked.saturating_mul(2).saturating_add(estimates)),
            });
            baselines.insert(Arc::clone(&cache.name), baseline);
        }
        self.baselines = baselines;
    }
}

impl Baseline {
    fn new(traced: &Traced, slab: &SlabState) -> Self {
        Self {
            counts: traced.counts,
            active_objects: slab.active_objects,
            estimate_error_objects: estimate_error_objects(slab),
            rows: slab.rows,
            objects: 0,
        }
    }

    /// The drift since this baseline; a new baseline if the cache is another one now.
    fn measure(&self, traced: &Traced, slab: &SlabState) -> Self {
        let counts = &traced.counts;
        let (Some(allocations), Some(frees)) =
            (counts.allocations.checked_sub(self.counts.allocations), counts.frees.checked_sub(self.counts.frees))
        else {
            return Self::new(traced, slab);
        };
        if slab.rows != self.rows {
            return Self::new(traced, slab);
        }
        let change = i128::from(slab.active_objects) - i128::from(self.active_objects);
        let drift = i128::from(allocations) - i128::from(frees) - change;
        let objects = i64::try_from(drift).unwrap_or(if drift < 0 { i64::MIN } else { i64::MAX });
        Self { objects, ..*self }
    }
}

/// Objects that may be free and count as active: a slab and the partial slabs of each CPU, and sheaves.
fn parked_objects(slab: &SlabState, attributes: Option<&SlabAttributes>, cpus: u32) -> Option<u64> {
    let attributes = attributes?;
    let sheaf = attributes.sheaf_capacity_objects.unwrap_or(0);
    let of_cpu = slab
        .objects_per_slab?
        .checked_add(attributes.cpu_partial_objects.unwrap_or(0))?
        .checked_add(sheaf.checked_mul(CPU_SHEAVES)?)?;
    of_cpu.checked_mul(u64::from(cpus))?.checked_add(sheaf.checked_mul(BARN_SHEAVES)?)
}

/// By how many objects the kernel's estimate of a long list of partial slabs may be off (6.12 and later; older kernels
/// count). Each slab on such a list has a free object, so there are no more of them than free objects, nor than slabs.
fn estimate_error_objects(slab: &SlabState) -> u64 {
    let free = slab.objects.saturating_sub(slab.active_objects);
    let unseen_slabs = free.min(slab.slabs).saturating_sub(SCANNED_SLABS);
    unseen_slabs.saturating_mul(slab.objects_per_slab.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn cache(allocations: u64, frees: u64, active_objects: u64) -> CacheView {
        CacheView {
            name: "maple_node".into(),
            class: None,
            pseudo: false,
            traced: Some(Traced {
                counts: EventCounts { allocations, frees, ..EventCounts::default() },
                ..Traced::default()
            }),
            slab: Some(SlabState {
                active_objects,
                objects: active_objects,
                objects_per_slab: Some(16),
                rows: 1,
                ..SlabState::default()
            }),
            attributes: Some(Arc::new(SlabAttributes {
                cpu_partial_objects: Some(52),
                sheaf_capacity_objects: Some(32),
                ..SlabAttributes::default()
            })),
        }
    }

    fn drift(history: &mut DriftHistory, cache: CacheView, at_seconds: u64) -> Drift {
        let mut caches = [cache];
        history.apply(&mut caches, Some(Duration::from_secs(at_seconds)), 2);
        caches[0].traced.unwrap().drift.unwrap()
    }

    #[test]
    fn frees_that_nobody_saw_are_inferred_from_slabinfo() {
        let mut history = DriftHistory::default();
        assert_eq!(drift(&mut history, cache(1000, 10, 500), 1).objects, 0);
        let after = drift(&mut history, cache(9000, 10, 520), 2);
        assert_eq!((after.objects, after.inferred_frees()), (7980, 7980));
    }

    #[test]
    fn what_slabinfo_may_be_off_by_infers_no_frees_unless_that_is_not_known() {
        let drift = |objects, bound_objects| Drift { objects, bound_objects }.inferred_frees();
        assert_eq!((drift(500, Some(500)), drift(501, Some(500)), drift(5, None)), (0, 501, 5));
        let mut known = cache(0, 0, 0);
        known.traced.as_mut().unwrap().drift = Some(Drift { objects: 70, bound_objects: Some(1) });
        assert_eq!(unseen_frees(&[known.clone(), cache(1, 0, 0), known]), Some(140));
        assert_eq!(unseen_frees(&[cache(1, 0, 0)]), None, "unknown is not zero");
    }

    #[test]
    fn a_long_list_of_partial_slabs_is_estimated_and_a_short_one_is_not() {
        let slab = |free: u64, slabs| SlabState {
            objects: 1_000_000,
            active_objects: 1_000_000 - free,
            objects_per_slab: Some(16),
            slabs,
            ..SlabState::default()
        };
        assert_eq!(estimate_error_objects(&slab(10_000, 62_500)), 0);
        assert_eq!(estimate_error_objects(&slab(10_001, 62_500)), 16);
        assert_eq!(estimate_error_objects(&slab(900_000, 10_002)), 32);
    }

    #[test]
    fn objects_from_before_the_start_are_no_unseen_allocations() {
        let mut history = DriftHistory::default();
        drift(&mut history, cache(0, 0, 500), 1);
        assert_eq!(drift(&mut history, cache(0, 400, 100), 2).objects, 0);
    }

    #[test]
    fn a_negative_drift_infers_no_frees() {
        let mut history = DriftHistory::default();
        drift(&mut history, cache(0, 0, 0), 1);
        let after = drift(&mut history, cache(0, 0, 64), 2);
        assert_eq!((after.objects, after.inferred_frees()), (-64, 0));
    }

    #[test]
    fn between_two_readings_of_slabinfo_the_drift_stands_still() {
        let mut history = DriftHistory::default();
        drift(&mut history, cache(0, 0, 0), 1);
        let known = drift(&mut history, cache(100, 0, 0), 2);
        assert_eq!(drift(&mut history, cache(5000, 0, 0), 2), known);
    }

    #[test]
    fn a_cache_that_was_born_again_starts_anew() {
        let mut history = DriftHistory::default();
        drift(&mut history, cache(1000, 0, 0), 1);
        assert_eq!(drift(&mut history, cache(10, 0, 10), 2).objects, 0);
        assert_eq!(drift(&mut history, cache(20, 0, 10), 3).objects, 10);
    }

    #[test]
    fn a_cache_that_left_slabinfo_has_no_drift_and_starts_anew() {
        let mut history = DriftHistory::default();
        drift(&mut history, cache(1000, 0, 0), 1);
        let mut gone = [CacheView { slab: None, ..cache(2000, 0, 0) }];
        history.apply(&mut gone, Some(Duration::from_secs(2)), 2);
        assert_eq!(gone[0].traced.unwrap().drift, None);
        assert_eq!(drift(&mut history, cache(3000, 0, 0), 3).objects, 0);
    }

    #[test]
    fn the_bound_is_what_can_be_parked_and_unknown_without_sysfs() {
        let mut history = DriftHistory::default();
        let known = drift(&mut history, cache(0, 0, 0), 1);
        assert_eq!(known.bound_objects, Some(2 * (2 * (16 + 52 + 3 * 32) + 10 * 32)));
        let unknown = drift(&mut history, CacheView { attributes: None, ..cache(0, 0, 0) }, 2);
        assert_eq!(unknown.bound_objects, None);
    }
}
