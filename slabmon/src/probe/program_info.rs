//! What the kernel knows of a loaded program.

use std::os::fd::{AsFd, AsRawFd};

use aya::Ebpf;
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_prog_info};

/// Events that the kernel did not deliver to the program because it was running on that CPU already
/// (`recursion_misses` of `struct bpf_prog_info`). `None` on kernels that do not tell (before 5.12).
pub fn recursion_misses(ebpf: &Ebpf, program: &str) -> Option<u64> {
    let fd = ebpf.program(program)?.fd().ok()?.as_fd().as_raw_fd();
    let mut info = bpf_prog_info_zeroed();
    // SAFETY: an all-zero bpf_attr is valid; the kernel writes at most `info_len` bytes to `info`, which outlives the call.
    let (result, written) = unsafe {
        let mut attr: bpf_attr = std::mem::zeroed();
        attr.info.bpf_fd = fd.cast_unsigned();
        attr.info.info_len = size_of::<bpf_prog_info>() as u32;
        attr.info.info = (&raw mut info) as u64;
        let result = libc::syscall(
            libc::SYS_bpf,
            bpf_cmd::BPF_OBJ_GET_INFO_BY_FD as libc::c_long,
            &raw mut attr,
            size_of::<bpf_attr>(),
        );
        (result, attr.info.info_len as usize)
    };
    let end = std::mem::offset_of!(bpf_prog_info, recursion_misses) + size_of::<u64>();
    (result == 0 && written >= end).then_some(info.recursion_misses)
}

fn bpf_prog_info_zeroed() -> bpf_prog_info {
    // SAFETY: integers and byte arrays only.
    unsafe { std::mem::zeroed() }
}
