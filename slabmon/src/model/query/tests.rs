#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use super::*;
use crate::model::{
    sample::EventCounts,
    snapshot::{EventRates, Evidence, MemoryTotals, SlabAttributes, Traced},
};

fn cache(name: &str, class: Option<(u64, ClassKind)>) -> CacheView {
    CacheView {
        name: name.into(),
        class: class.map(|(bytes, kind)| SizeClass { bytes, kind }),
        pseudo: false,
        traced: None,
        slab: None,
        attributes: None,
    }
}

fn slab(memory_bytes: u64, stride: u64, growth: Option<f64>) -> SlabState {
    SlabState {
        active_objects: memory_bytes / stride / 2,
        objects: memory_bytes / stride,
        object_size_bytes: Some(stride),
        objects_per_slab: Some(4096 / stride),
        pages_per_slab: Some(1),
        slabs: memory_bytes / 4096,
        memory_bytes,
        rows: 1,
        growth_bytes_per_second: growth,
    }
}

fn traced(allocations: u64, rate: Option<f64>) -> Traced {
    Traced {
        counts: EventCounts { allocations, ..EventCounts::default() },
        rates: rate.map(|rate| EventRates { allocations_per_second: rate, ..EventRates::default() }),
        drift: None,
    }
}

fn snapshot(caches: Vec<CacheView>) -> Snapshot {
    Snapshot {
        sequence: 1,
        taken_at_unix_seconds: 0.0,
        slabinfo_at_unix_seconds: None,
        uptime: Duration::ZERO,
        caches,
        memory: MemoryTotals::default(),
        programs: vec![],
        large_duplicates: 0,
        proof: None,
        table: None,
        features: [].into(),
        collectors: vec![],
        host: [].into(),
        evidence: Evidence::default(),
    }
}

fn example() -> Snapshot {
    snapshot(vec![
        CacheView {
            slab: Some(slab(409_600, 192, Some(1.0))),
            attributes: Some(Arc::new(SlabAttributes {
                flags: vec!["reclaim_account"],
                aliases: vec!["old_dentry".into()],
                ..SlabAttributes::default()
            })),
            traced: Some(traced(7, Some(2.0))),
            ..cache("dentry", None)
        },
        CacheView {
            slab: Some(slab(8192, 64, Some(-4.0))),
            traced: Some(traced(5, Some(9.0))),
            ..cache("kmalloc-64", Some((64, ClassKind::Normal)))
        },
        CacheView {
            slab: Some(slab(4096, 64, Some(10.0))),
            traced: Some(traced(3, Some(1.5))),
            ..cache("kmalloc-cg-64", Some((64, ClassKind::Accounted)))
        },
        CacheView { traced: Some(traced(2, None)), pseudo: true, ..cache("kmalloc-large", None) },
        CacheView {
            slab: Some(slab(12_288, 256, None)),
            ..cache("kmalloc-rnd-03-64", Some((64, ClassKind::Partitioned)))
        },
    ])
}

fn names(snapshot: &Snapshot, query: &TopQuery) -> Vec<String> {
    select(snapshot, query).rows.iter().map(|row| row.view.name.to_string()).collect()
}

#[test]
fn rows_go_downwards_with_the_unknown_last() {
    let snapshot = example();
    let by = |by| names(&snapshot, &TopQuery { by, ..TopQuery::default() });
    assert_eq!(by(SortBy::Bytes), ["dentry", "kmalloc-rnd-03-64", "kmalloc-64", "kmalloc-cg-64", "kmalloc-large"]);
    assert_eq!(by(SortBy::Growth), ["kmalloc-cg-64", "dentry", "kmalloc-64", "kmalloc-large", "kmalloc-rnd-03-64"]);
    assert_eq!(by(SortBy::AllocRate), ["kmalloc-64", "dentry", "kmalloc-cg-64", "kmalloc-large", "kmalloc-rnd-03-64"]);
    assert_eq!(by(SortBy::Name), ["dentry", "kmalloc-64", "kmalloc-cg-64", "kmalloc-large", "kmalloc-rnd-03-64"]);
}

#[test]
fn every_order_has_its_word() {
    for word in SortBy::NAMES {
        assert_eq!(word.parse::<SortBy>().unwrap().as_str(), *word);
    }
    let error = "size".parse::<SortBy>().unwrap_err();
    assert_eq!(error.to_string(), "`size` is none of bytes, objects, alloc_rate, free_rate, growth, requested, name");
}

#[test]
fn the_limit_cuts_rows_and_not_the_count() {
    let snapshot = example();
    let selection = select(&snapshot, &TopQuery { limit: Some(2), ..TopQuery::default() });
    assert_eq!((selection.rows.len(), selection.matched), (2, 5));
}

#[test]
fn the_filter_knows_aliases_and_tells_which_matched() {
    let snapshot = example();
    let filter = |pattern| Some(compile_pattern(pattern).unwrap());
    let selection = select(&snapshot, &TopQuery { filter: filter("^old"), ..TopQuery::default() });
    assert_eq!(selection.rows.len(), 1);
    assert_eq!(&*selection.rows[0].view.name, "dentry");
    assert_eq!(selection.rows[0].matched_alias.as_deref(), Some("old_dentry"));
    let selection = select(&snapshot, &TopQuery { filter: filter("dentry"), ..TopQuery::default() });
    assert_eq!(selection.rows[0].matched_alias, None, "the name itself matched");
}

#[test]
fn a_class_sums_all_kinds_and_leaves_other_caches_alone() {
    let snapshot = example();
    let query = TopQuery { grouping: Grouping::Class, ..TopQuery::default() };
    assert_eq!(names(&snapshot, &query), ["dentry", "kmalloc-64", "kmalloc-large"]);
    let selection = select(&snapshot, &query);
    let class = &selection.rows[1];
    let slab = class.view.slab.unwrap();
    assert_eq!(slab.memory_bytes, 8192 + 4096 + 12_288);
    assert_eq!(slab.objects, 128 + 64 + 48);
    assert_eq!(slab.rows, 3);
    assert_eq!(slab.object_size_bytes, None, "strides differ");
    assert_eq!(slab.pages_per_slab, Some(1));
    assert_eq!(slab.growth_bytes_per_second, None, "one member's growth is not known");
    let traced = class.view.traced.unwrap();
    assert_eq!(traced.counts.allocations, 8);
    assert_eq!(traced.rates.unwrap().allocations_per_second, 10.5);
    let members: Vec<&str> = class.members.as_ref().unwrap().iter().map(|member| &*member.name).collect();
    assert_eq!(members, ["kmalloc-64", "kmalloc-cg-64", "kmalloc-rnd-03-64"]);
}

#[test]
fn a_filter_on_a_class_keeps_it_whole() {
    let snapshot = example();
    let filter = Some(compile_pattern("rnd").unwrap());
    let selection = select(&snapshot, &TopQuery { filter, grouping: Grouping::Class, ..TopQuery::default() });
    assert_eq!(selection.rows.len(), 1);
    assert_eq!(selection.rows[0].members.as_ref().unwrap().len(), 3);
}

#[test]
fn a_class_is_found_by_size_by_name_and_by_member() {
    let snapshot = example();
    for name in ["64", "kmalloc-64", "size-64", "kmalloc-cg-64", "kmalloc-rnd-03-64"] {
        assert_eq!(find_class(&snapshot, name).unwrap().members.unwrap().len(), 3, "{name}");
    }
    for name in ["", "k", "65", "dentry", "kmalloc-", "kmalloc-large", "-64", "99999999999999999999M", "1kk"] {
        assert_eq!(find_class(&snapshot, name), None, "{name}");
    }
    assert_eq!(class_bytes_of("kmalloc-2M"), Some(2 << 20));
    assert_eq!(class_bytes_of("8k"), Some(8192));
}

#[test]
fn class_names_are_those_of_the_kernel() {
    let cases =
        [(8, "kmalloc-8"), (192, "kmalloc-192"), (1024, "kmalloc-1k"), (8192, "kmalloc-8k"), (2 << 20, "kmalloc-2M")];
    for (bytes, name) in cases {
        assert_eq!(class_name(bytes), name);
    }
}

#[test]
fn a_name_is_found_before_an_alias() {
    let mut snapshot = example();
    assert!(find(&snapshot, "old_dentry").unwrap().by_alias);
    snapshot.caches.push(cache("old_dentry", None));
    assert!(!find(&snapshot, "old_dentry").unwrap().by_alias);
    assert_eq!(find(&snapshot, "nothing"), None);
}

#[test]
fn near_names_are_like_the_one_asked_for() {
    let snapshot = example();
    assert_eq!(near_names(&snapshot, "dentri", 5), ["dentry"]);
    assert_eq!(near_names(&snapshot, "KMALLOC-63", 2), ["kmalloc-64", "kmalloc-cg-64"]);
    assert_eq!(near_names(&snapshot, "rnd", 5), ["kmalloc-rnd-03-64"]);
    assert!(near_names(&snapshot, "zzzzzz", 5).is_empty());
}

#[test]
fn patterns_that_cost_too_much_are_refused_in_one_line() {
    for pattern in ["(", "[z-a]", "a{1000}{1000}{1000}", &"a".repeat(1001), "\\p{Foo}"] {
        let message = compile_pattern(pattern).unwrap_err().to_string();
        assert!(
            message.starts_with("not a regular expression that can be used: ") && !message.contains('\n'),
            "{message}"
        );
    }
}

#[test]
fn reclaimable_is_unknown_without_sysfs() {
    let snapshot = example();
    assert_eq!(is_reclaimable(&snapshot.caches[0]), Some(true));
    assert_eq!(is_reclaimable(&snapshot.caches[1]), None);
}
