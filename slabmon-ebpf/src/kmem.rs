//! The tracepoints: argument → integer, first look, and on to `resolve` and `account`.
//!
//! Prototypes: include/trace/events/kmem.h. Argument 0 is the call site in all of them, argument 1 the object.

use aya_ebpf::{macros::raw_tracepoint, programs::RawTracePointContext};
use slabmon_common::{CLASS_KEY, PROOF_INTERVAL};

use crate::{
    account::{Loss, Program, add, add_shared, cpu_record, lose, slot},
    calibrate::{prove_object, prove_size},
    config, large,
    resolve::{Object, resolve},
};

/// Development builds (feature `log`) say when an event cannot be put down to a cache; the shipped object is silent.
macro_rules! note {
    ($ctx:expr, $text:literal) => {
        #[cfg(feature = "log")]
        aya_log_ebpf::warn!($ctx, $text);
        #[cfg(not(feature = "log"))]
        let _ = $ctx;
    };
}

/// `ZERO_SIZE_PTR` (include/linux/slab.h): what kmalloc(0) gives, and freeing it frees nothing.
const ZERO_SIZE_PTR: u64 = 16;

#[raw_tracepoint(tracepoint = "kmalloc")]
pub fn kmalloc(ctx: RawTracePointContext) -> i32 {
    count_kmalloc(&ctx);
    0
}

#[raw_tracepoint(tracepoint = "kmalloc_node")]
pub fn kmalloc_node(ctx: RawTracePointContext) -> i32 {
    count_kmalloc(&ctx);
    0
}

#[raw_tracepoint(tracepoint = "kmem_cache_alloc")]
pub fn kmem_cache_alloc(ctx: RawTracePointContext) -> i32 {
    count_cache_alloc(&ctx);
    0
}

#[raw_tracepoint(tracepoint = "kmem_cache_alloc_node")]
pub fn kmem_cache_alloc_node(ctx: RawTracePointContext) -> i32 {
    count_cache_alloc(&ctx);
    0
}

#[raw_tracepoint(tracepoint = "kfree")]
pub fn kfree(ctx: RawTracePointContext) -> i32 {
    let object: u64 = ctx.arg(1);
    if object > ZERO_SIZE_PTR {
        count_kfree(&ctx, object);
    }
    0
}

#[raw_tracepoint(tracepoint = "kmem_cache_free")]
pub fn kmem_cache_free(ctx: RawTracePointContext) -> i32 {
    count_cache_free(&ctx);
    0
}

#[inline(always)]
fn count_kmalloc(ctx: &RawTracePointContext) {
    let object: u64 = ctx.arg(1);
    let requested_bytes: u64 = ctx.arg(2);
    let allocated_bytes: u64 = ctx.arg(3);
    if allocated_bytes > u64::from(config::largest_class()) {
        large::count_alloc(ctx.arg(0), object, requested_bytes, allocated_bytes);
        return;
    }
    if object == 0 {
        if let Some(slot) = slot(CLASS_KEY | allocated_bytes, Program::Kmalloc) {
            add_shared(unsafe { &raw mut (*slot).failures }, 1);
        }
        return;
    }
    let key = if config::lookup_usable() {
        match resolve(object) {
            Object::Slab { cache } => cache,
            Object::Unreadable => return lose(Program::Kmalloc, Loss::ReadFailed),
            Object::Large { .. } | Object::Unknown => {
                note!(ctx, "kmalloc: not in a slab");
                return lose(Program::Kmalloc, Loss::Unattributed);
            }
        }
    } else {
        CLASS_KEY | allocated_bytes
    };
    if let Some(slot) = slot(key, Program::Kmalloc) {
        unsafe {
            add(&raw mut (*slot).kmallocs, 1);
            add(&raw mut (*slot).kmalloc_requested_bytes, requested_bytes);
        }
    }
}

#[inline(always)]
fn count_kfree(ctx: &RawTracePointContext, object: u64) {
    if !config::lookup_usable() {
        return lose(Program::Kfree, Loss::Unattributed);
    }
    match resolve(object) {
        Object::Slab { cache } => {
            if let Some(slot) = slot(cache, Program::Kfree) {
                add(unsafe { &raw mut (*slot).kfrees }, 1);
            }
        }
        Object::Large { bytes } => {
            if let Some(record) = cpu_record() {
                unsafe {
                    add(&raw mut (*record).large_frees, 1);
                    add(&raw mut (*record).large_freed_bytes, bytes);
                }
            }
        }
        Object::Unknown => {
            note!(ctx, "kfree: neither slab nor large kmalloc");
            lose(Program::Kfree, Loss::Unattributed);
        }
        Object::Unreadable => lose(Program::Kfree, Loss::ReadFailed),
    }
}

#[inline(always)]
fn count_cache_alloc(ctx: &RawTracePointContext) {
    let object: u64 = ctx.arg(1);
    let key = if config::alloc_has_cache() != 0 {
        ctx.arg(2)
    } else if object == 0 {
        // Up to 5.19 a failed event names no cache, only its stride.
        CLASS_KEY | (ctx.arg::<u64>(3) & 0xffff_ffff)
    } else {
        match resolve_for(object, Program::CacheAlloc) {
            Some(cache) => cache,
            None => return,
        }
    };
    let Some(slot) = slot(key, Program::CacheAlloc) else {
        return;
    };
    if object == 0 {
        return add_shared(unsafe { &raw mut (*slot).failures }, 1);
    }
    let nth = unsafe { (*slot).cache_allocs };
    add(unsafe { &raw mut (*slot).cache_allocs }, 1);
    if nth % PROOF_INTERVAL == 0 && config::lookup_usable() {
        prove(object, key, ctx);
    }
}

/// Up to 5.19 the event names no cache; its stride must be that of the cache that the lookup gave.
#[inline(always)]
fn prove(object: u64, key: u64, ctx: &RawTracePointContext) {
    if config::alloc_has_cache() != 0 {
        prove_object(object, key);
    } else {
        prove_size(object, ctx.arg(3));
    }
}

#[inline(always)]
fn count_cache_free(ctx: &RawTracePointContext) {
    let key = if config::free_has_cache() != 0 {
        ctx.arg(2)
    } else {
        let object: u64 = ctx.arg(1);
        if object <= ZERO_SIZE_PTR {
            return;
        }
        match resolve_for(object, Program::CacheFree) {
            Some(cache) => cache,
            None => return,
        }
    };
    if let Some(slot) = slot(key, Program::CacheFree) {
        add(unsafe { &raw mut (*slot).cache_frees }, 1);
    }
}

/// The cache of an object that kmem_cache_alloc or kmem_cache_free names alone; a loss is counted.
#[inline(always)]
fn resolve_for(object: u64, program: Program) -> Option<u64> {
    if !config::lookup_usable() {
        lose(program, Loss::Unattributed);
        return None;
    }
    match resolve(object) {
        Object::Slab { cache } => Some(cache),
        Object::Unreadable => {
            lose(program, Loss::ReadFailed);
            None
        }
        Object::Large { .. } | Object::Unknown => {
            lose(program, Loss::Unattributed);
            None
        }
    }
}
