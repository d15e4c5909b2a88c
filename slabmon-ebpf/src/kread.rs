//! Reads of kernel memory. Each can fail; none can fault.

use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_kernel_str_bytes};
use slabmon_common::CACHE_NAME_BYTES;

#[inline(always)]
pub fn read<T>(address: u64) -> Option<T> {
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}

/// Reads a C string into `name`, which stays NUL-terminated.
#[inline(always)]
pub fn read_name(address: u64, name: &mut [u8; CACHE_NAME_BYTES]) -> bool {
    unsafe { bpf_probe_read_kernel_str_bytes(address as *const u8, name) }.is_ok()
}
