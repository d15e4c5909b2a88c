//! One immutable view of the host's slab memory, derived from the samples; what every surface renders.

use std::{sync::Arc, time::Duration};

use super::{
    drift::Drift,
    history::Trends,
    sample::{EventCounts, LookupProof, MachineSample, ProgramCounts, TableUse},
};

/// Events and bytes a second between the last two counter samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventRates {
    /// Allocations a second.
    pub allocations_per_second: f64,
    /// Frees a second.
    pub frees_per_second: f64,
    /// Requested bytes a second.
    pub requested_bytes_per_second: f64,
    /// Allocated bytes a second.
    pub allocated_bytes_per_second: f64,
    /// Freed bytes a second.
    pub freed_bytes_per_second: f64,
}

/// What the probes counted of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traced {
    /// Counters since attach (or the cache's birth).
    pub counts: EventCounts,
    /// `None` until there are two samples of this life of the cache.
    pub rates: Option<EventRates>,
    /// Where the counters and slabinfo part. `None` for what slabinfo does not list.
    pub drift: Option<Drift>,
}

impl EventRates {
    /// The sum of two caches' rates.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            allocations_per_second: self.allocations_per_second + other.allocations_per_second,
            frees_per_second: self.frees_per_second + other.frees_per_second,
            requested_bytes_per_second: self.requested_bytes_per_second + other.requested_bytes_per_second,
            allocated_bytes_per_second: self.allocated_bytes_per_second + other.allocated_bytes_per_second,
            freed_bytes_per_second: self.freed_bytes_per_second + other.freed_bytes_per_second,
        }
    }
}

impl Traced {
    /// The sum of two caches; its rates are unknown if one of theirs is.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            counts: self.counts.plus(&other.counts),
            rates: self.rates.zip(other.rates).map(|(a, b)| a.plus(&b)),
            drift: self.drift.zip(other.drift).map(|(a, b)| a.plus(&b)),
        }
    }
}

/// What slabinfo says of a cache; several rows of one name are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlabState {
    /// Objects in use, by slabinfo's own meaning (objects parked per CPU count as active).
    pub active_objects: u64,
    /// Objects that the slabs have room for.
    pub objects: u64,
    /// slabinfo's objsize: the stride. `None` if the summed rows differ.
    pub object_size_bytes: Option<u64>,
    /// `None` if the summed rows differ.
    pub objects_per_slab: Option<u64>,
    /// `None` if the summed rows differ.
    pub pages_per_slab: Option<u64>,
    /// Slabs.
    pub slabs: u64,
    /// Bytes held: slabs × pages per slab × page size, summed over the rows.
    pub memory_bytes: u64,
    /// Rows of this name.
    pub rows: u32,
    /// Change of `memory_bytes` a second between the last two slabinfo reads. `None` until there are two.
    pub growth_bytes_per_second: Option<f64>,
}

/// The static part of `/sys/kernel/slab/<cache>`; each field `None` where the file was not readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlabAttributes {
    /// `object_size`, bytes.
    pub object_size_bytes: Option<u64>,
    /// `slab_size`: stride, bytes.
    pub slab_size_bytes: Option<u64>,
    /// `align`, bytes.
    pub align_bytes: Option<u64>,
    /// `order`: log2 of the pages of a slab.
    pub order: Option<u32>,
    /// `objs_per_slab`.
    pub objects_per_slab: Option<u64>,
    /// `cpu_partial`: objects that a CPU keeps on partial slabs of its own (up to 6.19).
    pub cpu_partial_objects: Option<u64>,
    /// `sheaf_capacity`: objects of a sheaf (6.18 and later).
    pub sheaf_capacity_objects: Option<u64>,
    /// Debug and kind flags that are set, by file name: `reclaim_account`, `hwcache_align`, `cache_dma`,
    /// `destroy_by_rcu`, `sanity_checks`, `trace`, `red_zone`, `poison`, `store_user`, `failslab`.
    pub flags: Vec<&'static str>,
    /// Names of the caches that SLUB merged into this one (symlinks to the same directory), sorted, without its own.
    pub aliases: Vec<Arc<str>>,
}

/// What kind of kmalloc bucket a size class is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClassKind {
    /// `kmalloc-64`, `size-64`
    Normal,
    /// `kmalloc-rcl-64`
    Reclaimable,
    /// `kmalloc-cg-64`
    Accounted,
    /// `dma-kmalloc-64`, `kmalloc_dma-64`, `size-64(DMA)`
    Dma,
    /// `kmalloc-rnd-07-64`, `kmalloc-part-07-64`
    Partitioned,
    /// `kmalloc-no-objext-64` and others that still follow the pattern
    Other,
}

/// The kmalloc bucket that a cache's name belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SizeClass {
    /// The class, bytes, from the name alone (debugging makes the stride larger, not the class).
    pub bytes: u64,
    /// The kind of bucket.
    pub kind: ClassKind,
}

/// One cache, joined from all sources. A source that has nothing to say of it is `None`, never zero.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheView {
    /// The name that `/proc/slabinfo` prints, or a pseudo-cache's.
    pub name: Arc<str>,
    /// Size class, for kmalloc caches.
    pub class: Option<SizeClass>,
    /// True for `kmalloc-large` and for size classes counted without a cache: in no slabinfo row.
    pub pseudo: bool,
    /// From the probes. `Some` with zeros for a cache that is traced but had no event.
    pub traced: Option<Traced>,
    /// From slabinfo.
    pub slab: Option<SlabState>,
    /// From sysfs.
    pub attributes: Option<Arc<SlabAttributes>>,
}

/// Totals from `/proc/meminfo`, bytes, and what the caches leave unexplained. `None` where the kernel did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTotals {
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
    /// Sum of `memory_bytes` over all slabinfo rows.
    pub caches_bytes: Option<u64>,
    /// `slab_bytes - caches_bytes`: large kmalloc and counter drift; may be negative.
    pub unexplained_bytes: Option<i64>,
}

/// The state of one optional part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Stable name, a metric label: `page_lookup`, `slabinfo`, ...
    pub name: &'static str,
    /// Whether it works here.
    pub enabled: bool,
    /// Why not, or how; one line, no addresses.
    pub reason: String,
    /// What the operator can do about it; empty if nothing.
    pub remedy: String,
}

/// One reader and its last attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectorState {
    /// Stable name, a metric label: `counters`, `slabinfo`, `sysfs`, `meminfo`, `vmstat`.
    pub collector: &'static str,
    /// Whether the last attempt succeeded.
    pub success: bool,
    /// How long the last attempt took.
    pub duration: Duration,
    /// Why it failed.
    pub error: Option<String>,
}

/// A fact about the host, for `/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFact {
    /// `kernel_release`, `architecture`, `page_size_bytes`, ...
    pub name: &'static str,
    /// As text.
    pub value: String,
}

/// What the reports and verdicts need beside the caches and totals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Bytes of a page; `None` where it was not told.
    pub page_size_bytes: Option<u64>,
    /// The machine; all unknown for saved files.
    pub machine: MachineSample,
    /// How what is held moved since the daemon's start.
    pub trends: Arc<Trends>,
}

/// One immutable view of everything; what a request is answered from.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Counts up from 1.
    pub sequence: u64,
    /// Unix time of the counter drain; when nothing is traced, of the attempt to read slabinfo. Seconds.
    pub taken_at_unix_seconds: f64,
    /// Unix time of the last successful slabinfo read, seconds.
    pub slabinfo_at_unix_seconds: Option<f64>,
    /// Since the daemon's start.
    pub uptime: Duration,
    /// All caches, sorted by name, names unique.
    pub caches: Vec<CacheView>,
    /// Totals of the machine.
    pub memory: MemoryTotals,
    /// Attached programs; empty when nothing is traced.
    pub programs: Vec<ProgramCounts>,
    /// Large kmalloc events left out because the kernel fires two for one allocation.
    pub large_duplicates: u64,
    /// The page lookup's standing; `None` when it is off.
    pub proof: Option<LookupProof>,
    /// How full the counter table is; `None` when nothing is traced.
    pub table: Option<TableUse>,
    /// Each optional part and its state.
    pub features: Arc<[Feature]>,
    /// Each reader and its last attempt.
    pub collectors: Vec<CollectorState>,
    /// What the machine is.
    pub host: Arc<[HostFact]>,
    /// For the reports and verdicts.
    pub evidence: Evidence,
}
