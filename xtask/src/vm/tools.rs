//! The programs that the tests run beside the daemon: this machine's own, or Debian's for another architecture.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use super::{
    architecture::Architecture,
    image::Image,
    libraries::Root,
    packages::{self, LazyApt},
};

/// Their names.
const NAMES: [&str; 6] = ["setpriv", "mkfifo", "true", "cp", "bpftool", "perf"];

/// The packages that hold them.
const PACKAGES: [&str; 4] = ["util-linux", "coreutils", "bpftool", "linux-perf"];

/// Where they are, fetched if need be.
pub fn find(architecture: Architecture, cache: &Path, apt: &mut LazyApt) -> Result<Root> {
    if architecture.is_hosts_own() {
        return Ok(Root::new(Path::new("/"), architecture));
    }
    let dir = cache.join("tools").join(architecture.name());
    if !dir.exists() {
        println!("fetching {} for {}", PACKAGES.join(", "), architecture.debian_name());
        fs::create_dir_all(cache.join("tools"))?;
        let scratch = tempfile::tempdir_in(cache.join("tools"))?;
        for file in apt.open()?.download_with_dependencies(&PACKAGES)? {
            packages::unpack(&file, &scratch.path().join("root"))?;
        }
        fs::rename(scratch.path().join("root"), &dir).with_context(|| format!("{}", dir.display()))?;
    }
    Ok(Root::new(&dir, architecture))
}

/// Puts them into the file system.
pub fn add(image: &mut Image, root: &Root) -> Result<()> {
    for name in NAMES {
        let path = root.program(name).with_context(|| format!("{name} is not installed: run `cargo xtask setup`"))?;
        image.add_program(root, &path)?;
    }
    Ok(())
}
