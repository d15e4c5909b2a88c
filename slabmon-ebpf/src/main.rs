//! The eBPF programs of slabmon. The path of an event: `kmem` → `resolve` (object → cache) → `account` (cache → slot).

#![no_std]
#![no_main]
// `AtomicU64::fetch_add` is not there for a target that has no compare-and-swap.
#![feature(core_intrinsics)]
#![allow(internal_features)]

mod account;
mod calibrate;
mod config;
mod kmem;
mod kread;
mod large;
mod maps;
mod resolve;
mod untraced;

/// The kernel lets only GPL-compatible programs read its memory.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
