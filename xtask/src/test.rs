//! `cargo xtask test`: the rings of tests.
//!
//! Ring 1 needs no root and no particular kernel. Ring 2 needs root and the live kernel; where it cannot run it fails.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{ebpf, process, suite::Suite, tidy, units, workspace};

/// Which rings to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One ring only; without it, all of them.
    #[arg(long, value_enum)]
    ring: Option<Ring>,
}

/// A ring of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// Unprivileged: format, lints, docs, tidy, unit and integration tests.
    #[value(name = "1", alias = "quick")]
    First,
    /// Root on the live kernel.
    #[value(name = "2")]
    Second,
}

/// Runs the chosen rings and prints a summary.
pub fn run(arguments: &Arguments) -> Result<()> {
    let mut suite = Suite::default();
    if arguments.ring != Some(Ring::Second) {
        first_ring(&mut suite);
    }
    if arguments.ring != Some(Ring::First) {
        second_ring(&mut suite);
    }
    suite.finish()
}

/// Ring 1: the cheap checks first.
pub fn first_ring(suite: &mut Suite) {
    suite.step("tidy", tidy::run);
    suite.step("ebpf verify", ebpf::verify::run);
    suite.step("systemd units", units::run);
    suite.step("format", || {
        process::run(&mut process::cargo(["fmt", "--all", "--check"]))?;
        process::run(&mut process::cargo(["fmt", "--manifest-path", "slabmon-ebpf/Cargo.toml", "--check"]))
    });
    suite.step("lints", || {
        let arguments =
            ["clippy", "--locked", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
        process::run(&mut process::cargo(arguments))
    });
    suite.step("docs", || {
        let mut command = process::cargo(["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"]);
        process::run(command.env("RUSTDOCFLAGS", "-D warnings"))
    });
    suite.step("ring 1", || process::run(&mut process::cargo(["test", "--locked", "--workspace", "--no-fail-fast"])));
}

/// Ring 2: the daemon's own tests against the kernel that runs, one at a time because they measure the whole machine.
pub fn second_ring(suite: &mut Suite) {
    suite.step("ring 2", || {
        live_kernel()?;
        process::run(&mut process::cargo([
            "test",
            "--locked",
            "--release",
            "--package",
            "slabmon",
            "--features",
            "live",
            "--test",
            "live",
            "--",
            "--test-threads=1",
        ]))
    });
}

/// Fails with everything that this machine lacks for ring 2.
fn live_kernel() -> Result<()> {
    let mut missing = Vec::new();
    if !workspace::is_root() {
        missing.push("it needs root: run `sudo -E cargo xtask test --ring 2`".to_owned());
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        missing.push("the kernel has no BTF (/sys/kernel/btf/vmlinux): it needs CONFIG_DEBUG_INFO_BTF".to_owned());
    }
    if let Err(error) = fs::read("/proc/slabinfo").context("/proc/slabinfo cannot be read") {
        missing.push(format!("{error:#}"));
    }
    if let Err(error) = process::output(&mut process::program("perf", ["--version"])) {
        missing.push(format!("{error:#}: run `cargo xtask setup`"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("ring 2 cannot run here:\n  {}", missing.join("\n  "))
}
