//! Every event goes to its real cache: nothing unattributed, no lookup that contradicts the kernel.

use crate::support::{drain, start_probe};

#[test]
fn a_million_events_are_attributed_and_every_checked_lookup_is_right() {
    let mut probe = start_probe();
    let dir = slabmon_load::churn::default_dir();
    let before = drain(&mut probe);
    let events = |sample: &slabmon::model::sample::CounterSample| -> u64 {
        sample.caches.iter().map(|cache| cache.counts.allocations + cache.counts.frees).sum()
    };
    let mut after = drain(&mut probe);
    while events(&after) - events(&before) < 1_000_000 {
        drop(slabmon_load::held::pipes(500).unwrap());
        drop(slabmon_load::held::socketpairs(300).unwrap());
        drop(slabmon_load::messages::messages(200, 500).unwrap());
        slabmon_load::churn::control_data(200, 12_000).unwrap();
        slabmon_load::churn::open_and_close(&dir, 500).unwrap();
        slabmon_load::churn::map_and_unmap(500, 1 << 16).unwrap();
        slabmon_load::churn::exec(5).unwrap();
        after = drain(&mut probe);
    }
    let total = events(&after) - events(&before);
    let checks = after.proof.checks - before.proof.checks;
    let mut lost = 0;
    for program in &after.programs {
        let losses = program.losses;
        lost += losses.unattributed + losses.read_failed + losses.table_full + losses.claim_busy;
    }
    println!("{total} events, {lost} lost or unattributed, {checks} lookups checked");
    assert!(lost * 10_000 < total, "{lost} of {total} events were not attributed: {:?}", after.programs);
    assert_eq!(after.proof.mismatches, 0, "{:?}", after.proof);
    assert!(checks > 100, "the proof went on while the events ran: {checks} checks");
}

#[test]
fn every_kmalloc_cache_hands_out_objects_of_its_own_stride() {
    let mut probe = start_probe();
    drop(slabmon_load::held::pipes(500).unwrap());
    let sample = drain(&mut probe);
    let text = std::fs::read_to_string("/proc/slabinfo").unwrap();
    let mut compared = 0;
    for line in text.lines().skip(2) {
        let mut fields = line.split_whitespace();
        let (Some(name), Some(stride)) = (fields.next(), fields.nth(2)) else { continue };
        for cache in sample.caches.iter().filter(|cache| &*cache.name == name) {
            assert_eq!(cache.size_bytes.map(u64::from), stride.parse().ok(), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} caches had events");
}
