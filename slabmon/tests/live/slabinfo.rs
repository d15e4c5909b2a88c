//! What the API says of slabinfo's numbers, against the file itself read in the same second.

use std::{collections::BTreeMap, time::Duration};

use crate::support::{Daemon, eventually};

/// active objects, objects, object size, objects a slab, pages a slab, slabs: by name, rows of one name added.
fn read_directly() -> BTreeMap<String, [u64; 6]> {
    let text = std::fs::read_to_string("/proc/slabinfo").unwrap();
    let mut rows = BTreeMap::<String, [u64; 6]>::new();
    for line in text.lines().skip(2) {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        let row = rows.entry(words[0].to_owned()).or_default();
        row[0] += number(1);
        row[1] += number(2);
        row[5] += number(14);
        (row[2], row[3], row[4]) = (number(3), number(4), number(5));
    }
    rows
}

#[test]
fn the_api_equals_a_direct_read_within_the_change_between_two_direct_reads() {
    let mut daemon = Daemon::start(&[], &["--poll.slabinfo-interval=1s", "--poll.counters-interval=100ms"]);
    daemon.wait_ready();
    let page_bytes = rustix::param::page_size() as u64;
    let mut last_read = daemon.json("/caches?format=json")["snapshot"]["slabinfo_at_unix_seconds"].as_f64().unwrap();
    eventually(Duration::from_secs(60), || {
        // Two direct reads with the daemon's own in between.
        let before = read_directly();
        let mut answer = daemon.json("/caches?format=json");
        while answer["snapshot"]["slabinfo_at_unix_seconds"].as_f64().unwrap() == last_read {
            std::thread::sleep(Duration::from_millis(20));
            answer = daemon.json("/caches?format=json");
        }
        let after = read_directly();
        last_read = answer["snapshot"]["slabinfo_at_unix_seconds"].as_f64().unwrap();

        let caches = answer["caches"].as_array().unwrap();
        let served: BTreeMap<&str, &serde_json::Value> = caches
            .iter()
            .filter(|cache| !cache["slab"].is_null())
            .map(|cache| (cache["name"].as_str().unwrap(), &cache["slab"]))
            .collect();
        if served.keys().copied().ne(before.keys().map(String::as_str)) {
            return Err("other caches in the API than in the file".into());
        }
        for (name, slab) in &served {
            let (Some(before), Some(after)) = (before.get(*name), after.get(*name)) else { continue };
            let fields =
                ["active_objects", "objects", "object_size_bytes", "objects_per_slab", "pages_per_slab", "slabs"];
            for (index, field) in fields.into_iter().enumerate() {
                let value = slab[field].as_u64().unwrap();
                let (least, most) = (before[index].min(after[index]), before[index].max(after[index]));
                if !(least..=most).contains(&value) {
                    return Err(format!("{name}: {field} is {value}, the file says {least} to {most}"));
                }
            }
            assert_eq!(
                slab["memory_bytes"].as_u64().unwrap(),
                slab["slabs"].as_u64().unwrap() * slab["pages_per_slab"].as_u64().unwrap() * page_bytes,
                "{name}"
            );
        }
        Ok(())
    })
    .unwrap();
}
