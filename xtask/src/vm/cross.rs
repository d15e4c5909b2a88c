//! How programs for another architecture are built here: Debian's cross compiler links, and Rust's library for that
//! architecture is rustup's if it has it, else Debian's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    architecture::Architecture,
    packages::{self, LazyApt},
};
use crate::{ebpf::toolchain, process, workspace};

/// The package of Debian's compiler, and that of its library, which must be of the very same version.
const DEBIAN_RUSTC_PACKAGE: &str = "rustc-web";
const DEBIAN_LIBRARY_PACKAGE: &str = "libstd-rust-web-dev";

/// A compiler for another architecture.
#[derive(Debug)]
pub struct Cross {
    architecture: Architecture,
    /// Debian's compiler and the folder that its library for the other architecture lies in; else it is cargo's own.
    debian: Option<PathBuf>,
}

impl Cross {
    /// Finds one, and fetches what is missing of it.
    pub fn find(architecture: Architecture, cache: &Path, apt: &mut LazyApt) -> Result<Self> {
        if has_library(architecture)? {
            return Ok(Self { architecture, debian: None });
        }
        let version = process::output(&mut process::program(
            "dpkg-query",
            ["--show", "--showformat=${Version}", DEBIAN_RUSTC_PACKAGE],
        ))
        .with_context(|| format!("{DEBIAN_RUSTC_PACKAGE} is not installed: run `cargo xtask setup --ring 3`"))?;
        let dir = cache.join("rust").join(architecture.name()).join(&version);
        if !dir.exists() {
            let package = format!("{DEBIAN_LIBRARY_PACKAGE}={version}");
            println!("fetching {package} for {}", architecture.debian_name());
            fs::create_dir_all(cache.join("rust"))?;
            let scratch = tempfile::tempdir_in(cache.join("rust"))?;
            for file in apt.open()?.download(&[package], scratch.path())? {
                packages::unpack(&file, &scratch.path().join("root"))?;
            }
            fs::create_dir_all(dir.parent().unwrap_or(cache))?;
            fs::rename(scratch.path().join("root"), &dir).with_context(|| format!("{}", dir.display()))?;
        }
        Ok(Self { architecture, debian: Some(dir.join("usr")) })
    }

    /// What cargo is told beside: a folder of its own, the target, and not to spend time on optimising across crates.
    pub fn set(&self, command: &mut Command) {
        let target_dir = workspace::target_dir().join("vm").join(self.architecture.name());
        let target = self.architecture.rust_target();
        let variable = target.replace('-', "_").to_uppercase();
        let mut flags = "-C target-feature=+crt-static".to_owned();
        if let Some(sysroot) = &self.debian {
            flags += &format!(" --sysroot {}", sysroot.display());
            command.env("RUSTC", toolchain::RUSTC);
        }
        command
            .arg(format!("--target={target}"))
            .arg("--target-dir")
            .arg(target_dir)
            .env(format!("CARGO_TARGET_{variable}_LINKER"), format!("{}-gcc", self.architecture.multiarch_name()))
            .env(format!("CARGO_TARGET_{variable}_RUSTFLAGS"), flags)
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    }
}

/// Whether cargo's own compiler has Rust's library for the architecture.
fn has_library(architecture: Architecture) -> Result<bool> {
    let arguments = ["--print=target-libdir", "--target", architecture.rust_target()];
    let dir = process::output(&mut process::program("rustc", arguments))?;
    Ok(Path::new(dir.trim()).exists())
}
