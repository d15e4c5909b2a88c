//! Paths that fire no event: bulk calls, sheaves and the lockless pair. One function, one hook, nothing twice:
//! kvfree_call_rcu is a request and not counted, nor is what fills, takes or returns a sheaf.
//!
//! Programs of type tracing are refused on some kernels, kprobes on others; the raw tracepoints do not depend on them.
//! These programs may be preempted everywhere, so all they add, they add atomically.

use core::ffi::c_void;

use aya_ebpf::{
    EbpfContext,
    helpers::generated::bpf_get_func_ret,
    macros::{fentry, fexit, kprobe, kretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RetProbeContext},
};
use slabmon_common::{MAX_BULK_OBJECTS, architecture, hooked};

use crate::{
    account::{Loss, Program, add_shared, cpu_record, lose, slot, untraced_slot},
    config, kread,
    maps::BULK_CALLS,
    resolve::{Object, resolve},
};

/// Argument `n` of the traced function as a number: what a trampoline saved lies at the context as words. Read as memory,
/// since a load from the context gives a typed pointer, which no key can be.
#[inline(always)]
fn argument(ctx: *mut c_void, n: u64) -> u64 {
    kread::read(ctx as u64 + n * 8).unwrap_or(0)
}

/// What a function of `arguments` arguments returned: the word behind them.
#[inline(always)]
fn returned(ctx: *mut c_void, arguments: u64) -> u64 {
    argument(ctx, arguments)
}

/// Argument `n` (up to 3) of a function that a kprobe stopped, from its `struct pt_regs`.
#[inline(always)]
fn register_argument(ctx: &ProbeContext, n: usize) -> u64 {
    let word = if config::architecture() == architecture::AARCH64 {
        n
    } else {
        // di, si, dx, cx (arch/x86/include/asm/ptrace.h).
        [14, 13, 12, 11][n]
    };
    argument(ctx.as_ptr(), word as u64)
}

/// `kmem_cache_free_bulk(s, size, p)`; kfree_bulk is the same with a NULL cache.
#[fentry(function = "kmem_cache_free_bulk")]
pub fn free_bulk(ctx: FEntryContext) -> i32 {
    let ctx = ctx.as_ptr();
    count_free_bulk(argument(ctx, 0), argument(ctx, 1), argument(ctx, 2));
    0
}

#[kprobe]
pub fn free_bulk_kprobe(ctx: ProbeContext) -> u32 {
    count_free_bulk(register_argument(&ctx, 0), register_argument(&ctx, 1), register_argument(&ctx, 2));
    0
}

#[inline(always)]
fn count_free_bulk(cache: u64, count: u64, objects: u64) {
    if cache != 0 {
        return count_frees(cache, count, hooked::FREE_BULK);
    }
    for index in 0..MAX_BULK_OBJECTS {
        if u64::from(index) >= count {
            return;
        }
        free_one_of(objects + u64::from(index) * 8);
    }
    lose_objects(count - u64::from(MAX_BULK_OBJECTS));
}

#[inline(always)]
fn lose_objects(count: u64) {
    if let Some(record) = cpu_record() {
        add_shared(unsafe { &raw mut (*record).untraced_beyond_bound }, count);
    }
}

/// One entry of a bulk free without a cache: of any cache, a large kmalloc, or (5.10) NULL. A global function, so that the
/// verifier looks at it once and not once a round.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn free_one_of(entry: u64) -> u32 {
    let Some(object) = kread::read::<u64>(entry) else {
        lose(Program::Untraced, Loss::ReadFailed);
        return 0;
    };
    if object > 16 {
        count_free(object, hooked::FREE_BULK);
    }
    0
}

#[inline(always)]
fn count_free(object: u64, path: usize) {
    if !config::lookup_usable() {
        return lose(Program::Untraced, Loss::Unattributed);
    }
    match resolve(object) {
        Object::Slab { cache } => count_frees(cache, 1, path),
        Object::Large { bytes } => {
            if let Some(record) = cpu_record() {
                unsafe {
                    add_shared(&raw mut (*record).untraced_large_frees, 1);
                    add_shared(&raw mut (*record).untraced_large_freed_bytes, bytes);
                    add_shared(&raw mut (*record).hooked_objects[path], 1);
                }
            }
        }
        Object::Unknown => lose(Program::Untraced, Loss::Unattributed),
        Object::Unreadable => lose(Program::Untraced, Loss::ReadFailed),
    }
}

#[inline(always)]
fn count_frees(cache: u64, count: u64, path: usize) {
    if let Some(slot) = untraced_slot(cache) {
        add_shared(unsafe { &raw mut (*slot).frees }, count);
        note_hooked(count, path);
    }
}

#[inline(always)]
fn note_hooked(count: u64, path: usize) {
    if let Some(record) = cpu_record() {
        add_shared(unsafe { &raw mut (*record).hooked_objects[path] }, count);
    }
}

/// `kmem_cache_alloc_bulk(s, flags, size, p)`: all or nothing, and 0 is nothing.
#[fexit(function = "kmem_cache_alloc_bulk_noprof")]
pub fn alloc_bulk(ctx: FExitContext) -> i32 {
    let ctx = ctx.as_ptr();
    count_alloc_bulk(returned(ctx, 4), argument(ctx, 0), argument(ctx, 2));
    0
}

/// Where functions cannot be traced at their return: what the call is for is kept until it returns, under the address of
/// its stack frame, which is that call's alone.
#[kprobe]
pub fn alloc_bulk_entry(ctx: ProbeContext) -> u32 {
    let call = [register_argument(&ctx, 0), register_argument(&ctx, 2)];
    if BULK_CALLS.insert(stack_pointer(ctx.as_ptr()), call, 0).is_err() {
        lose_objects(call[1]);
    }
    0
}

#[kretprobe]
pub fn alloc_bulk_return(ctx: RetProbeContext) -> u32 {
    let frame = stack_pointer(ctx.as_ptr());
    if let Some(call) = unsafe { BULK_CALLS.get(frame) } {
        let [cache, count] = *call;
        count_alloc_bulk(argument(ctx.as_ptr(), 0), cache, count);
        let _ = BULK_CALLS.remove(frame);
    }
    0
}

/// The stack pointer in the registers of aarch64, where it is the same at a function's entry and at its return.
#[inline(always)]
fn stack_pointer(registers: *mut c_void) -> u64 {
    argument(registers, 31)
}

/// All objects were allocated or none. What is returned is an int up to 7.1 (the count, or 0), then a bool, whose upper bytes
/// are anything.
#[inline(always)]
fn count_alloc_bulk(returned: u64, cache: u64, count: u64) {
    let succeeded = returned as u32 == count as u32 || returned as u8 == 1;
    if succeeded && let Some(slot) = untraced_slot(cache) {
        add_shared(unsafe { &raw mut (*slot).allocs }, count);
        note_hooked(count, hooked::ALLOC_BULK);
    }
}

/// `rcu_free_sheaf(head)`: a sheaf of objects that waited for a grace period, freed at once.
#[fentry(function = "rcu_free_sheaf")]
pub fn free_sheaf(ctx: FEntryContext) -> i32 {
    count_sheaf(argument(ctx.as_ptr(), 0), hooked::FREE_SHEAF);
    0
}

/// The same, for a sheaf that goes back to no barn.
#[fentry(function = "rcu_free_sheaf_nobarn")]
pub fn free_sheaf_nobarn(ctx: FEntryContext) -> i32 {
    count_sheaf(argument(ctx.as_ptr(), 0), hooked::FREE_SHEAF_NOBARN);
    0
}

#[inline(always)]
fn count_sheaf(head: u64, path: usize) {
    let sheaf = head - u64::from(config::sheaf_head());
    let cache = kread::read::<u64>(sheaf + u64::from(config::sheaf_cache()));
    let size = kread::read::<u32>(sheaf + u64::from(config::sheaf_size()));
    match (cache, size) {
        (Some(cache), Some(size)) => count_frees(cache, u64::from(size), path),
        _ => lose(Program::Untraced, Loss::ReadFailed),
    }
}

/// `kmalloc_nolock(size, flags, node)`
#[fexit(function = "kmalloc_nolock_noprof")]
pub fn kmalloc_nolock(ctx: FExitContext) -> i32 {
    let ctx = ctx.as_ptr();
    // By the helper, since the number of arguments differs; kernels that have the function have the helper.
    let mut object = 0;
    unsafe { bpf_get_func_ret(ctx, &raw mut object) };
    if object <= 16 {
        return 0;
    }
    if !config::lookup_usable() {
        lose(Program::Untraced, Loss::Unattributed);
        return 0;
    }
    let cache = match resolve(object) {
        Object::Slab { cache } => cache,
        _ => {
            lose(Program::Untraced, Loss::Unattributed);
            return 0;
        }
    };
    if let Some(slot) = untraced_slot(cache) {
        add_shared(unsafe { &raw mut (*slot).allocs }, 1);
        add_shared(unsafe { &raw mut (*slot).sized_allocs }, 1);
        add_shared(unsafe { &raw mut (*slot).requested_bytes }, argument(ctx, 0));
        note_hooked(1, hooked::KMALLOC_NOLOCK);
    }
    0
}

/// `kfree_nolock(object)`
#[fentry(function = "kfree_nolock")]
pub fn kfree_nolock(ctx: FEntryContext) -> i32 {
    let object = argument(ctx.as_ptr(), 0);
    if object > 16 {
        count_free(object, hooked::KFREE_NOLOCK);
    }
    0
}

/// `kmem_cache_free(s, x)` at its entry: on 5.10 and 5.15 the tracepoint comes when the object, and perhaps its page, is
/// gone. Attached instead of the tracepoint, never beside it.
#[fentry(function = "kmem_cache_free")]
pub fn cache_free_entry(ctx: FEntryContext) -> i32 {
    let ctx = ctx.as_ptr();
    count_cache_free(argument(ctx, 0), argument(ctx, 1));
    0
}

#[kprobe]
pub fn cache_free_kprobe(ctx: ProbeContext) -> u32 {
    count_cache_free(register_argument(&ctx, 0), register_argument(&ctx, 1));
    0
}

#[inline(always)]
fn count_cache_free(cache: u64, object: u64) {
    if object > 16
        && let Some(slot) = slot(cache, Program::CacheFree)
    {
        add_shared(unsafe { &raw mut (*slot).cache_frees }, 1);
    }
}
