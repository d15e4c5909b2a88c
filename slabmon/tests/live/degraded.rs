//! Starts with one fact about the kernel taken away: the daemon goes on with the rest, and says what is off and why.
//!
//! The facts are types, so a copy of the kernel's own in which a name is spoilt takes each of them away.

use std::{io::Write, path::Path, time::Duration};

use tempfile::NamedTempFile;

use crate::support::{Daemon, eventually, kernel_has};

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's types, without those of `names` that it has.
fn types_without(names: &[&str]) -> NamedTempFile {
    let mut types = std::fs::read(VMLINUX).expect("this ring needs a kernel with BTF");
    let mut spoilt = 0;
    for name in names {
        let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
        let windows = types.windows(wanted.len()).enumerate();
        let places: Vec<usize> = windows.filter(|(_, bytes)| *bytes == wanted).map(|(at, _)| at).collect();
        for at in places {
            types[at + 1] = b'~';
            spoilt += 1;
        }
    }
    assert!(spoilt > 0, "this kernel has none of {names:?} to take away");
    file_of(&types)
}

fn file_of(types: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(types).unwrap();
    file
}

fn start(types: &Path) -> Daemon {
    let mut daemon = Daemon::start(&[], &[&format!("--btf={}", types.display())]);
    daemon.wait_ready();
    daemon
}

/// Nothing is traced, for a reason that holds `why`; slabinfo is served all the same.
fn assert_slabinfo_alone(daemon: &Daemon, why: &str) {
    let (enabled, reason) = daemon.feature("tracing");
    assert!(!enabled && reason.contains(why), "tracing: {enabled}, {reason}");
    for part in ["kmalloc", "kfree", "page_lookup"] {
        assert!(!daemon.feature(part).0, "{part} is a part of tracing");
    }
    assert!(daemon.feature("slabinfo").0);
    let caches = daemon.json("/caches?format=json");
    let rows = caches["caches"].as_array().unwrap();
    assert!(rows.len() > 20, "{} caches", rows.len());
    assert!(rows.iter().all(|row| row["traced"].is_null()), "an unknown is not zero");
    let (_, metrics) = daemon.get("/metrics").unwrap();
    assert!(metrics.contains("slabmon_cache_active_objects{"), "{metrics}");
    assert!(!metrics.contains("slabmon_cache_allocations_total{"), "what is not counted is not published");
    assert!(daemon.log().contains(why), "the log says why too:\n{}", daemon.log());
}

/// The caches that have counted allocations.
fn traced_caches(daemon: &Daemon) -> usize {
    let caches = daemon.json("/caches?format=json");
    let rows = caches["caches"].as_array().unwrap();
    rows.iter().filter(|row| row["traced"]["allocations"].as_u64().is_some_and(|count| count > 0)).count()
}

fn assert_traces(daemon: &Daemon) {
    let counted = eventually(Duration::from_secs(20), || match traced_caches(daemon) {
        0..=4 => Err(format!("only {} caches have events", traced_caches(daemon))),
        _ => Ok(()),
    });
    counted.unwrap_or_else(|complaint| panic!("{complaint}\n{}", daemon.log()));
}

#[test]
fn with_the_types_in_a_file_nothing_is_missing() {
    let daemon = start(file_of(&std::fs::read(VMLINUX).unwrap()).path());
    for feature in ["btf", "tracing", "kmalloc", "kfree", "page_lookup"] {
        let (enabled, reason) = daemon.feature(feature);
        assert!(enabled, "{feature}: {reason}");
    }
    assert_traces(&daemon);
}

#[test]
fn without_types_slabinfo_alone_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no-such.btf");
    let daemon = start(&missing);
    let (enabled, reason) = daemon.feature("btf");
    assert!(!enabled && reason.contains("no-such.btf") && reason.contains("No such file"), "{reason}");
    assert_slabinfo_alone(&daemon, "no type information");
}

#[test]
fn with_cut_types_slabinfo_alone_is_served() {
    let types = std::fs::read(VMLINUX).unwrap();
    let file = file_of(&types[..types.len() / 2]);
    let daemon = start(file.path());
    let (enabled, reason) = daemon.feature("btf");
    assert!(!enabled && reason.contains("cut off"), "{reason}");
    assert_slabinfo_alone(&daemon, "no type information");
}

#[test]
fn without_the_type_of_a_cache_slabinfo_alone_is_served() {
    let daemon = start(types_without(&["kmem_cache"]).path());
    assert!(daemon.feature("btf").0);
    assert_slabinfo_alone(&daemon, "SLUB");
}

#[test]
fn without_one_event_the_others_are_counted() {
    let daemon = start(types_without(&["btf_trace_kfree"]).path());
    let (enabled, reason) = daemon.feature("kfree");
    assert!(!enabled && reason.contains("no such event"), "{reason}");
    for event in ["kmalloc", "kmem_cache_alloc", "kmem_cache_free"] {
        let (enabled, reason) = daemon.feature(event);
        assert!(enabled, "{event}: {reason}");
    }
    assert_traces(&daemon);
}

#[test]
fn without_the_page_heads_place_kmalloc_is_counted_by_size() {
    let daemon = start(types_without(&["compound_head", "compound_info"]).path());
    let (enabled, reason) = daemon.feature("page_lookup");
    assert!(!enabled && reason.contains("page.compound_head"), "{reason}");
    assert!(daemon.feature("kmalloc").0);
    let classes = daemon.json("/caches?format=json&group=class");
    let rows = classes["caches"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["traced"]["allocations"].as_u64().is_some_and(|count| count > 0)), "{rows:#?}");
    let (_, metrics) = daemon.get("/metrics").unwrap();
    let unattributed = metrics.lines().find_map(|line| line.strip_prefix("slabmon_events_unattributed_total "));
    let unattributed: f64 = unattributed.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    assert!(unattributed > 0.0, "frees by kfree are told to be unattributed");
}

#[test]
fn without_the_iterator_caches_are_named_by_their_first_event() {
    if !kernel_has("bpf_iter_kmem_cache") {
        // This kernel is the degraded case by itself, which every other test here runs on.
        let daemon = start(file_of(&std::fs::read(VMLINUX).unwrap()).path());
        assert!(!daemon.feature("cache_iterator").0);
        return assert_traces(&daemon);
    }
    let daemon = start(types_without(&["bpf_iter_kmem_cache"]).path());
    let (enabled, reason) = daemon.feature("cache_iterator");
    assert!(!enabled && reason.contains("no BPF iterator"), "{reason}");
    let (enabled, reason) = daemon.feature("page_lookup");
    assert!(enabled, "calibrated from events instead: {reason}");
    assert_traces(&daemon);
}
