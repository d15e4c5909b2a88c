//! `cargo xtask run`: the release daemon, as root.

use std::{ffi::OsString, os::unix::process::CommandExt};

use anyhow::{Context, Result};

use crate::{process, workspace};

/// What is handed on to the daemon.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Arguments of the daemon, after `--`.
    #[arg(last = true)]
    daemon: Vec<OsString>,
}

/// Builds the daemon and becomes it, through sudo where this user is not root.
pub fn run(arguments: &Arguments) -> Result<()> {
    process::run(&mut process::cargo(["build", "--locked", "--release", "--package", "slabmon", "--bin", "slabmon"]))?;
    let daemon = workspace::target_dir().join("release/slabmon");
    let mut command = if workspace::is_root() {
        process::program(&daemon, &arguments.daemon)
    } else {
        let words = std::iter::once(daemon.as_os_str()).chain(arguments.daemon.iter().map(OsString::as_os_str));
        process::program("sudo", words)
    };
    println!("+ {}", process::line(&command));
    Err(command.exec()).with_context(|| format!("`{}` cannot be started", process::line(&command)))
}
