//! Large kmalloc: whole pages, in no cache; counted once although newer kernels fire its event twice.

use aya_ebpf::{bindings::BPF_ANY, helpers::generated::bpf_snprintf};
use slabmon_common::{CpuRecord, LargeSite};

use crate::{
    account::{add, add_shared, cpu_record},
    config,
    maps::LARGE_SITES,
};

/// Must lie in a frozen map: the kernel checks the format before the program may run.
#[unsafe(link_section = ".rodata")]
static SYMBOL_FORMAT: [u8; 4] = *b"%ps\0";

/// Counts one allocation of whole pages, or its failure.
#[inline(always)]
pub fn count_alloc(call_site: u64, object: u64, requested_bytes: u64, allocated_bytes: u64) {
    let Some(record) = cpu_record() else {
        return;
    };
    unsafe {
        if config::large_fires_twice() != 0 && is_first_of_two(record, call_site, object) {
            return add(&raw mut (*record).large_duplicates, 1);
        }
        if object == 0 {
            return add_shared(&raw mut (*record).large_failures, 1);
        }
        add(&raw mut (*record).large_allocs, 1);
        add(&raw mut (*record).large_requested_bytes, requested_bytes);
        add(&raw mut (*record).large_allocated_bytes, allocated_bytes);
    }
}

/// Whether another event of the same object follows, for the allocator's caller (mm/slub.c, 6.10 and later:
/// `__do_kmalloc_node` traces what `__kmalloc_large_node_noprof` has traced already).
///
/// From within `__kvmalloc_node_noprof` it is the second one where that function is a caller of `__kmalloc_node_noprof`
/// (mm/util.c, 6.12), and the first where it is part of the allocator itself (mm/slub.c, 6.18). Which of the two, the object of this
/// CPU's last first event tells: two events of one allocation follow on each other, unless the task moved in between.
#[inline(always)]
unsafe fn is_first_of_two(record: *mut CpuRecord, call_site: u64, object: u64) -> bool {
    // Never 0, for failed allocations either.
    let this = object | 1;
    let last = unsafe { (*record).large_first };
    let site = match unsafe { LARGE_SITES.get(&call_site) } {
        Some(known) => *known,
        None => classify(call_site),
    };
    let is_first = site == LargeSite::Allocator as u8 || (site == LargeSite::Kvmalloc as u8 && last != this);
    unsafe { (*record).large_first = if is_first { this } else { 0 } };
    is_first
}

/// First sight of a call site: asks the kernel for its symbol. `__kmalloc…_noprof` are the allocator's own entry points.
#[inline(never)]
fn classify(call_site: u64) -> u8 {
    let mut symbol = [0u64; 8];
    let mut argument = call_site;
    let written =
        unsafe { bpf_snprintf(symbol.as_mut_ptr().cast(), 64, SYMBOL_FORMAT.as_ptr().cast(), &raw mut argument, 8) };
    if written < 0 {
        return LargeSite::Caller as u8;
    }
    let first = symbol[0];
    let site = if first == u64::from_le_bytes(*b"__kmallo") {
        LargeSite::Allocator
    } else if first == u64::from_le_bytes(*b"__kvmall") {
        LargeSite::Kvmalloc
    } else {
        LargeSite::Caller
    } as u8;
    let _ = LARGE_SITES.insert(&call_site, &site, BPF_ANY as u64);
    site
}
