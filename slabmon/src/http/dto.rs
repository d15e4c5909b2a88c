//! What the API sends as JSON: the only types that derive `Serialize`.
//!
//! Names are those of the model, with their units; what is not known is `null`, never left out and never 0.

pub mod diff;
pub mod report;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    model::{
        drift::Drift,
        query::{Grouping, Row, Selection, TopQuery, is_reclaimable, use_ratio},
        sample::LossCounts,
        snapshot::{CacheView, EventRates, MemoryTotals, SlabAttributes, SlabState, Snapshot, Traced},
    },
    report::{Context, cache::kind_name, sections::ReportOptions, top},
};

/// Renders as indented JSON with a newline at the end.
///
/// Writing our own types to a string fails only if a `Serialize` implementation says so, and none does; should it ever,
/// the answer is JSON still.
pub fn to_json<T: Serialize>(value: &T) -> String {
    match serde_json::to_string_pretty(value) {
        Ok(mut text) => {
            text.push('\n');
            text
        }
        Err(error) => format!("{{\"error\":{{\"status\":500,\"message\":{:?}}}}}\n", error.to_string()),
    }
}

/// A refusal.
#[derive(Serialize)]
pub struct ErrorDto<'a> {
    /// What was wrong.
    pub error: ErrorBody<'a>,
}

/// What was wrong.
#[derive(Serialize)]
pub struct ErrorBody<'a> {
    /// HTTP status.
    pub status: u16,
    /// In words.
    pub message: &'a str,
    /// The query parameter that was wrong.
    pub parameter: Option<&'a str>,
    /// The values or names that would be right.
    pub allowed: Option<&'a Vec<String>>,
    /// Names like the one asked for.
    pub near: Option<&'a Vec<String>>,
}

/// Which snapshot an answer is from, and how old its numbers are.
#[derive(Serialize)]
pub struct SnapshotDto {
    sequence: u64,
    taken_at_unix_seconds: f64,
    age_seconds: f64,
    slabinfo_at_unix_seconds: Option<f64>,
    slabinfo_age_seconds: Option<f64>,
}

impl SnapshotDto {
    fn new(snapshot: &Snapshot, context: &Context) -> Self {
        Self {
            sequence: snapshot.sequence,
            taken_at_unix_seconds: snapshot.taken_at_unix_seconds,
            age_seconds: context.age.as_secs_f64(),
            slabinfo_at_unix_seconds: snapshot.slabinfo_at_unix_seconds,
            slabinfo_age_seconds: top::slabinfo_age_seconds(snapshot, context),
        }
    }
}

/// Totals of the machine.
#[derive(Serialize)]
pub struct MemoryDto {
    total_bytes: Option<u64>,
    available_bytes: Option<u64>,
    slab_bytes: Option<u64>,
    reclaimable_bytes: Option<u64>,
    unreclaimable_bytes: Option<u64>,
    caches_bytes: Option<u64>,
    unexplained_bytes: Option<i64>,
}

impl From<&MemoryTotals> for MemoryDto {
    fn from(memory: &MemoryTotals) -> Self {
        Self {
            total_bytes: memory.total_bytes,
            available_bytes: memory.available_bytes,
            slab_bytes: memory.slab_bytes,
            reclaimable_bytes: memory.reclaimable_bytes,
            unreclaimable_bytes: memory.unreclaimable_bytes,
            caches_bytes: memory.caches_bytes,
            unexplained_bytes: memory.unexplained_bytes,
        }
    }
}

/// Whether events are counted, and what was lost of them.
#[derive(Serialize)]
pub struct TracingDto {
    enabled: bool,
    programs: usize,
    events_missed: Option<u64>,
    events_lost: Option<LossesDto>,
}

impl TracingDto {
    fn new(snapshot: &Snapshot) -> Self {
        let enabled = !snapshot.programs.is_empty();
        Self {
            enabled,
            programs: snapshot.programs.len(),
            events_missed: enabled.then(|| top::total_missed(snapshot)).flatten(),
            events_lost: enabled.then(|| top::total_losses(snapshot).into()),
        }
    }
}

/// Events that came but were not counted, by reason.
#[derive(Serialize)]
pub struct LossesDto {
    table_full: u64,
    claim_busy: u64,
    read_failed: u64,
    unattributed: u64,
}

impl From<LossCounts> for LossesDto {
    fn from(losses: LossCounts) -> Self {
        Self {
            table_full: losses.table_full,
            claim_busy: losses.claim_busy,
            read_failed: losses.read_failed,
            unattributed: losses.unattributed,
        }
    }
}

/// What was asked.
#[derive(Serialize)]
pub struct QueryDto<'a> {
    by: &'static str,
    limit: Option<usize>,
    filter: Option<&'a str>,
    group: Option<&'static str>,
}

impl<'a> From<&'a TopQuery> for QueryDto<'a> {
    fn from(query: &'a TopQuery) -> Self {
        Self {
            by: query.by.as_str(),
            limit: query.limit,
            filter: query.filter.as_ref().map(regex::Regex::as_str),
            group: group_name(query.grouping),
        }
    }
}

fn group_name(grouping: Grouping) -> Option<&'static str> {
    match grouping {
        Grouping::Cache => None,
        Grouping::Class => Some("class"),
    }
}

/// Answer of `/caches` and `/caches/top`.
#[derive(Serialize)]
pub struct CachesDto<'a> {
    snapshot: SnapshotDto,
    memory: MemoryDto,
    tracing: TracingDto,
    query: QueryDto<'a>,
    /// Rows before the limit.
    matched: usize,
    caches: Vec<CacheDto<'a>>,
}

impl<'a> CachesDto<'a> {
    /// From the rows that `query` selected.
    pub fn new(snapshot: &Snapshot, query: &'a TopQuery, selection: &'a Selection<'a>, context: &Context) -> Self {
        Self {
            snapshot: SnapshotDto::new(snapshot, context),
            memory: (&snapshot.memory).into(),
            tracing: TracingDto::new(snapshot),
            query: query.into(),
            matched: selection.matched,
            caches: selection.rows.iter().map(CacheDto::from).collect(),
        }
    }
}

/// Answer of `/caches/{name}`.
#[derive(Serialize)]
pub struct OneCacheDto<'a> {
    snapshot: SnapshotDto,
    /// The name in the request.
    asked: &'a str,
    /// The cache's own name, where the name in the request is an alias of it.
    alias_of: Option<&'a str>,
    group: Option<&'static str>,
    cache: CacheDto<'a>,
    /// Where its bytes go, what a change would give back, and what the numbers mean; `null` for a size class.
    account: Option<report::AccountDto<'a>>,
    /// The caches of the size class, where one was asked for.
    members: Option<Vec<CacheDto<'a>>>,
}

impl<'a> OneCacheDto<'a> {
    /// One cache.
    pub fn cache(snapshot: &Snapshot, asked: &'a str, row: &'a Row<'a>, by_alias: bool, context: &Context) -> Self {
        Self {
            snapshot: SnapshotDto::new(snapshot, context),
            asked,
            alias_of: by_alias.then_some(&*row.view.name),
            group: None,
            cache: row.into(),
            account: Some(report::AccountDto::new(snapshot, &row.view, &ReportOptions::default())),
            members: None,
        }
    }

    /// One size class.
    pub fn class(snapshot: &Snapshot, asked: &'a str, row: &'a Row<'a>, context: &Context) -> Self {
        Self {
            snapshot: SnapshotDto::new(snapshot, context),
            asked,
            alias_of: None,
            group: group_name(Grouping::Class),
            cache: row.into(),
            account: None,
            members: row.members.as_ref().map(|members| members.iter().map(|view| CacheDto::of(view)).collect()),
        }
    }
}

/// One cache, or the sum of a size class.
#[derive(Serialize)]
pub struct CacheDto<'a> {
    name: &'a str,
    size_class: Option<SizeClassDto>,
    /// In no slabinfo row: large kmalloc, and classes counted without a cache.
    pseudo: bool,
    /// Whether the kernel can reclaim its objects.
    reclaimable: Option<bool>,
    /// Names of the caches that were summed.
    members: Option<Vec<&'a str>>,
    /// The alias that the filter matched, where the name did not.
    matched_alias: Option<&'a str>,
    slab: Option<SlabDto>,
    traced: Option<TracedDto>,
    attributes: Option<AttributesDto<'a>>,
}

#[derive(Serialize)]
struct SizeClassDto {
    bytes: u64,
    /// `null` for the sum of several kinds.
    kind: Option<&'static str>,
}

impl<'a> CacheDto<'a> {
    fn of(view: &'a CacheView) -> Self {
        Self {
            name: &view.name,
            size_class: view.class.map(|class| SizeClassDto { bytes: class.bytes, kind: Some(kind_name(class.kind)) }),
            pseudo: view.pseudo,
            reclaimable: is_reclaimable(view),
            members: None,
            matched_alias: None,
            slab: view.slab.as_ref().map(SlabDto::from),
            traced: view.traced.as_ref().map(TracedDto::from),
            attributes: view.attributes.as_deref().map(AttributesDto::from),
        }
    }
}

impl<'a> From<&'a Row<'a>> for CacheDto<'a> {
    fn from(row: &'a Row<'a>) -> Self {
        let mut dto = Self::of(&row.view);
        if let Some(members) = &row.members {
            dto.members = Some(members.iter().map(|member| &*member.name).collect());
            if let Some(class) = &mut dto.size_class {
                class.kind = None;
            }
        }
        dto.matched_alias = row.matched_alias.as_deref();
        dto
    }
}

/// What slabinfo says.
#[derive(Serialize)]
pub struct SlabDto {
    memory_bytes: u64,
    growth_bytes_per_second: Option<f64>,
    active_objects: u64,
    objects: u64,
    use_ratio: Option<f64>,
    object_size_bytes: Option<u64>,
    objects_per_slab: Option<u64>,
    pages_per_slab: Option<u64>,
    slabs: u64,
    slabinfo_rows: u32,
}

impl From<&SlabState> for SlabDto {
    fn from(slab: &SlabState) -> Self {
        Self {
            memory_bytes: slab.memory_bytes,
            growth_bytes_per_second: slab.growth_bytes_per_second,
            active_objects: slab.active_objects,
            objects: slab.objects,
            use_ratio: use_ratio(slab),
            object_size_bytes: slab.object_size_bytes,
            objects_per_slab: slab.objects_per_slab,
            pages_per_slab: slab.pages_per_slab,
            slabs: slab.slabs,
            slabinfo_rows: slab.rows,
        }
    }
}

/// What the probes counted since they were attached.
#[derive(Serialize)]
pub struct TracedDto {
    allocations: u64,
    frees: u64,
    requested_bytes: u64,
    allocated_bytes: u64,
    freed_bytes: u64,
    failures: u64,
    /// Part of `allocations`: by paths that fire no event.
    untraced_allocations: u64,
    /// Part of `frees`: by paths that fire no event.
    untraced_frees: u64,
    rates: Option<RatesDto>,
    drift: Option<DriftDto>,
}

/// Where the counters and slabinfo part since the daemon first had both. What lives is slabinfo's active objects.
#[derive(Serialize)]
pub struct DriftDto {
    /// Allocations - frees - change of slabinfo's active objects.
    objects: i64,
    /// How much of it slabinfo's own error can be; null where sysfs does not tell.
    bound_objects: Option<u64>,
    /// Frees that nobody saw, as far as the drift tells.
    inferred_frees: u64,
}

impl From<&Drift> for DriftDto {
    fn from(drift: &Drift) -> Self {
        Self { objects: drift.objects, bound_objects: drift.bound_objects, inferred_frees: drift.inferred_frees() }
    }
}

impl From<&Traced> for TracedDto {
    fn from(traced: &Traced) -> Self {
        let counts = traced.counts;
        Self {
            allocations: counts.allocations,
            frees: counts.frees,
            requested_bytes: counts.requested_bytes,
            allocated_bytes: counts.allocated_bytes,
            freed_bytes: counts.freed_bytes,
            failures: counts.failures,
            untraced_allocations: counts.untraced_allocations,
            untraced_frees: counts.untraced_frees,
            rates: traced.rates.as_ref().map(RatesDto::from),
            drift: traced.drift.as_ref().map(DriftDto::from),
        }
    }
}

/// A second, between the last two readings.
#[derive(Serialize)]
pub struct RatesDto {
    allocations_per_second: f64,
    frees_per_second: f64,
    requested_bytes_per_second: f64,
    allocated_bytes_per_second: f64,
    freed_bytes_per_second: f64,
}

impl From<&EventRates> for RatesDto {
    fn from(rates: &EventRates) -> Self {
        Self {
            allocations_per_second: rates.allocations_per_second,
            frees_per_second: rates.frees_per_second,
            requested_bytes_per_second: rates.requested_bytes_per_second,
            allocated_bytes_per_second: rates.allocated_bytes_per_second,
            freed_bytes_per_second: rates.freed_bytes_per_second,
        }
    }
}

/// What sysfs says.
#[derive(Serialize)]
pub struct AttributesDto<'a> {
    object_size_bytes: Option<u64>,
    slab_size_bytes: Option<u64>,
    align_bytes: Option<u64>,
    order: Option<u32>,
    objects_per_slab: Option<u64>,
    flags: &'a [&'static str],
    aliases: Vec<&'a str>,
}

impl<'a> From<&'a SlabAttributes> for AttributesDto<'a> {
    fn from(attributes: &'a SlabAttributes) -> Self {
        Self {
            object_size_bytes: attributes.object_size_bytes,
            slab_size_bytes: attributes.slab_size_bytes,
            align_bytes: attributes.align_bytes,
            order: attributes.order,
            objects_per_slab: attributes.objects_per_slab,
            flags: &attributes.flags,
            aliases: attributes.aliases.iter().map(|alias| &**alias).collect(),
        }
    }
}

/// Answer of `/status`.
#[derive(Serialize)]
pub struct StatusDto<'a> {
    version: &'static str,
    revision: Option<&'static str>,
    uptime_seconds: f64,
    snapshot: SnapshotDto,
    memory: MemoryDto,
    tracing: TracingDto,
    features: Vec<FeatureDto<'a>>,
    programs: Vec<ProgramDto>,
    large_kmalloc_duplicates: Option<u64>,
    page_lookup_proof: Option<ProofDto>,
    counter_table: Option<TableDto>,
    collectors: Vec<CollectorDto<'a>>,
    host: BTreeMap<&'static str, &'a str>,
}

#[derive(Serialize)]
struct FeatureDto<'a> {
    name: &'static str,
    enabled: bool,
    reason: &'a str,
    remedy: Option<&'a str>,
}

#[derive(Serialize)]
struct ProgramDto {
    program: &'static str,
    events_counted: u64,
    events_missed: Option<u64>,
    events_lost: LossesDto,
}

#[derive(Serialize)]
struct ProofDto {
    checks: u64,
    mismatches: u64,
}

#[derive(Serialize)]
struct TableDto {
    slots_per_cpu: u32,
    used_on_fullest_cpu: u32,
}

#[derive(Serialize)]
struct CollectorDto<'a> {
    collector: &'static str,
    success: bool,
    duration_seconds: f64,
    error: Option<&'a str>,
}

impl<'a> StatusDto<'a> {
    /// From the snapshot alone.
    pub fn new(snapshot: &'a Snapshot, context: &Context) -> Self {
        let traced = !snapshot.programs.is_empty();
        Self {
            version: context.build.version,
            revision: context.build.revision,
            uptime_seconds: (snapshot.uptime + context.age).as_secs_f64(),
            snapshot: SnapshotDto::new(snapshot, context),
            memory: (&snapshot.memory).into(),
            tracing: TracingDto::new(snapshot),
            features: snapshot
                .features
                .iter()
                .map(|feature| FeatureDto {
                    name: feature.name,
                    enabled: feature.enabled,
                    reason: &feature.reason,
                    remedy: Some(feature.remedy.as_str()).filter(|remedy| !remedy.is_empty()),
                })
                .collect(),
            programs: snapshot
                .programs
                .iter()
                .map(|program| ProgramDto {
                    program: program.program,
                    events_counted: program.counted,
                    events_missed: program.missed,
                    events_lost: program.losses.into(),
                })
                .collect(),
            large_kmalloc_duplicates: traced.then_some(snapshot.large_duplicates),
            page_lookup_proof: snapshot
                .proof
                .map(|proof| ProofDto { checks: proof.checks, mismatches: proof.mismatches }),
            counter_table: snapshot.table.map(|table| TableDto {
                slots_per_cpu: table.slots_per_cpu,
                used_on_fullest_cpu: table.used_on_fullest_cpu,
            }),
            collectors: snapshot
                .collectors
                .iter()
                .map(|collector| CollectorDto {
                    collector: collector.collector,
                    success: collector.success,
                    duration_seconds: collector.duration.as_secs_f64(),
                    error: collector.error.as_deref(),
                })
                .collect(),
            host: snapshot.host.iter().map(|fact| (fact.name, fact.value.as_str())).collect(),
        }
    }
}
