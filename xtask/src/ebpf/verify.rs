//! `cargo xtask ebpf verify`: do sources, object and record belong together? Needs no toolchain.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use super::record::{Record, sha256, sources_sha256};
use crate::workspace;

/// Compares the committed object and the sources with the record.
pub fn run() -> Result<()> {
    let record = Record::read(&workspace::ebpf_record())?;
    verify(&record, &workspace::ebpf_object(), &workspace::root())?;
    println!(
        "the object was made from these sources by {} and {}",
        record.toolchain.rustc, record.toolchain.bpf_linker
    );
    Ok(())
}

fn verify(record: &Record, object: &Path, root: &Path) -> Result<()> {
    let bytes = fs::read(object).with_context(|| format!("{} cannot be read", object.display()))?;
    if sha256(&bytes) != record.object_sha256 {
        bail!("{} is not the object that its record tells of: run `cargo xtask ebpf build`", object.display());
    }
    if sources_sha256(root)? != record.sources_sha256 {
        bail!(
            "the sources of the eBPF programs (slabmon-ebpf, slabmon-common) have changed since {} was built: \
             run `cargo xtask ebpf build` and commit the object and its record",
            object.display()
        );
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::toolchain::Versions, *};

    #[test]
    fn a_forgotten_build_and_a_changed_object_are_told_apart() {
        let root = workspace::root();
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("o");
        fs::write(&object, "bytes").unwrap();
        let versions = Versions { rustc: "r".into(), bpf_linker: "l".into(), llvm: "v".into() };
        let record = Record::new(b"bytes", &root, versions).unwrap();
        verify(&record, &object, &root).unwrap();

        let stale = Record { sources_sha256: "0".into(), ..record.clone() };
        let error = verify(&stale, &object, &root).unwrap_err().to_string();
        assert!(error.contains("have changed since"), "{error}");

        fs::write(&object, "other").unwrap();
        let error = verify(&record, &object, &root).unwrap_err().to_string();
        assert!(error.contains("is not the object that its record tells of"), "{error}");
    }
}
