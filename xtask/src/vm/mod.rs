//! `cargo xtask vm`: the tests of the live kernel on every kernel that slabmon promises to run on, each in an emulated
//! machine of its own.
//!
//! Kernels are Debian's, fetched by package name. A machine boots from memory, runs the tests one at a time and says on
//! its serial console how each ended. All machines run, whatever fails, before the result is told.

mod architecture;
mod console;
mod cross;
mod image;
mod kernel_cache;
mod kernels;
mod libraries;
mod machine;
mod matrix;
mod mirror;
mod packages;
mod programs;
mod tools;

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io::BufWriter,
    panic,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use slabmon_vm_init::{Orders, Report, orders};

use self::{
    architecture::Architecture,
    console::Console,
    cross::Cross,
    image::Image,
    kernel_cache::{Kernel, KernelCache},
    kernels::Series,
    machine::Machine,
    matrix::Column,
    packages::LazyApt,
    programs::Programs,
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
    /// How many machines run at once; without it, one a processor.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
    /// How long one machine may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    machine_limit: u64,
    /// How long one test may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    test_limit: u64,
}

impl Arguments {
    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
    }
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
    let (architecture, cache) = (arguments.arch, cache_dir());
    let logs = workspace::target_dir().join("vm-logs");
    fs::create_dir_all(&logs).with_context(|| format!("{}", logs.display()))?;
    let mut apt = LazyApt::new(&cache, architecture);
    let image = logs.join(format!("{}.cpio", architecture.name()));
    write_image(arguments, &cache, &mut apt, &image)?;
    let kernels = KernelCache::new(&cache, architecture);
    let runs = series(&arguments.kernel).into_iter().map(|series| Run {
        series,
        kernel: kernels.kernel(series, &mut apt).map_err(|error| format!("{error:#}")),
        log: logs.join(format!("{}-{series}.log", architecture.name())),
    });
    let runs: Vec<Run> = runs.collect();
    println!("\n=== {} machines, {} at once", architecture.name(), arguments.jobs());
    let columns = run_all(&runs, arguments.jobs(), |run| run.carry_out(arguments, &image));
    println!("\n=== {}\n{}", architecture.name(), matrix::table(&columns));
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

/// Builds all programs and writes the file system of the machines.
fn write_image(arguments: &Arguments, cache: &Path, apt: &mut LazyApt, file: &Path) -> Result<()> {
    let architecture = arguments.arch;
    let root = tools::find(architecture, cache, apt)?;
    let cross = if architecture.is_hosts_own() { None } else { Some(Cross::find(architecture, cache, apt)?) };
    let programs = Programs::build(cross.as_ref())?;
    let mut image = Image::default();
    tools::add(&mut image, &root)?;
    programs.add_to(&mut image, &root)?;
    let orders = Orders {
        tests: programs.tests,
        test_limit: Duration::from_secs(arguments.test_limit),
        programs: image.program_folders(),
        only: arguments.test.clone(),
        skip: Vec::new(),
    };
    image.add_text(orders::PATH, &orders.to_text());
    let output = File::create(file).with_context(|| format!("{}", file.display()))?;
    image.write(BufWriter::new(output))
}

/// One machine to run.
#[derive(Debug)]
struct Run {
    series: Series,
    /// Its kernel, or why there is none.
    kernel: Result<Kernel, String>,
    log: PathBuf,
}

impl Run {
    fn carry_out(&self, arguments: &Arguments, image: &Path) -> Column {
        let started = Instant::now();
        let outcome = self.boot(arguments, image).inspect_err(|error| println!("{}: FAILED: {error}", self.series));
        Column { name: self.series.to_string(), outcome, took: started.elapsed() }
    }

    fn boot(&self, arguments: &Arguments, image: &Path) -> Result<Console, String> {
        let kernel = self.kernel.as_ref().map_err(Clone::clone)?;
        println!("{}: {}", self.series, kernel.package);
        let machine = Machine {
            architecture: arguments.arch,
            kernel: &kernel.file,
            image,
            limit: Duration::from_secs(arguments.machine_limit),
            log: &self.log,
        };
        let mut heard = BTreeSet::new();
        let ran = machine.run(|line| {
            let Some(Report::Ended { verdict, test, milliseconds }) = Report::parse(line) else { return };
            let seconds = Duration::from_millis(milliseconds).as_secs_f64();
            if heard.insert(test.clone()) {
                println!("{:<5} {:<9} {seconds:>6.1} s  {test}", self.series.name(), verdict.word());
            }
        });
        let ran = ran.map_err(|error| format!("{error:#}"))?;
        Ok(Console::read(&ran.console, ran.cut))
    }
}

/// Runs all, so many at once, and gives the results in the order of the runs.
fn run_all<R: Sync, T: Send>(runs: &[R], jobs: usize, carry_out: impl Fn(&R) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(run) = runs.get(index) else { return done };
            done.push((index, carry_out(run)));
        }
    };
    let mut results = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| panic::resume_unwind(panic)))
            .collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_means_every_series_and_a_name_means_itself() {
        assert_eq!(series(&["all".to_owned()]), Series::value_variants());
        assert_eq!(series(&["6.1".to_owned(), "7.3".to_owned()]), [Series::V6_1, Series::V7_3]);
    }

    #[test]
    fn results_are_in_the_order_of_the_runs_however_many_run_at_once() {
        for jobs in [0, 1, 3, 9] {
            assert_eq!(run_all(&[1, 2, 3, 4], jobs, |run| run * 10), [10, 20, 30, 40]);
        }
    }
}
