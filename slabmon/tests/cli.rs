//! The built binary from outside, without privileges: a fixture host below `--path.root`, nothing traced.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

const SLABINFO: &str = "02_slub21_parisc64_6.10.3_debug_dupname.slabinfo";
const ODD_NAMES: &str = "14_names_with_spaces_quotes_utf8_SYNTHETIC_COUNTS.slabinfo";

/// A root with the slabinfo of a fixture.
fn root_with(fixture: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("proc")).unwrap();
    fs::create_dir_all(root.path().join("sys/kernel/slab/:0000128")).unwrap();
    write_slabinfo(root.path(), &fs::read(fixture_path(fixture)).unwrap());
    fs::write(root.path().join("proc/meminfo"), "MemTotal:  1000 kB\nSlab:  400 kB\nSUnreclaim:  300 kB\n").unwrap();
    fs::write(root.path().join("sys/kernel/slab/:0000128/object_size"), "120\n").unwrap();
    for name in ["file_lock_cache", "an_alias"] {
        std::os::unix::fs::symlink(":0000128", root.path().join("sys/kernel/slab").join(name)).unwrap();
    }
    root
}

fn fixture_path(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slabinfo").join(name)
}

/// In place: the daemon keeps the file open.
fn write_slabinfo(root: &Path, text: &[u8]) {
    fs::write(root.join("proc/slabinfo"), text).unwrap();
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slabmon"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLABMON_")) {
        command.env_remove(name);
    }
    command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

#[track_caller]
fn assert_fails(arguments: &[&str], code: i32, message: &str) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(message), "{arguments:?}: {error}");
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

struct Daemon {
    child: Child,
    port: u16,
    log: tempfile::NamedTempFile,
}

impl Daemon {
    fn start(root: &Path, prepare: impl FnOnce(&mut Command)) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = command();
        command
            .args(["--trace=false", "--poll.slabinfo-interval=1s"])
            .arg(format!("--path.root={}", root.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap());
        prepare(&mut command);
        let mut daemon = Self { child: command.spawn().unwrap(), port, log };
        eventually(|| match daemon.child.try_wait().unwrap() {
            Some(status) => panic!("ended with {status}: {}", daemon.log()),
            None => daemon.try_get("/readyz", "").is_some_and(|(status, _)| status == 200),
        });
        daemon
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap()
    }

    fn try_get(&self, path: &str, headers: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n").ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
    }

    fn get(&self, path: &str) -> String {
        let (status, answer) = self.try_get(path, "").unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.get(path)).unwrap()
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> ExitStatus {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
        let asked = Instant::now();
        let status = self.child.wait().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(5), "it stops within five seconds");
        status
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn eventually(mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < deadline, "it never came to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn help_and_version_are_no_errors() {
    assert!(out(&run(&["--help"])).contains("--web.listen-address"));
    assert!(out(&run(&["--version"])).starts_with(concat!("slabmon ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_wrong_command_line_exits_64_and_a_wrong_file_78_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("slabmon.toml");
    let option = format!("--config.file={}", file.display());
    assert_fails(&[&option], 78, &file.display().to_string());
    fs::write(&file, "[poll]\nslabinfo_intervl = \"10s\"\n").unwrap();
    assert_fails(&[&option], 78, &format!("{}:2", file.display()));
    assert_fails(&[&option], 78, "slabinfo_interval");
    assert_fails(&["--no-such-option"], 64, "--no-such-option");
    assert_fails(&["--poll.counters-interval=soon"], 64, "--poll.counters-interval");
    assert_fails(&["--trace.slots-per-cpu=1000"], 64, "power of two");
    assert_fails(&["top", "--once", "--url=https://127.0.0.1:1"], 1, "TLS");
}

#[test]
fn an_unknown_variable_is_refused_with_the_nearest() {
    let output = command().env("SLABMON_POLL_SLABINFO_INTERVALL", "10s").arg("--config.check").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("SLABMON_POLL_SLABINFO_INTERVAL"), "{error}");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("slabmon.toml");
    fs::write(&file, "[poll]\ncounters_interval = \"2s\"\nslabinfo_interval = \"20s\"\n[metrics]\nmax_series = 300\n")
        .unwrap();
    let printed = out(&command()
        .env("SLABMON_POLL_COUNTERS_INTERVAL", "3s")
        .env("SLABMON_POLL_SLABINFO_INTERVAL", "30s")
        .arg(format!("--config.file={}", file.display()))
        .args(["--poll.counters-interval=4s", "--print-config"])
        .output()
        .unwrap());
    for line in ["counters_interval = \"4s\"", "slabinfo_interval = \"30s\"", "max_series = 300"] {
        assert!(printed.contains(line), "{printed}");
    }
    // What was printed loads back to the same.
    let again = dir.path().join("again.toml");
    fs::write(&again, &printed).unwrap();
    let values = |text: &str| text.lines().map(|line| line.split(" # ").next().unwrap().to_owned()).collect::<Vec<_>>();
    let reprinted = out(&run(&[&format!("--config.file={}", again.display()), "--print-config"]));
    assert_eq!(values(&printed), values(&reprinted));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let root = root_with(SLABINFO);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let root = format!("--path.root={}", root.path().display());
    assert_fails(&["--trace=false", &root, &format!("--web.listen-address={address}")], 1, &address);
}

#[test]
fn a_host_with_nothing_to_serve_is_refused() {
    let root = tempfile::tempdir().unwrap();
    assert_fails(&["--trace=false", &format!("--path.root={}", root.path().display())], 69, "proc/slabinfo");
}

#[test]
fn a_fixture_host_is_served_in_every_form() {
    let root = root_with(SLABINFO);
    let daemon = Daemon::start(root.path(), |_| {});
    let top = daemon.json("/caches/top?by=bytes&limit=1000&format=json");
    let held: Vec<_> =
        top["caches"].as_array().unwrap().iter().map(|c| c["slab"]["memory_bytes"].as_u64().unwrap()).collect();
    assert_eq!(held.len(), 56, "57 rows, one name twice");
    assert!(held.is_sorted_by(|a, b| a >= b), "{held:?}");
    let cache = daemon.json("/caches/an_alias?format=json");
    assert_eq!((&cache["alias_of"], &cache["cache"]["slab"]["slabinfo_rows"]), (&"file_lock_cache".into(), &2.into()));
    assert_eq!(cache["cache"]["attributes"]["object_size_bytes"], 120);
    assert!(cache["cache"]["traced"].is_null(), "not counted is not zero");
    assert_eq!(top["memory"]["slab_bytes"], 400 * 1024);

    let (_, plain) = daemon.try_get("/metrics", "").unwrap();
    assert!(plain.to_lowercase().contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{plain}");
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
    let (_, open) = daemon.try_get("/metrics", accept).unwrap();
    assert!(
        open.to_lowercase().contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n")
    );
    assert!(open.ends_with("# EOF\n"));
    promtool_accepts(&daemon.get("/metrics"));

    let url = format!("--url=http://127.0.0.1:{}", daemon.port);
    let table = out(&run(&["top", "--once", "--limit=3", &url]));
    assert!(table.contains("CACHE") && table.contains("3 of 56 caches"), "{table}");
    let csv = out(&run(&["top", "--once", "--limit=3", "--format=csv", &url]));
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let json = out(&run(&["top", "--once", "--limit=3", "--format=json", &url]));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["caches"].as_array().unwrap().len(), 3);
}

fn promtool_accepts(text: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: `cargo xtask setup`");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn odd_names_come_through_whole() {
    let root = root_with(ODD_NAMES);
    let daemon = Daemon::start(root.path(), |_| {});
    let metrics = daemon.get("/metrics");
    assert!(metrics.contains(r#"slabmon_cache_objects{cache="my\"quoted\\cache"} 16"#), "{metrics}");
    assert!(metrics.contains("slabmon_cache_objects{cache=\"ipc ports\"} 168"));
    promtool_accepts(&metrics);
    assert_eq!(daemon.json("/caches/ipc%20ports?format=json")["cache"]["slab"]["active_objects"], 120);
    assert!(daemon.get("/caches").contains("caché-日本"));
}

#[test]
fn a_broken_slabinfo_leaves_the_last_numbers_and_says_so_until_it_is_whole_again() {
    let root = root_with(SLABINFO);
    let daemon = Daemon::start(root.path(), |_| {});
    let whole = fs::read(fixture_path(SLABINFO)).unwrap();
    write_slabinfo(root.path(), b"slabinfo - version: 2.1\n# name <active_objs> <num_objs>\nfilp 1 2\n");
    eventually(|| daemon.get("/metrics").contains("slabmon_collector_success{collector=\"slabinfo\"} 0"));
    eventually(|| daemon.get("/status").contains("slabinfo:3"));
    assert_eq!(
        daemon.json("/caches?format=json")["caches"].as_array().unwrap().len(),
        56,
        "the last good numbers stay"
    );
    write_slabinfo(root.path(), &whole);
    eventually(|| daemon.get("/metrics").contains("slabmon_collector_success{collector=\"slabinfo\"} 1"));
}

#[test]
fn a_cache_that_is_gone_from_slabinfo_is_gone_from_the_answers() {
    let root = root_with(SLABINFO);
    let daemon = Daemon::start(root.path(), |_| {});
    assert!(daemon.get("/metrics").contains("cache=\"page->ptl\""));
    let text = fs::read_to_string(fixture_path(SLABINFO)).unwrap();
    let rest: String =
        text.lines().filter(|line| !line.starts_with("page->ptl")).map(|line| format!("{line}\n")).collect();
    write_slabinfo(root.path(), rest.as_bytes());
    eventually(|| !daemon.get("/metrics").contains("cache=\"page->ptl\""));
}

#[test]
fn both_signals_end_it_with_exit_code_0() {
    let root = root_with(SLABINFO);
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let mut daemon = Daemon::start(root.path(), |_| {});
        assert_eq!(daemon.signal(signal).code(), Some(0), "{}", daemon.log());
    }
}

#[test]
fn the_service_manager_is_told_when_it_is_ready_alive_and_stopping() {
    let root = root_with(SLABINFO);
    let path = root.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut daemon = Daemon::start(root.path(), |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000");
    });
    let receive = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    assert_eq!(receive(), "READY=1", "nothing comes before it");
    assert_eq!(receive(), "WATCHDOG=1");
    assert_eq!(receive(), "WATCHDOG=1", "again, with the next reading");
    daemon.signal(rustix::process::Signal::TERM);
    let mut last = receive();
    while last == "WATCHDOG=1" {
        last = receive();
    }
    assert_eq!(last, "STOPPING=1");
}

#[test]
fn logs_are_what_was_asked_for() {
    let root = root_with(SLABINFO);
    let json = Daemon::start(root.path(), |command| {
        command.arg("--log.format=json");
    });
    for line in json.log().lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).is_ok(), "{line}");
    }
    let logfmt = Daemon::start(root.path(), |command| {
        command.arg("--log.format=logfmt");
    });
    assert!(logfmt.log().lines().all(|line| line.contains("level=")), "{}", logfmt.log());
    let journal = Daemon::start(root.path(), |command| {
        command.env("JOURNAL_STREAM", "8:1");
    });
    assert!(!journal.log().starts_with("20"), "the journal has its own time stamps: {}", journal.log());
}

#[test]
fn check_tells_what_is_here_and_exits_by_it() {
    let root = root_with(SLABINFO);
    let output = run(&["check", "--trace=false", &format!("--path.root={}", root.path().display())]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("slabinfo") && text.contains("57 rows") && text.contains("switched off"), "{text}");
    let empty = tempfile::tempdir().unwrap();
    let output = run(&["check", "--trace=false", &format!("--path.root={}", empty.path().display())]);
    assert_eq!(output.status.code(), Some(69), "{}", String::from_utf8_lossy(&output.stdout));
}
