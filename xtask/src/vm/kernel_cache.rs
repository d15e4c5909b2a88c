//! The kernels on this machine: each fetched once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{
    architecture::Architecture,
    kernels::{self, Choice, Series},
    packages::{self, LazyApt},
};

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Kernel {
    /// The package that it came from.
    pub package: String,
    pub file: PathBuf,
}

/// A folder with a kernel a package.
#[derive(Debug)]
pub struct KernelCache {
    dir: PathBuf,
    architecture: Architecture,
}

impl KernelCache {
    /// Below the folder of all that `vm` fetches.
    pub fn new(cache: &Path, architecture: Architecture) -> Self {
        let dir = cache.join("kernels").join(architecture.name());
        Self { dir, architecture }
    }

    /// The kernel to test for the series: the chosen release if it is here or can be fetched, else the newest.
    pub fn kernel(&self, series: Series, apt: &mut LazyApt) -> Result<Kernel> {
        for package in series.chosen_packages(self.architecture) {
            let file = self.file(&package);
            if file.exists() {
                return Ok(Kernel { package, file });
            }
        }
        let Choice { package, remark } = self.choose(series, apt)?;
        if let Some(remark) = remark {
            println!("{series}: {remark}");
        }
        let file = self.file(&package);
        if !file.exists() {
            self.fetch(&package, apt).with_context(|| package.clone())?;
        }
        Ok(Kernel { package, file })
    }

    fn file(&self, package: &str) -> PathBuf {
        self.dir.join(package).join("vmlinuz")
    }

    fn choose(&self, series: Series, apt: &mut LazyApt) -> Result<Choice> {
        let architecture = self.architecture;
        let listed = apt.open()?.list("linux-")?;
        match kernels::choose(series, architecture, &listed) {
            Some(choice) => Ok(choice),
            None => bail!("the mirror has no kernel of the series {series} for {}", architecture.name()),
        }
    }

    fn fetch(&self, package: &str, apt: &mut LazyApt) -> Result<()> {
        println!("fetching {package}");
        let dir = self.dir.join(package);
        fs::create_dir_all(&dir).with_context(|| format!("{}", dir.display()))?;
        let scratch = tempfile::tempdir_in(&dir)?;
        for file in apt.open()?.download(&[package.to_owned()], scratch.path())? {
            packages::unpack(&file, &scratch.path().join("root"))?;
        }
        let release = kernels::release(package, self.architecture).unwrap_or_default();
        let release = format!("{release}-cloud-{}", self.architecture.debian_name());
        // Newer packages keep the kernel beside its modules.
        let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
        let found = places.iter().map(|place| scratch.path().join("root").join(place)).find(|file| file.exists());
        let found = found.with_context(|| format!("the package holds neither {}", places.join(" nor ")))?;
        fs::rename(found, dir.join("vmlinuz"))?;
        Ok(())
    }
}
