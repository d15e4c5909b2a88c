//! Large kmalloc: whole pages, in no cache; counted once although newer kernels fire its event twice.

use aya_ebpf::{bindings::BPF_ANY, helpers::generated::bpf_snprintf};
use slabmon_common::LargeSite;

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
    if config::large_fires_twice() != 0 && is_in_allocator(call_site) {
        return add(unsafe { &raw mut (*record).large_duplicates }, 1);
    }
    unsafe {
        if object == 0 {
            return add_shared(&raw mut (*record).large_failures, 1);
        }
        add(&raw mut (*record).large_allocs, 1);
        add(&raw mut (*record).large_requested_bytes, requested_bytes);
        add(&raw mut (*record).large_allocated_bytes, allocated_bytes);
    }
}

/// Whether the event was fired from within the allocator, which fires another one for its caller
/// (mm/slub.c, 6.10 and later: `__do_kmalloc_node` traces what `__kmalloc_large_node_noprof` has traced already).
#[inline(always)]
fn is_in_allocator(call_site: u64) -> bool {
    if let Some(known) = unsafe { LARGE_SITES.get(&call_site) } {
        return *known == LargeSite::Allocator as u8;
    }
    classify(call_site)
}

/// First sight of a call site: asks the kernel for its symbol. `__kmalloc…_noprof` and `__kvmalloc…_noprof` are the
/// allocator's own entry points.
#[inline(never)]
fn classify(call_site: u64) -> bool {
    let mut symbol = [0u64; 8];
    let mut argument = call_site;
    let written =
        unsafe { bpf_snprintf(symbol.as_mut_ptr().cast(), 64, SYMBOL_FORMAT.as_ptr().cast(), &raw mut argument, 8) };
    if written < 0 {
        return false;
    }
    let first = symbol[0];
    let in_allocator = first == u64::from_le_bytes(*b"__kmallo") || first == u64::from_le_bytes(*b"__kvmall");
    let site = if in_allocator { LargeSite::Allocator } else { LargeSite::Caller };
    let _ = LARGE_SITES.insert(&call_site, &(site as u8), BPF_ANY as u64);
    in_allocator
}
