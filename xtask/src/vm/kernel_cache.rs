//! The kernels on this machine: each fetched once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::{
    architecture::Architecture,
    kernels::{self, Choice, Series},
    packages::{self, Apt},
};

/// A kernel that can be booted.
#[derive(Debug)]
pub struct Kernel {
    pub series: Series,
    /// The package that it came from.
    pub package: String,
    pub file: PathBuf,
}

/// A folder with a kernel a package.
#[derive(Debug)]
pub struct KernelCache {
    dir: PathBuf,
    cache: PathBuf,
    architecture: Architecture,
    /// Opened when something is missing.
    apt: Option<Apt>,
}

impl KernelCache {
    /// Below the folder of all that `vm` fetches.
    pub fn new(cache: &Path, architecture: Architecture) -> Self {
        let dir = cache.join("kernels").join(architecture.name());
        Self { dir, cache: cache.to_owned(), architecture, apt: None }
    }

    /// The kernel to test for the series: the chosen release if it is here or can be fetched, else the newest.
    pub fn kernel(&mut self, series: Series) -> Result<Kernel> {
        for package in series.chosen_packages(self.architecture) {
            let file = self.file(&package);
            if file.exists() {
                return Ok(Kernel { series, package, file });
            }
        }
        let Choice { package, remark } = self.choose(series)?;
        if let Some(remark) = remark {
            println!("{series}: {remark}");
        }
        let file = self.file(&package);
        if !file.exists() {
            self.fetch(&package).with_context(|| package.clone())?;
        }
        Ok(Kernel { series, package, file })
    }

    fn file(&self, package: &str) -> PathBuf {
        self.dir.join(package).join("vmlinuz")
    }

    fn apt(&mut self) -> Result<&Apt> {
        let apt = match self.apt.take() {
            Some(apt) => apt,
            None => Apt::open(&self.cache, self.architecture)?,
        };
        Ok(self.apt.insert(apt))
    }

    fn choose(&mut self, series: Series) -> Result<Choice> {
        let architecture = self.architecture;
        let listed = self.apt()?.list("linux-")?;
        match kernels::choose(series, architecture, &listed) {
            Some(choice) => Ok(choice),
            None => bail!("the mirror has no kernel of the series {series} for {}", architecture.name()),
        }
    }

    fn fetch(&mut self, package: &str) -> Result<()> {
        println!("fetching {package}");
        let dir = self.dir.join(package);
        fs::create_dir_all(&dir).with_context(|| format!("{}", dir.display()))?;
        let scratch = tempfile::tempdir_in(&dir)?;
        for file in self.apt()?.download(&[package.to_owned()], scratch.path())? {
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
