#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::{
    sample::EventCounts,
    samples::{row, snapshot},
    snapshot::{SlabAttributes, Traced},
};

fn only(numbers: [u64; 6], name: &str) -> CacheView {
    snapshot(vec![row(name, numbers)]).caches.remove(0)
}

fn with_object_size(mut cache: CacheView, object_size_bytes: u64) -> CacheView {
    cache.attributes =
        Some(Arc::new(SlabAttributes { object_size_bytes: Some(object_size_bytes), ..SlabAttributes::default() }));
    cache
}

#[test]
fn the_parts_of_a_cache_add_up_to_what_it_holds() {
    // 3 slabs of 8 KiB with 7 objects of 1100 bytes each; 15 in use, 1000 bytes of them the user's.
    let cache = with_object_size(only([15, 21, 1100, 7, 2, 3], "inode"), 1000);
    let waste = cache_waste(&cache).unwrap();
    let expected = Waterfall {
        held_bytes: 24_576,
        requested_bytes: Some(15_000),
        rounding_bytes: Some(0),
        debug_bytes: Some(1500),
        free_bytes: Some(6600),
        tail_bytes: Some(1476),
        unknown_bytes: 0,
    };
    assert_eq!(waste.waterfall, expected);
    assert_eq!(expected.sum_bytes(), 24_576);
    assert_eq!((waste.used_per_slab_bytes, waste.empty_per_slab_bytes), (Some(7700), Some(492)));
    assert_eq!(waste.slab_waste_bytes(3), Some(1476));
}

#[test]
fn without_sysfs_the_live_bytes_are_one_unknown_part() {
    let waterfall = cache_waste(&only([15, 21, 1100, 7, 2, 3], "inode")).unwrap().waterfall;
    assert_eq!((waterfall.requested_bytes, waterfall.rounding_bytes, waterfall.debug_bytes), (None, None, None));
    assert_eq!(waterfall.unknown_bytes, 16_500);
    assert_eq!(waterfall.sum_bytes(), waterfall.held_bytes);
}

#[test]
fn a_bucket_with_debugging_is_padded_to_its_stride() {
    let waterfall = cache_waste(&only([2, 2, 24_576, 1, 8, 2], "kmalloc-8k")).unwrap().waterfall;
    assert_eq!(waterfall.debug_bytes, Some(2 * (24_576 - 8192)));
    assert_eq!(waterfall.unknown_bytes, 2 * 8192, "what was asked of a bucket is not known without events");
    assert_eq!(waterfall.sum_bytes(), 65_536);
}

#[test]
fn rounding_comes_from_enough_events_and_from_no_fewer() {
    let mut cache = only([64, 64, 64, 64, 1, 1], "kmalloc-64");
    let traced = |allocations| {
        let counts = EventCounts { allocations, requested_bytes: 40 * allocations, ..EventCounts::default() };
        Some(Traced { counts, ..Traced::default() })
    };
    cache.traced = traced(MIN_TRACED_ALLOCATIONS - 1);
    assert_eq!(cache_waste(&cache).unwrap().waterfall.rounding_bytes, None);
    cache.traced = traced(MIN_TRACED_ALLOCATIONS);
    let waterfall = cache_waste(&cache).unwrap().waterfall;
    assert_eq!((waterfall.requested_bytes, waterfall.rounding_bytes), (Some(40 * 64), Some(24 * 64)));
    assert_eq!((waterfall.unknown_bytes, waterfall.sum_bytes()), (0, 4096));
}

#[test]
fn an_impossible_row_is_flagged_and_cut_to_what_can_be() {
    let waste = cache_waste(&only([500, 400, 64, 64, 1, 1], "broken")).unwrap();
    let all = [Anomaly::ActiveAboveObjects, Anomaly::ObjectsAboveSlabs, Anomaly::ObjectsAboveHeld];
    assert_eq!(waste.anomalies, all);
    let waterfall = waste.waterfall;
    assert_eq!((waterfall.unknown_bytes, waterfall.free_bytes, waterfall.tail_bytes), (4096, Some(0), Some(0)));

    let large_object = with_object_size(only([1, 64, 64, 64, 1, 1], "odd"), 100);
    let waste = cache_waste(&large_object).unwrap();
    assert_eq!(waste.anomalies, [Anomaly::ObjectAboveStride]);
    assert_eq!(waste.waterfall.debug_bytes, None);
}

#[test]
fn rows_of_one_name_and_of_two_sizes_are_unknown_as_a_whole() {
    let twice = vec![row("file_lock_cache", [0, 0, 280, 14, 1, 0]), row("file_lock_cache", [0, 26, 312, 13, 1, 2])];
    let waste = cache_waste(&snapshot(twice).caches[0]).unwrap();
    assert_eq!((waste.waterfall.held_bytes, waste.waterfall.unknown_bytes), (8192, 8192));
    assert_eq!(waste.anomalies, []);
}

#[test]
fn the_total_keeps_the_known_parts_and_the_whole() {
    let snapshot = snapshot(vec![row("a", [1, 2, 2048, 2, 1, 1]), row("kmalloc-1k", [1, 1, 3072, 1, 1, 1])]);
    let total = total_waste(&snapshot);
    assert_eq!((total.held_bytes, total.sum_bytes()), (8192, 8192));
    assert_eq!((total.debug_bytes, total.free_bytes, total.tail_bytes), (Some(2048), Some(2048), Some(1024)));
    assert_eq!((total.requested_bytes, total.unknown_bytes), (None, 2048 + 1024));
}

/// Numbers of a row that can be, and any at all.
fn numbers() -> impl Strategy<Value = [u64; 6]> {
    let can_be = (0u64..1 << 20, 1u64..10_000, 0u32..4).prop_flat_map(|(slabs, size, order)| {
        let pages = 1u64 << order;
        let per_slab = (pages * 4096 / size).max(1);
        let objects = slabs * per_slab;
        (0..=objects).prop_map(move |active| [active, objects, size, per_slab, pages, slabs])
    });
    let any_value = prop_oneof![Just(0), Just(1), Just(u64::MAX), 0..100u64, any::<u64>()];
    prop_oneof![can_be, prop::array::uniform6(any_value)]
}

proptest! {
    #[test]
    fn parts_are_within_what_is_held_and_sum_to_it_for_any_row(
        numbers in numbers(),
        object in prop::option::of(any::<u64>()),
        is_small in any::<bool>(),
        is_bucket in any::<bool>(),
        allocations in any::<u64>(),
        requested in any::<u64>(),
    ) {
        let mut cache = only(numbers, if is_bucket { "kmalloc-64" } else { "thing" });
        if let Some(object) = object {
            cache = with_object_size(cache, if is_small { object % 4096 } else { object });
        }
        let counts = EventCounts { allocations, requested_bytes: requested, ..EventCounts::default() };
        cache.traced = Some(Traced { counts, ..Traced::default() });
        let waste = cache_waste(&cache).unwrap();
        let waterfall = waste.waterfall;
        prop_assert_eq!(waterfall.held_bytes, cache.slab.unwrap().memory_bytes);
        let exact: u128 = Part::ALL.iter().filter_map(|part| waterfall.part_bytes(*part)).map(u128::from).sum();
        prop_assert_eq!(exact, u128::from(waterfall.held_bytes));
        for part in Part::ALL {
            if let Some(share) = waterfall.share(part) {
                prop_assert!((0.0..=1.0).contains(&share));
            }
        }
        let [active, objects, _, per_slab, _, slabs] = numbers;
        prop_assert_eq!(waste.anomalies.contains(&Anomaly::ActiveAboveObjects), active > objects);
        let above = u128::from(objects) > u128::from(per_slab) * u128::from(slabs);
        prop_assert_eq!(waste.anomalies.contains(&Anomaly::ObjectsAboveSlabs), above);
    }
}
