//! slabmon's totals against `perf stat` on the same events over the same window.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::FileTypeExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use slabmon::{model::sample::CounterSample, probe::Probe};

use crate::support::{drain, kernel_has, start_probe};

/// `perf stat` on the four events, system-wide, enabled and disabled on command; frees of nothing are left out by
/// perf's own filter, as slabmon leaves them out.
struct PerfStat {
    child: Child,
    control: File,
    acknowledge: File,
    dir: PathBuf,
}

const EVENTS: [&str; 4] = ["kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free"];

impl PerfStat {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap().keep();
        let (control, acknowledge) = (dir.join("control"), dir.join("acknowledge"));
        let made = Command::new("mkfifo").args([&control, &acknowledge]).status().expect("mkfifo runs");
        assert!(made.success() && std::fs::metadata(&control).unwrap().file_type().is_fifo());
        let child = Command::new("perf")
            .args(["stat", "-a", "-x,", "-D", "-1", "-o"])
            .arg(dir.join("out"))
            .arg("--control")
            .arg(format!("fifo:{},{}", control.display(), acknowledge.display()))
            .args(["-e", "kmem:kmalloc", "-e", "kmem:kfree", "--filter", "ptr > 16"])
            .args(["-e", "kmem:kmem_cache_alloc", "-e", "kmem:kmem_cache_free"])
            .args(node_events().flat_map(|event| ["-e".to_owned(), format!("kmem:{event}")]))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("perf is installed: `cargo xtask setup`");
        // Opening waits for perf's end, so perf is ready to listen afterwards.
        let control = OpenOptions::new().write(true).open(control).unwrap();
        let acknowledge = File::open(acknowledge).unwrap();
        Self { child, control, acknowledge, dir }
    }

    /// Returns once perf has carried the command out on all CPUs.
    fn command(&mut self, command: &str) {
        writeln!(self.control, "{command}").unwrap();
        let mut answer = [0; 5];
        self.acknowledge.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ack\n\0");
    }

    /// The four counts, in the order of `EVENTS`.
    fn finish(mut self) -> [u64; 4] {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.child.wait().unwrap();
        let text = std::fs::read_to_string(self.dir.join("out")).unwrap();
        let _ = std::fs::remove_dir_all(&self.dir);
        let count_of = |event: &str| -> u64 {
            let line = text
                .lines()
                .find(|line| line.contains(&format!("kmem:{event},")))
                .unwrap_or_else(|| panic!("perf counted {event}: {text}"));
            line.split(',').next().unwrap().parse().unwrap_or_else(|_| panic!("a number in: {line}"))
        };
        EVENTS.map(|event| {
            let of_node = node_events().find(|node_event| node_event.strip_suffix("_node") == Some(event));
            count_of(event) + of_node.map_or(0, count_of)
        })
    }
}

/// Up to 6.0 allocations on a chosen node have events of their own; slabmon adds them to their sisters'.
fn node_events() -> impl Iterator<Item = &'static str> {
    ["kmalloc_node", "kmem_cache_alloc_node"].into_iter().filter(|event| kernel_has(&format!("btf_trace_{event}")))
}

/// What each program counted or lost, and what it missed, in the order of `EVENTS`.
fn totals(sample: &CounterSample) -> [(u64, u64); 4] {
    EVENTS.map(|event| {
        let program = sample
            .programs
            .iter()
            .find(|program| {
                program.program == event || (event == "kmem_cache_free" && program.program.starts_with("cache_free_"))
            })
            .expect("all four are attached");
        let losses = program.losses;
        let got = program.counted + losses.table_full + losses.claim_busy + losses.read_failed + losses.unattributed;
        let guards = kernel_has("bpf_prog_inc_misses_counter");
        assert_eq!(program.missed.is_some(), guards, "{event}: misses are absent where nothing is missed, not zero");
        (got, program.missed.unwrap_or(0))
    })
}

fn load() {
    let dir = slabmon_load::churn::default_dir();
    for _ in 0..40 {
        drop(slabmon_load::held::pipes(200).unwrap());
        drop(slabmon_load::held::socketpairs(200).unwrap());
        drop(slabmon_load::held::eventfds(200).unwrap());
        drop(slabmon_load::messages::messages(50, 1000).unwrap());
        slabmon_load::churn::control_data(50, 12_000).unwrap();
        slabmon_load::churn::open_and_close(&dir, 200).unwrap();
        slabmon_load::churn::exec(2).unwrap();
    }
}

/// Two slabmon reads outside the window and two inside bracket what perf must have counted, in every window; one window must
/// be quiet enough around the load for the bracket to be tight.
#[test]
fn totals_agree_with_perf_stat_within_the_bracket_of_two_reads_inside_and_two_outside() {
    let mut probe = start_probe();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !window(&mut probe) {
        assert!(Instant::now() < deadline, "others made too many events in each window");
    }
}

/// One window: whether its bracket was tight.
fn window(probe: &mut Probe) -> bool {
    let mut perf = PerfStat::start();
    load();

    let outer_before = totals(&drain(probe));
    settle();
    perf.command("enable");
    let inner_before = totals(&drain(probe));
    load();
    let inner_after = totals(&drain(probe));
    perf.command("disable");
    settle();
    let outer_after = totals(&drain(probe));
    let perf = perf.finish();

    let mut tight = true;
    for (index, event) in EVENTS.into_iter().enumerate() {
        let (got_inside, missed_inside) = change(inner_before[index], inner_after[index]);
        let (got_outside, missed_outside) = change(outer_before[index], outer_after[index]);
        // A kfree that was missed may have been one of NULL, which perf leaves out: it may be either.
        let least = if event == "kfree" { got_inside } else { got_inside + missed_inside };
        let most = got_outside + missed_outside;
        let counted = perf[index];
        println!("{event}: perf {counted}; slabmon {least} inside, {most} outside, of these missed {missed_outside}");
        assert!(counted > 10_000, "the load fired events");
        assert!((least..=most).contains(&counted), "{event}: perf {counted}, slabmon {least} to {most}");
        tight &= most - least < least / 3;
    }
    tight
}

/// Lets events end that are under way on other CPUs: the probes of one event run one after the other, and between perf's
/// and slabmon's an interrupt, or the hypervisor, may take its time. Without this one window in ten was one event off.
fn settle() {
    std::thread::sleep(Duration::from_millis(5));
}

fn change(before: (u64, u64), after: (u64, u64)) -> (u64, u64) {
    (after.0 - before.0, after.1 - before.1)
}
