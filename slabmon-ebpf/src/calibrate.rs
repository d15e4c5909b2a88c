//! Reading a `struct kmem_cache`, and collecting and proving what the page lookup stands on.

use core::ffi::c_void;

use aya_ebpf::{bindings::seq_file, helpers::bpf_seq_write, macros::raw_tracepoint, programs::RawTracePointContext};
use slabmon_common::{ABSENT, CacheRecord, CalibrationPair, MAX_PAIRS};

use crate::{
    account::{add_shared, cpu_record},
    config, kread,
    maps::{CACHES, PAIRS},
    resolve::{Object, compound_order_of, resolve},
};

/// Reads the cache at `key`. False if it could not be read.
#[inline(always)]
pub fn describe_cache(key: u64, record: &mut CacheRecord) -> bool {
    record.key = key;
    let (Some(size), Some(object_size), Some(name)) = (
        kread::read::<u32>(key + u64::from(config::cache_size())),
        kread::read::<u32>(key + u64::from(config::cache_object_size())),
        kread::read::<u64>(key + u64::from(config::cache_name())),
    ) else {
        return false;
    };
    record.size = size;
    record.object_size = object_size;
    kread::read_name(name, &mut record.name)
}

/// A slab of the cache at `key` that waits on its first node's partial list, and the address where its memory begins.
#[inline(always)]
fn pair_of(key: u64) -> Option<CalibrationPair> {
    if config::cache_node() == ABSENT {
        return None;
    }
    let node = kread::read::<u64>(key + u64::from(config::cache_node()))?;
    let list = node + u64::from(config::node_partial());
    let first = kread::read::<u64>(list)?;
    if first == 0 || first == list {
        return None;
    }
    let page = first - u64::from(config::slab_list());
    let object = kread::read::<u64>(page + u64::from(config::slab_freelist()))?;
    if object == 0 {
        return None;
    }
    // The object may lie in any page of the slab; the slab is aligned to its own size.
    let slab_bytes = 1u64 << ((config::page_shift() + compound_order_of(page)?) & 63);
    Some(CalibrationPair { page, object: object & !(slab_bytes - 1) })
}

/// Context of `iter/kmem_cache` (kernel/bpf/kmem_cache_iter.c).
#[repr(C)]
struct KmemCacheIterContext {
    meta: *const IterMeta,
    cache: u64,
}

/// `struct bpf_iter_meta` (include/linux/bpf.h), its first member.
#[repr(C)]
struct IterMeta {
    seq: *mut seq_file,
}

/// Writes one `CacheRecord` a cache, in the kernel's own order: newest first.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/kmem_cache")]
pub fn list_caches(context: *mut c_void) -> u32 {
    let context = context.cast::<KmemCacheIterContext>();
    let key = unsafe { (*context).cache };
    if key == 0 {
        return 0;
    }
    let mut record = CacheRecord::EMPTY;
    if describe_cache(key, &mut record) {
        if let Some(pair) = pair_of(key) {
            record.pair = pair;
        }
        unsafe {
            let seq = (*(*context).meta).seq;
            bpf_seq_write(seq, (&raw const record).cast(), size_of::<CacheRecord>() as u32);
        }
    }
    0
}

/// Collects one pair an event; for kernels without the iterator. Attached for a moment at start.
#[raw_tracepoint(tracepoint = "kmem_cache_alloc")]
pub fn calibrate(ctx: RawTracePointContext) -> i32 {
    let cache: u64 = ctx.arg(2);
    if let Some(pair) = pair_of(cache) {
        // Any spread will do; a pair lost to a race is one pair less.
        let index = ((pair.page >> 6) as u32) % MAX_PAIRS;
        if let Some(entry) = PAIRS.get_ptr_mut(index) {
            unsafe { *entry = pair };
        }
    }
    0
}

/// Caches that the walk along the kernel's list visits at most.
const MAX_CACHES: u32 = 512;

/// Collects pairs along `slab_caches`, whose address is argument 0. Never attached: the daemon runs it once, on kernels
/// that have neither the iterator nor events that name their cache.
#[raw_tracepoint(tracepoint = "kfree")]
pub fn walk_caches(ctx: RawTracePointContext) -> i32 {
    let list: u64 = ctx.arg(0);
    let Some(mut entry) = kread::read::<u64>(list) else {
        return 1;
    };
    for index in 0..MAX_CACHES {
        if entry == list {
            return 0;
        }
        if let Some(pair) = pair_of(entry - u64::from(config::cache_list()))
            && let Some(slot) = PAIRS.get_ptr_mut(index % MAX_PAIRS)
        {
            unsafe { *slot = pair };
        }
        match kread::read::<u64>(entry) {
            Some(next) => entry = next,
            None => return 1,
        }
    }
    0
}

/// Holds the lookup against every event's own cache. Attached for a moment at start.
#[raw_tracepoint(tracepoint = "kmem_cache_alloc")]
pub fn prove(ctx: RawTracePointContext) -> i32 {
    let object: u64 = ctx.arg(1);
    if object != 0 {
        if config::alloc_has_cache() != 0 {
            prove_object(object, ctx.arg(2));
        } else {
            prove_size(object, ctx.arg(3));
        }
    }
    0
}

/// Holds the lookup of `object` against the stride that the event names, where it does not name the cache.
#[inline(always)]
pub fn prove_size(object: u64, stride_bytes: u64) {
    let found = match resolve(object) {
        Object::Slab { cache } => kread::read::<u32>(cache + u64::from(config::cache_size())).unwrap_or(0),
        _ => 0,
    };
    note_proof(u64::from(found) == stride_bytes);
}

/// Holds the lookup of `object` against the `cache` that the kernel itself names.
#[inline(always)]
pub fn prove_object(object: u64, cache: u64) {
    // A value on every path: the compiler must not compare what was never set, which the verifier refuses.
    let found = match resolve(object) {
        Object::Slab { cache } => cache,
        _ => 0,
    };
    note_proof(found == cache);
}

#[inline(always)]
fn note_proof(right: bool) {
    if let Some(record) = cpu_record() {
        unsafe {
            add_shared(&raw mut (*record).proofs, 1);
            if !right {
                add_shared(&raw mut (*record).proof_mismatches, 1);
            }
        }
    }
}

/// Reads the cache whose address is argument 0 into `CACHES`. Never attached: the daemon runs it for one cache.
#[raw_tracepoint(tracepoint = "kfree")]
pub fn describe(ctx: RawTracePointContext) -> i32 {
    let key: u64 = ctx.arg(0);
    let mut record = CacheRecord::EMPTY;
    if !describe_cache(key, &mut record) {
        return 1;
    }
    match CACHES.insert(&key, &record, 0) {
        Ok(()) => 0,
        Err(_) => 2,
    }
}
