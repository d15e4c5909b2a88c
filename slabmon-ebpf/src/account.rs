//! What is counted, and where: the slot of a cache on this CPU, and this CPU's record of losses.

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::addr_of_mut;

use aya_ebpf::{bindings::BPF_ANY, helpers::bpf_get_smp_processor_id};
use slabmon_common::{CLASS_KEY, CacheRecord, CpuRecord, MAX_PROBES, Slot, UntracedSlot};

use crate::{
    calibrate, config,
    maps::{CACHES, COUNTERS, CPU_RECORDS, UNTRACED},
};

/// Which group of a [`CpuRecord`] a program writes.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Program {
    Kmalloc = 0,
    Kfree = 1,
    CacheAlloc = 2,
    CacheFree = 3,
    /// All programs on paths that fire no event.
    Untraced = 4,
}

/// Field of `Losses` that a lost event is counted in.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Loss {
    TableFull = 0,
    ClaimBusy = 1,
    ReadFailed = 2,
    Unattributed = 3,
}

/// Adds to a counter of this CPU that one program alone writes.
#[inline(always)]
pub fn add(counter: *mut u64, n: u64) {
    if config::atomic() != 0 {
        add_shared(counter, n);
    } else {
        unsafe { *counter += n };
    }
}

/// Adds to a counter that several programs write. The result is not used, so this is the one atomic that 5.10 knows.
#[inline(always)]
pub fn add_shared(counter: *mut u64, n: u64) {
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(counter, n) };
}

#[inline(always)]
pub fn cpu_record() -> Option<*mut CpuRecord> {
    CPU_RECORDS.get_ptr_mut(unsafe { bpf_get_smp_processor_id() })
}

/// Counts an event that could not be counted for a cache.
#[inline(always)]
pub fn lose(program: Program, loss: Loss) {
    if let Some(record) = cpu_record() {
        // Groups of eight words; the losses are the first four of each.
        let words = record.cast::<u64>();
        let index = ((program as usize) & 7) * 8 + ((loss as usize) & 3);
        if index >= size_of::<CpuRecord>() / 8 {
            return;
        }
        let counter = unsafe { words.add(index) };
        if program as u32 == Program::Untraced as u32 {
            add_shared(counter, 1);
        } else {
            add(counter, 1);
        }
    }
}

/// The slot of `key` on this CPU; `None` if the event is lost, which is then counted.
#[inline(always)]
pub fn slot(key: u64, program: Program) -> Option<*mut Slot> {
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let home = home_of(key);
    let slot = COUNTERS.get_ptr_mut((cpu << config::slots_log2()) | home)?;
    if unsafe { (*slot).key } == key {
        return Some(slot);
    }
    COUNTERS.get_ptr_mut(probe(key, cpu, home, program))
}

/// The slot of `key` on this CPU in `UNTRACED`.
#[inline(always)]
pub fn untraced_slot(key: u64) -> Option<*mut UntracedSlot> {
    let cpu = unsafe { bpf_get_smp_processor_id() };
    UNTRACED.get_ptr_mut(probe(key, cpu, home_of(key), Program::Untraced))
}

/// No entry has this index: what it is looked up for is lost, and was counted so.
const LOST: u32 = u32::MAX;

#[inline(always)]
fn home_of(key: u64) -> u32 {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> ((64 - config::slots_log2()) & 63)) as u32
}

/// The path of a cache whose home slot is taken or empty: the index of its slot, or of one that it claims.
#[inline(never)]
fn probe(key: u64, cpu: u32, home: u32, program: Program) -> u32 {
    let base = cpu << config::slots_log2();
    let mask = (1 << config::slots_log2()) - 1;
    for step in 0..MAX_PROBES {
        let index = base | (home.wrapping_add(step) & mask);
        let Some(slot) = COUNTERS.get_ptr_mut(index) else {
            return LOST;
        };
        let taken_by = unsafe { (*slot).key };
        if taken_by == key || (taken_by == 0 && claim(slot, key, program)) {
            return index;
        }
        if taken_by == 0 {
            return LOST;
        }
    }
    lose(program, Loss::TableFull);
    LOST
}

/// Takes an empty slot for `key`.
///
/// Programs on one CPU nest strictly: one that interrupts (or preempts) another here runs to its end, or is not
/// migrated, before the first goes on. So a plain flag decides: who finds it set gives way and counts a loss.
#[inline(always)]
fn claim(slot: *mut Slot, key: u64, program: Program) -> bool {
    let Some(record) = cpu_record() else {
        return false;
    };
    let claiming = unsafe { addr_of_mut!((*record).claiming) };
    if unsafe { claiming.read_volatile() } != 0 {
        lose(program, Loss::ClaimBusy);
        return false;
    }
    unsafe { claiming.write_volatile(1) };
    // Whoever ran between the look and the flag may have taken it.
    let free = unsafe { addr_of_mut!((*slot).key).read_volatile() } == 0;
    let sizes = if free { sizes_of(key) } else { None };
    if let Some(sizes) = sizes {
        unsafe {
            addr_of_mut!((*slot).sizes).write_volatile(sizes);
            addr_of_mut!((*slot).key).write_volatile(key);
        }
    }
    unsafe { claiming.write_volatile(0) };
    if !free {
        lose(program, Loss::ClaimBusy);
    } else if sizes.is_none() {
        lose(program, Loss::ReadFailed);
    }
    sizes.is_some()
}

/// What `Slot.sizes` holds for `key`; for a cache, leaves its record in `CACHES` on the way.
#[inline(always)]
fn sizes_of(key: u64) -> Option<u64> {
    if key >> 33 == 0 {
        // A class key: kmalloc's bytes_alloc is the stride of whatever bucket it was.
        return Some(key & !CLASS_KEY);
    }
    let mut record = CacheRecord::EMPTY;
    if !calibrate::describe_cache(key, &mut record) {
        return None;
    }
    let sizes = u64::from(record.size) | (u64::from(record.object_size) << 32);
    let _ = CACHES.insert(&key, &record, BPF_ANY as u64);
    Some(sizes)
}
