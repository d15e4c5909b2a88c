//! What the live tests share: a probe on this host, and differences of its counters.

use std::{
    collections::BTreeMap,
    fs::Permissions,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use slabmon::{
    host::facts::HostFacts,
    model::sample::{CounterKind, CounterSample, EventCounts},
    plan::{PlanOptions, ProbePlan},
    probe::Probe,
};

/// A probe on everything, with the page lookup proved.
pub fn start_probe() -> Probe {
    start_probe_with(|_| {}).0
}

/// A probe on all that `change` leaves of the plan, with the page lookup proved; and what came of the plan.
pub fn start_probe_with(change: impl FnOnce(&mut ProbePlan)) -> (Probe, ProbePlan) {
    let facts = HostFacts::read(Path::new("/"), None);
    let mut plan = ProbePlan::new(&facts, &PlanOptions::default());
    assert!(!plan.programs.is_empty(), "this ring needs root and a kernel with BPF and BTF: {:#?}", plan.features);
    change(&mut plan);
    let probe = Probe::start(&mut plan, facts.possible_cpus).expect("the programs load and attach here");
    assert!(probe.lookup_usable(), "the page lookup is proved here: {:#?}", plan.features);
    (probe, plan)
}

/// Reads all counters now.
pub fn drain(probe: &mut Probe) -> CounterSample {
    probe.drain(Duration::ZERO)
}

/// Counters by cache name; caches of one name are added.
pub fn by_name(sample: &CounterSample) -> BTreeMap<String, EventCounts> {
    let mut counts = BTreeMap::<String, EventCounts>::new();
    for cache in sample.caches.iter().filter(|cache| cache.kind != CounterKind::SizeClass) {
        let sum = counts.entry(cache.name.to_string()).or_default();
        *sum = sum.plus(&cache.counts);
    }
    counts
}

/// What `name` counted between two samples.
pub fn counted(before: &CounterSample, after: &CounterSample, name: &str) -> EventCounts {
    let old = by_name(before).get(name).copied().unwrap_or_default();
    let new = by_name(after).get(name).copied().unwrap_or_default();
    new.since(&old)
}

/// The cache that `name` is, or was merged into: its name in `/proc/slabinfo`, found through `/sys/kernel/slab`'s links.
pub fn canonical_name(name: &str) -> Option<String> {
    let listed = slabinfo_names();
    if listed.iter().any(|row| row == name) {
        return Some(name.to_owned());
    }
    let target = std::fs::read_link(Path::new("/sys/kernel/slab").join(name)).ok()?;
    listed
        .into_iter()
        .find(|row| std::fs::read_link(Path::new("/sys/kernel/slab").join(row)).is_ok_and(|t| t == target))
}

fn slabinfo_names() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/slabinfo").expect("root reads /proc/slabinfo");
    text.lines().skip(2).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Whether the kernel describes a type or function of this name: BTF keeps all names in one table of strings.
pub fn kernel_has(name: &str) -> bool {
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").expect("this ring needs a kernel with BTF");
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    btf.windows(wanted.len()).any(|bytes| bytes == wanted)
}

/// Tries `check` until it holds or the time is up; returns the last complaint.
pub fn eventually(limit: Duration, mut check: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let deadline = Instant::now() + limit;
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(complaint) if Instant::now() >= deadline => return Err(complaint),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A free TCP port on loopback.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A daemon that runs until this is dropped.
pub struct Daemon {
    child: Option<Child>,
    port: u16,
    log: tempfile::NamedTempFile,
    _dir: Option<tempfile::TempDir>,
}

impl Daemon {
    /// Starts `slabmon` with `arguments`, by way of `wrapper` (a program and its arguments) if it is not empty.
    pub fn start(wrapper: &[&str], arguments: &[&str]) -> Self {
        Self::start_binary(wrapper, env!("CARGO_BIN_EXE_slabmon"), arguments, None)
    }

    /// As `start`, from a copy of the binary that every user may run.
    pub fn start_copy(wrapper: &[&str], arguments: &[&str]) -> Self {
        let dir =
            tempfile::Builder::new().prefix("slabmon").permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let copy = dir.path().join("slabmon");
        // By another process: a child that is forked here meanwhile would keep the file open for writing, hence busy.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_slabmon")).arg(&copy).status().expect("cp runs");
        assert!(copied.success(), "{copied}");
        let copy = copy.to_str().unwrap().to_owned();
        Self::start_binary(wrapper, &copy, arguments, Some(dir))
    }

    fn start_binary(wrapper: &[&str], binary: &str, arguments: &[&str], dir: Option<tempfile::TempDir>) -> Self {
        let port = free_port();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut words = wrapper.to_vec();
        words.push(binary);
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", words[0]));
        Self { child: Some(child), port, log, _dir: dir }
    }

    /// Waits until `/readyz` says yes.
    pub fn wait_ready(&mut self) {
        let ready = eventually(Duration::from_secs(20), || {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                panic!("the daemon ended with {status}:\n{}", self.log());
            }
            match self.get("/readyz") {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        ready.unwrap_or_else(|complaint| panic!("never ready: {complaint}\n{}", self.log()));
    }

    /// Status and body of a GET.
    pub fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| std::io::Error::other("no head"))?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| std::io::Error::other("no status"))?;
        let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
            panic!("answers have a length: {head}")
        } else {
            body.to_owned()
        };
        Ok((status, body))
    }

    /// JSON of a GET that must succeed.
    pub fn json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    /// Whether `/status` says that a feature is on, and why not.
    pub fn feature(&self, name: &str) -> (bool, String) {
        let status = self.json("/status?format=json");
        let features = status["features"].as_array().unwrap();
        let feature =
            features.iter().find(|feature| feature["name"] == name).unwrap_or_else(|| panic!("{name}: {features:#?}"));
        (feature["enabled"].as_bool().unwrap(), feature["reason"].as_str().unwrap().to_owned())
    }

    /// Everything that was logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends SIGTERM and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        let child = self.child.as_mut().unwrap();
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait_end()
    }

    /// Waits for the daemon to end by itself.
    pub fn wait_end(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() >= deadline {
                child.kill().unwrap();
                panic!("the daemon did not end:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Ids of the BPF programs and maps that the kernel holds, by `bpftool`.
pub fn bpf_objects() -> (Vec<u64>, Vec<u64>) {
    let ids = |what: &str| -> Vec<u64> {
        let output = Command::new("bpftool")
            .args(["-j", what, "show"])
            .output()
            .expect("bpftool is installed: `cargo xtask setup`");
        assert!(output.status.success(), "bpftool {what} show: {}", String::from_utf8_lossy(&output.stderr));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut ids: Vec<_> = shown.as_array().unwrap().iter().map(|object| object["id"].as_u64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    (ids("prog"), ids("map"))
}
