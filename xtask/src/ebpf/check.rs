//! `cargo xtask ebpf check`: is the committed object what the committed sources give?

use std::fs;

use anyhow::{Context, Result, bail};

use super::{build, record::Record, toolchain::Toolchain, verify};
use crate::workspace;

/// Builds from nothing in a folder of its own, and compares object and record with the committed ones.
pub fn run() -> Result<()> {
    verify::run()?;
    let toolchain = Toolchain::from_environment();
    let target_dir = tempfile::tempdir().context("no temporary folder")?;
    let object = build::build(&toolchain, target_dir.path(), "")?;
    let now = Record::new(&object, &workspace::root(), toolchain.versions()?)?;
    let committed = Record::read(&workspace::ebpf_record())?;
    compare(&committed, &now)?;

    let path = workspace::ebpf_object();
    let committed = fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    if committed != object {
        bail!("{} differs from what its sources give: {}", path.display(), first_difference(&committed, &object));
    }
    println!("the committed object is what its sources give: {} bytes, sha256 {}", object.len(), now.object_sha256);
    Ok(())
}

fn compare(committed: &Record, now: &Record) -> Result<()> {
    let differences = committed.differences(now);
    if differences.is_empty() {
        return Ok(());
    }
    let advice = if committed.toolchain == now.toolchain {
        "run `cargo xtask ebpf build` and commit the object and its record"
    } else {
        "the toolchain is another one: install that of the record, or run `cargo xtask ebpf build`, test the new object \
         and commit it with its record"
    };
    bail!("the committed object is not what its sources give here:\n  {}\n{advice}", differences.join("\n  "))
}

fn first_difference(left: &[u8], right: &[u8]) -> String {
    let place = left.iter().zip(right).position(|(left, right)| left != right).unwrap_or(left.len().min(right.len()));
    format!("{} and {} bytes, the same up to byte {place}", left.len(), right.len())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::toolchain::Versions, *};

    fn record(object: &str, rustc: &str) -> Record {
        Record {
            object_sha256: object.into(),
            sources_sha256: "s".into(),
            toolchain: Versions { rustc: rustc.into(), bpf_linker: "l".into(), llvm: "v".into() },
        }
    }

    #[test]
    fn another_object_from_the_same_toolchain_asks_for_a_build() {
        compare(&record("a", "r"), &record("a", "r")).unwrap();
        let error = compare(&record("a", "r"), &record("b", "r")).unwrap_err().to_string();
        assert!(error.contains("the object: committed a, now b"), "{error}");
        assert!(error.contains("run `cargo xtask ebpf build` and commit"), "{error}");
    }

    #[test]
    fn another_toolchain_is_told_apart_from_a_forgotten_build() {
        let error = compare(&record("a", "r"), &record("b", "r2")).unwrap_err().to_string();
        assert!(error.contains("the toolchain is another one"), "{error}");
    }

    #[test]
    fn the_place_of_the_first_difference_is_told() {
        assert_eq!(first_difference(b"abcd", b"abXd"), "4 and 4 bytes, the same up to byte 2");
        assert_eq!(first_difference(b"ab", b"abc"), "2 and 3 bytes, the same up to byte 2");
    }
}
