//! The programs that make an eBPF object: a rustc that takes `-Z build-std`, bpf-linker, llvm-strip.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{process, workspace};

/// Debian's rustc (package `rustc-web`): recent, and with its library's sources in a package.
pub const RUSTC: &str = "/usr/bin/rustc";
/// Debian's cargo (package `cargo-web`).
pub const CARGO: &str = "/usr/bin/cargo";
/// The strip of the LLVM that bpf-linker is built with.
pub const LLVM_STRIP: &str = "/usr/lib/llvm-22/bin/llvm-strip";
const RUSTC_VARIABLE: &str = "SLABMON_EBPF_RUSTC";
const CARGO_VARIABLE: &str = "SLABMON_EBPF_CARGO";
const LLVM_STRIP_VARIABLE: &str = "SLABMON_LLVM_STRIP";
const LLVM_PROGRAMS: &str = "/usr/lib/llvm-22/bin";

/// What cargo and rustup hand down to a program that they run, and what would change the object's bytes.
const NOT_INHERITED: &[&str] = &[
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "CARGO_TARGET_DIR",
    "LD_LIBRARY_PATH",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// The programs, as found on this machine.
#[derive(Debug)]
pub struct Toolchain {
    rustc: PathBuf,
    cargo: PathBuf,
    llvm_strip: PathBuf,
}

/// Who made an object: the versions as the programs tell them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Versions {
    /// `rustc --version`.
    pub rustc: String,
    /// `bpf-linker --version`.
    pub bpf_linker: String,
    /// What `llvm-strip --version` says of its LLVM.
    pub llvm: String,
}

/// Whether the environment names all programs that are otherwise Debian's.
pub fn is_named_by_environment() -> bool {
    [RUSTC_VARIABLE, CARGO_VARIABLE, LLVM_STRIP_VARIABLE].iter().all(|name| env::var_os(name).is_some())
}

/// `PATH` with LLVM's programs and cargo's installed ones first.
pub fn path() -> Result<OsString> {
    let mut folders = vec![PathBuf::from(LLVM_PROGRAMS)];
    folders.extend(workspace::cargo_home().map(|home| home.join("bin")));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    env::join_paths(folders).context("PATH cannot be put together")
}

impl Toolchain {
    /// Debian's, or what `SLABMON_EBPF_RUSTC`, `SLABMON_EBPF_CARGO` and `SLABMON_LLVM_STRIP` name.
    pub fn from_environment() -> Self {
        let chosen = |variable: &str, usual: &str| env::var_os(variable).map_or_else(|| usual.into(), PathBuf::from);
        Self {
            rustc: chosen(RUSTC_VARIABLE, RUSTC),
            cargo: chosen(CARGO_VARIABLE, CARGO),
            llvm_strip: chosen(LLVM_STRIP_VARIABLE, LLVM_STRIP),
        }
    }

    /// Its cargo, in the eBPF crate's folder, free of what the outer cargo and rustup have set.
    pub fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Command> {
        let mut command = process::program(&self.cargo, arguments);
        command.current_dir(workspace::ebpf_crate());
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        // `-Z build-std` asks for a nightly; this makes a stable rustc serve as one.
        command.env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1").env("PATH", path()?);
        Ok(command)
    }

    /// Its llvm-strip.
    pub fn llvm_strip(&self, object: &Path) -> Command {
        let mut command = process::program(&self.llvm_strip, ["--strip-debug"]);
        command.arg(object);
        command
    }

    /// Where its standard library's sources are.
    pub fn library_sources(&self) -> Result<PathBuf> {
        let sysroot = process::output(&mut self.rustc(["--print", "sysroot"]))?;
        Ok(Path::new(sysroot.trim_end()).join("lib/rustlib/src/rust"))
    }

    /// The versions of its programs.
    pub fn versions(&self) -> Result<Versions> {
        let linker = process::output(process::program("bpf-linker", ["--version"]).env("PATH", path()?));
        let strip = process::output(&mut process::program(&self.llvm_strip, ["--version"]));
        let advice = "run `cargo xtask setup --ring ebpf`";
        Ok(Versions {
            rustc: process::output(&mut self.rustc(["--version"])).context(advice)?.trim_end().to_owned(),
            bpf_linker: linker.context(advice)?.trim_end().to_owned(),
            llvm: llvm_version(&strip.context(advice)?).context("llvm-strip does not tell its version")?.to_owned(),
        })
    }

    fn rustc<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = process::program(&self.rustc, arguments);
        for name in NOT_INHERITED {
            command.env_remove(name);
        }
        command
    }
}

fn llvm_version(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.split_once("LLVM version ")).map(|(_, version)| version.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_with_and_without_a_distribution_s_name() {
        assert_eq!(llvm_version("llvm-strip, compatible with GNU strip\nDebian LLVM version 22.1.8\n"), Some("22.1.8"));
        assert_eq!(llvm_version("LLVM (http://llvm.org/):\n  LLVM version 22.1.0\n"), Some("22.1.0"));
        assert_eq!(llvm_version("GNU strip 2.40\n"), None);
    }
}
