//! One host fact flipped at a time: what it switches off is off with its reason, and nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::host::facts::{Capabilities, Prototypes, SheafOffsets, tests::KernelTypes};

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
        // The test's types have only those members that the plan needs.
        page_struct_padding_bytes: Some(40),
        track_struct_bytes: None,
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
        cache_list: Some(112),
        sheaf: Some(SheafOffsets { head: 0, cache: 16, size: 24 }),
        functions: vec![
            "kmem_cache_free_bulk",
            "kmem_cache_alloc_bulk_noprof",
            "rcu_free_sheaf",
            "rcu_free_sheaf_nobarn",
            "kmalloc_nolock_noprof",
            "kfree_nolock",
            "kmem_cache_free",
        ],
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

fn hooks(plan: &ProbePlan) -> Vec<&'static str> {
    plan.hooks.iter().map(|hook| hook.feature).collect()
}

/// Names of the features of which something else is said than on the capable host.
fn changed(plan_now: &ProbePlan) -> Vec<&'static str> {
    let capable = plan(&capable_host());
    assert_eq!(plan_now.features.len(), capable.features.len(), "the same features are listed");
    let mut names: Vec<_> = capable
        .features
        .iter()
        .filter(|feature| plan_now.feature(feature.name) != Some(*feature))
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
    let all = HOOKS.into_iter().filter(|name| *name != "free_at_entry").collect::<Vec<_>>();
    assert_eq!(hooks(&plan), all);
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
            cache_list: 112,
            sheaf_head: 0,
            sheaf_cache: 16,
            sheaf_size: 24,
            architecture: architecture::X86_64,
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
    assert!(!plan.calibrate_by_events);
    for part in TRACED.into_iter().chain(HOOKS) {
        assert!(!state(plan, part).0, "{part}");
        let finding = plan.findings().into_iter().find(|finding| finding.feature.name == part).unwrap();
        assert_eq!(finding.obstacle, Some(obstacle), "{part}");
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
    type FlipAndEffect = (&'static str, fn(&mut BtfFacts), fn(&mut Config));
    let flips: [FlipAndEffect; 12] = [
        ("sizeof(struct page)", |btf| btf.page_struct_bytes = None, |c| c.page_struct_bytes = ABSENT),
        ("page.compound_head", |btf| btf.page_head = None, |c| c.page_head = ABSENT),
        ("page.flags", |btf| btf.page_flags = None, |c| c.page_flags = ABSENT),
        ("page.page_type", |btf| btf.page_type = None, |c| c.page_type = ABSENT),
        ("PGTY_slab or PG_slab", |btf| btf.slab_mark = None, |c| (c.slab_mark, c.slab_type) = (0, 0)),
        ("PG_head", |btf| btf.head_flag_bit = None, |c| c.head_flag_bit = ABSENT),
        ("the order of a compound page", |btf| btf.compound_order = None, |c| c.compound_order = ABSENT),
        ("slab.slab_cache", |btf| btf.slab_cache = None, |c| c.slab_cache = ABSENT),
        ("slab.freelist", |btf| btf.slab_freelist = None, |c| c.slab_freelist = ABSENT),
        ("slab.slab_list", |btf| btf.slab_list = None, |c| c.slab_list = ABSENT),
        ("kmem_cache.node", |btf| btf.cache_node = None, |c| c.cache_node = ABSENT),
        ("kmem_cache_node.partial", |btf| btf.node_partial = None, |c| c.node_partial = ABSENT),
    ];
    let capable = plan(&capable_host());
    for (what, flip, expected) in flips {
        let plan = plan_with(flip);
        assert!(!plan.page_lookup, "{what}");
        let (enabled, reason) = state(&plan, "page_lookup");
        assert!(!enabled && reason.ends_with(what), "{what}: {reason}");
        assert_eq!(changed(&plan), ["page_lookup"], "{what}");
        assert_eq!((&plan.programs, plan.iterator), (&capable.programs, true), "{what}");
        let mut config = capable.config;
        expected(&mut config);
        assert_eq!(plan.config, config, "{what}");
    }
}

#[test]
fn a_kernel_without_a_type_for_large_kmalloc_needs_none() {
    let plan = plan_with(|btf| btf.large_type = None);
    assert!(plan.page_lookup && changed(&plan).is_empty());
    assert_eq!(plan.config.large_type, ABSENT);
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
    assert_eq!(changed(&plan), ["large_kmalloc_once"]);
    let (enabled, how) = state(&plan, "large_kmalloc_once");
    assert!(enabled && how.contains("fires one event"), "{how}");
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
        let mut expected = vec![event];
        if event == "kmem_cache_free" {
            expected.insert(0, "free_at_entry");
        }
        assert_eq!(changed(&plan), expected);
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
    assert_eq!(changed(&plan), ["free_at_entry", "kmalloc_node", "kmem_cache_alloc_node"]);
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

#[test]
fn what_6_18_says_of_its_types_is_the_capable_host() {
    assert_eq!(KernelTypes::linux_6_18().facts(), capable_btf());
}

fn plan_of(types: &KernelTypes) -> ProbePlan {
    plan(&HostFacts { btf: Ok(types.facts()), ..capable_host() })
}

#[test]
fn linux_5_10_has_six_events_and_frees_are_counted_at_the_functions_entry() {
    let now = plan_of(&KernelTypes::linux_5_10());
    let expected = ["kmalloc", "kmalloc_node", "kfree", "kmem_cache_alloc", "kmem_cache_alloc_node", "kmem_cache_free"];
    assert_eq!(events(&now), expected);
    assert!(now.page_lookup && !now.iterator && !now.calibrate_by_events, "calibrated along the list of caches");
    assert_eq!(hooks(&now), ["hook_free_bulk", "hook_alloc_bulk", "free_at_entry"]);
    assert_eq!(
        now.config,
        Config {
            slab_list: 8,
            slab_cache: 24,
            slab_mark: slab_mark::FLAG_BIT,
            slab_type: 0,
            slab_flag_bit: 9,
            large_type: ABSENT,
            head_flag_bit: 16,
            compound_order: 81,
            cache_size: 24,
            cache_object_size: 28,
            cache_name: 96,
            cache_node: 216,
            alloc_has_cache: 0,
            free_has_cache: 0,
            large_fires_twice: 0,
            atomic: 1,
            cache_list: 104,
            sheaf_head: ABSENT,
            sheaf_cache: ABSENT,
            sheaf_size: ABSENT,
            ..plan(&capable_host()).config
        }
    );
}

#[test]
fn linux_6_1_calibrates_from_events() {
    let now = plan_of(&KernelTypes::linux_6_1());
    assert_eq!(events(&now), ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"]);
    assert!(now.page_lookup && !now.iterator && now.calibrate_by_events);
    assert_eq!(
        now.config,
        Config {
            slab_list: 8,
            slab_cache: 24,
            slab_mark: slab_mark::FLAG_BIT,
            slab_type: 0,
            slab_flag_bit: 9,
            large_type: ABSENT,
            head_flag_bit: 16,
            compound_order: 81,
            cache_size: 24,
            cache_object_size: 28,
            cache_name: 96,
            cache_node: 216,
            large_fires_twice: 0,
            cache_list: 104,
            sheaf_head: ABSENT,
            sheaf_cache: ABSENT,
            sheaf_size: ABSENT,
            ..plan(&capable_host()).config
        }
    );
}

#[test]
fn linux_6_12_tells_slabs_by_their_page_type() {
    let now = plan_of(&KernelTypes::linux_6_12());
    assert!(now.page_lookup && !now.iterator && now.calibrate_by_events);
    assert_eq!(
        now.config,
        Config {
            large_type: ABSENT,
            cache_size: 24,
            cache_object_size: 28,
            cache_name: 96,
            cache_node: 216,
            cache_list: 104,
            sheaf_head: ABSENT,
            sheaf_cache: ABSENT,
            sheaf_size: ABSENT,
            ..plan(&capable_host()).config
        }
    );
}

#[test]
fn linux_6_18_is_the_capable_host_and_7_1_differs_by_its_head_word_and_caches() {
    assert_eq!(plan_of(&KernelTypes::linux_6_18()), plan(&capable_host()));
    let now = plan_of(&KernelTypes::linux_7_1());
    assert!(changed(&now).is_empty() && now.page_lookup && now.iterator);
    assert_eq!(
        now.config,
        Config {
            head_may_be_mask: 1,
            cache_size: 24,
            cache_object_size: 28,
            cache_name: 88,
            cache_node: 208 + 8,
            cache_list: 96,
            ..plan(&capable_host()).config
        }
    );
}

#[test]
fn events_are_known_by_the_names_that_clang_gives_their_types() {
    let now = plan_with(|btf| {
        let prototypes = &mut btf.prototypes;
        let lists = [
            &mut prototypes.kmalloc,
            &mut prototypes.kfree,
            &mut prototypes.kmem_cache_alloc,
            &mut prototypes.kmem_cache_free,
        ];
        for parameter in lists.into_iter().flatten().flatten() {
            parameter.type_name = parameter.type_name.replace(SITE, "unsigned long");
        }
        assert_eq!(prototypes.kfree, parameters(&["unsigned long", OBJECT]));
    });
    assert_eq!(now, plan(&capable_host()));
}

#[test]
fn the_name_that_kmem_cache_free_gives_up_to_6_0_is_no_cache() {
    let now = plan_with(|btf| btf.prototypes.kmem_cache_free = parameters(&[SITE, OBJECT, "const char *"]));
    assert_eq!(changed(&now), ["free_at_entry"]);
    assert_eq!((now.config.alloc_has_cache, now.config.free_has_cache), (1, 0));
}

#[test]
fn the_caches_of_6_0_are_taken_from_its_six_arguments() {
    let now = plan_with(|btf| {
        let cache = "struct kmem_cache *";
        btf.prototypes.kmem_cache_alloc = parameters(&[SITE, OBJECT, cache, SIZE, SIZE, "gfp_t"]);
        btf.prototypes.kmem_cache_alloc_node = parameters(&[SITE, OBJECT, cache, SIZE, SIZE, "gfp_t", "int"]);
    });
    assert_eq!(changed(&now), ["kmem_cache_alloc_node"]);
    assert!(state(&now, "kmem_cache_alloc_node").0);
    assert_eq!(now.config, plan(&capable_host()).config);
}

#[test]
fn the_first_reason_that_keeps_tracing_off_is_the_one_that_is_given() {
    let options = PlanOptions { trace: false, ..PlanOptions::default() };
    let hopeless = HostFacts {
        lockdown: Some(Lockdown::Confidentiality),
        capabilities: Some(Capabilities(0)),
        btf: Err("not there".into()),
        ..capable_host()
    };
    assert_nothing_is_traced(&ProbePlan::new(&hopeless, &options), "switched off", Obstacle::Configuration);
    // Permission would not help against any of the others, so it is named last.
    assert_nothing_is_traced(&plan(&hopeless), "not there", Obstacle::Kernel);
    let locked_down = HostFacts { btf: Ok(capable_btf()), ..hopeless };
    assert_nothing_is_traced(&plan(&locked_down), "confidentiality", Obstacle::Kernel);
    assert_eq!(plan(&locked_down).obstacle(), Obstacle::Kernel);
}

#[test]
fn a_part_that_was_off_before_tracing_failed_keeps_its_own_reason() {
    let mut now = plan_with(|btf| btf.cache_node = None);
    now.feature_failed("kmalloc", "bpf_raw_tracepoint_open: not permitted".into(), "run as root");
    now.tracing_failed("no program could be attached".into(), "run as root", Obstacle::Permission);
    assert_nothing_is_traced(&now, "no program could be attached", Obstacle::Permission);
    assert_eq!(state(&now, "kmalloc").1, "bpf_raw_tracepoint_open: not permitted");
    assert!(state(&now, "page_lookup").1.ends_with("kmem_cache.node"));
    assert_eq!(state(&now, "kfree").1, "nothing is traced");
    let no_events = plan_with(|btf| btf.prototypes.kfree = parameters(&["void *"]));
    assert_eq!(events(&no_events).len(), 3);
    assert!(state(&no_events, "kfree").1.ends_with("slabmon knows: void * "), "{:?}", state(&no_events, "kfree"));
}

#[test]
fn a_failure_that_loading_finds_concerns_one_feature_and_can_be_undone() {
    let capable = plan(&capable_host());
    for name in ["kmalloc", "page_lookup", "cache_iterator"] {
        let mut now = capable.clone();
        now.feature_failed(name, "refused".into(), "nothing");
        assert_eq!(changed(&now), [name]);
        let finding = now.findings().into_iter().find(|finding| finding.feature.name == name).unwrap();
        assert_eq!((finding.feature.remedy.as_str(), finding.obstacle), ("nothing", Some(Obstacle::Kernel)));
        now.feature_works(name, state(&capable, name).1.to_owned());
        assert_eq!(now, capable, "{name}");
    }
}

#[test]
fn only_what_the_daemons_main_job_takes_is_required() {
    let mut now = plan(&capable_host());
    now.feature_works("slabinfo", "read".into());
    now.feature_works("slab_sysfs", "read".into());
    let findings = now.findings();
    let mut required: Vec<_> =
        findings.iter().filter(|finding| finding.required).map(|finding| finding.feature.name).collect();
    required.sort_unstable();
    let expected = ["kfree", "kmalloc", "kmem_cache_alloc", "kmem_cache_free", "page_lookup", "slabinfo", "tracing"];
    assert_eq!(required, expected);
    assert!(now.findings().iter().all(|finding| finding.obstacle.is_some() != finding.feature.enabled));
}

#[test]
fn a_permission_for_either_source_is_worth_asking_for() {
    let mut now = plan(&capable_host());
    assert_eq!(now.obstacle(), Obstacle::Kernel);
    now.feature_refused("slab_sysfs", "permission denied".into(), "be root", Obstacle::Permission);
    assert_eq!(now.obstacle(), Obstacle::Kernel, "not needed to serve");
    now.feature_refused("slabinfo", "permission denied".into(), "be root", Obstacle::Permission);
    now.tracing_failed("no BPF".into(), "", Obstacle::Kernel);
    assert_eq!(now.obstacle(), Obstacle::Permission);
    now.feature_refused("slabinfo", "no such file".into(), "", Obstacle::Kernel);
    assert_eq!(now.obstacle(), Obstacle::Kernel);
    now.tracing_failed("not permitted".into(), "", Obstacle::Permission);
    assert_eq!(now.obstacle(), Obstacle::Permission);
}

#[test]
fn any_number_of_slots_gives_a_power_of_two() {
    for (slots_per_cpu, log2) in [(0, 0), (1, 0), (1000, 10), (1024, 10), (1025, 11), (u32::MAX, 31)] {
        let options = PlanOptions { slots_per_cpu, ..PlanOptions::default() };
        assert_eq!(ProbePlan::new(&capable_host(), &options).config.slots_log2, log2, "{slots_per_cpu}");
    }
}

#[test]
fn an_untraced_path_that_the_kernel_lacks_is_off_alone() {
    let functions = [
        ("hook_free_bulk", "kmem_cache_free_bulk"),
        ("hook_alloc_bulk", "kmem_cache_alloc_bulk_noprof"),
        ("hook_free_sheaf", "rcu_free_sheaf"),
        ("hook_free_sheaf_nobarn", "rcu_free_sheaf_nobarn"),
        ("hook_kmalloc_nolock", "kmalloc_nolock_noprof"),
        ("hook_kfree_nolock", "kfree_nolock"),
    ];
    for (feature, function) in functions {
        let plan = plan_with(|btf| btf.functions.retain(|other| *other != function));
        assert_eq!(changed(&plan), [feature]);
        assert_eq!(state(&plan, feature), (false, "this kernel has no such path"));
        assert!(!hooks(&plan).contains(&feature) && plan.programs.len() == 4);
    }
}

#[test]
fn sheaves_whose_layout_is_not_known_are_not_hooked() {
    let plan = plan_with(|btf| btf.sheaf = None);
    assert_eq!(changed(&plan), ["hook_free_sheaf", "hook_free_sheaf_nobarn"]);
}

#[test]
fn only_aarch64_gets_the_pair_of_kprobes_for_bulk_allocations() {
    let ways = |machine: &str| {
        let plan = plan(&HostFacts { architecture: machine.into(), ..capable_host() });
        plan.hooks.iter().find(|hook| hook.feature == "hook_alloc_bulk").unwrap().ways.len()
    };
    assert_eq!((ways("x86_64"), ways("aarch64")), (1, 2));
}

#[test]
fn a_free_that_names_its_cache_is_counted_by_its_event_and_not_at_the_entry() {
    assert!(!hooks(&plan(&capable_host())).contains(&"free_at_entry"));
    let plan = plan_with(|btf| btf.prototypes.kmem_cache_free = parameters(&[SITE, OBJECT]));
    assert!(hooks(&plan).contains(&"free_at_entry"));
    assert!(events(&plan).contains(&"kmem_cache_free"), "left out when the entry is attached, not before");
}
