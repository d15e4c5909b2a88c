#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;
use crate::model::sample::{LookupProof, LossCounts, ProgramCounts, TableUse};

const PAGE_SIZE_BYTES: u64 = 4096;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn counts(allocations: u64, frees: u64) -> EventCounts {
    EventCounts {
        allocations,
        frees,
        requested_bytes: allocations * 50,
        allocated_bytes: allocations * 64,
        freed_bytes: frees * 64,
        failures: 0,
        untraced_allocations: 0,
        untraced_frees: 0,
    }
}

fn counted(id: u32, kind: CounterKind, name: &str, counts: EventCounts) -> CacheCounts {
    CacheCounts { id: CacheId(id), kind, name: name.into(), size_bytes: Some(64), object_size_bytes: Some(64), counts }
}

fn cache(id: u32, name: &str, allocations: u64, frees: u64) -> CacheCounts {
    counted(id, CounterKind::Cache, name, counts(allocations, frees))
}

fn class_failures(id: u32, name: &str, failures: u64) -> CacheCounts {
    counted(id, CounterKind::SizeClass, name, EventCounts { failures, ..EventCounts::default() })
}

fn drain(at_seconds: u64, caches: Vec<CacheCounts>) -> CounterSample {
    CounterSample {
        cpus: 2,
        at: seconds(at_seconds),
        caches,
        programs: vec![ProgramCounts { program: "kfree", counted: 40, missed: Some(3), losses: LossCounts::default() }],
        large_duplicates: 7,
        proof: LookupProof { checks: 1000, mismatches: 0 },
        table: TableUse { slots_per_cpu: 1024, used_on_fullest_cpu: 235 },
    }
}

/// A row as slabinfo prints it: name, active objects, objects, stride, objects per slab, pages per slab, slabs.
fn row(name: &str, figures: [u64; 6]) -> SlabRow {
    let [active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs] = figures;
    SlabRow { name: name.into(), active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs }
}

/// `slabs` full slabs of one page with 64 objects of 64 bytes.
fn full_row(name: &str, slabs: u64) -> SlabRow {
    row(name, [slabs * 64, slabs * 64, 64, 64, 1, slabs])
}

fn listing(at_seconds: u64, rows: Vec<SlabRow>) -> Arc<SlabinfoSample> {
    Arc::new(SlabinfoSample { at: seconds(at_seconds), at_unix_seconds: 1e9 + at_seconds as f64, rows })
}

fn input(counters: Option<CounterSample>, slabinfo: Option<Arc<SlabinfoSample>>) -> SnapshotInput {
    SnapshotInput {
        taken_at_unix_seconds: 1_000_000_000.5,
        uptime: seconds(60),
        page_size_bytes: PAGE_SIZE_BYTES,
        counters,
        page_lookup: true,
        slabinfo,
        meminfo: None,
        attributes: Arc::default(),
        features: Arc::default(),
        collectors: Vec::new(),
        host: Arc::default(),
        machine: MachineSample::default(),
    }
}

fn derive_once(counters: Option<CounterSample>, slabinfo: Option<Arc<SlabinfoSample>>) -> Snapshot {
    Deriver::new().derive(input(counters, slabinfo))
}

fn attributes(of: &[(&str, &[&str])]) -> Arc<AttributesByName> {
    Arc::new(
        of.iter()
            .map(|&(name, aliases)| {
                let aliases = aliases.iter().map(|&alias| alias.into()).collect();
                (name.into(), Arc::new(SlabAttributes { order: Some(1), aliases, ..SlabAttributes::default() }))
            })
            .collect(),
    )
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    snapshot.caches.iter().map(|cache| &*cache.name).collect()
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> &'a CacheView {
    snapshot
        .caches
        .iter()
        .find(|cache| &*cache.name == name)
        .unwrap_or_else(|| panic!("no {name}: {:?}", names(snapshot)))
}

fn traced(snapshot: &Snapshot, name: &str) -> Traced {
    // The drift has its own tests.
    Traced { drift: None, ..find(snapshot, name).traced.expect(name) }
}

fn slab(snapshot: &Snapshot, name: &str) -> SlabState {
    find(snapshot, name).slab.expect(name)
}

#[test]
fn counters_and_rows_of_one_name_are_one_cache() {
    let snapshot = derive_once(
        Some(drain(1, vec![cache(1, "kmalloc-64", 10, 4)])),
        Some(listing(1, vec![full_row("kmalloc-64", 3)])),
    );
    assert_eq!(names(&snapshot), ["kmalloc-64"]);
    assert_eq!(traced(&snapshot, "kmalloc-64").counts, counts(10, 4));
    assert_eq!(slab(&snapshot, "kmalloc-64").memory_bytes, 3 * PAGE_SIZE_BYTES);
    assert_eq!(find(&snapshot, "kmalloc-64").class, Some(SizeClass { bytes: 64, kind: ClassKind::Normal }));
    assert!(!find(&snapshot, "kmalloc-64").pseudo);
}

#[test]
fn the_page_size_of_the_machine_counts() {
    let mut input = input(None, Some(listing(1, vec![row("dentry", [1, 2, 3, 4, 2, 5])])));
    input.page_size_bytes = 65536;
    assert_eq!(slab(&Deriver::new().derive(input), "dentry").memory_bytes, 5 * 2 * 65536);
}

#[test]
fn counters_under_an_alias_join_the_row_of_its_cache() {
    let mut input = input(
        Some(drain(1, vec![cache(1, "tcp_bind_bucket", 10, 4)])),
        Some(listing(5, vec![full_row("eventpoll_epi", 1)])),
    );
    input.attributes = attributes(&[("eventpoll_epi", &["pte_list_desc", "tcp_bind_bucket"])]);
    let snapshot = Deriver::new().derive(input);
    assert_eq!(names(&snapshot), ["eventpoll_epi"]);
    assert_eq!(traced(&snapshot, "eventpoll_epi").counts.allocations, 10);
    assert_eq!(find(&snapshot, "eventpoll_epi").attributes.as_ref().unwrap().order, Some(1));
}

#[test]
fn a_row_named_by_an_alias_keeps_its_name_and_gets_the_attributes() {
    let mut input = input(None, Some(listing(1, vec![full_row("tcp_bind_bucket", 1)])));
    input.attributes = attributes(&[("eventpoll_epi", &["tcp_bind_bucket"])]);
    let snapshot = Deriver::new().derive(input);
    assert_eq!(names(&snapshot), ["tcp_bind_bucket"]);
    assert!(find(&snapshot, "tcp_bind_bucket").attributes.is_some());
}

#[test]
fn a_cache_of_its_own_is_no_alias_although_another_claims_its_name() {
    let mut input = input(Some(drain(1, vec![cache(1, "a", 1, 0), cache(2, "b", 2, 0)])), None);
    input.attributes = attributes(&[("a", &["b"]), ("b", &[])]);
    let snapshot = Deriver::new().derive(input);
    assert_eq!(traced(&snapshot, "a").counts.allocations, 1);
    assert_eq!(traced(&snapshot, "b").counts.allocations, 2);
}

#[test]
fn new_attributes_replace_the_alias_index() {
    let mut deriver = Deriver::new();
    let rows = listing(1, vec![full_row("x", 1), full_row("y", 1)]);
    let mut first = input(Some(drain(1, vec![cache(1, "alias", 1, 0)])), Some(rows.clone()));
    first.attributes = attributes(&[("x", &["alias"])]);
    assert_eq!(traced(&deriver.derive(first), "x").counts.allocations, 1);
    let mut second = input(Some(drain(2, vec![cache(1, "alias", 1, 0)])), Some(rows));
    second.attributes = attributes(&[("y", &["alias"])]);
    let snapshot = deriver.derive(second);
    assert_eq!(traced(&snapshot, "y").counts.allocations, 1);
    assert_eq!(traced(&snapshot, "x").counts.allocations, 0);
}

#[test]
fn rows_of_one_name_are_summed() {
    // Figures of https://github.com/prometheus/node_exporter/issues/3506: one cache name for each network card.
    let snapshot = derive_once(
        None,
        Some(listing(
            1,
            vec![
                row("mlx5_fs_ftes", [44, 44, 736, 44, 8, 1]),
                row("mlx5_fs_fgs", [42, 42, 776, 42, 8, 1]),
                row("mlx5_fs_ftes", [396, 396, 736, 44, 8, 9]),
                row("mlx5_fs_fgs", [42, 42, 776, 42, 8, 1]),
            ],
        )),
    );
    assert_eq!(names(&snapshot), ["mlx5_fs_fgs", "mlx5_fs_ftes"]);
    let ftes = slab(&snapshot, "mlx5_fs_ftes");
    assert_eq!((ftes.objects, ftes.slabs, ftes.memory_bytes, ftes.rows), (440, 10, 320 << 10, 2));
    assert_eq!(ftes.object_size_bytes, Some(736));
    assert_eq!(slab(&snapshot, "mlx5_fs_fgs").objects, 84);
}

#[test]
fn rows_of_one_name_that_differ_have_no_one_object_size() {
    // Linux 6.10.3 with slab debugging on.
    let snapshot = derive_once(
        None,
        Some(listing(
            1,
            vec![row("file_lock_cache", [0, 0, 280, 29, 2, 0]), row("file_lock_cache", [0, 26, 312, 26, 2, 1])],
        )),
    );
    let sum = slab(&snapshot, "file_lock_cache");
    assert_eq!((sum.objects, sum.active_objects, sum.memory_bytes), (26, 0, 8192));
    assert_eq!((sum.object_size_bytes, sum.objects_per_slab, sum.pages_per_slab), (None, None, Some(2)));
}

#[test]
fn a_third_row_does_not_bring_back_a_size_that_two_disagreed_on() {
    let rows = vec![row("f", [0, 0, 280, 29, 2, 0]), row("f", [0, 0, 312, 29, 2, 0]), row("f", [0, 0, 312, 29, 2, 0])];
    assert_eq!(slab(&derive_once(None, Some(listing(1, rows))), "f").object_size_bytes, None);
}

#[test]
fn counters_of_two_live_caches_of_one_name_are_summed() {
    let rows = listing(1, vec![full_row("mlx5_fs_ftes", 1), full_row("mlx5_fs_ftes", 9)]);
    let mut deriver = Deriver::new();
    deriver.derive(input(
        Some(drain(1, vec![cache(1, "mlx5_fs_ftes", 10, 0), cache(2, "mlx5_fs_ftes", 5, 1)])),
        Some(rows.clone()),
    ));
    let snapshot = deriver.derive(input(
        Some(drain(3, vec![cache(1, "mlx5_fs_ftes", 20, 0), cache(2, "mlx5_fs_ftes", 7, 1)])),
        Some(rows),
    ));
    let sum = traced(&snapshot, "mlx5_fs_ftes");
    assert_eq!((sum.counts.allocations, sum.counts.frees), (27, 1));
    assert_eq!(sum.rates.unwrap().allocations_per_second, 6.0);
}

#[test]
fn rates_are_changes_a_second_between_two_drains() {
    let mut deriver = Deriver::new();
    let first = deriver.derive(input(Some(drain(1, vec![cache(1, "dentry", 100, 40)])), None));
    assert_eq!(traced(&first, "dentry").rates, None);
    let second = deriver.derive(input(Some(drain(5, vec![cache(1, "dentry", 180, 42)])), None));
    assert_eq!(
        traced(&second, "dentry").rates,
        Some(EventRates {
            allocations_per_second: 20.0,
            frees_per_second: 0.5,
            requested_bytes_per_second: 1000.0,
            allocated_bytes_per_second: 1280.0,
            freed_bytes_per_second: 32.0,
        })
    );
}

#[test]
fn the_same_drain_again_keeps_the_rates() {
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(1, vec![cache(1, "dentry", 100, 0)])), None));
    let second = deriver.derive(input(Some(drain(2, vec![cache(1, "dentry", 101, 0)])), None));
    let again = deriver.derive(input(Some(drain(2, vec![cache(1, "dentry", 101, 0)])), None));
    assert_eq!(traced(&second, "dentry"), traced(&again, "dentry"));
    assert_eq!((second.sequence, again.sequence), (2, 3));
}

#[test]
fn a_counter_that_was_reset_has_no_rates_once() {
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(1, vec![cache(1, "dentry", 100, 0)])), None));
    let reset = deriver.derive(input(Some(drain(2, vec![cache(1, "dentry", 10, 0)])), None));
    assert_eq!(traced(&reset, "dentry"), Traced { counts: counts(10, 0), rates: None, drift: None });
    let after = deriver.derive(input(Some(drain(3, vec![cache(1, "dentry", 15, 0)])), None));
    assert_eq!(traced(&after, "dentry").rates.unwrap().allocations_per_second, 5.0);
}

#[test]
fn one_counter_that_went_back_makes_all_rates_of_its_cache_unknown() {
    let before = EventCounts { failures: 2, ..counts(100, 50) };
    for now in [
        EventCounts { allocations: 99, ..before },
        EventCounts { frees: 49, ..before },
        EventCounts { requested_bytes: 1, ..before },
        EventCounts { allocated_bytes: 1, ..before },
        EventCounts { freed_bytes: 1, ..before },
        EventCounts { failures: 1, ..before },
    ] {
        assert_eq!(event_rates(&before, &now, 1.0), None, "{now:?}");
    }
}

#[test]
fn a_counter_that_wrapped_has_no_rates_rather_than_huge_ones() {
    let wrapped = |allocated_bytes| {
        counted(1, CounterKind::Cache, "dentry", EventCounts { allocated_bytes, ..EventCounts::default() })
    };
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(1, vec![wrapped(u64::MAX - 5)])), None));
    let snapshot = deriver.derive(input(Some(drain(2, vec![wrapped(10)])), None));
    assert_eq!(traced(&snapshot, "dentry").rates, None);
}

#[test]
fn drains_out_of_order_give_no_rates() {
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(5, vec![cache(1, "dentry", 100, 0)])), None));
    let snapshot = deriver.derive(input(Some(drain(4, vec![cache(1, "dentry", 200, 0)])), None));
    assert_eq!(traced(&snapshot, "dentry").rates, None);
}

#[test]
fn sums_beyond_64_bits_saturate() {
    let full = |id| {
        let most = EventCounts { allocated_bytes: u64::MAX, ..EventCounts::default() };
        counted(id, CounterKind::Cache, "x", most)
    };
    let most = row("x", [u64::MAX, u64::MAX, 1, 1, u64::MAX, u64::MAX]);
    let snapshot = derive_once(Some(drain(1, vec![full(1), full(2)])), Some(listing(1, vec![most.clone(), most])));
    assert_eq!(traced(&snapshot, "x").counts.allocated_bytes, u64::MAX);
    assert_eq!(slab(&snapshot, "x").objects, u64::MAX);
    assert_eq!(snapshot.memory.caches_bytes, Some(u64::MAX));
}

#[test]
fn growth_is_the_change_of_bytes_held_between_two_listings() {
    let mut deriver = Deriver::new();
    let first = listing(10, vec![full_row("dentry", 10), full_row("filp", 8), full_row("filp", 8)]);
    let snapshot = deriver.derive(input(None, Some(first.clone())));
    assert_eq!(slab(&snapshot, "dentry").growth_bytes_per_second, None);

    let second =
        listing(20, vec![full_row("new", 1), full_row("dentry", 30), full_row("filp", 1), full_row("filp", 5)]);
    for _drain in 0..2 {
        let snapshot = deriver.derive(input(None, Some(second.clone())));
        assert_eq!(slab(&snapshot, "dentry").growth_bytes_per_second, Some(20.0 * 4096.0 / 10.0));
        assert_eq!(slab(&snapshot, "filp").growth_bytes_per_second, Some(-10.0 * 4096.0 / 10.0));
        assert_eq!(slab(&snapshot, "new").growth_bytes_per_second, None);
    }
}

#[test]
fn a_traced_cache_that_a_later_listing_lacks_is_gone() {
    let mut deriver = Deriver::new();
    let counters = |at| Some(drain(at, vec![cache(1, "doomed", 5, 5), cache(2, "dentry", at, 0)]));
    let with = listing(1, vec![full_row("dentry", 1), full_row("doomed", 1)]);
    assert_eq!(names(&deriver.derive(input(counters(1), Some(with)))), ["dentry", "doomed"]);
    let without = listing(2, vec![full_row("dentry", 1)]);
    assert_eq!(names(&deriver.derive(input(counters(3), Some(without)))), ["dentry"]);
}

#[test]
fn a_cache_first_seen_by_the_probes_after_the_last_listing_stays() {
    let mut deriver = Deriver::new();
    let rows = listing(1, vec![full_row("dentry", 1)]);
    deriver.derive(input(Some(drain(1, vec![cache(1, "dentry", 1, 0)])), Some(rows.clone())));
    for at in 2..5 {
        let counters = drain(at, vec![cache(1, "dentry", 1, 0), cache(2, "newborn", 1, 0)]);
        let snapshot = deriver.derive(input(Some(counters), Some(rows.clone())));
        assert_eq!(names(&snapshot), ["dentry", "newborn"], "{at}");
    }
}

#[test]
fn a_cache_with_an_event_after_the_listing_that_lacks_it_stays() {
    let mut deriver = Deriver::new();
    let rows = listing(2, vec![full_row("dentry", 1)]);
    deriver.derive(input(Some(drain(1, vec![cache(1, "busy", 1, 0)])), None));
    let snapshot = deriver.derive(input(Some(drain(3, vec![cache(1, "busy", 2, 0)])), Some(rows)));
    assert_eq!(names(&snapshot), ["busy", "dentry"]);
}

#[test]
fn without_slabinfo_every_traced_cache_stays() {
    let mut deriver = Deriver::new();
    for at in 1..4 {
        let snapshot = deriver.derive(input(Some(drain(at, vec![cache(1, "dentry", 1, 0)])), None));
        assert_eq!(names(&snapshot), ["dentry"]);
        assert_eq!(find(&snapshot, "dentry").slab, None);
    }
}

#[test]
fn a_reborn_cache_starts_anew_and_is_not_added_to_its_past_life() {
    let mut deriver = Deriver::new();
    let rows = listing(1, vec![full_row("reborn", 1)]);
    deriver.derive(input(Some(drain(1, vec![cache(1, "reborn", 1000, 900)])), Some(rows.clone())));
    let born = deriver.derive(input(
        Some(drain(2, vec![cache(1, "reborn", 1000, 1000), cache(2, "reborn", 3, 0)])),
        Some(rows.clone()),
    ));
    assert_eq!(traced(&born, "reborn"), Traced { counts: counts(3, 0), rates: None, drift: None });
    let later = deriver
        .derive(input(Some(drain(3, vec![cache(2, "reborn", 8, 0), cache(1, "reborn", 1000, 1000)])), Some(rows)));
    assert_eq!(traced(&later, "reborn").counts, counts(8, 0));
    assert_eq!(traced(&later, "reborn").rates.unwrap().allocations_per_second, 5.0);
}

#[test]
fn of_two_lives_and_no_slabinfo_the_newest_is_shown() {
    let snapshot = derive_once(Some(drain(1, vec![cache(2, "reborn", 3, 0), cache(1, "reborn", 1000, 0)])), None);
    assert_eq!(traced(&snapshot, "reborn").counts, counts(3, 0));
}

#[test]
fn of_three_lives_and_two_rows_the_two_newest_are_summed() {
    let rows = listing(1, vec![full_row("x", 1), full_row("x", 1)]);
    let lives = vec![cache(3, "x", 4, 0), cache(1, "x", 1, 0), cache(2, "x", 2, 0)];
    assert_eq!(traced(&derive_once(Some(drain(1, lives)), Some(rows)), "x").counts, counts(6, 0));
}

#[test]
fn a_life_that_left_and_came_back_does_not_subtract_from_before() {
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(1, vec![cache(1, "x", 100, 0)])), None));
    deriver.derive(input(Some(drain(2, vec![])), None));
    let snapshot = deriver.derive(input(Some(drain(3, vec![cache(1, "x", 150, 0)])), None));
    assert_eq!(traced(&snapshot, "x").rates, None);
}

#[test]
fn a_cache_in_slabinfo_without_events_is_traced_with_zeros() {
    let mut deriver = Deriver::new();
    let rows = listing(1, vec![full_row("idle", 1)]);
    let first = deriver.derive(input(Some(drain(1, vec![])), Some(rows.clone())));
    assert_eq!(traced(&first, "idle"), Traced::default());
    let second = deriver.derive(input(Some(drain(2, vec![])), Some(rows)));
    assert_eq!(traced(&second, "idle").rates, Some(EventRates::default()));
}

#[test]
fn without_tracing_nothing_is_traced_and_nothing_is_zero() {
    let snapshot = derive_once(None, Some(listing(1, vec![full_row("idle", 1)])));
    assert_eq!(find(&snapshot, "idle").traced, None);
    assert_eq!((snapshot.proof, snapshot.table), (None, None));
    assert!(snapshot.programs.is_empty());
}

#[test]
fn without_page_lookup_a_cache_without_events_is_unknown_not_zero() {
    let mut input = input(
        Some(drain(1, vec![cache(1, "dentry", 1, 0)])),
        Some(listing(1, vec![full_row("dentry", 1), full_row("kmalloc-64", 1)])),
    );
    input.page_lookup = false;
    let snapshot = Deriver::new().derive(input);
    assert_eq!(find(&snapshot, "kmalloc-64").traced, None);
    assert_eq!(traced(&snapshot, "dentry").counts.allocations, 1);
    assert_eq!(snapshot.proof, None);
}

#[test]
fn tracing_that_stopped_and_started_has_no_rates_over_the_gap() {
    let mut deriver = Deriver::new();
    deriver.derive(input(Some(drain(1, vec![cache(1, "x", 1, 0)])), None));
    deriver.derive(input(None, None));
    let snapshot = deriver.derive(input(Some(drain(3, vec![cache(1, "x", 5, 0)])), None));
    assert_eq!(traced(&snapshot, "x").rates, None);
}

#[test]
fn large_kmalloc_is_a_pseudo_cache() {
    let large = counted(1, CounterKind::LargeKmalloc, "kmalloc-large", counts(3, 1));
    let mut deriver = Deriver::new();
    for at in 1..3 {
        // No listing ever has it, and it stays.
        let snapshot = deriver
            .derive(input(Some(drain(at, vec![large.clone()])), Some(listing(at + 1, vec![full_row("dentry", 1)]))));
        let view = find(&snapshot, "kmalloc-large");
        assert!(view.pseudo);
        assert_eq!((view.class, view.slab), (None, None));
        assert_eq!(view.traced.unwrap().counts, counts(3, 1));
    }
}

#[test]
fn failures_of_a_class_count_as_failures_of_its_normal_cache() {
    let rows = listing(1, vec![full_row("kmalloc-64", 1), full_row("kmalloc-cg-64", 1)]);
    let snapshot = derive_once(
        Some(drain(1, vec![class_failures(9, "kmalloc-64", 5), cache(1, "kmalloc-64", 10, 0)])),
        Some(rows),
    );
    assert_eq!(names(&snapshot), ["kmalloc-64", "kmalloc-cg-64"]);
    assert_eq!(traced(&snapshot, "kmalloc-64").counts, EventCounts { failures: 5, ..counts(10, 0) });
    assert_eq!(traced(&snapshot, "kmalloc-cg-64").counts.failures, 0);
}

#[test]
fn failures_of_a_class_find_a_cache_that_spells_its_size_out() {
    let snapshot = derive_once(
        Some(drain(1, vec![class_failures(9, "kmalloc-1k", 5)])),
        Some(listing(1, vec![full_row("kmalloc-1024", 1)])),
    );
    assert_eq!(names(&snapshot), ["kmalloc-1024"]);
    assert_eq!(traced(&snapshot, "kmalloc-1024").counts.failures, 5);
}

#[test]
fn failures_of_a_class_without_a_cache_are_a_pseudo_cache() {
    let snapshot = derive_once(Some(drain(1, vec![class_failures(9, "kmalloc-64", 5)])), None);
    let view = find(&snapshot, "kmalloc-class-64");
    assert!(view.pseudo);
    assert_eq!(view.class, Some(SizeClass { bytes: 64, kind: ClassKind::Other }));
    assert_eq!(view.traced.unwrap().counts.failures, 5);
}

#[test]
fn all_kmallocs_of_a_class_are_never_those_of_one_cache() {
    let mut class = counted(9, CounterKind::SizeClass, "kmalloc-64", counts(100, 0));
    class.counts.failures = 2;
    let mut input = input(Some(drain(1, vec![class])), Some(listing(1, vec![full_row("kmalloc-64", 1)])));
    input.page_lookup = false;
    let snapshot = Deriver::new().derive(input);
    assert_eq!(names(&snapshot), ["kmalloc-64", "kmalloc-class-64"]);
    assert_eq!(find(&snapshot, "kmalloc-64").traced, None);
    let class = traced(&snapshot, "kmalloc-class-64").counts;
    assert_eq!((class.allocations, class.failures), (100, 2));
}

#[test]
fn when_the_page_lookup_was_lost_failures_stay_where_they_were() {
    let mut class = counted(9, CounterKind::SizeClass, "kmalloc-64", counts(100, 0));
    class.counts.failures = 2;
    let mut input = input(Some(drain(1, vec![cache(1, "kmalloc-64", 7, 0), class])), None);
    input.page_lookup = false;
    let snapshot = Deriver::new().derive(input);
    assert_eq!(traced(&snapshot, "kmalloc-64").counts, EventCounts { failures: 2, ..counts(7, 0) });
    assert_eq!(traced(&snapshot, "kmalloc-class-64").counts, counts(100, 0));
}

#[test]
fn the_gap_between_meminfo_and_the_caches_may_be_negative() {
    let mut input = input(None, Some(listing(1, vec![full_row("dentry", 3), full_row("filp", 2)])));
    input.meminfo =
        Some(MeminfoSample { slab_bytes: Some(4 * 4096), total_bytes: Some(1 << 30), ..Default::default() });
    let memory = Deriver::new().derive(input).memory;
    assert_eq!((memory.caches_bytes, memory.unexplained_bytes), (Some(5 * 4096), Some(-4096)));
    assert_eq!((memory.total_bytes, memory.reclaimable_bytes), (Some(1 << 30), None));
}

#[test]
fn the_gap_is_unknown_without_either_side() {
    let mut with_meminfo = input(None, None);
    with_meminfo.meminfo = Some(MeminfoSample { slab_bytes: Some(4096), ..Default::default() });
    let memory = Deriver::new().derive(with_meminfo).memory;
    assert_eq!((memory.slab_bytes, memory.caches_bytes, memory.unexplained_bytes), (Some(4096), None, None));
    let memory = derive_once(None, Some(listing(1, vec![]))).memory;
    assert_eq!((memory.slab_bytes, memory.caches_bytes, memory.unexplained_bytes), (None, Some(0), None));
}

#[test]
fn names_are_sorted_and_unique() {
    let rows =
        vec![full_row("zs", 1), full_row("UDP", 1), full_row("a", 1), full_row("a", 1), full_row("page->ptl", 1)];
    let counters = vec![
        cache(1, "z", 1, 0),
        cache(2, "a", 1, 0),
        counted(3, CounterKind::LargeKmalloc, "kmalloc-large", counts(1, 0)),
    ];
    let snapshot = derive_once(Some(drain(1, counters)), Some(listing(1, rows)));
    assert_eq!(names(&snapshot), ["UDP", "a", "kmalloc-large", "page->ptl", "z", "zs"]);
}

#[test]
fn what_is_said_of_the_daemon_goes_through() {
    let mut input = input(Some(drain(1, vec![])), Some(listing(4, vec![])));
    input.collectors = vec![CollectorState { collector: "slabinfo", success: true, duration: seconds(0), error: None }];
    let snapshot = Deriver::new().derive(input.clone());
    assert_eq!(snapshot.sequence, 1);
    assert_eq!(snapshot.taken_at_unix_seconds, 1_000_000_000.5);
    assert_eq!(snapshot.slabinfo_at_unix_seconds, Some(1_000_000_004.0));
    assert_eq!(snapshot.collectors, input.collectors);
    assert_eq!(snapshot.large_duplicates, 7);
    assert_eq!(snapshot.proof, Some(LookupProof { checks: 1000, mismatches: 0 }));
    assert_eq!(snapshot.table.unwrap().used_on_fullest_cpu, 235);
    assert_eq!(snapshot.programs[0].missed, Some(3));
}

/// Id, name and allocations of a life.
type Lives = Vec<(u32, u8, u64)>;
/// Name and slabs of a row.
type Listed = Vec<(u8, u64)>;

/// One step of a random history: counters of some lives, and a listing now and then.
fn any_step() -> impl Strategy<Value = (Lives, Option<Listed>)> {
    (
        prop::collection::vec((0u32..6, 0u8..4, any::<u64>()), 0..6),
        prop::option::of(prop::collection::vec((0u8..4, 0u64..1000), 0..6)),
    )
}

proptest! {
    #[test]
    fn whatever_is_read_names_are_unique_and_rates_are_never_negative(steps in prop::collection::vec(any_step(), 1..12)) {
        let mut deriver = Deriver::new();
        let mut rows = None;
        for (step, (lives, listed)) in (1u64..).zip(steps) {
            let mut caches: Vec<CacheCounts> = lives
                .iter()
                .map(|&(id, name, allocations)| {
                    let counts = EventCounts { allocations, ..EventCounts::default() };
                    counted(id, CounterKind::Cache, &format!("cache{name}"), counts)
                })
                .collect();
            caches.sort_by_key(|cache| cache.id);
            caches.dedup_by_key(|cache| cache.id);
            if let Some(listed) = listed {
                rows = Some(listing(step, listed.iter().map(|(name, slabs)| full_row(&format!("cache{name}"), *slabs)).collect()));
            }
            let snapshot = deriver.derive(input(Some(drain(step, caches)), rows.clone()));
            prop_assert!(snapshot.caches.is_sorted_by(|a, b| a.name < b.name));
            for cache in &snapshot.caches {
                prop_assert!(cache.traced.is_some());
                if let Some(rates) = cache.traced.and_then(|traced| traced.rates) {
                    prop_assert!(rates.allocations_per_second >= 0.0 && rates.allocations_per_second.is_finite());
                }
            }
            let held: u64 = snapshot.caches.iter().filter_map(|cache| cache.slab).map(|slab| slab.memory_bytes).sum();
            prop_assert_eq!(snapshot.memory.caches_bytes, rows.as_ref().map(|_| held));
        }
    }
}

#[test]
fn frees_that_nobody_saw_are_a_drift_of_the_cache() {
    let mut deriver = Deriver::new();
    let counted = |allocations| counted(1, CounterKind::Cache, "maple_node", counts(allocations, 0));
    let first = drain(1, vec![counted(100)]);
    deriver.derive(input(Some(first), Some(listing(1, vec![full_row("maple_node", 1)]))));
    let second = drain(2, vec![counted(400)]);
    let snapshot = deriver.derive(input(Some(second), Some(listing(2, vec![full_row("maple_node", 1)]))));
    assert_eq!(find(&snapshot, "maple_node").traced.unwrap().drift.unwrap().objects, 300);
}
