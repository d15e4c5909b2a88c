//! Objects of known number: each of their caches grows by at least that many, and by no more than the background.

use std::time::Duration;

use slabmon::{model::sample::CounterSample, probe::Probe};

use crate::support::{canonical_name, counted, drain, eventually, start_probe};

const COUNT: u64 = 500;

/// How often a test is tried: something else on the machine may make the same objects at that very moment.
const TRIES: usize = 5;

/// Makes `COUNT` things that each take `per_item` objects of each of `caches`, and frees them again.
fn grows_by_what_was_made<T>(caches: &[(&str, u64)], make: impl Fn(usize) -> T) {
    grows_by_what_was_made_and(caches, make, |_| 0);
}

/// As above; `more` tells how many other objects the making may have taken of each cache.
fn grows_by_what_was_made_and<T>(caches: &[(&str, u64)], make: impl Fn(usize) -> T, more: impl Fn(&T) -> u64) {
    let mut probe = start_probe();
    // The first round fills caches of the kernel's own (dentries, per-CPU queues).
    drop(make(COUNT as usize));
    let named: Vec<(String, u64)> = caches
        .iter()
        .map(|&(name, per_item)| {
            (canonical_name(name).unwrap_or_else(|| panic!("this kernel has the cache {name}")), per_item)
        })
        .collect();
    let mut complaints = Vec::new();
    for _ in 0..TRIES {
        match try_once(&mut probe, &named, &make, &more) {
            Ok(()) => return,
            Err(complaint) => complaints.push(complaint),
        }
    }
    panic!("{}", complaints.join("\n"));
}

fn try_once<T>(
    probe: &mut Probe,
    caches: &[(String, u64)],
    make: &impl Fn(usize) -> T,
    more: &impl Fn(&T) -> u64,
) -> Result<(), String> {
    let background_from = drain(probe);
    std::thread::sleep(Duration::from_millis(20));
    let before = drain(probe);
    let made = make(COUNT as usize);
    let after = drain(probe);
    std::thread::sleep(Duration::from_millis(20));
    let background_to = drain(probe);
    for (name, per_item) in caches {
        let wanted = COUNT * per_item;
        let background =
            counted(&background_from, &before, name).allocations + counted(&after, &background_to, name).allocations;
        let grown = counted(&before, &after, name).allocations;
        let most = wanted + background + more(&made);
        if !(wanted..=most).contains(&grown) {
            return Err(format!("{name}: {grown} allocations for {wanted} objects, background {background}"));
        }
    }
    drop(made);
    eventually(Duration::from_secs(5), || freed(probe, &background_to, caches))
}

/// Frees may wait for an RCU grace period.
fn freed(probe: &mut Probe, since: &CounterSample, caches: &[(String, u64)]) -> Result<(), String> {
    let now = drain(probe);
    for (name, per_item) in caches {
        let frees = counted(since, &now, name).frees;
        if frees < COUNT * per_item {
            return Err(format!("{name}: {frees} frees for {} objects", COUNT * per_item));
        }
    }
    Ok(())
}

#[test]
fn pipes_take_two_files_a_dentry_and_an_inode_each() {
    grows_by_what_was_made(&[("filp", 2), ("dentry", 1), ("inode_cache", 1)], |count| {
        slabmon_load::held::pipes(count).unwrap()
    });
}

#[test]
fn socket_pairs_take_two_sockets_two_files_and_two_dentries_each() {
    grows_by_what_was_made(&[("sock_inode_cache", 2), ("filp", 2), ("dentry", 2)], |count| {
        slabmon_load::held::socketpairs(count).unwrap()
    });
}

#[test]
fn eventfds_take_a_file_and_a_dentry_each() {
    grows_by_what_was_made(&[("filp", 1), ("dentry", 1)], |count| slabmon_load::held::eventfds(count).unwrap());
}

#[test]
fn open_files_take_a_file_each() {
    let dir = slabmon_load::churn::default_dir();
    grows_by_what_was_made(&[("filp", 1)], |count| slabmon_load::held::files(&dir, count).unwrap());
}

/// The cache of messages that fill a class: their own, that of accounted objects, or the one for all. Where objects are
/// 128 bytes apart at least (arm64 before 6.5), there is no smaller class.
fn message_cache(class: &str) -> String {
    let classes = if class == "64" { vec!["64", "128"] } else { vec![class] };
    let names =
        classes.iter().flat_map(|class| ["msg_msg-", "kmalloc-cg-", "kmalloc-"].map(|kind| format!("{kind}{class}")));
    let mut names = names.filter(|name| canonical_name(name).is_some());
    names.next().unwrap_or_else(|| panic!("this kernel has a cache for messages of {class} bytes"))
}

#[test]
fn messages_of_each_size_land_in_the_class_of_their_size() {
    // struct msg_msg is 48 bytes (ipc/msgutil.c); one message takes one object up to a page.
    for (text_bytes, class) in [(16, "64"), (60, "128"), (400, "512"), (976, "1k"), (2000, "2k"), (4000, "4k")] {
        let name = message_cache(class);
        // A queue's own structure may come from the same class: SLUB merges msg_msg-512 with kmalloc-cg-512.
        grows_by_what_was_made_and(
            &[(&name, 1)],
            |count| slabmon_load::messages::messages(count, text_bytes).unwrap(),
            |messages| messages.queues() as u64,
        );
    }
}

#[test]
fn requested_bytes_of_messages_are_what_was_asked_for() {
    let mut probe = start_probe();
    let name = message_cache("1k");
    let before = drain(&mut probe);
    let made = slabmon_load::messages::messages(COUNT as usize, 700).unwrap();
    let after = drain(&mut probe);
    drop(made);
    let counts = counted(&before, &after, &name);
    assert!(counts.allocations >= COUNT);
    let others = counts.allocations - COUNT;
    assert!(counts.requested_bytes >= COUNT * 748, "{counts:?}");
    assert!(counts.requested_bytes <= COUNT * 748 + others * 1024, "{counts:?}");
    assert_eq!(counts.allocated_bytes, counts.allocations * 1024);
}

#[test]
fn large_kmalloc_is_counted_once_with_its_pages_and_freed_with_as_many() {
    const SENDS: u64 = 2_000;
    let mut probe = start_probe();
    let before = drain(&mut probe);
    slabmon_load::churn::control_data(SENDS as usize, 12_000).unwrap();
    let after = drain(&mut probe);
    let counts = counted(&before, &after, "kmalloc-large");
    assert!((SENDS..SENDS + SENDS / 50).contains(&counts.allocations), "{counts:?}");
    assert!(counts.frees >= SENDS && counts.frees <= counts.allocations + SENDS / 50, "{counts:?}");
    // 12,000 bytes take four pages.
    assert!(counts.allocated_bytes >= SENDS * 16_384, "{counts:?}");
    assert!(counts.freed_bytes >= SENDS * 16_384, "{counts:?}");
    assert!(counts.requested_bytes >= SENDS * 12_000 && counts.requested_bytes < counts.allocated_bytes, "{counts:?}");
    let duplicates = after.large_duplicates - before.large_duplicates;
    assert!(duplicates <= counts.allocations, "at most one duplicate an allocation: {duplicates} of {counts:?}");
}

/// The buffer of a sysctl's read comes from kvmalloc, whose event is the second of two on some kernels and the first on others.
#[test]
fn large_kmalloc_by_way_of_kvmalloc_is_counted_once() {
    const READS: u64 = 2_000;
    let mut probe = start_probe();
    let before = drain(&mut probe);
    slabmon_load::churn::read_sysctl(READS as usize, 60_000).unwrap();
    let after = drain(&mut probe);
    let counts = counted(&before, &after, "kmalloc-large");
    assert!((READS..READS + READS / 50).contains(&counts.allocations), "{counts:?}");
    assert!((READS..READS + READS / 50).contains(&counts.frees), "{counts:?}");
    assert!(counts.requested_bytes >= READS * 60_000, "{counts:?}");
}
