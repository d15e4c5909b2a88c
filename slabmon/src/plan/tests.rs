//! One host fact flipped at a time: what it switches off is off with its reason, and nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::host::facts::{Capabilities, Prototypes};

const BPF: u64 = 1 << 39;
const PERFMON: u64 = 1 << 38;
const SYS_ADMIN: u64 = 1 << 21;

/// What is flipped, and how.
type Flip<T> = (&'static str, fn(&mut T));

fn parameters(types: &[&str]) -> Option<Vec<Parameter>> {
    Some(types.iter().map(|name| Parameter { name: String::new(), type_name: (*name).to_owned() }).collect())
}

const SITE: &str = "long unsigned int";
const OBJECT: &str = "const void *";
const SIZE: &str = "size_t";

/// Linux 6.18 on x86_64, all of it permitted.
fn capable_host() -> HostFacts {
    HostFacts {
        kernel_release: Some("6.18.44".into()),
        architecture: "x86_64".into(),
        page_size_bytes: 4096,
        possible_cpus: 2,
        lockdown: Some(Lockdown::None),
        capabilities: Some(Capabilities(BPF | PERFMON)),
        btf: Ok(capable_btf()),
    }
}

fn capable_btf() -> BtfFacts {
    BtfFacts {
        prototypes: Prototypes {
            kmalloc: parameters(&[SITE, OBJECT, SIZE, SIZE, "gfp_t", "int"]),
            kmalloc_node: None,
            kfree: parameters(&[SITE, OBJECT]),
            kmem_cache_alloc: parameters(&[SITE, OBJECT, "struct kmem_cache *", "gfp_t", "int"]),
            kmem_cache_alloc_node: None,
            kmem_cache_free: parameters(&[SITE, OBJECT, "const struct kmem_cache *"]),
        },
        page_struct_bytes: Some(64),
        page_head: Some(8),
        head_may_be_mask: false,
        page_flags: Some(0),
        page_type: Some(48),
        slab_mark: Some(SlabMark::PageType(0xf5)),
        large_type: Some(0xf8),
        head_flag_bit: Some(6),
        compound_order: Some(64),
        slab_cache: Some(8),
        slab_freelist: Some(32),
        slab_list: Some(16),
        cache_size: Some(32),
        cache_object_size: Some(36),
        cache_name: Some(104),
        cache_node: Some(224),
        node_partial: Some(16),
        is_slub: true,
        has_cache_iterator: true,
        large_fires_twice: true,
        guards_recursion: true,
    }
}

fn plan(facts: &HostFacts) -> ProbePlan {
    ProbePlan::new(facts, &PlanOptions::default())
}

fn plan_with(change: impl FnOnce(&mut BtfFacts)) -> ProbePlan {
    let mut facts = capable_host();
    change(facts.btf.as_mut().unwrap());
    plan(&facts)
}

fn state<'p>(plan: &'p ProbePlan, name: &str) -> (bool, &'p str) {
    let feature = plan.feature(name).unwrap_or_else(|| panic!("{name} is listed"));
    (feature.enabled, &feature.reason)
}

fn events(plan: &ProbePlan) -> Vec<&str> {
    plan.programs.iter().map(|planned| planned.event).collect()
}

/// Names of the features that are in another state than on the capable host.
fn changed(plan_now: &ProbePlan) -> Vec<&'static str> {
    let capable = plan(&capable_host());
    assert_eq!(plan_now.features.len(), capable.features.len(), "the same features are listed");
    let mut names: Vec<_> = capable
        .features
        .iter()
        .filter(|feature| plan_now.feature(feature.name).is_none_or(|now| now.enabled != feature.enabled))
        .map(|feature| feature.name)
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_capable_host_is_traced_whole() {
    let plan = plan(&capable_host());
    assert_eq!(events(&plan), ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"]);
    assert!(plan.page_lookup && plan.iterator && !plan.calibrate_by_events);
    let off: Vec<_> = plan.features.iter().filter(|feature| !feature.enabled).map(|feature| feature.name).collect();
    assert_eq!(off, ["kmalloc_node", "kmem_cache_alloc_node"]);
    assert_eq!(
        plan.config,
        Config {
            slots_log2: 10,
            page_shift: 12,
            page_struct_bytes: 64,
            page_head: 8,
            head_may_be_mask: 0,
            slab_cache: 8,
            slab_freelist: 32,
            slab_list: 16,
            slab_mark: slab_mark::PAGE_TYPE,
            page_type: 48,
            slab_type: 0xf5,
            large_type: 0xf8,
            page_flags: 0,
            slab_flag_bit: 0,
            head_flag_bit: 6,
            compound_order: 64,
            cache_size: 32,
            cache_object_size: 36,
            cache_name: 104,
            cache_node: 224,
            node_partial: 16,
            alloc_has_cache: 1,
            free_has_cache: 1,
            large_fires_twice: 1,
            atomic: 0,
            largest_class: 8192,
        }
    );
}

#[track_caller]
fn assert_nothing_is_traced(plan: &ProbePlan, reason: &str, obstacle: Obstacle) {
    assert!(plan.programs.is_empty() && !plan.page_lookup && !plan.iterator);
    let (enabled, why) = state(plan, "tracing");
    assert!(!enabled && why.contains(reason), "{why}");
    let finding = plan.findings().into_iter().find(|finding| finding.feature.name == "tracing").unwrap();
    assert_eq!((finding.required, finding.obstacle), (true, Some(obstacle)));
    for event in ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free", "page_lookup"] {
        assert!(!state(plan, event).0, "{event}");
    }
}

#[test]
fn without_type_information_nothing_is_traced() {
    let plan = plan(&HostFacts { btf: Err("/sys/kernel/btf/vmlinux: not there".into()), ..capable_host() });
    assert_nothing_is_traced(&plan, "/sys/kernel/btf/vmlinux: not there", Obstacle::Kernel);
    assert!(!state(&plan, "btf").0);
    assert_eq!(plan.obstacle(), Obstacle::Kernel);
}

#[test]
fn without_capabilities_nothing_is_traced_and_the_obstacle_is_a_permission() {
    for set in [0, BPF, PERFMON] {
        let plan = plan(&HostFacts { capabilities: Some(Capabilities(set)), ..capable_host() });
        assert_nothing_is_traced(&plan, "CAP_BPF and CAP_PERFMON", Obstacle::Permission);
        assert_eq!(plan.obstacle(), Obstacle::Permission);
    }
}

#[test]
fn cap_sys_admin_alone_suffices_and_unknown_capabilities_are_tried() {
    for capabilities in [Some(Capabilities(SYS_ADMIN)), None] {
        let plan = plan(&HostFacts { capabilities, ..capable_host() });
        assert_eq!(plan, super::tests::plan(&capable_host()), "{capabilities:?}");
    }
}

#[test]
fn only_confidentiality_lockdown_forbids_tracing() {
    for lockdown in [None, Some(Lockdown::None), Some(Lockdown::Integrity)] {
        let plan = plan(&HostFacts { lockdown, ..capable_host() });
        assert_eq!(plan, super::tests::plan(&capable_host()), "{lockdown:?}");
    }
    let plan = plan(&HostFacts { lockdown: Some(Lockdown::Confidentiality), ..capable_host() });
    assert_nothing_is_traced(&plan, "confidentiality", Obstacle::Kernel);
}

#[test]
fn what_the_operator_switched_off_is_off_by_configuration() {
    let options = PlanOptions { trace: false, ..PlanOptions::default() };
    assert_nothing_is_traced(&ProbePlan::new(&capable_host(), &options), "switched off", Obstacle::Configuration);
}

#[test]
fn another_allocator_than_slub_is_not_traced() {
    assert_nothing_is_traced(&plan_with(|btf| btf.is_slub = false), "SLUB", Obstacle::Kernel);
}

#[test]
fn a_cache_that_cannot_be_described_is_not_traced() {
    let flips: [Flip<BtfFacts>; 3] = [
        ("kmem_cache.size", |btf| btf.cache_size = None),
        ("kmem_cache.object_size", |btf| btf.cache_object_size = None),
        ("kmem_cache.name", |btf| btf.cache_name = None),
    ];
    for (what, flip) in flips {
        assert_nothing_is_traced(&plan_with(flip), what, Obstacle::Kernel);
    }
}

#[test]
fn each_fact_that_the_page_lookup_lacks_switches_it_off_and_nothing_else() {
    let flips: [Flip<BtfFacts>; 12] = [
        ("sizeof(struct page)", |btf| btf.page_struct_bytes = None),
        ("page.compound_head", |btf| btf.page_head = None),
        ("page.flags", |btf| btf.page_flags = None),
        ("page.page_type", |btf| btf.page_type = None),
        ("PGTY_slab or PG_slab", |btf| btf.slab_mark = None),
        ("PG_head", |btf| btf.head_flag_bit = None),
        ("the order of a compound page", |btf| btf.compound_order = None),
        ("slab.slab_cache", |btf| btf.slab_cache = None),
        ("slab.freelist", |btf| btf.slab_freelist = None),
        ("slab.slab_list", |btf| btf.slab_list = None),
        ("kmem_cache.node", |btf| btf.cache_node = None),
        ("kmem_cache_node.partial", |btf| btf.node_partial = None),
    ];
    for (what, flip) in flips {
        let plan = plan_with(flip);
        assert!(!plan.page_lookup, "{what}");
        assert!(state(&plan, "page_lookup").1.ends_with(what), "{what}: {:?}", state(&plan, "page_lookup"));
        assert_eq!(changed(&plan), ["page_lookup"], "{what}");
        assert_eq!(events(&plan).len(), 4, "{what}");
    }
}

#[test]
fn a_kernel_that_marks_slabs_by_a_flag_needs_no_page_type() {
    let plan = plan_with(|btf| {
        btf.slab_mark = Some(SlabMark::FlagBit(9));
        btf.page_type = None;
        btf.large_type = None;
    });
    assert!(plan.page_lookup && changed(&plan).is_empty());
    assert_eq!((plan.config.slab_mark, plan.config.slab_flag_bit), (slab_mark::FLAG_BIT, 9));
    assert_eq!((plan.config.page_type, plan.config.large_type), (ABSENT, ABSENT));
}

#[test]
fn without_the_iterator_the_lookup_is_calibrated_from_events() {
    let plan = plan_with(|btf| btf.has_cache_iterator = false);
    assert!(!plan.iterator && plan.calibrate_by_events && plan.page_lookup);
    assert_eq!(changed(&plan), ["cache_iterator"]);
}

#[test]
fn a_kernel_without_a_recursion_guard_gets_atomic_additions() {
    let plan = plan_with(|btf| btf.guards_recursion = false);
    assert_eq!(plan.config.atomic, 1);
    assert_eq!(changed(&plan), ["recursion_misses"]);
}

#[test]
fn a_kernel_that_fires_once_for_a_large_kmalloc_counts_it_as_it_comes() {
    let plan = plan_with(|btf| btf.large_fires_twice = false);
    assert_eq!(plan.config.large_fires_twice, 0);
    assert!(changed(&plan).is_empty() && state(&plan, "large_kmalloc_once").1.contains("fires one event"));
}

#[test]
fn an_event_that_is_not_there_or_not_known_is_off_alone() {
    let flips: [Flip<Prototypes>; 4] = [
        ("kmalloc", |p| p.kmalloc = None),
        ("kfree", |p| p.kfree = None),
        ("kmem_cache_alloc", |p| p.kmem_cache_alloc = parameters(&[SITE, OBJECT, "int"])),
        ("kmem_cache_free", |p| p.kmem_cache_free = parameters(&["void *"])),
    ];
    for (event, flip) in flips {
        let plan = plan_with(|btf| flip(&mut btf.prototypes));
        assert_eq!(changed(&plan), [event]);
        assert!(!events(&plan).contains(&event) && events(&plan).len() == 3);
    }
}

#[test]
fn the_odd_kmalloc_of_6_0_is_refused_with_its_prototype() {
    let odd = parameters(&[SITE, OBJECT, "struct kmem_cache *", SIZE, SIZE, "gfp_t"]);
    let plan = plan_with(|btf| btf.prototypes.kmalloc = odd);
    assert_eq!(changed(&plan), ["kmalloc"]);
    assert!(state(&plan, "kmalloc").1.contains("struct kmem_cache *"));
}

#[test]
fn the_six_events_of_5_10_are_traced_and_name_no_cache() {
    let plan = plan_with(|btf| {
        let alloc = parameters(&[SITE, OBJECT, SIZE, SIZE, "gfp_t"]);
        let alloc_node = parameters(&[SITE, OBJECT, SIZE, SIZE, "gfp_t", "int"]);
        btf.prototypes = Prototypes {
            kmalloc: alloc.clone(),
            kmalloc_node: alloc_node.clone(),
            kfree: parameters(&[SITE, OBJECT]),
            kmem_cache_alloc: alloc,
            kmem_cache_alloc_node: alloc_node,
            kmem_cache_free: parameters(&[SITE, OBJECT]),
        };
    });
    assert_eq!(changed(&plan), ["kmalloc_node", "kmem_cache_alloc_node"]);
    assert_eq!(plan.programs.len(), 6);
    assert_eq!((plan.config.alloc_has_cache, plan.config.free_has_cache), (0, 0));
}

#[test]
fn with_no_event_left_nothing_is_traced() {
    let plan = plan_with(|btf| btf.prototypes = Prototypes::default());
    assert_nothing_is_traced(&plan, "none of the slab events", Obstacle::Kernel);
}

#[test]
fn the_counter_table_and_the_largest_class_follow_options_and_page_size() {
    let options = PlanOptions { slots_per_cpu: 4096, ..PlanOptions::default() };
    let config = ProbePlan::new(&HostFacts { page_size_bytes: 65536, ..capable_host() }, &options).config;
    assert_eq!((config.slots_log2, config.page_shift, config.largest_class), (12, 16, 131_072));
}

#[test]
fn what_loading_finds_out_is_written_back() {
    let mut plan = plan(&capable_host());
    plan.feature_failed("page_lookup", "not proved".into(), "report it");
    assert_eq!(state(&plan, "page_lookup"), (false, "not proved"));
    plan.feature_works("page_lookup", "proved on 1000 events".into());
    assert_eq!(state(&plan, "page_lookup"), (true, "proved on 1000 events"));
    let finding = |plan: &ProbePlan, name| {
        plan.findings().into_iter().find(|finding| finding.feature.name == name).unwrap().obstacle
    };
    assert_eq!(finding(&plan, "page_lookup"), None);
    plan.feature_refused("slabinfo", "permission denied".into(), "be root", Obstacle::Permission);
    assert_eq!(finding(&plan, "slabinfo"), Some(Obstacle::Permission));
    assert_eq!(plan.obstacle(), Obstacle::Permission);
    plan.tracing_failed("refused".into(), "", Obstacle::Kernel);
    assert_nothing_is_traced(&plan, "refused", Obstacle::Kernel);
}
