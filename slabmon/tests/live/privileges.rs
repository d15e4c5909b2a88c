//! What the daemon needs, and what it does when it does not get it.

use crate::support::{Daemon, kernel_has};

/// Runs what follows as nobody with these capabilities alone, none that a set-uid file could add.
fn as_nobody(capabilities: &str) -> Vec<String> {
    let mut words: Vec<String> =
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"].map(String::from).to_vec();
    for set in ["inh-caps", "ambient-caps"] {
        words.push(format!("--{set}=-all{capabilities}"));
    }
    words.push(format!("--bounding-set=-all{capabilities}"));
    words
}

/// The binary lies where only root may look on some machines; nobody gets a copy.
fn start(capabilities: &str, arguments: &[&str]) -> Daemon {
    let words = as_nobody(capabilities);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Daemon::start_copy(&words, arguments)
}

/// Reading the kernel's memory and tables; and its symbols on kernels that have no other way to their caches.
fn tracing_capabilities() -> &'static str {
    if kernel_has("bpf_prog_inc_misses_counter") { ",+bpf,+perfmon" } else { ",+bpf,+perfmon,+syslog" }
}

fn effective_capabilities(daemon: &Daemon) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    tasks
        .map(|task| {
            let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("CapEff:")).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        })
        .collect()
}

#[test]
fn bpf_perfmon_and_read_access_to_slabinfo_are_all_it_takes() {
    let mut daemon = start(&format!("{},+dac_read_search", tracing_capabilities()), &[]);
    daemon.wait_ready();
    for feature in ["tracing", "page_lookup", "slabinfo", "slab_sysfs"] {
        assert!(daemon.feature(feature).0, "{feature}: {:?}\n{}", daemon.feature(feature), daemon.log());
    }
    let iterator = daemon.feature("cache_iterator");
    assert_eq!(iterator.0, kernel_has("bpf_iter__kmem_cache"), "{iterator:?}\n{}", daemon.log());
    // Before 5.19 reading a map takes CAP_BPF, which is kept then.
    let kept = if kernel_has("bpf_prog_inc_misses_counter") { 0 } else { 1 << 39 };
    assert!(effective_capabilities(&daemon).iter().all(|&set| set == kept), "all others are given up once it runs");
    // The kept descriptor and the kept tables still answer.
    let first = daemon.json("/caches/filp?format=json")["cache"]["traced"]["allocations"].as_u64().unwrap();
    drop(slabmon_load::held::pipes(500).unwrap());
    crate::support::eventually(std::time::Duration::from_secs(5), || {
        let now = daemon.json("/caches/filp?format=json")["cache"]["traced"]["allocations"].as_u64().unwrap();
        if now >= first + 1000 { Ok(()) } else { Err(format!("{first} then {now}")) }
    })
    .unwrap();
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.log());
}

#[test]
fn without_bpf_it_serves_slabinfo_alone_and_says_so() {
    let mut daemon = start(",+dac_read_search", &[]);
    daemon.wait_ready();
    let (enabled, reason) = daemon.feature("tracing");
    assert!(!enabled && reason.contains("CAP_BPF"), "{reason}");
    assert!(daemon.feature("slabinfo").0);
    let cache = daemon.json("/caches/filp?format=json");
    assert!(cache["cache"]["traced"].is_null(), "not counted is not zero: {cache}");
    assert!(cache["cache"]["slab"]["objects"].as_u64().unwrap() > 0);
    let (_, metrics) = daemon.get("/metrics").unwrap();
    assert!(metrics.contains("slabmon_cache_objects{cache=\"filp\"}"), "{metrics}");
    assert!(!metrics.contains("slabmon_cache_allocations_total{"), "not counted is not zero");
}

#[test]
fn without_slabinfo_it_serves_what_it_traces_and_says_so() {
    let mut daemon = start(tracing_capabilities(), &[]);
    daemon.wait_ready();
    let (enabled, reason) = daemon.feature("slabinfo");
    assert!(!enabled && reason.contains("/proc/slabinfo"), "{reason}");
    drop(slabmon_load::held::pipes(500).unwrap());
    crate::support::eventually(std::time::Duration::from_secs(5), || {
        let cache = daemon.json("/caches/filp?format=json");
        match cache["cache"]["traced"]["allocations"].as_u64() {
            Some(allocations) if allocations >= 1000 && cache["cache"]["slab"].is_null() => Ok(()),
            _ => Err(cache.to_string()),
        }
    })
    .unwrap();
}

#[test]
fn with_nothing_to_serve_it_exits_77() {
    let mut daemon = start("", &[]);
    assert_eq!(daemon.wait_end().code(), Some(77), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("CAP_BPF") && log.contains("/proc/slabinfo"), "{log}");
}
