//! `cargo xtask units`: the systemd units, as systemd itself sees them. Nothing is installed or started.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// The most that `systemd-analyze security` may say, in tenths: 2.0 of 10.
const EXPOSURE_TENTHS: u32 = 20;

/// Checks every unit in `deploy/systemd`.
pub fn run() -> Result<()> {
    if process::find("systemd-analyze").is_none() {
        bail!("systemd-analyze is not installed: run `cargo xtask setup`, or install systemd");
    }
    let folder = workspace::root().join("deploy/systemd");
    let units = units_in(&folder)?;
    if units.is_empty() {
        bail!("{} has no unit", folder.display());
    }
    for unit in &units {
        verify(unit)?;
        if unit.extension().is_some_and(|kind| kind == "service") {
            rate_exposure(unit, EXPOSURE_TENTHS)?;
        }
    }
    println!("{} units are fine", units.len());
    Ok(())
}

fn units_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let mut units = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    units.retain(|path| path.extension().is_some_and(|kind| kind == "service" || kind == "socket"));
    units.sort();
    Ok(units)
}

/// Fails on anything that systemd has to say about the unit.
///
/// systemd wants the program to exist, which it does only where slabmon is installed, so a copy of the unit is checked
/// that starts `true` instead.
fn verify(unit: &Path) -> Result<()> {
    let text = fs::read_to_string(unit).with_context(|| format!("{} cannot be read", unit.display()))?;
    let name = unit.file_name().context("a unit has a name")?;
    let folder = tempfile::tempdir().context("no temporary folder")?;
    let copy = folder.path().join(name);
    fs::write(&copy, with_a_program_that_exists(&text))?;
    let mut command = process::program("systemd-analyze", ["verify", "--man=no", "--recursive-errors=no"]);
    let output = command.arg(&copy).output().context("`systemd-analyze verify` cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let name = name.to_string_lossy();
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains(&*name)).collect();
    if !output.status.success() || !about_it.is_empty() {
        bail!("systemd does not accept {}:\n{}", unit.display(), said.trim_end());
    }
    Ok(())
}

fn with_a_program_that_exists(unit: &str) -> String {
    let lines = unit.lines().map(|line| match line.strip_prefix("ExecStart=").map(|command| command.split_once(' ')) {
        Some(Some((_, arguments))) => format!("ExecStart=/bin/true {arguments}"),
        Some(None) => "ExecStart=/bin/true".to_owned(),
        None => line.to_owned(),
    });
    lines.map(|line| line + "\n").collect()
}

fn rate_exposure(unit: &Path, tenths: u32) -> Result<()> {
    let threshold = format!("--threshold={tenths}");
    let mut command = process::program("systemd-analyze", ["security", "--no-pager", "--offline=yes", &threshold]);
    let table = command.arg(unit).output().context("`systemd-analyze security` cannot be started")?;
    let said = String::from_utf8_lossy(&table.stdout);
    let verdict = said.lines().rfind(|line| line.contains("exposure level")).unwrap_or("no verdict");
    if !table.status.success() {
        let said_in_error = String::from_utf8_lossy(&table.stderr);
        bail!("{} is more exposed than {}.{} of 10:\n{said}{said_in_error}", unit.display(), tenths / 10, tenths % 10);
    }
    println!("{}", verdict.trim());
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unit_file(folder: &Path, service: &str) -> PathBuf {
        let path = folder.join("sample.service");
        fs::write(&path, format!("[Unit]\nDescription=Sample\n[Service]\nExecStart=/usr/bin/sample --x\n{service}"))
            .unwrap();
        path
    }

    #[test]
    fn only_the_program_is_replaced() {
        let text = "[Service]\nExecStart=/usr/bin/slabmon --x 1\nExecStart=/usr/bin/slabmon\nUMask=0077\n";
        let copy = with_a_program_that_exists(text);
        assert_eq!(copy, "[Service]\nExecStart=/bin/true --x 1\nExecStart=/bin/true\nUMask=0077\n");
    }

    #[test]
    fn the_units_of_the_repository_pass() {
        run().unwrap();
    }

    #[test]
    fn a_key_that_systemd_does_not_know_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error = verify(&unit_file(folder.path(), "RestrictEverything=yes\n")).unwrap_err();
        assert!(error.to_string().contains("RestrictEverything"), "{error}");
    }

    #[test]
    fn a_service_without_restrictions_is_too_exposed() {
        let folder = tempfile::tempdir().unwrap();
        let unit = unit_file(folder.path(), "");
        verify(&unit).unwrap();
        let error = rate_exposure(&unit, EXPOSURE_TENTHS).unwrap_err();
        assert!(error.to_string().contains("more exposed than 2.0 of 10"), "{error}");
    }
}
