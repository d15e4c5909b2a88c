#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::model::{
    derive::{Deriver, SnapshotInput},
    sample::{DentryCounts, MachineSample, MeminfoSample, SlabRow, SlabinfoSample},
    samples::{input, row, snapshot, snapshot_with},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn judge(points: &[(u64, u64)]) -> &'static str {
    let points: Vec<_> = points.iter().map(|(minute, bytes)| (minutes(*minute), *bytes)).collect();
    let trend = Trend::of(&points);
    judge_growth(trend.as_ref(), Some(16 * GIB), Some(minutes(100_000)), Some(false), None).as_str()
}

fn verdict_names(snapshot: &Snapshot) -> Vec<&'static str> {
    findings(snapshot).iter().map(|finding| finding.verdict.as_str()).collect()
}

#[test]
fn a_series_that_slows_down_is_settling() {
    // SUnreclaim of a public report, kB, at 1, 10, 38 and 156 minutes: 721, 199 and 71 kB a minute.
    let series = [(1, 83_868), (10, 90_356), (38, 95_920), (156, 104_264)].map(|(minute, kib)| (minute, kib << 10));
    assert_eq!(judge(&series), "settling");
}

#[test]
fn a_straight_climb_above_the_floor_is_growing() {
    let climb = |per_minute: u64| (0..=60).map(|minute| (minute, GIB + minute * per_minute)).collect::<Vec<_>>();
    assert_eq!(judge(&climb(4 * MIB)), "growing");
    assert_eq!(judge(&climb(MIB / 8)), "steady", "7.5 MiB an hour are below the floor");
    assert_eq!(judge(&climb(MIB)), "steady", "60 MiB are less than a two-hundredth of 16 GiB");
}

#[test]
fn growth_that_was_not_watched_long_enough_gets_no_verdict() {
    let climb: Vec<_> = (0..=29).map(|minute| (minute, minute * 100 * MIB)).collect();
    assert_eq!(judge(&climb), "too_little_data");
    assert_eq!(judge(&[]), "too_little_data");
    let hour: Vec<_> = (0..=59).map(|minute| (minutes(minute), minute * 100 * MIB)).collect();
    let trend = Trend::of(&hour);
    let just_booted = judge_growth(trend.as_ref(), Some(16 * GIB), Some(minutes(59)), None, None);
    assert_eq!(just_booted.as_str(), "too_little_data", "a host that has just booted fills its caches");
    let few = Trend::of(&[(minutes(0), 0), (minutes(600), 10 * GIB)]);
    assert_eq!(judge_growth(few.as_ref(), None, None, None, None).as_str(), "too_little_data");
}

#[test]
fn what_moves_up_and_down_is_steady_and_what_has_free_room_is_no_leak() {
    let sawtooth: Vec<_> = (0..=60).map(|minute| (minute, GIB + minute % 10 * 100 * MIB + minute * 4 * MIB)).collect();
    assert_eq!(judge(&sawtooth), "steady");
    let climb: Vec<_> = (0..=60).map(|minute| (minutes(minute), minute * 100 * MIB)).collect();
    let trend = Trend::of(&climb);
    let half_empty = judge_growth(trend.as_ref(), None, None, None, Some(0.5));
    assert_eq!(half_empty.as_str(), "steady");
    let reclaimable = judge_growth(trend.as_ref(), None, None, Some(true), Some(1.0));
    assert_eq!(reclaimable.as_str(), "growing_reclaimable");
}

#[test]
fn a_leaking_cache_is_found_by_the_snapshots_alone() {
    let mut deriver = Deriver::new();
    let mut last = None;
    for minute in 0..=120u64 {
        let slabs = 10_000 + minute * 2000;
        let rows: Vec<SlabRow> =
            vec![row("kmalloc-64", [slabs * 64, slabs * 64, 64, 64, 1, slabs]), row("quiet", [64, 64, 64, 64, 1, 1])];
        let slabinfo = SlabinfoSample { at: minutes(minute), at_unix_seconds: 0.0, rows };
        let meminfo = MeminfoSample {
            total_bytes: Some(16 * GIB),
            slab_bytes: Some(slabs * 4096 + 4096),
            unreclaimable_bytes: Some(slabs * 4096 + 4096),
            ..MeminfoSample::default()
        };
        let machine = MachineSample { uptime: Some(minutes(minute + 1000)), ..MachineSample::default() };
        let slabinfo = Some(std::sync::Arc::new(slabinfo));
        last = Some(deriver.derive(SnapshotInput { slabinfo, meminfo: Some(meminfo), machine, ..input(Vec::new()) }));
    }
    let findings = findings(&last.unwrap());
    assert_eq!((findings[0].cache.as_deref(), findings[0].verdict.as_str()), (None, "growing"));
    let leak = findings.iter().find(|finding| finding.cache.is_some() && finding.verdict.as_str() == "growing");
    assert_eq!(leak.unwrap().cache.as_deref(), Some("kmalloc-64"));
}

#[test]
fn half_empty_slabs_are_fragmented_and_full_ones_are_not() {
    let half = snapshot(vec![row("dentry", [210_000, 420_000, 192, 21, 1, 20_000])]);
    assert_eq!(verdict_names(&half), ["fragmented", "fragmented", "too_little_data"], "the machine and its cache");
    let full = snapshot(vec![row("dentry", [400_000, 420_000, 192, 21, 1, 20_000])]);
    assert_eq!(verdict_names(&full), ["too_little_data"]);
    let small = snapshot(vec![row("dentry", [1, 420, 192, 21, 1, 20])]);
    assert_eq!(verdict_names(&small), ["too_little_data"]);
}

#[test]
fn a_dentry_cache_of_names_that_do_not_exist_is_no_leak() {
    let rows = vec![row("dentry", [2_369_308, 2_369_325, 192, 21, 1, 112_825])];
    let dentries = Some(DentryCounts { dentries: 2_368_980, unused: 2_357_899, negative: 2_318_380 });
    let machine = MachineSample { dentries, ..MachineSample::default() };
    let snapshot = Deriver::new().derive(SnapshotInput { machine, ..input(rows) });
    let findings = findings(&snapshot);
    let about_dentry: Vec<_> = findings.iter().filter(|finding| finding.cache.is_some()).collect();
    let held_bytes = 112_825 * 4096;
    let expected = Verdict::NegativeDentries { negative: 2_318_380, dentries: 2_368_980, held_bytes };
    assert_eq!(about_dentry.iter().map(|finding| &finding.verdict).collect::<Vec<_>>(), [&expected]);
    assert!(findings.iter().all(|finding| !finding.verdict.as_str().starts_with("growing")));
}

#[test]
fn slab_that_no_cache_holds_and_caches_that_hold_more_than_slab_are_told_apart() {
    let of_slab = |bytes: u64| {
        let rows = vec![row("dentry", [420_000, 420_000, 192, 21, 1, 20_000])];
        verdict_names(&snapshot_with(rows, MeminfoSample { slab_bytes: Some(bytes), ..MeminfoSample::default() }))
    };
    assert_eq!(of_slab(20_000 * 4096), ["too_little_data"]);
    assert_eq!(of_slab(20_000 * 4096 + 16 * MIB), ["not_in_any_cache", "too_little_data"]);
    assert_eq!(of_slab(20_000 * 4096 - 2 * MIB), ["counter_drift", "too_little_data"]);
}

#[test]
fn kmalloc_sizes_of_one_count_and_of_twice_it_are_one_story() {
    let bucket = |name: &str, objects: u64, size: u64| {
        let per_slab = 4096 / size;
        row(name, [objects, objects, size, per_slab, 1, objects.div_ceil(per_slab)])
    };
    let snapshot = snapshot(vec![
        bucket("kmalloc-96", 1_069_281, 96),
        bucket("kmalloc-192", 2_124_486, 192),
        bucket("kmalloc-256", 1_084_643, 256),
        bucket("kmalloc-512", 1_072_120, 512),
        bucket("kmalloc-1024", 1_069_376, 1024),
        bucket("kmalloc-32", 400_000, 32),
    ]);
    let equal = findings(&snapshot).into_iter().find(|finding| finding.verdict.as_str() == "equal_counts").unwrap();
    let Verdict::EqualCounts { caches, objects, .. } = equal.verdict else { panic!("equal counts") };
    assert_eq!(objects, 1_069_281);
    let mut names: Vec<&str> = caches.iter().map(|name| &**name).collect();
    names.sort_unstable();
    assert_eq!(names, ["kmalloc-1024", "kmalloc-192", "kmalloc-256", "kmalloc-512", "kmalloc-96"]);
}

#[test]
fn debugging_that_doubles_a_bucket_is_said() {
    let snapshot = snapshot(vec![row("kmalloc-1k", [2000, 2000, 3072, 10, 8, 200])]);
    let verdicts = cache_verdicts(&snapshot, &snapshot.caches[0]);
    let expected = Verdict::DebugPadding { padding_bytes: 2000 * 2048, held_bytes: 200 * 32_768 };
    assert_eq!(verdicts[1], expected);
    assert_eq!(verdict_names(&snapshot), ["debug_padding", "too_little_data"], "of the machine, and not once more");
}
