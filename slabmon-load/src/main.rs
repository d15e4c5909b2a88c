//! `slabmon-load NAME --count N [--seconds S]`: one load, by hand or from a script.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use slabmon_load::{churn, limits, workload::Workload};

/// Makes kernel objects of known number and size.
///
/// A load that holds its objects says so on a line that starts with `holding`, keeps them for --seconds, or until it is
/// told to stop by SIGINT or SIGTERM, and gives them back. Any other load is done over and over until --seconds have passed, at least once.
#[derive(Debug, Parser)]
#[command(name = "slabmon-load", version)]
struct Arguments {
    /// Which load.
    #[arg(value_enum)]
    load: Workload,
    /// How many objects or operations, a round.
    #[arg(long, default_value_t = 1000)]
    count: usize,
    /// How long to hold, or to go on.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400))]
    seconds: u64,
    /// Bytes of a message, of control data or of a mapping.
    #[arg(long)]
    size: Option<usize>,
    /// Where files are made and names are looked up.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Makes and gives back what is usually held, over and over until --seconds have passed.
    #[arg(long)]
    churn: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "slabmon-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    limits::raise()?;
    let name = format!("{:?}", arguments.load).to_lowercase();
    let size_bytes = arguments.size.unwrap_or_else(|| arguments.load.default_size_bytes());
    let dir = arguments.dir.clone().unwrap_or_else(churn::default_dir);
    let lasts = Duration::from_secs(arguments.seconds);
    let started = Instant::now();
    let mut out = io::stdout();

    if arguments.load.holds() && !arguments.churn {
        let stop = StopSignals::block()?;
        let guard = arguments.load.make(arguments.count, size_bytes, &dir)?;
        writeln!(out, "holding {} {name}", arguments.count)?;
        out.flush()?;
        stop.wait(lasts)?;
        drop(guard);
        writeln!(out, "released {} {name}", arguments.count)?;
        return Ok(());
    }
    let mut rounds: u64 = 0;
    loop {
        drop(arguments.load.make(arguments.count, size_bytes, &dir)?);
        rounds += 1;
        if started.elapsed() >= lasts {
            break;
        }
    }
    writeln!(out, "done {rounds} rounds of {} {name}", arguments.count)?;
    Ok(())
}

/// SIGINT and SIGTERM as something to wait for, so that what is held is given back: message queues outlive their process.
struct StopSignals(SignalFd);

impl StopSignals {
    fn block() -> io::Result<Self> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        signals.thread_block()?;
        Ok(Self(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?))
    }

    /// Waits until one arrives or `longest` has passed.
    fn wait(&self, longest: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(longest)?)?;
        Ok(())
    }
}
