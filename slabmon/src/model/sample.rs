//! What was read, as it was read: the input of [`super::snapshot`].

use std::{sync::Arc, time::Duration};

use slabmon_common::program;

/// One life of one cache. A cache that is destroyed and created again gets a new id; ids are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheId(pub u32);

/// What the probes counted of a cache since they were attached, or since the cache was born.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Allocations that returned an object.
    pub allocations: u64,
    /// Frees of an object.
    pub frees: u64,
    /// Bytes asked for (kmalloc: `bytes_req`; else the cache's object size).
    pub requested_bytes: u64,
    /// Bytes handed out (the cache's stride; large kmalloc: whole pages).
    pub allocated_bytes: u64,
    /// Bytes given back, by the same measure as `allocated_bytes`.
    pub freed_bytes: u64,
    /// Allocations that returned NULL.
    pub failures: u64,
    /// Part of `allocations`: by paths that fire no event, counted by a hook of their own.
    pub untraced_allocations: u64,
    /// Part of `frees`: by paths that fire no event, counted by a hook of their own.
    pub untraced_frees: u64,
}

impl EventCounts {
    /// The sum of two caches' counters.
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// What was counted since `earlier`, an older reading of the same counters.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    fn combine(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            allocations: with(self.allocations, other.allocations),
            frees: with(self.frees, other.frees),
            requested_bytes: with(self.requested_bytes, other.requested_bytes),
            allocated_bytes: with(self.allocated_bytes, other.allocated_bytes),
            freed_bytes: with(self.freed_bytes, other.freed_bytes),
            failures: with(self.failures, other.failures),
            untraced_allocations: with(self.untraced_allocations, other.untraced_allocations),
            untraced_frees: with(self.untraced_frees, other.untraced_frees),
        }
    }
}

/// What a counted thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CounterKind {
    /// A `struct kmem_cache`.
    Cache,
    /// The pseudo-cache `kmalloc-large`: whole pages, in no cache.
    LargeKmalloc,
    /// A kmalloc size class: failed kmallocs, which name no cache; and all kmallocs while there is no page lookup.
    SizeClass,
}

/// The counters of one cache (or pseudo-cache), summed over CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheCounts {
    /// Which life of which cache.
    pub id: CacheId,
    /// What is counted here.
    pub kind: CounterKind,
    /// As `/proc/slabinfo` prints it; `kmalloc-large` for [`CounterKind::LargeKmalloc`], `kmalloc-<class>` for a size class.
    pub name: Arc<str>,
    /// `kmem_cache.size`: stride in bytes. `None` for large kmalloc, whose size varies.
    pub size_bytes: Option<u32>,
    /// `kmem_cache.object_size`. `None` where there is no cache.
    pub object_size_bytes: Option<u32>,
    /// The counters.
    pub counts: EventCounts,
}

/// Why events that reached a program were not counted, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// The counter table had no free slot near the cache's place.
    pub table_full: u64,
    /// The event interrupted the first event of another cache on its CPU.
    pub claim_busy: u64,
    /// Kernel memory could not be read.
    pub read_failed: u64,
    /// Could not be put down to a cache.
    pub unattributed: u64,
}

/// One attached program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCounts {
    /// Name of the program, which is the event's name: `kmalloc`, `kfree`, ...
    pub program: &'static str,
    /// Events that it counted, failures and left-out duplicates included; those of a `_node` event are in its sister's.
    pub counted: u64,
    /// Events that the kernel did not deliver (`recursion_misses`); `None` on kernels that do not count them.
    pub missed: Option<u64>,
    /// Losses within the program.
    pub losses: LossCounts,
}

impl ProgramCounts {
    /// Whether it counts objects that are freed without an event.
    pub fn counts_hooked_frees(&self) -> bool {
        const HOOKS: [&str; 5] = [
            program::FREE_BULK,
            program::FREE_BULK_KPROBE,
            program::FREE_SHEAF,
            program::FREE_SHEAF_NOBARN,
            program::KFREE_NOLOCK,
        ];
        HOOKS.contains(&self.program)
    }
}

/// The page lookup's standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupProof {
    /// Lookups held against the event's own cache, start-up included.
    pub checks: u64,
    /// Lookups that gave another cache.
    pub mismatches: u64,
}

/// How full the counter table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableUse {
    /// Slots that each CPU has.
    pub slots_per_cpu: u32,
    /// Slots in use on the fullest CPU.
    pub used_on_fullest_cpu: u32,
}

/// One reading of all counters.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterSample {
    /// CPUs that may count: those that are possible.
    pub cpus: u32,
    /// When it was read, since the daemon's start, by the monotonic clock.
    pub at: Duration,
    /// All caches that had an event, in no order.
    pub caches: Vec<CacheCounts>,
    /// All attached programs.
    pub programs: Vec<ProgramCounts>,
    /// Large kmalloc events left out because the kernel fires two for one allocation.
    pub large_duplicates: u64,
    /// The page lookup's standing.
    pub proof: LookupProof,
    /// How full the counter table is.
    pub table: TableUse,
}

/// One row of `/proc/slabinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabRow {
    /// The name that the row begins with.
    pub name: Arc<str>,
    /// `active_objs`.
    pub active_objects: u64,
    /// `num_objs`.
    pub objects: u64,
    /// `objsize`: the stride.
    pub object_size_bytes: u64,
    /// `objperslab`.
    pub objects_per_slab: u64,
    /// `pagesperslab`.
    pub pages_per_slab: u64,
    /// `num_slabs`.
    pub slabs: u64,
}

/// One reading of `/proc/slabinfo`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlabinfoSample {
    /// When the reading began, since the daemon's start, by the same clock as [`CounterSample::at`].
    pub at: Duration,
    /// The same in Unix time, seconds.
    pub at_unix_seconds: f64,
    /// All rows, in the file's order: the newest cache first.
    pub rows: Vec<SlabRow>,
}

/// One reading of `/proc/meminfo`, bytes; `None` where the kernel did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeminfoSample {
    /// MemTotal.
    pub total_bytes: Option<u64>,
    /// MemAvailable.
    pub available_bytes: Option<u64>,
    /// Slab.
    pub slab_bytes: Option<u64>,
    /// SReclaimable.
    pub reclaimable_bytes: Option<u64>,
    /// SUnreclaim.
    pub unreclaimable_bytes: Option<u64>,
}

/// What is known of the machine's pages and of how the kernel describes them. `None` where it was not to be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageFacts {
    /// `sizeof(struct page)`, from BTF.
    pub page_struct_bytes: Option<u64>,
    /// Of it, bytes that are no member's, from BTF.
    pub page_struct_padding_bytes: Option<u64>,
    /// `sizeof(struct track)`, from BTF: what slab debugging notes of an allocation or a free.
    pub track_struct_bytes: Option<u64>,
    /// `present` of all zones of `/proc/zoneinfo`: pages of physical memory.
    pub present_pages: Option<u64>,
    /// `nr_memmap_boot_pages` and `nr_memmap_pages` of `/proc/vmstat` together: pages filled with `struct page`.
    pub memmap_pages: Option<u64>,
}

/// `/proc/sys/fs/dentry-state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryCounts {
    /// All.
    pub dentries: u64,
    /// Not in use.
    pub unused: u64,
    /// Of names that do not exist; 0 as well on a kernel before 5.0, which does not count them.
    pub negative: u64,
}

/// What the reports need to know of the machine beside its slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineSample {
    /// Its pages.
    pub pages: PageFacts,
    /// Its directory entries; `None` where they were not to be had.
    pub dentries: Option<DentryCounts>,
    /// How long it runs; `None` where that is not known.
    pub uptime: Option<Duration>,
}
