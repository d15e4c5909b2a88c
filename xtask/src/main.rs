//! Builds, checks and tests slabmon: one subcommand a module. Run as `cargo xtask COMMAND`.

mod ci;
mod ebpf;
mod process;
mod run;
mod setup;
mod suite;
mod test;
mod tidy;
mod units;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, checks and tests slabmon.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Installs what the tests need, then runs all of them: what CI runs, and what a fresh machine runs first.
    Ci,
    /// Installs what the tests and the eBPF build need, as far as it is missing.
    Setup(setup::Arguments),
    /// Runs the tests, ring by ring.
    Test(test::Arguments),
    /// Builds the eBPF object, or checks the committed one.
    #[command(subcommand)]
    Ebpf(ebpf::Command),
    /// Checks what the compiler does not: who uses whom, what is never committed, links.
    Tidy,
    /// Checks the systemd units: their syntax, and how exposed they leave the service.
    Units,
    /// Runs the live tests on every supported kernel, in emulated machines.
    Vm(vm::Arguments),
    /// Builds the release daemon and runs it, as root.
    Run(run::Arguments),
}

fn main() -> ExitCode {
    match carry_out(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Ci => ci::run(),
        Command::Setup(arguments) => setup::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Ebpf(command) => ebpf::run(&command),
        Command::Tidy => tidy::run(),
        Command::Units => units::run(),
        Command::Vm(arguments) => vm::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}
