//! `cargo xtask ebpf build`: sources → object.
//!
//! The object must come out the same, byte for byte, in every checkout: folders are remapped in what the compiler
//! writes down, and a folder that is left over is an error.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{record::Record, toolchain::Toolchain};
use crate::{process, workspace};

const TARGET: &str = "bpfel-unknown-none";

/// How to build.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Features of slabmon-ebpf (`log`): makes a development object in the target folder, never the committed one.
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
}

/// Builds the committed object and its record, or a development object.
pub fn run(arguments: &Arguments) -> Result<()> {
    let toolchain = Toolchain::from_environment();
    let features = arguments.features.join(",");
    let built = build(&toolchain, &workspace::target_dir().join("ebpf"), &features)?;
    if !features.is_empty() {
        let object = workspace::target_dir().join("ebpf-dev/slabmon.bpf.o");
        write(&object, &built)?;
        println!("{}: {} bytes, for development (features {features})", object.display(), built.len());
        return Ok(());
    }
    let record = Record::new(&built, &workspace::root(), toolchain.versions()?)?;
    write(&workspace::ebpf_object(), &built)?;
    write(&workspace::ebpf_record(), record.to_text()?.as_bytes())?;
    println!("{}: {} bytes, sha256 {}", workspace::ebpf_object().display(), built.len(), record.object_sha256);
    Ok(())
}

/// Compiles, links and strips in `target_dir`, and gives the object's bytes.
pub fn build(toolchain: &Toolchain, target_dir: &Path, features: &str) -> Result<Vec<u8>> {
    let flags = compiler_flags(&remapped_folders(toolchain)?, std::env::var("SLABMON_BPF_CPU").ok().as_deref());
    let mut command = toolchain.cargo([
        "build",
        "--locked",
        "--release",
        "--bin",
        "slabmon",
        "-Z",
        "build-std=core",
        "--target",
        TARGET,
        "--target-dir",
    ])?;
    command.arg(target_dir);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    process::run(&mut command)?;

    let stripped = target_dir.join("slabmon.bpf.o");
    let linked = target_dir.join(TARGET).join("release/slabmon");
    fs::copy(&linked, &stripped).with_context(|| format!("{} cannot be copied", linked.display()))?;
    process::run(&mut toolchain.llvm_strip(&stripped))?;
    let object = fs::read(&stripped).with_context(|| format!("{} cannot be read", stripped.display()))?;
    refuse_folders(&object, &folders_of_this_machine())?;
    Ok(object)
}

/// The flags of the recipe. `cpu` is a BPF instruction set (`v2`, `v3`, …); without it, the compiler's own choice.
fn compiler_flags(remapped: &[(PathBuf, String)], cpu: Option<&str>) -> Vec<String> {
    let mut flags = vec![
        "-Clinker=bpf-linker".to_owned(),
        "-Clink-arg=--btf".to_owned(),
        "-Cdebuginfo=2".to_owned(),
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
    ];
    if let Some(cpu) = cpu {
        flags.push(format!("-Ctarget-cpu={cpu}"));
        flags.push(format!("-Clink-arg=--cpu={cpu}"));
    }
    // Where several apply to a path, the compiler takes the last, so the more special ones must come later.
    flags.extend(remapped.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())));
    flags
}

/// Every folder that sources come from, and the name that it has in the object.
fn remapped_folders(toolchain: &Toolchain) -> Result<Vec<(PathBuf, String)>> {
    let mut remapped = vec![(workspace::root(), "/slabmon".to_owned())];
    let library = toolchain.library_sources()?;
    if let Ok(real) = library.canonicalize() {
        remapped.push((real, "/rust".to_owned()));
    }
    remapped.push((library, "/rust".to_owned()));
    let metadata = process::output(&mut toolchain.cargo(["metadata", "--locked", "--format-version=1"])?)?;
    remapped.extend(registry_packages(&metadata)?);
    Ok(remapped)
}

/// The folder of every package that comes from a registry, wherever this machine keeps it.
fn registry_packages(metadata: &str) -> Result<Vec<(PathBuf, String)>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
        version: String,
        source: Option<String>,
        manifest_path: PathBuf,
    }
    let metadata: Metadata = serde_json::from_str(metadata).context("`cargo metadata` is not understood")?;
    let foreign = metadata.packages.into_iter().filter(|package| package.source.is_some());
    Ok(foreign
        .filter_map(|package| {
            let folder = package.manifest_path.parent()?.to_path_buf();
            Some((folder, format!("/crates/{}-{}", package.name, package.version)))
        })
        .collect())
}

fn folders_of_this_machine() -> Vec<PathBuf> {
    let home = std::env::home_dir().filter(|home| home.components().count() > 1);
    [Some(workspace::root()), workspace::cargo_home(), home].into_iter().flatten().collect()
}

/// Fails if the object tells where it was built.
fn refuse_folders(object: &[u8], folders: &[PathBuf]) -> Result<()> {
    for folder in folders {
        let name = folder.as_os_str().as_encoded_bytes();
        if object.windows(name.len().max(1)).any(|window| window == name) {
            bail!("the object names the folder {}: it would differ on another machine; remap it", folder.display());
        }
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_names_a_folder_of_this_machine_is_refused() {
        let folders = [PathBuf::from("/build/here")];
        assert!(refuse_folders(b"\0/slabmon/src\0", &folders).is_ok());
        let error = refuse_folders(b"\0/build/here/src\0", &folders).unwrap_err();
        assert!(error.to_string().contains("names the folder /build/here"), "{error}");
    }

    #[test]
    fn only_packages_of_a_registry_are_remapped_by_name() {
        let metadata = r#"{"packages": [
            {"name": "aya-ebpf", "version": "0.2.1", "source": "registry+x", "manifest_path": "/c/src/aya-ebpf-0.2.1/Cargo.toml"},
            {"name": "slabmon-common", "version": "0.1.0", "source": null, "manifest_path": "/w/slabmon-common/Cargo.toml"}]}"#;
        let expected = vec![(PathBuf::from("/c/src/aya-ebpf-0.2.1"), "/crates/aya-ebpf-0.2.1".to_owned())];
        assert_eq!(registry_packages(metadata).unwrap(), expected);
    }

    #[test]
    fn the_instruction_set_is_named_only_where_it_is_asked_for() {
        let remapped = [(PathBuf::from("/w"), "/slabmon".to_owned())];
        let plain = compiler_flags(&remapped, None);
        assert!(plain.iter().all(|flag| !flag.contains("cpu")), "{plain:?}");
        assert_eq!(plain.last().unwrap(), "--remap-path-prefix=/w=/slabmon");
        let chosen = compiler_flags(&remapped, Some("v3"));
        assert!(chosen.contains(&"-Ctarget-cpu=v3".to_owned()) && chosen.contains(&"-Clink-arg=--cpu=v3".to_owned()));
    }
}
