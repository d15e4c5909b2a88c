//! The libraries that programs are run with, found as the loader would find them (ld.so(8)), for whatever architecture.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::architecture::Architecture;
use crate::process;

/// Where programs and their libraries lie: this machine, or a folder that stands for another's root.
#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
    architecture: Architecture,
}

/// What a program names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// The loader's path.
    loader: Option<String>,
    /// File names of libraries.
    libraries: Vec<String>,
}

impl Root {
    /// With the files below `dir`, all of one architecture.
    pub fn new(dir: &Path, architecture: Architecture) -> Self {
        Self { dir: dir.to_owned(), architecture }
    }

    /// The file that a path of that root means here.
    pub fn file(&self, path: &Path) -> PathBuf {
        self.dir.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The path, in that root, of the program of this name.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(Path::new);
        folders.into_iter().map(|folder| folder.join(name)).find(|path| self.file(path).is_file())
    }

    /// The paths, in that root, of all that `program` (a file here) needs, and what those need.
    pub fn libraries(&self, program: &Path) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut waiting = vec![program.to_owned()];
        while let Some(file) = waiting.pop() {
            for path in self.needed_by(&file).with_context(|| format!("{}", file.display()))? {
                waiting.push(self.file(&path));
                if !found.insert(path) {
                    waiting.pop();
                }
            }
        }
        Ok(found)
    }

    fn needed_by(&self, file: &Path) -> Result<Vec<PathBuf>> {
        let told =
            process::output(process::program("readelf", ["-dlW".as_ref(), file.as_os_str()]).env("LC_ALL", "C"))?;
        let needs = needs(&told);
        let mut paths: Vec<PathBuf> = needs.loader.map(PathBuf::from).into_iter().collect();
        for name in needs.libraries {
            let folders = self.folders();
            let mut places = folders.iter().map(|folder| folder.join(&name));
            let place = places.find(|path| self.file(path).is_file());
            paths.push(place.with_context(|| format!("needs {name}, which is in none of {folders:?}"))?);
        }
        Ok(paths)
    }

    fn folders(&self) -> Vec<PathBuf> {
        let multiarch = self.architecture.multiarch_name();
        let own = [format!("/lib/{multiarch}"), format!("/usr/lib/{multiarch}")].map(PathBuf::from);
        own.into_iter().chain(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from)).collect()
    }
}

/// Reads what `readelf -dl` tells.
fn needs(told: &str) -> Needs {
    let mut needs = Needs::default();
    for line in told.lines() {
        let within = |start: &str| Some(line.split_once(start)?.1.split_once(']')?.0.to_owned());
        if let Some(loader) = within("[Requesting program interpreter: ") {
            needs.loader = Some(loader);
        } else if line.contains("(NEEDED)") {
            needs.libraries.extend(within("Shared library: ["));
        }
    }
    needs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_loader_and_its_libraries() {
        let told = "      [Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]\n \
            0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n \
            0x000000000000000e (SONAME)             Library soname: [libx.so]\n";
        let expected =
            Needs { loader: Some("/lib64/ld-linux-x86-64.so.2".into()), libraries: vec!["libc.so.6".into()] };
        assert_eq!(needs(told), expected);
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_the_program_that_needs_it() {
        let empty = tempfile::tempdir().unwrap();
        let architecture = if cfg!(target_arch = "aarch64") { Architecture::Arm } else { Architecture::X86 };
        let here = Root::new(Path::new("/"), architecture);
        let program = here.program("true").unwrap();
        assert!(!here.libraries(&program).unwrap().is_empty());
        let error = Root::new(empty.path(), architecture).libraries(&program).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("/true: needs libc.so.6, which is in none of"), "{error}");
    }
}
