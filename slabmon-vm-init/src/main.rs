//! The first process of a test machine: makes the machine ready, runs the tests one at a time, says how each ended, and
//! turns the machine off.
//!
//! It runs as root in a machine that is thrown away, and nowhere else: it refuses to be any other than process 1.

mod loopback;

use std::{
    fmt::Display,
    fs,
    io::{self, Write},
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    mount::{MsFlags, mount},
    sys::{
        reboot::{RebootMode, reboot},
        resource::{RLIM_INFINITY, Resource, setrlimit},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use slabmon_vm_init::{Orders, Report, Verdict, orders};

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("this is the first process of a test machine; `cargo xtask vm` starts such machines");
        return ExitCode::FAILURE;
    }
    if let Err(reason) = serve() {
        say(&Report::Stuck { reason: reason.replace('\n', " ") });
    }
    // The console sends what it has been given before the machine goes.
    thread::sleep(Duration::from_millis(200));
    match reboot(RebootMode::RB_AUTOBOOT) {
        Ok(never) => match never {},
        Err(_) => ExitCode::FAILURE,
    }
}

/// A complaint names what was tried.
fn during<E: Display>(what: impl Display) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

fn serve() -> Result<(), String> {
    mount_all()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").map_err(during("the kernel's release"))?;
    say(&Report::Up { release: release.trim().to_owned() });
    loopback::raise().map_err(during("raising loopback"))?;
    raise_limits().map_err(during("raising the limits of processes"))?;
    let text = fs::read_to_string(orders::PATH).map_err(during(orders::PATH))?;
    let orders = Orders::parse(&text).map_err(|error| error.to_string())?;
    let mut endings = Vec::new();
    for test in list(&orders)? {
        let ending = run(&orders, test)?;
        say(&ending);
        endings.push(ending);
    }
    for ending in &endings {
        say(ending);
    }
    let taint = fs::read_to_string("/proc/sys/kernel/tainted").map_err(during("the kernel's taint"))?;
    let taint = taint.trim().parse().map_err(during("the kernel's taint"))?;
    say(&Report::Done { tests: endings.len(), taint });
    Ok(())
}

/// As the service's unit does: before 5.11 maps count as locked memory.
fn raise_limits() -> nix::Result<()> {
    let files = 1 << 20;
    setrlimit(Resource::RLIMIT_NOFILE, files, files)?;
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)
}

/// Prints a report on a line of its own, in one write.
fn say(report: &Report) {
    let line = format!("\n{report}\n");
    let mut console = io::stdout().lock();
    // There is no one to tell that the console is gone.
    let _ = console.write_all(line.as_bytes()).and_then(|()| console.flush());
}

/// File system, where, and whether the machine can do without it.
const MOUNTS: [(&str, &str, bool); 8] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("tmpfs", "/tmp", true),
    ("tracefs", "/sys/kernel/tracing", true),
    ("securityfs", "/sys/kernel/security", false),
    ("bpf", "/sys/fs/bpf", false),
    ("cgroup2", "/sys/fs/cgroup", false),
];

fn mount_all() -> Result<(), String> {
    for (kind, place, is_needed) in MOUNTS {
        let mounted = make_dir(place).and_then(|()| {
            mount(Some(kind), place, Some(kind), MsFlags::MS_NOSUID, None::<&str>).map_err(io::Error::from)
        });
        match mounted {
            Err(error) if is_needed => return Err(format!("mounting {place}: {error}")),
            Err(error) => println!("no {kind} on {place}: {error}"),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Folders of sysfs are the kernel's to make: there it is enough that they are there.
fn make_dir(place: &str) -> io::Result<()> {
    if Path::new(place).is_dir() { Ok(()) } else { fs::create_dir_all(place) }
}

fn command(orders: &Orders) -> Command {
    let mut command = Command::new(&orders.tests);
    command.env_clear().env("PATH", &orders.programs).env("TMPDIR", "/tmp").env("HOME", "/tmp").current_dir("/tmp");
    command.stdin(Stdio::null());
    command
}

/// The names of the tests to run, as the test binary itself lists them.
fn list(orders: &Orders) -> Result<Vec<String>, String> {
    let listed = command(orders).args(["--list", "--format=terse"]).output().map_err(during(orders.tests.display()))?;
    if !listed.status.success() {
        return Err(format!("{} --list: {}", orders.tests.display(), listed.status));
    }
    let text = String::from_utf8_lossy(&listed.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| orders.covers(name)).map(str::to_owned).collect())
}

fn run(orders: &Orders, test: String) -> Result<Report, String> {
    say(&Report::Begins { test: test.clone() });
    let started = Instant::now();
    let mut child = command(orders)
        .args(["--exact", &test, "--nocapture", "--test-threads=1"])
        .spawn()
        .map_err(during(orders.tests.display()))?;
    let ended = wait(&mut child, started + orders.test_limit).map_err(during(&test))?;
    let verdict = match ended {
        None => Verdict::TimedOut,
        Some(status) if status.success() => Verdict::Passed,
        Some(_) => Verdict::Failed,
    };
    let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    clear_away();
    Ok(Report::Ended { verdict, test, milliseconds })
}

/// `None` if the time is up.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ends all that a test left running: for process 1, everything but itself.
fn clear_away() {
    // With nothing left to kill it fails, and that is well.
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
    while !matches!(waitpid(None, Some(WaitPidFlag::empty())), Err(_) | Ok(WaitStatus::StillAlive)) {}
}
