//! Debian's packages from other releases than the system's own, by an apt that keeps its lists, its configuration and
//! its downloads in a folder of ours: nothing on the system changes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{architecture::Architecture, kernels::Listed, mirror::Mirror};
use crate::process;

/// Debian's own keys, for all its releases.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const MAIN_SUITES: [&str; 7] =
    ["bullseye", "bookworm", "trixie", "bookworm-backports", "trixie-backports", "sid", "experimental"];
const SECURITY_SUITES: [&str; 3] = ["bullseye-security", "bookworm-security", "trixie-security"];

/// The release that tools are taken from, rather than from a newer one.
const RELEASE: &str = "bookworm";

/// An apt of our own, for one architecture, whose lists are read when something is first asked of it.
#[derive(Debug)]
pub struct LazyApt {
    cache: PathBuf,
    architecture: Architecture,
    apt: Option<Apt>,
}

impl LazyApt {
    /// Below the folder of all that `vm` fetches.
    pub fn new(cache: &Path, architecture: Architecture) -> Self {
        Self { cache: cache.to_owned(), architecture, apt: None }
    }

    /// Itself, its lists read.
    pub fn open(&mut self) -> Result<&Apt> {
        let apt = match self.apt.take() {
            Some(apt) => apt,
            None => Apt::open(&self.cache, self.architecture)?,
        };
        Ok(self.apt.insert(apt))
    }
}

/// An apt with its lists read.
#[derive(Debug)]
pub struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn open(cache: &Path, architecture: Architecture) -> Result<Self> {
        if process::find("apt-get").is_none() || !Path::new(KEYRING).exists() {
            bail!("kernels come from Debian's packages, by apt-get and {KEYRING} (package debian-archive-keyring)");
        }
        let apt = Self { dir: cache.join("apt").join(architecture.debian_name()) };
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(apt.dir.join(part)).with_context(|| format!("{}", apt.dir.join(part).display()))?;
        }
        let mirror = Mirror::find()?;
        fs::write(apt.dir.join("sources.list"), sources(&mirror, architecture)).context("sources.list")?;
        fs::write(apt.dir.join("apt.conf"), configuration(&apt.dir, architecture)).context("apt.conf")?;
        println!("reading the package lists of {} for {}", mirror.main, architecture.debian_name());
        // A release that has left the mirror fails the whole, though the other lists are there.
        if let Err(error) = process::output(&mut apt.command("apt-get", &["--quiet", "update"])) {
            println!("some package lists could not be read: {error:#}");
        }
        Ok(apt)
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = process::program(program, ["-c".as_ref(), self.dir.join("apt.conf").as_os_str()]);
        command.args(arguments);
        command
    }

    /// Every package whose name begins so.
    pub fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        Ok(listed(&process::output(&mut self.command("apt-cache", &["dumpavail"]))?, prefix))
    }

    /// Fetches the packages, proved by Debian's keys, into `dir`. A name may be `name=version`.
    pub fn download(&self, packages: &[String], dir: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(dir).with_context(|| format!("{}", dir.display()))?;
        let mut command = self.command("apt-get", &["--quiet", "download"]);
        process::output(command.args(packages).current_dir(dir))?;
        packages_in(dir)
    }

    /// Fetches the packages, as they are in one release, and all that they depend on.
    pub fn download_with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let options = ["--quiet", "--yes", "--download-only", "--no-install-recommends", "--target-release", RELEASE];
        let mut command = self.command("apt-get", &options);
        process::output(command.arg("install").args(packages))?;
        packages_in(&self.dir.join("cache/archives"))
    }
}

fn packages_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("{}", dir.display()))?;
    let files = entries.flatten().map(|entry| entry.path());
    Ok(files.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
}

/// Unpacks what the package would install, below `dir`.
pub fn unpack(package: &Path, dir: &Path) -> Result<()> {
    process::output(&mut process::program("dpkg-deb", ["-x".as_ref(), package.as_os_str(), dir.as_os_str()]))?;
    Ok(())
}

fn sources(mirror: &Mirror, architecture: Architecture) -> String {
    let line = |address: &str, suite: &str| {
        let architecture = architecture.debian_name();
        format!("deb [arch={architecture} target=Packages signed-by={KEYRING}] {address} {suite} main\n")
    };
    let main = MAIN_SUITES.iter().map(|suite| line(&mirror.main, suite));
    main.chain(SECURITY_SUITES.iter().map(|suite| line(&mirror.security, suite))).collect()
}

/// Read after the system's configuration, whose proxies and passwords stay in force (apt.conf(5)).
fn configuration(dir: &Path, architecture: Architecture) -> String {
    let (dir, architecture) = (dir.display(), architecture.debian_name());
    format!(
        "Dir::Etc::sourcelist \"{dir}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::preferences \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State \"{dir}/state\";\n\
         Dir::State::status \"/dev/null\";\n\
         Dir::Cache \"{dir}/cache\";\n\
         APT::Architecture \"{architecture}\";\n\
         #clear APT::Architectures;\n\
         APT::Architectures {{ \"{architecture}\"; }};\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"3\";\n\
         #clear APT::Update;\n\
         #clear DPkg::Post-Invoke;\n"
    )
}

fn listed(available: &str, prefix: &str) -> Vec<Listed> {
    let paragraph = |text: &str| {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        Some(Listed { name: field("Package: ")?, version: field("Version: ")? })
    };
    let start = format!("Package: {prefix}");
    available.split("\n\n").filter(|text| text.trim_start().starts_with(&start)).filter_map(paragraph).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_listed_with_their_versions() {
        let text = "Package: abc\nVersion: 1\n\nPackage: linux-image-x\nArchitecture: amd64\nVersion: 6.1.1-1\n\n";
        let expected = Listed { name: "linux-image-x".into(), version: "6.1.1-1".into() };
        assert_eq!(listed(text, "linux-image-"), [expected]);
    }

    #[test]
    fn every_source_is_proved_by_debians_keys_and_of_one_architecture() {
        let mirror = Mirror { main: "http://m.test/debian".into(), security: "http://s.test/security".into() };
        let text = sources(&mirror, Architecture::Arm);
        assert_eq!(text.lines().count(), MAIN_SUITES.len() + SECURITY_SUITES.len());
        assert!(text.lines().all(|line| line.contains("arch=arm64 ") && line.contains("signed-by=")), "{text}");
        assert!(text.contains("http://s.test/security trixie-security main\n"), "{text}");
    }
}
