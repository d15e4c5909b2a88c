//! Every map: its size, its lifetime (that of the loaded object) and what happens when it is full.
//!
//! All are preallocated: a map that allocates in a slab tracepoint feeds on itself.

use aya_ebpf::{
    bindings::BPF_F_MMAPABLE,
    macros::map,
    maps::{Array, HashMap},
};
use slabmon_common::{CacheRecord, CalibrationPair, CpuRecord, MAX_PAIRS, Slot, UntracedSlot};

/// The daemon sets the number of entries to CPUs × slots. Full: the event is lost as `table_full`.
#[map]
pub static COUNTERS: Array<Slot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// As many entries as `COUNTERS`, with the same index for the same cache. Full when that is.
#[map]
pub static UNTRACED: Array<UntracedSlot> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// The daemon sets the number of entries to the CPUs. Never full.
#[map]
pub static CPU_RECORDS: Array<CpuRecord> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Bulk allocations under way, by stack pointer: cache and count. One entry a call. Full: the call's objects are lost, and
/// counted so.
#[map]
pub static BULK_CALLS: HashMap<u64, [u64; 2]> = HashMap::with_max_entries(1024, 0);

/// One entry a cache ever seen. Full: the counters go on and the daemon describes the cache by itself.
#[map]
pub static CACHES: HashMap<u64, CacheRecord> = HashMap::with_max_entries(2048, 0);

/// One entry a call site of large kmalloc. Full: the call site is classified anew at each event.
#[map]
pub static LARGE_SITES: HashMap<u64, u8> = HashMap::with_max_entries(4096, 0);

/// Filled round by round while `calibrate` is attached. Full: older pairs are overwritten.
#[map]
pub static PAIRS: Array<CalibrationPair> = Array::with_max_entries(MAX_PAIRS, 0);
