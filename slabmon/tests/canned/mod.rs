//! A snapshot with a bit of everything: known and unknown numbers, aliases, size classes, odd names, losses.

use std::{sync::Arc, time::Duration};

use slabmon::model::{
    sample::{EventCounts, LookupProof, LossCounts, ProgramCounts, TableUse},
    snapshot::{
        CacheView, ClassKind, CollectorState, EventRates, Evidence, Feature, HostFact, MemoryTotals, SizeClass,
        SlabAttributes, SlabState, Snapshot, Traced,
    },
};

/// When the snapshot was taken, by the daemon's uptime.
pub const UPTIME: Duration = Duration::from_millis(61_000);

/// A name with every kind of character that an output might stumble over.
pub const ODD_NAME: &str = "ipc \"po,rts\" \\ a/b\u{1b}[2J\n=é漢<b>&";

fn cache(name: &str, memory_pages: u64, objects: (u64, u64), stride: u64) -> CacheView {
    let (active_objects, objects) = objects;
    CacheView {
        name: name.into(),
        class: None,
        pseudo: false,
        traced: Some(Traced {
            counts: EventCounts {
                allocations: active_objects * 3,
                frees: active_objects * 2,
                requested_bytes: active_objects * 3 * (stride - 8),
                allocated_bytes: active_objects * 3 * stride,
                freed_bytes: active_objects * 2 * stride,
                failures: 0,
                ..EventCounts::default()
            },
            rates: Some(EventRates {
                allocations_per_second: active_objects as f64 / 64.0,
                frees_per_second: active_objects as f64 / 128.0,
                requested_bytes_per_second: (active_objects * (stride - 8)) as f64 / 64.0,
                allocated_bytes_per_second: (active_objects * stride) as f64 / 64.0,
                freed_bytes_per_second: (active_objects * stride) as f64 / 128.0,
            }),
            drift: None,
        }),
        slab: Some(SlabState {
            active_objects,
            objects,
            object_size_bytes: Some(stride),
            objects_per_slab: Some(4096 / stride),
            pages_per_slab: Some(1),
            slabs: memory_pages,
            memory_bytes: memory_pages * 4096,
            rows: 1,
            growth_bytes_per_second: Some(active_objects as f64 - 1024.0),
        }),
        attributes: Some(Arc::new(SlabAttributes {
            object_size_bytes: Some(stride - 8),
            slab_size_bytes: Some(stride),
            align_bytes: Some(8),
            order: Some(0),
            objects_per_slab: Some(4096 / stride),
            ..SlabAttributes::default()
        })),
    }
}

fn kmalloc(name: &str, kind: ClassKind, bytes: u64, pages: u64, objects: (u64, u64)) -> CacheView {
    CacheView { class: Some(SizeClass { bytes, kind }), ..cache(name, pages, objects, bytes) }
}

/// The snapshot.
pub fn snapshot() -> Snapshot {
    let dentry = {
        let mut view = cache("dentry", 115_520, (2_368_980, 2_425_920), 192);
        view.attributes = Some(Arc::new(SlabAttributes {
            object_size_bytes: Some(192),
            slab_size_bytes: Some(192),
            align_bytes: Some(8),
            order: Some(0),
            objects_per_slab: Some(21),
            flags: vec!["reclaim_account"],
            ..SlabAttributes::default()
        }));
        view
    };
    let merged = {
        let mut view = cache("eventpoll_pwq", 9, (300, 504), 72);
        view.attributes = Some(Arc::new(SlabAttributes {
            flags: vec!["hwcache_align"],
            aliases: vec!["configfs_dir_cache".into(), "pid \"2\"".into()],
            ..SlabAttributes::default()
        }));
        view
    };
    let unread = CacheView { traced: None, attributes: None, ..cache("tw_sock_TCP", 0, (0, 0), 256) };
    let newborn = CacheView {
        slab: None,
        attributes: None,
        traced: Some(Traced {
            counts: EventCounts { allocations: 1, ..EventCounts::default() },
            rates: None,
            drift: None,
        }),
        ..cache("newborn", 1, (1, 1), 64)
    };
    let large = CacheView { pseudo: true, slab: None, attributes: None, ..cache("kmalloc-large", 0, (12, 0), 16_384) };
    let mut caches = vec![
        dentry,
        merged,
        unread,
        newborn,
        large,
        kmalloc("kmalloc-192", ClassKind::Normal, 192, 40, (700, 840)),
        kmalloc("kmalloc-1k", ClassKind::Normal, 1024, 64, (256, 256)),
        kmalloc("kmalloc-64", ClassKind::Normal, 64, 116_488, (7_454_972, 7_455_232)),
        kmalloc("kmalloc-cg-64", ClassKind::Accounted, 64, 10, (600, 640)),
        kmalloc("kmalloc-rnd-14-192", ClassKind::Partitioned, 192, 2, (1, 42)),
        cache(ODD_NAME, 3, (17, 288), 40),
    ];
    caches.sort_by(|a, b| a.name.cmp(&b.name));
    let caches_bytes = caches.iter().filter_map(|cache| cache.slab).map(|slab| slab.memory_bytes).sum();
    let program = |program, missed, unattributed| ProgramCounts {
        program,
        counted: 1_000_000,
        missed,
        losses: LossCounts { unattributed, ..LossCounts::default() },
    };
    Snapshot {
        sequence: 61,
        taken_at_unix_seconds: 1_790_000_061.0,
        slabinfo_at_unix_seconds: Some(1_790_000_057.5),
        uptime: UPTIME,
        caches,
        memory: MemoryTotals {
            total_bytes: Some(25_769_803_776),
            available_bytes: Some(17_179_869_184),
            slab_bytes: Some(952_000_512),
            reclaimable_bytes: Some(473_169_920),
            unreclaimable_bytes: Some(478_830_592),
            caches_bytes: Some(caches_bytes),
            unexplained_bytes: Some(952_000_512 - caches_bytes as i64),
        },
        programs: vec![
            program("kfree", Some(12), 0),
            program("kmalloc", Some(0), 3),
            program("kmem_cache_alloc", Some(0), 0),
            program("kmem_cache_free", Some(0), 0),
        ],
        large_duplicates: 5,
        proof: Some(LookupProof { checks: 12_345, mismatches: 0 }),
        table: Some(TableUse { slots_per_cpu: 1024, used_on_fullest_cpu: 180 }),
        features: [
            Feature { name: "slabinfo", enabled: true, reason: "readable".into(), remedy: String::new() },
            Feature {
                name: "bulk_frees",
                enabled: false,
                reason: "the kernel refuses fentry".into(),
                remedy: "use a kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS".into(),
            },
        ]
        .into(),
        collectors: vec![
            CollectorState { collector: "counters", success: true, duration: Duration::from_micros(180), error: None },
            CollectorState {
                collector: "vmstat",
                success: false,
                duration: Duration::from_micros(20),
                error: Some("/proc/vmstat: permission denied".into()),
            },
        ],
        host: [
            HostFact { name: "kernel_release", value: "6.18.5".into() },
            HostFact { name: "architecture", value: "x86_64".into() },
            HostFact { name: "page_size_bytes", value: "4096".into() },
        ]
        .into(),
        evidence: Evidence { page_size_bytes: Some(4096), ..Evidence::default() },
    }
}

/// A snapshot of a host where nothing but the time is known.
pub fn unknown_snapshot() -> Snapshot {
    let mut snapshot = snapshot();
    snapshot.slabinfo_at_unix_seconds = None;
    snapshot.memory = MemoryTotals::default();
    snapshot.programs.clear();
    snapshot.proof = None;
    snapshot.table = None;
    for cache in &mut snapshot.caches {
        cache.traced = None;
        cache.slab = None;
        cache.attributes = None;
    }
    snapshot
}
