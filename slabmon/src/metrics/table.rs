//! The one table of all metrics: what each is called and means, and where its samples come from.

use std::{collections::BTreeMap, fmt};

use prometheus_client::{metrics::MetricType, registry::Unit};

use super::exposition::{Family, Source};
use crate::model::{
    drift::unseen_frees,
    sample::{LossCounts, ProgramCounts},
    snapshot::{Feature, MemoryTotals, Snapshot},
    struct_page::struct_page,
    waste::Part,
    whole::whole,
};

/// What a metric's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, until its cache or the daemon starts anew.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; says what it says by its labels.
    Info,
}

impl MetricKind {
    /// As in the documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }

    pub(super) fn encoded(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Info => MetricType::Info,
        }
    }
}

/// The unit of a metric's values, which ends its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl MetricUnit {
    /// As in the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
        }
    }

    pub(super) fn encoded(self) -> &'static Unit {
        const BYTES: &Unit = &Unit::Bytes;
        const SECONDS: &Unit = &Unit::Seconds;
        match self {
            Self::Bytes => BYTES,
            Self::Seconds => SECONDS,
        }
    }
}

/// One metric.
pub struct Metric {
    /// As scraped.
    pub name: &'static str,
    /// What its values do.
    pub kind: MetricKind,
    /// The unit in its name.
    pub unit: Option<MetricUnit>,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, in one line without backslash or quote: prometheus-client does not escape HELP in OpenMetrics.
    pub help: &'static str,
    /// Writes its samples.
    pub(super) write: fn(&Source, &mut Family) -> fmt::Result,
}

impl Metric {
    /// The name without type suffix and unit, which the encoder appends.
    pub(super) fn stem(&self) -> &'static str {
        let name = match self.kind {
            MetricKind::Counter => self.name.strip_suffix("_total"),
            MetricKind::Info => self.name.strip_suffix("_info"),
            MetricKind::Gauge => None,
        }
        .unwrap_or(self.name);
        self.unit.and_then(|unit| name.strip_suffix(unit.as_str())?.strip_suffix('_')).unwrap_or(name)
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metric").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

const CACHE: &[&str] = &["cache"];
const NO_LABELS: &[&str] = &[];
const BYTES: Option<MetricUnit> = Some(MetricUnit::Bytes);
const SECONDS: Option<MetricUnit> = Some(MetricUnit::Seconds);

/// Characters of a feature's reason that go into a label.
const MAX_REASON_CHARS: usize = 100;

/// All metrics, sorted by name: the order of the exposition.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "process_cpu_seconds_total",
        kind: MetricKind::Counter,
        unit: SECONDS,
        labels: NO_LABELS,
        help: "User and system CPU time that the daemon spent, in seconds.",
        write: |source, family| family.write_some(&[], source.context.process.cpu_seconds),
    },
    Metric {
        name: "process_max_fds",
        kind: MetricKind::Gauge,
        unit: None,
        labels: NO_LABELS,
        help: "Most file descriptors that the daemon may have open.",
        write: |source, family| family.write_some(&[], source.context.process.max_fds),
    },
    Metric {
        name: "process_open_fds",
        kind: MetricKind::Gauge,
        unit: None,
        labels: NO_LABELS,
        help: "File descriptors that the daemon has open.",
        write: |source, family| family.write_some(&[], source.context.process.open_fds),
    },
    Metric {
        name: "process_resident_memory_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Resident memory of the daemon.",
        write: |source, family| family.write_some(&[], source.context.process.resident_bytes),
    },
    Metric {
        name: "process_start_time_seconds",
        kind: MetricKind::Gauge,
        unit: SECONDS,
        labels: NO_LABELS,
        help: "When the daemon was started, in seconds of Unix time.",
        write: |source, family| family.write_some(&[], source.context.process.start_time_unix_seconds),
    },
    Metric {
        name: "process_virtual_memory_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Address space of the daemon.",
        write: |source, family| family.write_some(&[], source.context.process.virtual_bytes),
    },
    Metric {
        name: "slabmon_build_info",
        kind: MetricKind::Info,
        unit: None,
        labels: &["version", "revision", "rustc"],
        help: "What the daemon was built from.",
        write: |source, family| {
            let build = source.context.build;
            family.write(&[build.version, build.revision, build.rustc], 1_u64)
        },
    },
    Metric {
        name: "slabmon_cache_active_objects",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Objects in use by the meaning of /proc/slabinfo, which counts objects parked per CPU as in use.",
        write: |source, family| source.write_slabs(family, |slab| Some(slab.active_objects)),
    },
    Metric {
        name: "slabmon_cache_allocated_bytes_total",
        kind: MetricKind::Counter,
        unit: BYTES,
        labels: CACHE,
        help: "Bytes handed out by traced allocations, rounding included.",
        write: |source, family| source.write_counts(family, |counts| counts.allocated_bytes),
    },
    Metric {
        name: "slabmon_cache_allocation_failures_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: CACHE,
        help: "Traced allocations that returned no object.",
        write: |source, family| source.write_counts(family, |counts| counts.failures),
    },
    Metric {
        name: "slabmon_cache_allocations_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: CACHE,
        help: "Traced allocations that returned an object.",
        write: |source, family| source.write_counts(family, |counts| counts.allocations),
    },
    Metric {
        name: "slabmon_cache_drift_bound_objects",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "How much of the drift can be an error of slabinfo's own. Only the largest caches. Absent where sysfs does not tell.",
        write: |source, family| source.write_drift(family, |drift| drift.bound_objects),
    },
    Metric {
        name: "slabmon_cache_drift_objects",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Allocations less frees less the change of slabinfo's active objects: frees that nobody saw. Only the largest caches.",
        write: |source, family| source.write_drift(family, |drift| Some(drift.objects)),
    },
    Metric {
        name: "slabmon_cache_freed_bytes_total",
        kind: MetricKind::Counter,
        unit: BYTES,
        labels: CACHE,
        help: "Bytes given back by traced frees, by the measure of the allocated bytes.",
        write: |source, family| source.write_counts(family, |counts| counts.freed_bytes),
    },
    Metric {
        name: "slabmon_cache_frees_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: CACHE,
        help: "Traced frees of an object. Those that fire no event are in it where a hook counts them.",
        write: |source, family| source.write_counts(family, |counts| counts.frees),
    },
    Metric {
        name: "slabmon_cache_memory_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: CACHE,
        help: "Memory that the cache holds: slabs times pages per slab times page size.",
        write: |source, family| source.write_slabs(family, |slab| Some(slab.memory_bytes)),
    },
    Metric {
        name: "slabmon_cache_object_size_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: CACHE,
        help: "Space of one object in its slab, alignment and debugging included. Absent where caches of one name differ.",
        write: |source, family| source.write_slabs(family, |slab| slab.object_size_bytes),
    },
    Metric {
        name: "slabmon_cache_objects",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Objects that the slabs of the cache have room for.",
        write: |source, family| source.write_slabs(family, |slab| Some(slab.objects)),
    },
    Metric {
        name: "slabmon_cache_objects_per_slab",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Objects that one slab has room for. Absent where caches of one name differ.",
        write: |source, family| source.write_slabs(family, |slab| slab.objects_per_slab),
    },
    Metric {
        name: "slabmon_cache_pages_per_slab",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Pages of one slab. Absent where caches of one name differ.",
        write: |source, family| source.write_slabs(family, |slab| slab.pages_per_slab),
    },
    Metric {
        name: "slabmon_cache_requested_bytes_total",
        kind: MetricKind::Counter,
        unit: BYTES,
        labels: CACHE,
        help: "Bytes asked for by traced allocations.",
        write: |source, family| source.write_counts(family, |counts| counts.requested_bytes),
    },
    Metric {
        name: "slabmon_cache_slabs",
        kind: MetricKind::Gauge,
        unit: None,
        labels: CACHE,
        help: "Slabs of the cache.",
        write: |source, family| source.write_slabs(family, |slab| Some(slab.slabs)),
    },
    Metric {
        name: "slabmon_cache_waste_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: &["cache", "kind"],
        help: "Memory of the cache that nobody asked for. Only the largest caches, and the kinds that are known.",
        write: |source, family| source.write_waste(family),
    },
    Metric {
        name: "slabmon_collector_duration_seconds",
        kind: MetricKind::Gauge,
        unit: SECONDS,
        labels: &["collector"],
        help: "How long the last attempt of the collector took.",
        write: |source, family| {
            for (name, state) in by_name(&source.snapshot.collectors, |state| state.collector) {
                family.write(&[name], state.duration.as_secs_f64())?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_collector_success",
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["collector"],
        help: "1 if the last attempt of the collector succeeded, 0 if it failed.",
        write: |source, family| {
            for (name, state) in by_name(&source.snapshot.collectors, |state| state.collector) {
                family.write(&[name], u64::from(state.success))?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_events_dropped_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: &["reason"],
        help: "Events that a program got and could not count.",
        write: |source, family| {
            if !is_traced(source.snapshot) {
                return Ok(());
            }
            let dropped = |count: fn(&LossCounts) -> u64| sum_losses(&source.snapshot.programs, count);
            family.write(&["claim_busy"], dropped(|losses| losses.claim_busy))?;
            family.write(&["read_failed"], dropped(|losses| losses.read_failed))?;
            family.write(&["table_full"], dropped(|losses| losses.table_full))
        },
    },
    Metric {
        name: "slabmon_events_missed_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: &["program"],
        help: "Events that the kernel did not deliver to the program. Absent on kernels that do not count them.",
        write: |source, family| {
            for (name, program) in by_name(&source.snapshot.programs, |program| program.program) {
                family.write_some(&[name], program.missed)?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_events_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: &["program"],
        help: "Events that the program counted, failed allocations and left-out duplicates included.",
        write: |source, family| {
            for (name, program) in by_name(&source.snapshot.programs, |program| program.program) {
                family.write(&[name], program.counted)?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_events_unattributed_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: NO_LABELS,
        help: "Events that a program got and could not put down to a cache.",
        write: |source, family| {
            let unattributed = sum_losses(&source.snapshot.programs, |losses| losses.unattributed);
            family.write_some(&[], is_traced(source.snapshot).then_some(unattributed))
        },
    },
    Metric {
        name: "slabmon_feature_enabled",
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["feature", "reason"],
        help: "1 if the optional part works on this host; 0 if not, with the reason.",
        write: |source, family| {
            for (name, feature) in by_name(&source.snapshot.features, |feature| feature.name) {
                family.write(&[name, &reason_label(feature)], u64::from(feature.enabled))?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_frees_hooked_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: NO_LABELS,
        help: "Objects freed by paths that fire no event and counted by a hook. Absent where nothing is hooked.",
        write: |source, family| family.write_some(&[], hooked_frees(&source.snapshot.programs)),
    },
    Metric {
        name: "slabmon_frees_inferred",
        kind: MetricKind::Gauge,
        unit: None,
        labels: NO_LABELS,
        help: "Frees that nobody saw, over all caches, as far as their drift tells: what is beyond the error of slabinfo.",
        write: |source, family| family.write_some(&[], unseen_frees(&source.snapshot.caches)),
    },
    Metric {
        name: "slabmon_large_kmalloc_duplicates_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: NO_LABELS,
        help: "Events of large kmallocs left out because the kernel fires two for one allocation.",
        write: |source, family| {
            family.write_some(&[], is_traced(source.snapshot).then_some(source.snapshot.large_duplicates))
        },
    },
    Metric {
        name: "slabmon_lookup_checks_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: NO_LABELS,
        help: "Page lookups held against the cache that the event itself carries.",
        write: |source, family| family.write_some(&[], source.snapshot.proof.map(|proof| proof.checks)),
    },
    Metric {
        name: "slabmon_lookup_mismatches_total",
        kind: MetricKind::Counter,
        unit: None,
        labels: NO_LABELS,
        help: "Page lookups that gave another cache than the event itself carries.",
        write: |source, family| family.write_some(&[], source.snapshot.proof.map(|proof| proof.mismatches)),
    },
    Metric {
        name: "slabmon_memory_boot_reserved_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Physical memory less MemTotal: kernel image, memory map, and what was set aside at boot.",
        write: |source, family| family.write_some(&[], struct_page(source.snapshot).boot_reserved_bytes),
    },
    Metric {
        name: "slabmon_memory_caches_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Memory that all caches of /proc/slabinfo hold, those without series included.",
        write: |source, family| source.write_memory(family, |memory| memory.caches_bytes),
    },
    Metric {
        name: "slabmon_memory_large_kmalloc_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Large kmallocs since attach that are not freed: whole pages in no cache. Absent if more were freed than allocated.",
        write: |source, family| family.write_some(&[], whole(source.snapshot).large_kmalloc_bytes),
    },
    Metric {
        name: "slabmon_memory_reclaimable_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "SReclaimable of /proc/meminfo.",
        write: |source, family| source.write_memory(family, |memory| memory.reclaimable_bytes),
    },
    Metric {
        name: "slabmon_memory_requested_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "What live objects of all caches were asked for, as far as it is known.",
        write: |source, family| family.write_some(&[], source.waterfall.and_then(|all| all.requested_bytes)),
    },
    Metric {
        name: "slabmon_memory_slab_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Slab of /proc/meminfo.",
        write: |source, family| source.write_memory(family, |memory| memory.slab_bytes),
    },
    Metric {
        name: "slabmon_memory_total_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "MemTotal of /proc/meminfo.",
        write: |source, family| source.write_memory(family, |memory| memory.total_bytes),
    },
    Metric {
        name: "slabmon_memory_unexplained_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Slab of /proc/meminfo less the memory of all caches: large kmallocs and counter drift. May be negative.",
        write: |source, family| family.write_some(&[], source.snapshot.memory.unexplained_bytes),
    },
    Metric {
        name: "slabmon_memory_unreclaimable_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "SUnreclaim of /proc/meminfo.",
        write: |source, family| source.write_memory(family, |memory| memory.unreclaimable_bytes),
    },
    Metric {
        name: "slabmon_memory_waste_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: &["kind"],
        help: "Memory of all caches that nobody asked for, as far as it is known; the kind unknown is live and cannot be told apart.",
        write: |source, family| {
            let Some(all) = &source.waterfall else { return Ok(()) };
            for part in Part::WASTE.into_iter().chain([Part::Unknown]) {
                family.write_some(&[part.as_str()], all.part_bytes(part))?;
            }
            Ok(())
        },
    },
    Metric {
        name: "slabmon_series_dropped",
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["reason"],
        help: "Series of caches left out of this exposition by the series budget or the name patterns.",
        write: |source, family| {
            let series = &source.context.series;
            family.write(&["budget"], count(series.by_budget.series))?;
            family.write(&["pattern"], count(series.by_pattern.series))
        },
    },
    Metric {
        name: "slabmon_slabinfo_timestamp_seconds",
        kind: MetricKind::Gauge,
        unit: SECONDS,
        labels: NO_LABELS,
        help: "When /proc/slabinfo was last read, in seconds of Unix time.",
        write: |source, family| family.write_some(&[], source.snapshot.slabinfo_at_unix_seconds),
    },
    Metric {
        name: "slabmon_snapshot_timestamp_seconds",
        kind: MetricKind::Gauge,
        unit: SECONDS,
        labels: NO_LABELS,
        help: "When the counters were last read, in seconds of Unix time: a scrape reads nothing itself.",
        write: |source, family| family.write(&[], source.snapshot.taken_at_unix_seconds),
    },
    Metric {
        name: "slabmon_struct_page_memmap_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: &["source"],
        help: "Memory map: all struct pages, by the kernel's own count (vmstat) or computed.",
        write: |source, family| {
            let memmap = struct_page(source.snapshot).memmap;
            memmap.map_or(Ok(()), |(bytes, from)| family.write(&[from.as_str()], bytes))
        },
    },
    Metric {
        name: "slabmon_struct_page_padding_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Bytes of one struct page that belong to no member, by BTF.",
        write: |source, family| family.write_some(&[], struct_page(source.snapshot).padding_bytes),
    },
    Metric {
        name: "slabmon_struct_page_pages",
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["source"],
        help: "Pages of the machine, each described by a struct page.",
        write: |source, family| {
            let pages = struct_page(source.snapshot).pages;
            pages.map_or(Ok(()), |(pages, from)| family.write(&[from.as_str()], pages))
        },
    },
    Metric {
        name: "slabmon_struct_page_size_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "Size of struct page, by BTF.",
        write: |source, family| family.write_some(&[], struct_page(source.snapshot).size_bytes),
    },
    Metric {
        name: "slabmon_struct_page_slab_bytes",
        kind: MetricKind::Gauge,
        unit: BYTES,
        labels: NO_LABELS,
        help: "The part of the memory map that describes slab pages.",
        write: |source, family| family.write_some(&[], struct_page(source.snapshot).slab_part_bytes),
    },
    Metric {
        name: "slabmon_table_slots_per_cpu",
        kind: MetricKind::Gauge,
        unit: None,
        labels: NO_LABELS,
        help: "Slots of the counter table that each CPU has.",
        write: |source, family| {
            family.write_some(&[], source.snapshot.table.map(|table| u64::from(table.slots_per_cpu)))
        },
    },
    Metric {
        name: "slabmon_table_slots_used",
        kind: MetricKind::Gauge,
        unit: None,
        labels: NO_LABELS,
        help: "Slots of the counter table in use on the fullest CPU.",
        write: |source, family| {
            family.write_some(&[], source.snapshot.table.map(|table| u64::from(table.used_on_fullest_cpu)))
        },
    },
];

impl Source<'_> {
    fn write_memory(&self, family: &mut Family, total: impl Fn(&MemoryTotals) -> Option<u64>) -> fmt::Result {
        family.write_some(&[], total(&self.snapshot.memory))
    }
}

/// Items sorted by their name. Of two with one name the last counts: a series that came twice would spoil the scrape.
fn by_name<T>(items: &[T], name: impl Fn(&T) -> &'static str) -> BTreeMap<&'static str, &T> {
    items.iter().map(|item| (name(item), item)).collect()
}

fn is_traced(snapshot: &Snapshot) -> bool {
    snapshot.table.is_some()
}

fn sum_losses(programs: &[ProgramCounts], loss: fn(&LossCounts) -> u64) -> u64 {
    programs.iter().fold(0, |sum: u64, program| sum.saturating_add(loss(&program.losses)))
}

/// Objects that the hooks on frees counted; `None` if there is no such hook.
fn hooked_frees(programs: &[ProgramCounts]) -> Option<u64> {
    let hooks = programs.iter().filter(|counts| counts.counts_hooked_frees());
    hooks.map(|counts| counts.counted).reduce(u64::saturating_add)
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Empty for what works: a label that says how would make a new series each time it works otherwise.
fn reason_label(feature: &Feature) -> String {
    if feature.enabled {
        return String::new();
    }
    let line = feature.reason.lines().next().unwrap_or_default().trim();
    match line.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_are_unique() {
        assert!(METRICS.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn a_name_ends_with_its_unit_and_the_suffix_of_its_type() {
        for metric in METRICS {
            let unit = metric.unit.map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
            let suffix = match metric.kind {
                MetricKind::Counter => "_total",
                MetricKind::Gauge => "",
                MetricKind::Info => "_info",
            };
            assert_eq!(metric.name, format!("{}{unit}{suffix}", metric.stem()));
            assert!(metric.kind == MetricKind::Counter || !metric.name.ends_with("_total"), "{}", metric.name);
            assert!(
                metric.unit.is_some() || !(metric.stem().ends_with("_bytes") || metric.stem().ends_with("_seconds")),
                "{}",
                metric.name
            );
        }
    }

    #[test]
    fn names_and_labels_are_valid() {
        let valid = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        for metric in METRICS {
            assert!(valid(metric.name) && metric.labels.iter().all(|label| valid(label)), "{}", metric.name);
        }
    }

    #[test]
    fn help_is_one_sentence_or_more_without_characters_that_need_escaping() {
        for metric in METRICS {
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert!(metric.help.is_ascii() && !metric.help.contains(['\\', '"', '\n', '|']), "{}", metric.name);
        }
    }

    #[test]
    fn a_reason_becomes_a_short_line() {
        let feature = |enabled, reason: &str| Feature {
            name: "page_lookup",
            enabled,
            reason: reason.to_owned(),
            remedy: String::new(),
        };
        assert_eq!(reason_label(&feature(true, "proved 1000 times")), "");
        assert_eq!(reason_label(&feature(false, "no BTF\nsecond line")), "no BTF");
        assert_eq!(reason_label(&feature(false, &"é".repeat(150))), format!("{}…", "é".repeat(100)));
        assert_eq!(reason_label(&feature(false, &"é".repeat(100))), "é".repeat(100));
    }
}
