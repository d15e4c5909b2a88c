//! The counter tables, read as memory.

use std::{os::fd::AsRawFd, ptr};

use aya::{
    Ebpf,
    maps::{Map, MapData},
};
use memmap2::{MmapOptions, MmapRaw};
use slabmon_common::{Config, CpuRecord, Losses, Slot, UntracedSlot, map, program};

use super::{
    load::LoadError,
    registry::{CacheIdentity, RawCounts, Registry},
};
use crate::model::sample::LossCounts;

/// An array map seen as memory. The kernel side writes it at any time, so each word is read volatile, once.
struct MappedArray<T> {
    memory: MmapRaw,
    length: usize,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> MappedArray<T> {
    fn map(ebpf: &Ebpf, name: &'static str, length: usize) -> Result<Self, LoadError> {
        let data = array_data(ebpf, name)?;
        let failed = |error: std::io::Error| LoadError::Map { map: name, reason: format!("mmap: {error}") };
        let memory = MmapOptions::new()
            .len(length.saturating_mul(size_of::<T>()))
            .map_raw_read_only(data.fd().as_fd_raw())
            .map_err(failed)?;
        Ok(Self { memory, length, entry: std::marker::PhantomData })
    }

    fn read(&self, index: usize) -> Option<T> {
        if index >= self.length {
            return None;
        }
        // SAFETY: in bounds by the check above, aligned because the mapping is page-aligned and T's size is a multiple
        // of its alignment; T is plain integers, so any bytes are a valid T.
        Some(unsafe { ptr::read_volatile(self.memory.as_ptr().cast::<T>().add(index)) })
    }

    /// The first word of an entry, which tells whether the rest is worth reading.
    fn read_first_word(&self, index: usize) -> Option<u64> {
        if index >= self.length {
            return None;
        }
        // SAFETY: as in `read`; T is at least eight bytes long.
        Some(unsafe { ptr::read_volatile(self.memory.as_ptr().cast::<T>().add(index).cast::<u64>()) })
    }
}

trait RawFdOf {
    fn as_fd_raw(&self) -> std::os::fd::RawFd;
}

impl RawFdOf for aya::maps::MapFd {
    fn as_fd_raw(&self) -> std::os::fd::RawFd {
        use std::os::fd::AsFd;
        self.as_fd().as_raw_fd()
    }
}

fn array_data<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a MapData, LoadError> {
    match ebpf.map(name) {
        Some(Map::Array(data)) => Ok(data),
        _ => Err(LoadError::Missing(name)),
    }
}

/// `COUNTERS`: `cpus × slots_per_cpu` slots.
pub struct SlotTable {
    slots: MappedArray<Slot>,
    /// Beside each slot, what came and went without an event; only read where something counts it.
    untraced: Option<MappedArray<UntracedSlot>>,
    slots_per_cpu: usize,
    /// Place of each slot's cache in the registry, once it was seen; a claimed slot is never given up.
    places: Vec<Option<u32>>,
    used: Vec<u32>,
}

impl SlotTable {
    /// Maps the table.
    pub fn map(ebpf: &Ebpf, config: &Config, cpus: u32, with_untraced: bool) -> Result<Self, LoadError> {
        let slots_per_cpu = 1usize << config.slots_log2;
        let length = slots_per_cpu * cpus as usize;
        Ok(Self {
            slots: MappedArray::map(ebpf, map::COUNTERS, length)?,
            untraced: with_untraced.then(|| MappedArray::map(ebpf, map::UNTRACED, length)).transpose()?,
            slots_per_cpu,
            places: vec![None; length],
            used: vec![0; cpus as usize],
        })
    }

    /// Adds all slots up into `registry`; `identify` is asked once for each cache that is new.
    pub fn read(&mut self, mut identify: impl FnMut(u64) -> Option<CacheIdentity>, registry: &mut Registry) {
        registry.begin_reading();
        for (index, place) in self.places.iter_mut().enumerate() {
            let key = match self.slots.read_first_word(index) {
                Some(key) if key != 0 => key,
                _ => continue,
            };
            let Some(slot) = self.slots.read(index) else { continue };
            let place = *place.get_or_insert_with(|| {
                if let Some(used) = self.used.get_mut(index / self.slots_per_cpu) {
                    *used += 1;
                }
                registry.place_of(key)
            });
            if registry.is_unnamed(place) {
                registry.name(place, identify_key(key, &slot, &mut identify));
            }
            registry.add(place, &RawCounts::from(&slot));
            if let Some(untraced) = self.untraced.as_ref().and_then(|untraced| untraced.read(index)) {
                registry.add(place, &RawCounts::from(&untraced));
            }
        }
    }

    /// Slots that each CPU has.
    pub fn slots_per_cpu(&self) -> u32 {
        self.slots_per_cpu as u32
    }

    /// CPUs that have slots.
    pub fn cpus(&self) -> u32 {
        self.used.len() as u32
    }

    /// Slots in use on the fullest CPU, as of the last reading.
    pub fn used_on_fullest_cpu(&self) -> u32 {
        self.used.iter().copied().max().unwrap_or(0)
    }
}

fn identify_key(
    key: u64,
    slot: &Slot,
    identify: &mut impl FnMut(u64) -> Option<CacheIdentity>,
) -> Option<CacheIdentity> {
    if Registry::is_class_key(key) { Some(CacheIdentity::of_class(slot.sizes)) } else { identify(key) }
}

/// `CPU_RECORDS`: one record a CPU.
pub struct CpuRecords {
    records: MappedArray<CpuRecord>,
}

impl CpuRecords {
    /// Maps the records.
    pub fn map(ebpf: &Ebpf, cpus: u32) -> Result<Self, LoadError> {
        Ok(Self { records: MappedArray::map(ebpf, map::CPU_RECORDS, cpus as usize)? })
    }

    /// The sum over CPUs.
    pub fn sum(&self) -> CpuRecord {
        (0..self.records.length)
            .filter_map(|cpu| self.records.read(cpu))
            .fold(CpuRecord::default(), |sum, record| add_records(&sum, &record))
    }
}

fn add_records(a: &CpuRecord, b: &CpuRecord) -> CpuRecord {
    CpuRecord {
        kmalloc: add_losses(a.kmalloc, b.kmalloc),
        large_allocs: a.large_allocs.wrapping_add(b.large_allocs),
        large_requested_bytes: a.large_requested_bytes.wrapping_add(b.large_requested_bytes),
        large_allocated_bytes: a.large_allocated_bytes.wrapping_add(b.large_allocated_bytes),
        large_duplicates: a.large_duplicates.wrapping_add(b.large_duplicates),
        kfree: add_losses(a.kfree, b.kfree),
        large_frees: a.large_frees.wrapping_add(b.large_frees),
        large_freed_bytes: a.large_freed_bytes.wrapping_add(b.large_freed_bytes),
        large_failures: a.large_failures.wrapping_add(b.large_failures),
        cache_alloc: add_losses(a.cache_alloc, b.cache_alloc),
        proofs: a.proofs.wrapping_add(b.proofs),
        proof_mismatches: a.proof_mismatches.wrapping_add(b.proof_mismatches),
        cache_free: add_losses(a.cache_free, b.cache_free),
        untraced: add_losses(a.untraced, b.untraced),
        untraced_beyond_bound: a.untraced_beyond_bound.wrapping_add(b.untraced_beyond_bound),
        untraced_large_frees: a.untraced_large_frees.wrapping_add(b.untraced_large_frees),
        hooked_objects: std::array::from_fn(|path| a.hooked_objects[path].wrapping_add(b.hooked_objects[path])),
        untraced_large_freed_bytes: a.untraced_large_freed_bytes.wrapping_add(b.untraced_large_freed_bytes),
        ..CpuRecord::default()
    }
}

fn add_losses(a: Losses, b: Losses) -> Losses {
    Losses {
        table_full: a.table_full.wrapping_add(b.table_full),
        claim_busy: a.claim_busy.wrapping_add(b.claim_busy),
        read_failed: a.read_failed.wrapping_add(b.read_failed),
        unattributed: a.unattributed.wrapping_add(b.unattributed),
    }
}

/// The losses of one program; the `_node` programs share those of their sisters, which alone report them.
pub fn losses_of(record: &CpuRecord, name: &str) -> LossCounts {
    let losses = match name {
        program::KMALLOC => record.kmalloc,
        program::KFREE => record.kfree,
        program::KMEM_CACHE_ALLOC => record.cache_alloc,
        program::KMEM_CACHE_FREE | program::CACHE_FREE_ENTRY | program::CACHE_FREE_KPROBE => record.cache_free,
        // All hooks share one group; the bulk free, which has nearly all of it, reports it.
        program::FREE_BULK | program::FREE_BULK_KPROBE => Losses {
            unattributed: record.untraced.unattributed.wrapping_add(record.untraced_beyond_bound),
            ..record.untraced
        },
        _ => Losses::default(),
    };
    LossCounts {
        table_full: losses.table_full,
        claim_busy: losses.claim_busy,
        read_failed: losses.read_failed,
        unattributed: losses.unattributed,
    }
}
