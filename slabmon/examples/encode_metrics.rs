//! How long one `/metrics` takes to encode: `cargo run --release -p slabmon --example encode_metrics`.
//!
//! For 250 caches (a usual host) and 5,000, both formats: the median and the slowest of 200 runs, and the size.

#![allow(clippy::print_stdout)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use slabmon::{
    metrics::{Format, MetricsContext, MetricsError, encode},
    model::{
        derive::{Deriver, SnapshotInput},
        limits::SeriesChoice,
        sample::{CacheCounts, CacheId, CounterKind, CounterSample, EventCounts, SlabRow, SlabinfoSample},
        snapshot::Snapshot,
    },
};

const RUNS: usize = 200;

fn main() -> Result<(), MetricsError> {
    for caches in [250, 5_000] {
        let input = busy_host(caches);
        let mut deriver = Deriver::new();
        deriver.derive(input.clone());
        let (derive_time, snapshot) = time(|| deriver.derive(input));
        let snapshot: Arc<Snapshot> = Arc::new(snapshot);
        println!("{caches} caches: derive {derive_time:?}");
        let context =
            MetricsContext { series: Arc::new(SeriesChoice::all(&snapshot.caches)), ..MetricsContext::default() };
        for format in [Format::Text, Format::OpenMetrics] {
            let mut times = Vec::with_capacity(RUNS);
            let mut bytes = 0;
            for _run in 0..RUNS {
                let (elapsed, exposition) = time(|| encode(format, &snapshot, &context));
                times.push(elapsed);
                bytes = exposition?.len();
            }
            times.sort_unstable();
            println!(
                "{caches} caches, {format:?}: median {:?}, slowest {:?}, {bytes} bytes, {} series of caches",
                times[RUNS / 2],
                times[RUNS - 1],
                context.series.kept_series
            );
        }
    }
    Ok(())
}

fn time<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// `caches` traced caches with figures of many digits.
fn busy_host(caches: u32) -> SnapshotInput {
    let name = |index: u32| -> Arc<str> { format!("some_inode_cache_{index:04}").into() };
    let large = |index: u32| u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let counted = |index| CacheCounts {
        id: CacheId(index),
        kind: CounterKind::Cache,
        name: name(index),
        size_bytes: Some(1088),
        object_size_bytes: Some(1080),
        counts: EventCounts {
            allocations: large(index),
            frees: large(index) / 2,
            requested_bytes: large(index),
            allocated_bytes: large(index),
            freed_bytes: large(index) / 2,
            ..EventCounts::default()
        },
    };
    let row = |index| SlabRow {
        name: name(index),
        active_objects: large(index) >> 20,
        objects: large(index) >> 19,
        object_size_bytes: 1088,
        objects_per_slab: 30,
        pages_per_slab: 8,
        slabs: large(index) >> 24,
    };
    SnapshotInput {
        taken_at_unix_seconds: 1_770_000_000.25,
        uptime: Duration::from_secs(1),
        page_size_bytes: 4096,
        counters: Some(CounterSample {
            cpus: 2,
            at: Duration::from_secs(1),
            caches: (0..caches).map(counted).collect(),
            programs: Vec::new(),
            large_duplicates: 0,
            proof: Default::default(),
            table: Default::default(),
        }),
        page_lookup: true,
        slabinfo: Some(Arc::new(SlabinfoSample {
            at: Duration::from_secs(1),
            at_unix_seconds: 1_770_000_000.0,
            rows: (0..caches).map(row).collect(),
        })),
        meminfo: None,
        attributes: Arc::default(),
        features: Arc::default(),
        collectors: Vec::new(),
        host: Arc::default(),
        machine: Default::default(),
    }
}
