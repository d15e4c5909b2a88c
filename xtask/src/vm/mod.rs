//! `cargo xtask vm`: the tests of the live kernel on every kernel that slabmon promises to run on, each in an emulated
//! machine of its own.
//!
//! Kernels are Debian's, fetched by package name. A machine boots from memory, runs the tests one at a time and says on
//! its serial console how each ended. All machines run, whatever fails, before the result is told.

mod architecture;
mod console;
mod image;
mod kernel_cache;
mod kernels;
mod machine;
mod matrix;
mod mirror;
mod packages;
mod programs;

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use slabmon_vm_init::{Orders, Report};

use self::{
    architecture::Architecture, console::Console, kernel_cache::KernelCache, kernels::Series, machine::Machine,
    matrix::Column, programs::Programs,
};
use crate::workspace;

/// What to run, and on what.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernel series to run on, or `all`.
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = wanted())]
    kernel: Vec<String>,
    /// Architecture to emulate.
    #[arg(long, value_enum, default_value = "x86_64")]
    arch: Architecture,
    /// Only tests whose name holds this; may be given more than once.
    #[arg(long, value_name = "PART")]
    test: Vec<String>,
    /// How long one machine may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    machine_limit: u64,
    /// How long one test may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    test_limit: u64,
}

const ALL: &str = "all";

fn wanted() -> Vec<&'static str> {
    let names = Series::value_variants().iter().map(|series| series.name());
    names.chain([ALL]).collect()
}

fn series(names: &[String]) -> Vec<Series> {
    let is_wanted = |series: &Series| names.iter().any(|name| name == ALL || name == series.name());
    Series::value_variants().iter().copied().filter(is_wanted).collect()
}

/// Runs the machines and prints the matrix.
pub fn run(arguments: &Arguments) -> Result<()> {
    let logs = workspace::target_dir().join("vm-logs");
    fs::create_dir_all(&logs).with_context(|| format!("{}", logs.display()))?;
    let programs = Programs::build(arguments.arch)?;
    let image = logs.join(format!("{}.cpio", arguments.arch.name()));
    let orders = Orders {
        tests: programs.tests.clone(),
        test_limit: Duration::from_secs(arguments.test_limit),
        programs: String::new(),
        only: arguments.test.clone(),
        skip: Vec::new(),
    };
    programs.write_image(orders, &image)?;
    let mut kernels = KernelCache::new(&cache_dir(), arguments.arch);
    let mut columns = Vec::new();
    for series in series(&arguments.kernel) {
        println!("\n=== {series} on {}", arguments.arch.name());
        let started = Instant::now();
        let outcome = run_one(series, arguments, &mut kernels, &image, &logs);
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        if let Err(error) = &outcome {
            println!("FAILED: {error}");
        }
        let took = outcome.as_ref().map_or_else(|_| started.elapsed(), |(_, took)| *took);
        columns.push(Column { name: series.to_string(), outcome: outcome.map(|(console, _)| console), took });
    }
    println!("\n=== {}\n{}", arguments.arch.name(), matrix::table(&columns));
    println!("consoles are kept in {}", logs.display());
    if !matrix::is_good(&columns) {
        print!("{}", matrix::failures(&columns));
        bail!("not everything passed on every kernel");
    }
    Ok(())
}

fn cache_dir() -> PathBuf {
    env::var_os("SLABMON_VM_CACHE").map_or_else(|| workspace::target_dir().join("vm-cache"), PathBuf::from)
}

fn run_one(
    series: Series,
    arguments: &Arguments,
    kernels: &mut KernelCache,
    image: &Path,
    logs: &Path,
) -> Result<(Console, Duration)> {
    let kernel = kernels.kernel(series)?;
    println!("{}", kernel.package);
    let log = logs.join(format!("{}-{series}.log", arguments.arch.name()));
    let machine = Machine {
        architecture: arguments.arch,
        kernel: &kernel.file,
        image,
        limit: Duration::from_secs(arguments.machine_limit),
        log: &log,
    };
    let mut said = std::collections::BTreeSet::new();
    let ran = machine.run(|line| match Report::parse(line) {
        Some(Report::Up { release }) => println!("up: {release}"),
        Some(Report::Ended { verdict, test, milliseconds }) if said.insert(test.clone()) => {
            println!("{:<9} {:>6.1} s  {test}", verdict.word(), Duration::from_millis(milliseconds).as_secs_f64());
        }
        _ => {}
    })?;
    Ok((Console::read(&ran.console, ran.cut), ran.took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_means_every_series_and_a_name_means_itself() {
        assert_eq!(series(&["all".to_owned()]), Series::value_variants());
        assert_eq!(series(&["6.1".to_owned(), "7.3".to_owned()]), [Series::V6_1, Series::V7_3]);
    }
}
