//! The committed object, and how bytes cross the border to it.

use aya::Pod;

/// The object that `cargo xtask ebpf build` makes; `slabmon/ebpf/` has its record.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/ebpf/slabmon.bpf.o"));

/// The object to load. Development builds (feature `bpf-log`) take the one that `BPF_LOG_OBJECT` names, made by
/// `cargo xtask ebpf build --features log`.
pub fn object() -> std::io::Result<std::borrow::Cow<'static, [u8]>> {
    #[cfg(feature = "bpf-log")]
    if let Some(path) = std::env::var_os("BPF_LOG_OBJECT") {
        return std::fs::read(path).map(Into::into);
    }
    Ok(OBJECT.into())
}

/// A type of `slabmon-common`, which aya does not know, as plain bytes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Plain<T>(pub T);

// SAFETY: used for the `repr(C)` types of slabmon-common alone, which hold integers and no padding.
unsafe impl<T: Copy + 'static> Pod for Plain<T> {}
