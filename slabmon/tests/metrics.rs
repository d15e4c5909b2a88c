//! `/metrics` from a canned snapshot: golden files, the table that documents it, and promtool's opinion.
//!
//! `UPDATE_GOLDEN=1 cargo test -p slabmon --test metrics` writes the golden files and docs/metrics.md anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::{
    collections::{BTreeSet, HashSet},
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use slabmon::{
    metrics::{
        BuildInfo, METRICS, MetricKind, MetricsContext, ProcessStats, encode_openmetrics, encode_text, metrics_markdown,
    },
    model::{
        derive::{Deriver, SnapshotInput},
        limits::{CachePatterns, SeriesBudget, SeriesChoice, detail_series_of, series_of},
        sample::{
            CacheCounts, CacheId, CounterKind, CounterSample, EventCounts, LookupProof, LossCounts, MachineSample,
            MeminfoSample, PageFacts, ProgramCounts, SlabRow, SlabinfoSample, TableUse,
        },
        snapshot::{CacheView, CollectorState, Feature, HostFact, SlabAttributes, Snapshot},
    },
};

/// A name with all that an exposition must escape. The kernel prints names as they are.
const ODD_NAME: &str = "my\"quoted\\cache";

fn row(name: &str, figures: [u64; 6]) -> SlabRow {
    let [active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs] = figures;
    SlabRow { name: name.into(), active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs }
}

/// Names and figures of public reports: Linux 6.10.3 with slab debugging (file_lock_cache twice, kmalloc-8k, page->ptl),
/// https://github.com/prometheus/node_exporter/issues/3506 (mlx5_fs_ftes), and names that try the escaping.
fn rows() -> Vec<SlabRow> {
    vec![
        row("ipc ports", [120, 168, 168, 24, 1, 7]),
        row(ODD_NAME, [3, 16, 256, 16, 1, 1]),
        row("caché-日本", [2, 21, 192, 21, 1, 1]),
        row("two\nlines", [1, 1, 4096, 1, 1, 1]),
        row("mlx5_fs_ftes", [44, 44, 736, 44, 8, 1]),
        row("mlx5_fs_ftes", [396, 396, 736, 44, 8, 9]),
        row("file_lock_cache", [0, 0, 280, 29, 2, 0]),
        row("file_lock_cache", [0, 26, 312, 26, 2, 1]),
        row("dentry", [1674, 1700, 320, 25, 2, 68]),
        row("page->ptl", [39, 96, 128, 32, 1, 3]),
        row("kmalloc-8k", [9, 9, 24576, 1, 8, 9]),
        row("kmalloc-64", [1881, 1888, 256, 32, 2, 59]),
    ]
}

fn counted(id: u32, kind: CounterKind, name: &str, counts: EventCounts) -> CacheCounts {
    CacheCounts { id: CacheId(id), kind, name: name.into(), size_bytes: None, object_size_bytes: None, counts }
}

fn drain() -> CounterSample {
    let dentry = EventCounts {
        // Above 2^53: a float would round it.
        allocations: u64::MAX,
        frees: (1 << 53) + 1,
        requested_bytes: 192_000,
        allocated_bytes: 320_000,
        freed_bytes: 288_000,
        failures: 0,
        ..EventCounts::default()
    };
    let bucket = EventCounts { allocations: 10, frees: 4, requested_bytes: 500, allocated_bytes: 640, ..dentry };
    let large = EventCounts { allocations: 2, frees: 1, requested_bytes: 40_000, allocated_bytes: 49_152, ..dentry };
    CounterSample {
        cpus: 2,
        at: Duration::from_secs(60),
        caches: vec![
            counted(1, CounterKind::Cache, "dentry", dentry),
            counted(2, CounterKind::Cache, "kmalloc-64", EventCounts { freed_bytes: 256, ..bucket }),
            counted(3, CounterKind::LargeKmalloc, "kmalloc-large", EventCounts { freed_bytes: 16_384, ..large }),
            counted(4, CounterKind::SizeClass, "kmalloc-64", EventCounts { failures: 3, ..EventCounts::default() }),
            counted(5, CounterKind::SizeClass, "kmalloc-4M", EventCounts { failures: 1, ..EventCounts::default() }),
        ],
        programs: vec![
            ProgramCounts {
                program: "kmalloc",
                counted: 18_446_744_073_709_551_615,
                missed: Some(12),
                losses: LossCounts { table_full: 1, claim_busy: 2, read_failed: 3, unattributed: 4 },
            },
            ProgramCounts {
                program: "kfree",
                counted: 70,
                missed: Some(0),
                losses: LossCounts { unattributed: 5, ..Default::default() },
            },
            ProgramCounts { program: "kmem_cache_free", counted: 80, missed: None, losses: LossCounts::default() },
            ProgramCounts { program: "free_bulk", counted: 17, missed: Some(0), losses: LossCounts::default() },
            ProgramCounts { program: "alloc_bulk", counted: 400, missed: Some(0), losses: LossCounts::default() },
        ],
        large_duplicates: 6,
        proof: LookupProof { checks: 1234, mismatches: 0 },
        table: TableUse { slots_per_cpu: 1024, used_on_fullest_cpu: 235 },
    }
}

fn features() -> Arc<[Feature]> {
    let feature = |name, enabled, reason: &str| Feature {
        name,
        enabled,
        reason: reason.to_owned(),
        remedy: "a remedy is for /status".to_owned(),
    };
    Arc::new([
        feature("slabinfo", true, "read"),
        feature("page_lookup", true, "proved by 1234 lookups"),
        feature("bulk_frees", false, "fentry is refused: Operation not permitted\nmore of it"),
    ])
}

fn canned_input() -> SnapshotInput {
    let collector = |collector, success| CollectorState {
        collector,
        success,
        duration: Duration::from_micros(220),
        error: (!success).then(|| "permission denied".to_owned()),
    };
    SnapshotInput {
        taken_at_unix_seconds: 1_770_000_060.25,
        uptime: Duration::from_secs(60),
        page_size_bytes: 4096,
        counters: Some(drain()),
        page_lookup: true,
        slabinfo: Some(Arc::new(SlabinfoSample {
            at: Duration::from_secs(55),
            at_unix_seconds: 1_770_000_055.5,
            rows: rows(),
        })),
        meminfo: Some(MeminfoSample {
            total_bytes: Some(8 << 30),
            available_bytes: Some(4 << 30),
            slab_bytes: Some(2_000_000),
            reclaimable_bytes: Some(1_200_000),
            unreclaimable_bytes: Some(800_000),
        }),
        attributes: Arc::new([("dentry".into(), Arc::new(dentry_attributes()))].into()),
        features: features(),
        collectors: vec![collector("slabinfo", true), collector("meminfo", true), collector("sysfs", false)],
        host: Arc::new([HostFact { name: "page_size_bytes", value: "4096".to_owned() }]),
        machine: MachineSample { pages: page_facts(), ..MachineSample::default() },
    }
}

fn canned_snapshot() -> Arc<Snapshot> {
    Arc::new(Deriver::new().derive(canned_input()))
}

/// A snapshot of a host where nothing can be read.
fn blind_snapshot() -> Arc<Snapshot> {
    Arc::new(Deriver::new().derive(SnapshotInput {
        counters: None,
        slabinfo: None,
        machine: MachineSample::default(),
        meminfo: None,
        features: Arc::default(),
        collectors: Vec::new(),
        ..canned_input()
    }))
}

fn dentry_attributes() -> SlabAttributes {
    SlabAttributes { object_size_bytes: Some(192), slab_size_bytes: Some(192), ..SlabAttributes::default() }
}

/// 8.5 GiB of RAM, half a GiB of it reserved at boot; 64 bytes of `struct page` for each page.
fn page_facts() -> PageFacts {
    PageFacts {
        page_struct_bytes: Some(64),
        page_struct_padding_bytes: Some(0),
        track_struct_bytes: None,
        present_pages: Some(17 << 17),
        memmap_pages: Some(17 << 11),
    }
}

fn context(series: SeriesChoice) -> MetricsContext {
    MetricsContext {
        build: BuildInfo { version: "0.1.0", revision: "0123abc", rustc: "1.95.0" },
        process: ProcessStats {
            cpu_seconds: Some(1.5),
            open_fds: Some(21),
            max_fds: Some(1024),
            virtual_bytes: Some(80 << 20),
            resident_bytes: Some(12 << 20),
            start_time_unix_seconds: Some(1_770_000_000.0),
        },
        series: Arc::new(series),
    }
}

fn context_of_all(snapshot: &Snapshot) -> MetricsContext {
    context(SeriesChoice::all(&snapshot.caches))
}

/// One sample line: `name{labels} value`, split at the value.
fn samples(exposition: &str) -> impl Iterator<Item = (&str, &str)> {
    exposition.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').expect(line))
}

fn sample_names(exposition: &str) -> BTreeSet<&str> {
    samples(exposition).map(|(series, _)| series.split('{').next().unwrap()).collect()
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Holds `text` against a file of the repository, or writes that file when UPDATE_GOLDEN is set.
fn assert_golden(path: &str, text: &str) {
    let file = repository().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        golden == text,
        "{path} is out of date; look at what changed, then run UPDATE_GOLDEN=1 cargo test -p slabmon --test metrics\n\
         first difference: {:?}",
        golden.lines().zip(text.lines()).find(|(golden, now)| golden != now)
    );
}

#[test]
fn the_text_exposition_is_as_agreed() {
    let snapshot = canned_snapshot();
    assert_golden("slabmon/tests/golden/metrics.prom", &encode_text(&snapshot, &context_of_all(&snapshot)).unwrap());
}

#[test]
fn the_openmetrics_exposition_is_as_agreed() {
    let snapshot = canned_snapshot();
    let exposition = encode_openmetrics(&snapshot, &context_of_all(&snapshot)).unwrap();
    assert!(exposition.ends_with("\n# EOF\n"));
    assert_golden("slabmon/tests/golden/metrics.openmetrics", &exposition);
}

#[test]
fn the_documentation_is_generated_from_the_table() {
    assert_golden("docs/metrics.md", &metrics_markdown());
}

#[test]
fn both_formats_carry_the_same_samples() {
    let snapshot = canned_snapshot();
    let context = context_of_all(&snapshot);
    let text = encode_text(&snapshot, &context).unwrap();
    let openmetrics = encode_openmetrics(&snapshot, &context).unwrap();
    assert!(samples(&text).eq(samples(&openmetrics)));
}

#[test]
fn every_metric_of_the_table_is_exposed_and_no_other() {
    let snapshot = canned_snapshot();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    let table: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(sample_names(&exposition), table);
}

#[test]
fn type_help_and_labels_are_those_of_the_table() {
    let snapshot = canned_snapshot();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    for metric in METRICS {
        let kind = if metric.kind == MetricKind::Info { "gauge" } else { metric.kind.as_str() };
        assert!(exposition.contains(&format!("# HELP {} {}\n", metric.name, metric.help)), "{}", metric.name);
        assert!(exposition.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
        for (series, _) in samples(&exposition).filter(|(series, _)| series.split('{').next() == Some(metric.name)) {
            match metric.labels {
                [] => assert_eq!(series, metric.name),
                [first, ..] => assert!(series.starts_with(&format!("{}{{{first}=\"", metric.name)), "{series}"),
            }
        }
    }
}

#[test]
fn no_series_comes_twice() {
    let mut input = canned_input();
    // A reader that reported twice must not spoil the scrape.
    input.collectors.extend(input.collectors.clone());
    input.features = input.features.iter().chain(input.features.iter()).cloned().collect();
    if let Some(counters) = &mut input.counters {
        counters.programs.extend(counters.programs.clone());
    }
    let snapshot = Arc::new(Deriver::new().derive(input));
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    let mut seen = HashSet::new();
    for (series, _) in samples(&exposition) {
        assert!(seen.insert(series), "{series}");
    }
}

#[test]
fn the_order_of_what_was_read_does_not_change_the_exposition() {
    let snapshot = canned_snapshot();
    let mut input = canned_input();
    input.collectors.reverse();
    input.features = input.features.iter().rev().cloned().collect();
    if let Some(counters) = &mut input.counters {
        counters.caches.reverse();
        counters.programs.reverse();
    }
    let turned = Arc::new(Deriver::new().derive(input));
    let context = context_of_all(&snapshot);
    assert_eq!(encode_text(&snapshot, &context).unwrap(), encode_text(&turned, &context).unwrap());
}

#[test]
fn counters_are_exact_to_64_bits() {
    let snapshot = canned_snapshot();
    let context = context_of_all(&snapshot);
    for exposition in [encode_text(&snapshot, &context).unwrap(), encode_openmetrics(&snapshot, &context).unwrap()] {
        assert!(exposition.contains("slabmon_cache_allocations_total{cache=\"dentry\"} 18446744073709551615\n"));
        assert!(exposition.contains("slabmon_cache_frees_total{cache=\"dentry\"} 9007199254740993\n"));
    }
}

#[test]
fn odd_names_are_escaped() {
    let snapshot = canned_snapshot();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    for label in [r#"my\"quoted\\cache"#, r"two\nlines", "caché-日本", "ipc ports", "page->ptl"] {
        assert!(exposition.contains(&format!("slabmon_cache_objects{{cache=\"{label}\"}}")), "{label}");
    }
}

#[test]
fn a_gap_may_be_negative() {
    let mut input = canned_input();
    input.meminfo = Some(MeminfoSample { slab_bytes: Some(0), ..MeminfoSample::default() });
    let snapshot = Arc::new(Deriver::new().derive(input));
    let caches_bytes = snapshot.memory.caches_bytes.unwrap();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    assert!(exposition.contains(&format!("slabmon_memory_unexplained_bytes -{caches_bytes}\n")));
}

#[test]
fn what_is_unknown_has_no_series_and_no_header() {
    let snapshot = blind_snapshot();
    let exposition = encode_text(&snapshot, &MetricsContext::default()).unwrap();
    assert_eq!(
        sample_names(&exposition).into_iter().collect::<Vec<_>>(),
        ["slabmon_build_info", "slabmon_series_dropped", "slabmon_snapshot_timestamp_seconds"]
    );
    assert_eq!(exposition.lines().filter(|line| line.starts_with("# TYPE ")).count(), 3);
}

#[test]
fn without_tracing_caches_have_gauges_and_no_counters() {
    let snapshot = Arc::new(Deriver::new().derive(SnapshotInput { counters: None, ..canned_input() }));
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    assert!(exposition.contains("slabmon_cache_memory_bytes{cache=\"dentry\"}"));
    for absent in ["slabmon_cache_allocations_total", "slabmon_events_", "slabmon_lookup_", "slabmon_table_"] {
        assert!(!exposition.contains(absent), "{absent}");
    }
}

#[test]
fn a_cache_has_as_many_series_as_the_budget_takes_it_for() {
    let snapshot = canned_snapshot();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    let series = samples(&exposition).filter(|(series, _)| series.contains("{cache=\"")).count();
    let taken_for = |cache| series_of(cache) + detail_series_of(cache);
    assert_eq!(series, snapshot.caches.iter().map(taken_for).sum::<usize>());
    assert_eq!(series, SeriesChoice::all(&snapshot.caches).kept_series);
}

#[test]
fn what_the_budget_and_the_patterns_left_out_is_counted_and_not_shown() {
    let snapshot = canned_snapshot();
    let patterns = CachePatterns::new::<&str>(&[], &["^ipc"]).unwrap();
    let choice = SeriesBudget::new(patterns.clone(), 40).choose(&snapshot.caches);
    let of_details = |cache: &CacheView| if patterns.admit(&cache.name) { detail_series_of(cache) } else { 0 };
    let all: usize = snapshot.caches.iter().map(|cache| series_of(cache) + of_details(cache)).sum();
    let exposition = encode_text(&snapshot, &context(choice.clone())).unwrap();
    let shown = samples(&exposition).filter(|(series, _)| series.contains("{cache=\"")).count();
    assert!(shown <= 40 && shown == choice.kept_series);
    assert_eq!(all, shown + choice.by_budget.series + choice.by_pattern.series);
    assert!(!exposition.contains("ipc ports"));
    assert!(exposition.contains("slabmon_series_dropped{reason=\"pattern\"} 13\n"));
    assert!(exposition.contains(&format!("slabmon_series_dropped{{reason=\"budget\"}} {}\n", choice.by_budget.series)));
    // The total keeps them.
    assert!(exposition.contains(&format!("slabmon_memory_caches_bytes {}\n", snapshot.memory.caches_bytes.unwrap())));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_text_exposition() {
    let snapshot = canned_snapshot();
    let exposition = encode_text(&snapshot, &context_of_all(&snapshot)).unwrap();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool must be installed: apt-get install prometheus");
    promtool.stdin.take().unwrap().write_all(exposition.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "promtool: {} {said}", output.status);
}
