//! Where things are.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The repository's top folder.
///
/// Cargo tells it at run time; a binary that is started without cargo remembers where it was built.
pub fn root() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// The eBPF crate. It is no member of the workspace: another target, another toolchain.
pub fn ebpf_crate() -> PathBuf {
    root().join("slabmon-ebpf")
}

/// The object that the daemon includes.
pub fn ebpf_object() -> PathBuf {
    root().join("slabmon/ebpf/slabmon.bpf.o")
}

/// What the object was made from and with.
pub fn ebpf_record() -> PathBuf {
    root().join("slabmon/ebpf/slabmon.bpf.toml")
}

/// Cargo's own folder: registry and installed programs.
pub fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
