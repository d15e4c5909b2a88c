//! The memory layout that slabmon's kernel side (`slabmon-ebpf`) and user side (`slabmon`) share.
//!
//! Everything here is `repr(C)` with explicit padding and asserted offsets, because the same bytes are
//! written by eBPF programs and read as memory by the daemon.

#![no_std]

use core::mem::{align_of, offset_of, size_of};

/// Names of the maps in the object. Each name is written here and nowhere else.
pub mod map {
    /// `Array<Slot>`, mmap-able, `cpus × slots_per_cpu` entries, indexed `cpu * slots_per_cpu + slot`.
    pub const COUNTERS: &str = "COUNTERS";
    /// `Array<UntracedSlot>`, mmap-able, beside `COUNTERS` and indexed alike.
    pub const UNTRACED: &str = "UNTRACED";
    /// `Array<CpuRecord>`, mmap-able, one entry a CPU.
    pub const CPU_RECORDS: &str = "CPU_RECORDS";
    /// `HashMap<u64, CacheRecord>`, preallocated: what was read of a cache at its first event.
    pub const CACHES: &str = "CACHES";
    /// `HashMap<u64, u8>`, preallocated: call sites of large kmalloc events, see [`crate::LargeSite`].
    pub const LARGE_SITES: &str = "LARGE_SITES";
    /// `Array<CalibrationPair>`: what the `calibrate` program collects.
    pub const PAIRS: &str = "PAIRS";
    /// The section that holds the one mutable global, a [`crate::Lookup`].
    pub const LOOKUP: &str = ".data";
}

/// Names of the programs in the object.
pub mod program {
    /// `raw_tp/kmalloc`
    pub const KMALLOC: &str = "kmalloc";
    /// `raw_tp/kmalloc_node`
    pub const KMALLOC_NODE: &str = "kmalloc_node";
    /// `raw_tp/kfree`
    pub const KFREE: &str = "kfree";
    /// `raw_tp/kmem_cache_alloc`
    pub const KMEM_CACHE_ALLOC: &str = "kmem_cache_alloc";
    /// `raw_tp/kmem_cache_alloc_node`
    pub const KMEM_CACHE_ALLOC_NODE: &str = "kmem_cache_alloc_node";
    /// `raw_tp/kmem_cache_free`
    pub const KMEM_CACHE_FREE: &str = "kmem_cache_free";
    /// `iter/kmem_cache`: writes one [`crate::CacheRecord`] a cache.
    pub const LIST_CACHES: &str = "list_caches";
    /// `raw_tp/kmem_cache_alloc`, attached for a moment: collects [`crate::CalibrationPair`]s.
    pub const CALIBRATE: &str = "calibrate";
    /// `raw_tp`, never attached: collects [`crate::CalibrationPair`]s along the kernel's list of caches, run once.
    pub const WALK_CACHES: &str = "walk_caches";
    /// `fentry/kmem_cache_free_bulk`
    pub const FREE_BULK: &str = "free_bulk";
    /// `kprobe/kmem_cache_free_bulk`, where there is no fentry
    pub const FREE_BULK_KPROBE: &str = "free_bulk_kprobe";
    /// `fexit/kmem_cache_alloc_bulk` or `…_noprof`
    pub const ALLOC_BULK: &str = "alloc_bulk";
    /// `kprobe/kmem_cache_alloc_bulk…`, where there is no fexit: what the call was for
    pub const ALLOC_BULK_ENTRY: &str = "alloc_bulk_entry";
    /// `kretprobe/kmem_cache_alloc_bulk…`, beside the former: what came of it
    pub const ALLOC_BULK_RETURN: &str = "alloc_bulk_return";
    /// `fentry/rcu_free_sheaf`
    pub const FREE_SHEAF: &str = "free_sheaf";
    /// `fentry/rcu_free_sheaf_nobarn`
    pub const FREE_SHEAF_NOBARN: &str = "free_sheaf_nobarn";
    /// `fexit/kmalloc_nolock_noprof` or `_kmalloc_nolock_noprof`
    pub const KMALLOC_NOLOCK: &str = "kmalloc_nolock";
    /// `fentry/kfree_nolock`
    pub const KFREE_NOLOCK: &str = "kfree_nolock";
    /// `fentry/kmem_cache_free`: before the free, where the tracepoint comes after it
    pub const CACHE_FREE_ENTRY: &str = "cache_free_entry";
    /// `kprobe/kmem_cache_free`: the same where there is no fentry
    pub const CACHE_FREE_KPROBE: &str = "cache_free_kprobe";
    /// `raw_tp/kmem_cache_alloc`, attached for a moment: proves the page lookup.
    pub const PROVE: &str = "prove";
    /// `raw_tp`, never attached: reads one cache again, run on demand.
    pub const DESCRIBE: &str = "describe";
}

/// Name of the read-only global that holds [`Config`].
pub const CONFIG: &str = "CONFIG";

/// Linear probes in the counter table before an event is lost as `table_full`.
pub const MAX_PROBES: u32 = 32;
/// Bytes of a cache name that the kernel side keeps, the terminating NUL included.
pub const CACHE_NAME_BYTES: usize = 104;
/// Pairs that `calibrate` collects at most.
pub const MAX_PAIRS: u32 = 256;
/// One kmem_cache_alloc event in this many of a cache is held against its own cache argument for as long as the daemon runs.
pub const PROOF_INTERVAL: u64 = 1024;
/// `Config` value of an offset that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

/// Keys of [`Slot`] below this are no kernel addresses: `CLASS_KEY | bytes_alloc` counts kmalloc events by size class.
pub const CLASS_KEY: u64 = 1 << 32;

/// The counters of one cache on one CPU: one cache line.
///
/// Each field is written by one program alone (`failures` atomically), on its own CPU alone, so plain additions
/// are exact. Bytes that follow from `count × size` are not counted twice: the daemon multiplies.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Address of the `struct kmem_cache`, or a class key; 0 is an empty slot.
    pub key: u64,
    /// Low half: `kmem_cache.size` (the stride, bytes). High half: `kmem_cache.object_size` (bytes).
    pub sizes: u64,
    /// Events of kmalloc and kmalloc_node.
    pub kmallocs: u64,
    /// Sum of `bytes_req` of those events.
    pub kmalloc_requested_bytes: u64,
    /// Events of kmem_cache_alloc and kmem_cache_alloc_node.
    pub cache_allocs: u64,
    /// Events of kfree.
    pub kfrees: u64,
    /// Events of kmem_cache_free.
    pub cache_frees: u64,
    /// Allocations that returned NULL.
    pub failures: u64,
}

const _: () = {
    assert!(size_of::<Slot>() == 64 && align_of::<Slot>() == 64);
    assert!(offset_of!(Slot, key) == 0);
    assert!(offset_of!(Slot, sizes) == 8);
    assert!(offset_of!(Slot, kmallocs) == 16);
    assert!(offset_of!(Slot, kmalloc_requested_bytes) == 24);
    assert!(offset_of!(Slot, cache_allocs) == 32);
    assert!(offset_of!(Slot, kfrees) == 40);
    assert!(offset_of!(Slot, cache_frees) == 48);
    assert!(offset_of!(Slot, failures) == 56);
};

/// Objects that came and went by paths that fire no event, of one cache on one CPU. All programs add atomically: they may
/// be preempted, and several write one field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UntracedSlot {
    /// Objects allocated.
    pub allocs: u64,
    /// Objects freed.
    pub frees: u64,
    /// Bytes asked for by those allocations that name a size of their own.
    pub requested_bytes: u64,
    /// Allocations that name a size of their own, part of `allocs`.
    pub sized_allocs: u64,
}

const _: () = assert!(size_of::<UntracedSlot>() == 32);

/// Objects of a bulk free that are looked up one by one at most; those beyond are lost, and counted so.
/// kvfree_rcu's batches, the largest there are, hold a page of pointers (kernel/rcu/tree.c, `KVFREE_BULK_MAX_ENTR`).
pub const MAX_BULK_OBJECTS: u32 = 512;

/// Events that one program got but could not count, by reason.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// No free slot within [`MAX_PROBES`].
    pub table_full: u64,
    /// A slot was being claimed on this CPU by the program that this one interrupted.
    pub claim_busy: u64,
    /// Kernel memory could not be read.
    pub read_failed: u64,
    /// Neither slab nor large kmalloc, or no proved page lookup to tell.
    pub unattributed: u64,
}

/// What one CPU counts beside the caches: four groups, each written by one program alone.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuRecord {
    /// Losses of kmalloc and kmalloc_node.
    pub kmalloc: Losses,
    /// Large kmalloc: allocations.
    pub large_allocs: u64,
    /// Large kmalloc: bytes asked for.
    pub large_requested_bytes: u64,
    /// Large kmalloc: bytes of the pages taken.
    pub large_allocated_bytes: u64,
    /// Large kmalloc: events left out because the kernel fires two for one allocation.
    pub large_duplicates: u64,

    /// Losses of kfree.
    pub kfree: Losses,
    /// Large kmalloc: frees.
    pub large_frees: u64,
    /// Large kmalloc: bytes of the pages given back.
    pub large_freed_bytes: u64,
    /// Large kmalloc that returned NULL; written by kmalloc, atomically.
    pub large_failures: u64,
    /// Not 0 while a slot is being claimed on this CPU.
    pub claiming: u64,

    /// Losses of kmem_cache_alloc and kmem_cache_alloc_node.
    pub cache_alloc: Losses,
    /// Page lookups held against the event's own cache.
    pub proofs: u64,
    /// Lookups that gave another cache.
    pub proof_mismatches: u64,
    /// Reserved.
    pub reserved_alloc: [u64; 2],

    /// Losses of kmem_cache_free.
    pub cache_free: Losses,
    /// Reserved.
    pub reserved_free: [u64; 4],

    /// Losses of the programs on untraced paths, objects; all added atomically.
    pub untraced: Losses,
    /// Objects of bulk frees beyond [`MAX_BULK_OBJECTS`].
    pub untraced_beyond_bound: u64,
    /// Large kmalloc freed by untraced paths: frees.
    pub untraced_large_frees: u64,
    /// Large kmalloc freed by untraced paths: bytes of the pages given back.
    pub untraced_large_freed_bytes: u64,
    /// Object of the last large kmalloc event that another of the same allocation follows, its lowest bit set; written by
    /// kmalloc's program alone. An address: it stays in the process.
    pub large_first: u64,
    /// Objects that each program on an untraced path counted, by [`hooked`].
    pub hooked_objects: [u64; 8],
}

const _: () = {
    assert!(size_of::<Losses>() == 32);
    assert!(size_of::<CpuRecord>() == 384 && align_of::<CpuRecord>() == 64);
    assert!(offset_of!(CpuRecord, kfree) == 64);
    assert!(offset_of!(CpuRecord, cache_alloc) == 128);
    assert!(offset_of!(CpuRecord, cache_free) == 192);
    assert!(offset_of!(CpuRecord, untraced) == 256);
    assert!(offset_of!(CpuRecord, hooked_objects) == 320);
};

/// One `struct kmem_cache` as the kernel side read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRecord {
    /// Address of the `struct kmem_cache`. Never leaves the process.
    pub key: u64,
    /// `kmem_cache.size`, bytes.
    pub size: u32,
    /// `kmem_cache.object_size`, bytes.
    pub object_size: u32,
    /// `kmem_cache.name`, NUL-terminated, cut to fit.
    pub name: [u8; CACHE_NAME_BYTES],
    /// A slab of this cache, if one was seen (written by `list_caches` alone).
    pub pair: CalibrationPair,
}

impl CacheRecord {
    /// All zeros.
    pub const EMPTY: Self = Self {
        key: 0,
        size: 0,
        object_size: 0,
        name: [0; CACHE_NAME_BYTES],
        pair: CalibrationPair { page: 0, object: 0 },
    };
}

/// A slab's first `struct page` and where the slab's memory begins: what the page lookup is calibrated from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CalibrationPair {
    /// Address of the slab's first `struct page`; 0 if there is no pair.
    pub page: u64,
    /// Address of the slab's first byte.
    pub object: u64,
}

const _: () = {
    assert!(size_of::<CacheRecord>() == 136);
    assert!(offset_of!(CacheRecord, name) == 16);
    assert!(offset_of!(CacheRecord, pair) == 120);
    assert!(size_of::<CalibrationPair>() == 16);
};

/// What is known of a call site of a large kmalloc event (value of `LARGE_SITES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LargeSite {
    /// A caller of the allocator: the event counts.
    Caller = 1,
    /// Inside the allocator, which fires a second event for the same allocation: this one does not count.
    Allocator = 2,
    /// Inside `__kvmalloc_node_noprof`: either of the two, by kernel.
    Kvmalloc = 3,
}

/// The page lookup, `page(addr) = page_base + (addr >> page_shift) * page_struct_bytes`: the one mutable global.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// The constant that folds vmemmap base and direct-map base.
    pub page_base: u64,
    /// 0: not calibrated, do not use. 1: may be used.
    pub usable: u64,
}

/// How the kernel marks a page that belongs to a slab.
pub mod slab_mark {
    /// `page_type >> 24 == slab_type` (6.12 and later).
    pub const PAGE_TYPE: u32 = 1;
    /// Bit `slab_flag_bit` of `page.flags`.
    pub const FLAG_BIT: u32 = 2;
}

/// Which path a program on an untraced path counts: indices of [`CpuRecord::hooked_objects`].
pub mod hooked {
    /// kmem_cache_free_bulk
    pub const FREE_BULK: usize = 0;
    /// kmem_cache_alloc_bulk
    pub const ALLOC_BULK: usize = 1;
    /// rcu_free_sheaf
    pub const FREE_SHEAF: usize = 2;
    /// rcu_free_sheaf_nobarn
    pub const FREE_SHEAF_NOBARN: usize = 3;
    /// kmalloc_nolock
    pub const KMALLOC_NOLOCK: usize = 4;
    /// kfree_nolock
    pub const KFREE_NOLOCK: usize = 5;
}

/// Whose registers a kprobe sees.
pub mod architecture {
    /// arch/x86/include/asm/ptrace.h
    pub const X86_64: u32 = 1;
    /// arch/arm64/include/asm/ptrace.h
    pub const AARCH64: u32 = 2;
}

/// The facts about the running kernel that the programs need; read-only to them, so that the verifier drops what does
/// not apply. Offsets in bytes, from BTF; [`ABSENT`] where the kernel has no such field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// log2 of the slots a CPU has in `COUNTERS`.
    pub slots_log2: u32,
    /// log2 of the page size.
    pub page_shift: u32,
    /// `sizeof(struct page)`.
    pub page_struct_bytes: u32,
    /// Offset of `page.compound_head` (or `compound_info`).
    pub page_head: u32,
    /// 1 where the head word of a tail page may be a mask (7.1 and later).
    pub head_may_be_mask: u32,
    /// Offset of `slab_cache` in `struct slab` (or `struct page`).
    pub slab_cache: u32,
    /// Offset of `freelist` in `struct slab` (or `struct page`).
    pub slab_freelist: u32,
    /// Offset of `slab_list` (or `lru`) in `struct slab` (or `struct page`).
    pub slab_list: u32,
    /// See [`slab_mark`].
    pub slab_mark: u32,
    /// Offset of `page.page_type`.
    pub page_type: u32,
    /// `PGTY_slab`.
    pub slab_type: u32,
    /// `PGTY_large_kmalloc`, or [`ABSENT`]: then a compound page that is no slab is taken for large kmalloc.
    pub large_type: u32,
    /// Offset of `page.flags`.
    pub page_flags: u32,
    /// Bit number of `PG_slab`.
    pub slab_flag_bit: u32,
    /// Bit number of `PG_head`.
    pub head_flag_bit: u32,
    /// Offset from the head page of the byte that holds a compound page's order.
    pub compound_order: u32,
    /// Offset of `kmem_cache.size`.
    pub cache_size: u32,
    /// Offset of `kmem_cache.object_size`.
    pub cache_object_size: u32,
    /// Offset of `kmem_cache.name`.
    pub cache_name: u32,
    /// Offset of the first node's `struct kmem_cache_node *` in `kmem_cache`.
    pub cache_node: u32,
    /// Offset of `kmem_cache_node.partial`.
    pub node_partial: u32,
    /// 1 if kmem_cache_alloc carries the cache as argument 2.
    pub alloc_has_cache: u32,
    /// 1 if kmem_cache_free carries the cache as argument 2.
    pub free_has_cache: u32,
    /// 1 if the kernel fires two events for one large kmalloc of variable size.
    pub large_fires_twice: u32,
    /// 1 if a program may interrupt itself: additions must be atomic (5.10, 5.15).
    pub atomic: u32,
    /// Largest kmalloc that comes from a cache, bytes.
    pub largest_class: u32,
    /// Offset of `kmem_cache.list`.
    pub cache_list: u32,
    /// Offset of `slab_sheaf.rcu_head`.
    pub sheaf_head: u32,
    /// Offset of `slab_sheaf.cache`.
    pub sheaf_cache: u32,
    /// Offset of `slab_sheaf.size`.
    pub sheaf_size: u32,
    /// See [`architecture`].
    pub architecture: u32,
}

const _: () = assert!(size_of::<Config>() == 31 * 4);
