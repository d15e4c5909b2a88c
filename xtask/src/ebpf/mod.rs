//! `cargo xtask ebpf`: the eBPF object, how it is made and that the committed one is made from the committed sources.

pub mod build;
pub mod check;
pub mod record;
pub mod toolchain;
pub mod verify;

use anyhow::Result;
use clap::Subcommand;

/// What to do with the eBPF object.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Builds the object and its record into slabmon/ebpf, to be committed.
    Build(build::Arguments),
    /// Builds the object again and compares it with the committed one, byte for byte.
    Check,
    /// Compares the sources and the object with the record; needs no toolchain.
    Verify,
}

/// Does it.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Build(arguments) => build::run(arguments),
        Command::Check => check::run(),
        Command::Verify => verify::run(),
    }
}
