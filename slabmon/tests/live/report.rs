//! The account of this host's slab memory, against the kernel's own files and BTF read in the same moment.

use std::{collections::BTreeMap, process::Command, time::Duration};

use serde_json::Value;

use crate::support::{Daemon, eventually};

fn report(arguments: &[&str]) -> String {
    // Nothing listens on port 1, so that the files are read and no daemon is asked.
    let output = Command::new(env!("CARGO_BIN_EXE_slabmon"))
        .args(["report", "--url", "http://127.0.0.1:1"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&report(&[arguments, &["--format", "json"]].concat())).unwrap()
}

/// Bytes held by each cache; rows of one name added.
fn held_by_slabinfo() -> BTreeMap<String, u64> {
    let page_bytes = rustix::param::page_size() as u64;
    let text = std::fs::read_to_string("/proc/slabinfo").unwrap();
    let mut held = BTreeMap::new();
    for line in text.lines().skip(2) {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        *held.entry(words[0].to_owned()).or_default() += number(5) * number(14) * page_bytes;
    }
    held
}

/// A number of a file of `/proc` that has a name and a number a line.
fn number_in(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.split([':', ' ']).next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn the_waterfall_holds_what_a_direct_read_of_slabinfo_says() {
    eventually(Duration::from_secs(30), || {
        let before = held_by_slabinfo();
        let report = json(&["--section", "waterfall"]);
        let after = held_by_slabinfo();
        let mut sum = 0;
        for cache in report["caches"].as_array().unwrap() {
            let name = cache["name"].as_str().unwrap();
            let waterfall = cache["waterfall"].as_object().unwrap();
            let held = waterfall["held_bytes"].as_u64().unwrap();
            let parts = waterfall.iter().filter(|(part, _)| *part != "held_bytes");
            assert_eq!(held, parts.filter_map(|(_, bytes)| bytes.as_u64()).sum::<u64>(), "{name}");
            assert_eq!(cache["anomalies"].as_array().unwrap().len(), 0, "{name}: {}", cache["anomalies"]);
            sum += held;
            let (Some(before), Some(after)) = (before.get(name), after.get(name)) else { continue };
            if !(*before.min(after)..=*before.max(after)).contains(&held) {
                return Err(format!("{name}: {held} held, the file says {before} and then {after}"));
            }
        }
        assert_eq!(report["waterfall"]["held_bytes"], sum);
        if report["caches"].as_array().unwrap().len() == before.len() { Ok(()) } else { Err("other caches".into()) }
    })
    .unwrap();
}

#[test]
fn caches_and_large_kmalloc_are_within_two_percent_of_slab_or_the_gap_is_told() {
    let mut daemon = Daemon::start(&[], &[]);
    daemon.wait_ready();
    let whole = daemon.json("/report?section=whole&format=json")["whole"].take();
    let of = |field: &str| whole[field].as_i64().unwrap();
    let large = whole["large_kmalloc_bytes"].as_i64().unwrap_or(0);
    assert_eq!(of("gap_bytes"), of("slab_bytes") - of("caches_bytes") - large);
    let share = of("gap_bytes").unsigned_abs() as f64 / of("slab_bytes") as f64;
    let (_, text) = daemon.get("/report?section=whole").unwrap();
    assert!(
        share <= 0.02 || text.contains("the gap is large kmalloc") || text.contains("hold more than Slab"),
        "{text}"
    );
    let meminfo = number_in("/proc/meminfo", "Slab").unwrap() as f64 * 1024.0;
    assert!((of("slab_bytes") as f64 / meminfo - 1.0).abs() < 0.2, "{} against {meminfo}", of("slab_bytes"));
    // The kinds too: what sysfs calls reclaimable against SReclaimable.
    assert!(whole["reclaimable_caches_bytes"].as_u64().unwrap() <= of("slab_bytes").unsigned_abs());
}

/// `sizeof(struct page)` by bpftool, which reads BTF by itself.
fn struct_page_bytes_by_bpftool() -> u64 {
    let output =
        Command::new("bpftool").args(["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"]).output();
    let output = output.expect("bpftool is installed: `cargo xtask setup`");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("STRUCT 'page' size=")).unwrap();
    line.split("size=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn struct_page_is_as_large_as_btf_says_and_the_memory_map_as_the_kernel_counts() {
    let page = json(&["--section", "struct_page", "--price-per-gib", "2"])["struct_page"].take();
    let of = |field: &str| page[field].as_u64();
    let size = struct_page_bytes_by_bpftool();
    assert_eq!(of("size_bytes"), Some(size));
    assert!(of("padding_bytes").unwrap() < size);
    let pages = of("pages").unwrap();
    let page_bytes = rustix::param::page_size() as u64;
    assert_eq!(of("ram_bytes"), Some(pages * page_bytes));
    assert_eq!(of("returned_per_8_bytes_less_bytes"), Some(pages * 8));
    let total = number_in("/proc/meminfo", "MemTotal").unwrap() * 1024;
    assert_eq!(of("boot_reserved_bytes"), Some(pages * page_bytes - total));
    let memmap = of("memmap_bytes").unwrap();
    match number_in("/proc/vmstat", "nr_memmap_boot_pages") {
        Some(boot) if boot > 0 => {
            let later = number_in("/proc/vmstat", "nr_memmap_pages").unwrap_or(0);
            assert_eq!((memmap, &page["memmap_source"]), ((boot + later) * page_bytes, &"vmstat".into()));
            // The kernel maps whole sections of memory, so it may count a little more.
            let computed = pages * size;
            assert!((0.9..1.25).contains(&(memmap as f64 / computed as f64)), "{memmap} against {computed}");
        }
        _ => assert_eq!((memmap, &page["memmap_source"]), (pages * size, &"computed".into())),
    }
    let price = page["memmap_price"].as_f64().unwrap();
    assert!((price - memmap as f64 / (1u64 << 30) as f64 * 2.0).abs() < 1e-9, "{price}");
}

#[test]
fn the_overview_of_this_host_is_one_screen_with_three_structs_and_a_verdict() {
    let text = report(&[]);
    assert!(text.lines().count() <= 48, "{}\n{text}", text.lines().count());
    let structs = text.lines().skip_while(|line| !line.starts_with("MOST WORTH SHRINKING")).skip(1).take(3);
    for line in structs {
        assert!(line.contains("iB "), "{text}");
    }
    for part in ["SLAB MEMORY", "WHERE EVERY BYTE GOES", "STRUCT PAGE", "% of RAM", "VERDICT", "next: "] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    // One reading is no trend: a host that has just been looked at does not leak.
    assert!(text.contains("too little data") && !text.contains("growing without end"), "{text}");
}

#[test]
fn an_install_by_default_has_fewer_than_3000_series_and_tells_its_waste() {
    let mut daemon = Daemon::start(&[], &[]);
    daemon.wait_ready();
    let (_, metrics) = daemon.get("/metrics").unwrap();
    let series = metrics.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 3000, "{series}");
    let value = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let kinds = ["rounding", "debug_and_alignment", "free_objects", "slab_tail", "unknown"];
    let kinds = kinds.map(|kind| format!("slabmon_memory_waste_bytes{{kind=\"{kind}\"}}"));
    let known = kinds.iter().filter(|name| metrics.contains(&**name)).map(|name| value(name)).sum::<u64>();
    assert_eq!(known + value("slabmon_memory_requested_bytes "), value("slabmon_memory_caches_bytes "));
    assert_eq!(value("slabmon_struct_page_size_bytes "), struct_page_bytes_by_bpftool());
    assert!(metrics.contains("slabmon_cache_waste_bytes{cache=\"dentry\",kind=\"slab_tail\"}"));
}
