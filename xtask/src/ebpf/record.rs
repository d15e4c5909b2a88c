//! What stands beside the committed object: from which sources and with which programs it was made.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::toolchain::Versions;

const HEADER: &str = "# Written by `cargo xtask ebpf build`, checked by `cargo xtask ebpf verify` and `ebpf check`.\n";

/// Everything that an object is made from, relative to the workspace's root: files, and folders with all that is in them.
const SOURCES: &[&str] = &[
    "slabmon-common/Cargo.toml",
    "slabmon-common/src",
    "slabmon-ebpf/Cargo.lock",
    "slabmon-ebpf/Cargo.toml",
    "slabmon-ebpf/src",
];

/// The record, `slabmon/ebpf/slabmon.bpf.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// SHA-256 of the object, in hexadecimal.
    pub object_sha256: String,
    /// SHA-256 over names and contents of [`SOURCES`].
    pub sources_sha256: String,
    /// Who made it.
    pub toolchain: Versions,
}

impl Record {
    /// The record of `object`, made from the sources under `root`.
    pub fn new(object: &[u8], root: &Path, toolchain: Versions) -> Result<Self> {
        Ok(Self { object_sha256: sha256(object), sources_sha256: sources_sha256(root)?, toolchain })
    }

    /// Reads the record at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is no record", path.display()))
    }

    /// The record as the file's text.
    pub fn to_text(&self) -> Result<String> {
        Ok(format!("{HEADER}{}", toml::to_string(self)?))
    }

    /// In what `self`, as committed, differs from `now`; empty if in nothing.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let pairs = [
            ("the sources", &self.sources_sha256, &now.sources_sha256),
            ("the object", &self.object_sha256, &now.object_sha256),
            ("rustc", &self.toolchain.rustc, &now.toolchain.rustc),
            ("bpf-linker", &self.toolchain.bpf_linker, &now.toolchain.bpf_linker),
            ("LLVM", &self.toolchain.llvm, &now.toolchain.llvm),
        ];
        let different = pairs.iter().filter(|(_, committed, now)| committed != now);
        different.map(|(what, committed, now)| format!("{what}: committed {committed}, now {now}")).collect()
    }
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 over the object's sources under `root`: of each file, in the order of their names, name, length and content.
pub fn sources_sha256(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect_files(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        hash.update(name.as_os_str().as_encoded_bytes());
        hash.update(format!("\0{}\0", content.len()));
        hash.update(&content);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn collect_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("{} cannot be read", path.display()))? {
        collect_files(&entry?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn versions() -> Versions {
        Versions { rustc: "rustc 1".into(), bpf_linker: "bpf-linker 2".into(), llvm: "3".into() }
    }

    /// A workspace with just the sources.
    fn sources() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for source in SOURCES {
            let path = root.path().join(source);
            if path.extension().is_some() {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, *source).unwrap();
            } else {
                fs::create_dir_all(path.join("inner")).unwrap();
                fs::write(path.join("inner/code.rs"), *source).unwrap();
            }
        }
        root
    }

    #[test]
    fn a_record_survives_being_written_and_read() {
        let root = sources();
        let record = Record::new(b"object", root.path(), versions()).unwrap();
        let path = root.path().join("record.toml");
        fs::write(&path, record.to_text().unwrap()).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);
    }

    #[test]
    fn the_sum_is_the_well_known_one() {
        assert_eq!(sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn any_change_of_any_source_changes_the_sum() {
        let root = sources();
        let before = sources_sha256(root.path()).unwrap();
        assert_eq!(sources_sha256(root.path()).unwrap(), before);
        for file in ["slabmon-ebpf/src/inner/code.rs", "slabmon-common/src/inner/code.rs", "slabmon-ebpf/Cargo.lock"] {
            let path = root.path().join(file);
            let original = fs::read(&path).unwrap();
            fs::write(&path, "changed").unwrap();
            assert_ne!(sources_sha256(root.path()).unwrap(), before, "{file}");
            fs::write(&path, original).unwrap();
        }
        fs::rename(root.path().join("slabmon-ebpf/src/inner"), root.path().join("slabmon-ebpf/src/other")).unwrap();
        assert_ne!(sources_sha256(root.path()).unwrap(), before, "a renamed folder");
    }

    #[test]
    fn a_missing_source_is_named() {
        let root = sources();
        fs::remove_file(root.path().join("slabmon-ebpf/Cargo.lock")).unwrap();
        let error = sources_sha256(root.path()).unwrap_err();
        assert!(error.to_string().ends_with("slabmon-ebpf/Cargo.lock cannot be read"), "{error}");
    }

    #[test]
    fn each_difference_is_told_with_both_values() {
        let root = sources();
        let committed = Record::new(b"object", root.path(), versions()).unwrap();
        assert!(committed.differences(&committed).is_empty());
        let mut now = committed.clone();
        now.toolchain.rustc = "rustc 9".into();
        assert_eq!(committed.differences(&now), ["rustc: committed rustc 1, now rustc 9"]);
    }
}
