//! From what was read to what is shown: the join by name and alias, sums, rates, and which caches still live.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    class::size_class,
    drift::DriftHistory,
    history::{History, Trends},
    sample::{
        CacheCounts, CacheId, CounterKind, CounterSample, EventCounts, MachineSample, MeminfoSample, SlabRow,
        SlabinfoSample,
    },
    snapshot::{
        CacheView, ClassKind, CollectorState, EventRates, Evidence, Feature, HostFact, MemoryTotals, SizeClass,
        SlabAttributes, SlabState, Snapshot, Traced,
    },
};

/// Attributes by the name that `/proc/slabinfo` prints for the cache; the other names are in [`SlabAttributes::aliases`].
pub type AttributesByName = HashMap<Arc<str>, Arc<SlabAttributes>>;

/// Prefix of the pseudo-caches that hold what was counted of a kmalloc size class without a cache. Not the prefix of a
/// real bucket, since such a class mixes buckets of all kinds (`kmalloc-64`, `kmalloc-cg-64`, ...).
pub const CLASS_PREFIX: &str = "kmalloc-class-";

/// Everything that one snapshot is derived from.
#[derive(Clone, Debug)]
pub struct SnapshotInput {
    /// Unix time of the counter drain (or slabinfo read, when nothing is traced), seconds.
    pub taken_at_unix_seconds: f64,
    /// Since the daemon's start.
    pub uptime: Duration,
    /// Bytes of a page on this machine.
    pub page_size_bytes: u64,
    /// The last counter drain; `None` when nothing is traced.
    pub counters: Option<CounterSample>,
    /// Whether events without a cache argument are put down to their cache by page lookup.
    pub page_lookup: bool,
    /// The last successful slabinfo read, the same one again until there is a newer; `None` when slabinfo cannot be had.
    pub slabinfo: Option<Arc<SlabinfoSample>>,
    /// The last meminfo read; `None` when it cannot be had.
    pub meminfo: Option<MeminfoSample>,
    /// From sysfs; empty when it cannot be had. Keep one `Arc` for as long as nothing changes: the alias index is built
    /// once for each.
    pub attributes: Arc<AttributesByName>,
    /// Each optional part and its state.
    pub features: Arc<[Feature]>,
    /// Each reader and its last attempt.
    pub collectors: Vec<CollectorState>,
    /// What the machine is.
    pub host: Arc<[HostFact]>,
    /// The machine beside its slabs.
    pub machine: MachineSample,
}

/// Derives snapshots, one after the other. Its state is what it needs of the samples before.
#[derive(Debug, Default)]
pub struct Deriver {
    sequence: u64,
    events: EventHistory,
    growth: GrowthHistory,
    history: History,
    trends: Arc<Trends>,
    aliases: AliasIndex,
    drift: DriftHistory,
}

impl Deriver {
    /// A deriver that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The snapshot of `input`.
    ///
    /// Call it with samples in the order of their `at`; the same sample again changes neither rates nor growth.
    pub fn derive(&mut self, input: SnapshotInput) -> Snapshot {
        self.sequence += 1;
        self.aliases.refresh(&input.attributes);
        if let Some(slabinfo) = &input.slabinfo {
            let is_new = self.growth.at != Some(slabinfo.at);
            self.growth.record(slabinfo, input.page_size_bytes);
            if is_new {
                self.record_history(slabinfo.at, input.meminfo);
            }
        }
        match &input.counters {
            Some(counters) => self.events.record(counters),
            None => self.events = EventHistory::default(),
        }

        let mut join = Join { caches: BTreeMap::new(), aliases: &self.aliases };
        if let Some(slabinfo) = &input.slabinfo {
            join.add_rows(&slabinfo.rows, input.page_size_bytes, &self.growth);
        }
        if let Some(counters) = &input.counters {
            let slabinfo_at = input.slabinfo.as_ref().map(|slabinfo| slabinfo.at);
            join.add_caches(&counters.caches, &self.events, slabinfo_at);
            if input.page_lookup {
                join.mark_untouched(self.events.zero_rates());
            }
            join.add_pseudo_caches(&counters.caches, &self.events);
        }
        let caches: Vec<CacheView> = join.caches.into_iter().map(|(name, entry)| entry.into_view(name)).collect();
        let mut caches = attach_attributes(caches, &input.attributes, &self.aliases);
        let slabinfo_at = input.slabinfo.as_ref().map(|slabinfo| slabinfo.at);
        self.drift.apply(&mut caches, slabinfo_at, input.counters.as_ref().map_or(0, |counters| counters.cpus));

        Snapshot {
            sequence: self.sequence,
            taken_at_unix_seconds: input.taken_at_unix_seconds,
            slabinfo_at_unix_seconds: input.slabinfo.as_ref().map(|slabinfo| slabinfo.at_unix_seconds),
            uptime: input.uptime,
            memory: memory_totals(
                input.meminfo,
                input.slabinfo.as_ref().map(|slabinfo| sum_memory_bytes(&slabinfo.rows, input.page_size_bytes)),
            ),
            caches,
            large_duplicates: input.counters.as_ref().map_or(0, |counters| counters.large_duplicates),
            proof: input.counters.as_ref().filter(|_| input.page_lookup).map(|counters| counters.proof),
            table: input.counters.as_ref().map(|counters| counters.table),
            programs: input.counters.map(|counters| counters.programs).unwrap_or_default(),
            features: input.features,
            collectors: input.collectors,
            host: input.host,
            evidence: Evidence {
                page_size_bytes: Some(input.page_size_bytes),
                machine: input.machine,
                trends: Arc::clone(&self.trends),
            },
        }
    }

    fn record_history(&mut self, at: Duration, meminfo: Option<MeminfoSample>) {
        let held = self.growth.names.iter().map(|(name, growth)| (Arc::clone(name), growth.memory_bytes)).collect();
        self.history.record_caches(at, &held);
        if let Some(meminfo) = meminfo {
            self.history.record_totals(at, meminfo.reclaimable_bytes, meminfo.unreclaimable_bytes);
        }
        self.trends = Arc::new(self.history.trends());
    }
}

/// What is remembered of each life of a cache between counter samples.
#[derive(Clone, Copy, Debug)]
struct Life {
    counts: EventCounts,
    /// When the counters were first seen as they are now: the last event happened before.
    changed_at: Duration,
    rates: Option<EventRates>,
}

#[derive(Debug, Default)]
struct EventHistory {
    /// `at` of the last sample.
    at: Option<Duration>,
    /// Whether `at` came after another sample, so that "no event" is a rate.
    has_interval: bool,
    lives: HashMap<CacheId, Life>,
}

impl EventHistory {
    fn record(&mut self, sample: &CounterSample) {
        if self.at == Some(sample.at) {
            return;
        }
        let interval_seconds = self.at.and_then(|at| seconds_between(at, sample.at));
        let lives = sample
            .caches
            .iter()
            .map(|cache| {
                let life = match self.lives.get(&cache.id) {
                    Some(before) => Life {
                        counts: cache.counts,
                        changed_at: if before.counts == cache.counts { before.changed_at } else { sample.at },
                        rates: interval_seconds.and_then(|seconds| event_rates(&before.counts, &cache.counts, seconds)),
                    },
                    None => Life { counts: cache.counts, changed_at: sample.at, rates: None },
                };
                (cache.id, life)
            })
            .collect();
        *self = Self { at: Some(sample.at), has_interval: interval_seconds.is_some(), lives };
    }

    fn rates(&self, id: CacheId) -> Option<EventRates> {
        self.lives.get(&id).and_then(|life| life.rates)
    }

    /// The rates of a cache that had no event so far.
    fn zero_rates(&self) -> Option<EventRates> {
        self.has_interval.then(EventRates::default)
    }

    /// Whether slabinfo was read after the last event of this life.
    fn is_quiet_since(&self, id: CacheId, slabinfo_at: Duration) -> bool {
        self.lives.get(&id).is_some_and(|life| slabinfo_at > life.changed_at)
    }
}

/// Bytes held by each name in the last slabinfo sample, and how fast that grew since the one before.
#[derive(Debug, Default)]
struct GrowthHistory {
    at: Option<Duration>,
    names: HashMap<Arc<str>, Growth>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    memory_bytes: u64,
    bytes_per_second: Option<f64>,
}

impl GrowthHistory {
    fn record(&mut self, sample: &SlabinfoSample, page_size_bytes: u64) {
        if self.at == Some(sample.at) {
            return;
        }
        let interval_seconds = self.at.and_then(|at| seconds_between(at, sample.at));
        let mut names: HashMap<Arc<str>, Growth> = HashMap::with_capacity(sample.rows.len());
        for row in &sample.rows {
            let growth = names.entry(row.name.clone()).or_default();
            growth.memory_bytes = growth.memory_bytes.saturating_add(row_memory_bytes(row, page_size_bytes));
        }
        for (name, growth) in &mut names {
            growth.bytes_per_second = self.names.get(name).zip(interval_seconds).map(|(before, seconds)| {
                (i128::from(growth.memory_bytes) - i128::from(before.memory_bytes)) as f64 / seconds
            });
        }
        *self = Self { at: Some(sample.at), names };
    }

    fn bytes_per_second(&self, name: &str) -> Option<f64> {
        self.names.get(name).and_then(|growth| growth.bytes_per_second)
    }
}

/// From each alias to the name that slabinfo prints.
#[derive(Debug, Default)]
struct AliasIndex {
    source: Arc<AttributesByName>,
    names: HashMap<Arc<str>, Arc<str>>,
}

impl AliasIndex {
    fn refresh(&mut self, attributes: &Arc<AttributesByName>) {
        if Arc::ptr_eq(&self.source, attributes) {
            return;
        }
        self.source = attributes.clone();
        self.names.clear();
        for (name, attributes) in attributes.iter() {
            for alias in &attributes.aliases {
                // Two caches that claim one alias: the first by name, so that the answer does not depend on hashing.
                let kept = self.names.entry(alias.clone()).or_insert_with(|| name.clone());
                if *name < *kept {
                    *kept = name.clone();
                }
            }
        }
    }

    /// The name of the cache that `name` is an alias of, if it is one and no cache's own name.
    fn resolve(&self, name: &str) -> Option<&Arc<str>> {
        if self.source.contains_key(name) { None } else { self.names.get(name) }
    }
}

/// One cache while the sources are put together.
#[derive(Debug, Default)]
struct Entry {
    slab: Option<SlabState>,
    traced: Option<Traced>,
    class: Option<SizeClass>,
    pseudo: bool,
}

impl Entry {
    fn into_view(self, name: Arc<str>) -> CacheView {
        let Self { slab, traced, class, pseudo } = self;
        CacheView { name, class, pseudo, traced, slab, attributes: None }
    }
}

struct Join<'a> {
    caches: BTreeMap<Arc<str>, Entry>,
    aliases: &'a AliasIndex,
}

impl Join<'_> {
    fn add_rows(&mut self, rows: &[SlabRow], page_size_bytes: u64, growth: &GrowthHistory) {
        for row in rows {
            let entry = self
                .caches
                .entry(row.name.clone())
                .or_insert_with(|| Entry { class: size_class(&row.name), ..Entry::default() });
            let mut state = slab_state(row, page_size_bytes);
            state.growth_bytes_per_second = growth.bytes_per_second(&row.name);
            entry.slab = Some(match entry.slab {
                Some(sum) => add_slab_states(&sum, &state),
                None => state,
            });
        }
    }

    /// Adds what was counted of caches, leaving out destroyed ones.
    fn add_caches(&mut self, counted: &[CacheCounts], events: &EventHistory, slabinfo_at: Option<Duration>) {
        let mut lives_by_name: HashMap<Arc<str>, Vec<&CacheCounts>> = HashMap::new();
        for cache in counted.iter().filter(|cache| cache.kind == CounterKind::Cache) {
            let name = self.joined_name(&cache.name);
            let is_destroyed = !self.caches.contains_key(&name)
                && slabinfo_at.is_some_and(|slabinfo_at| events.is_quiet_since(cache.id, slabinfo_at));
            if !is_destroyed {
                lives_by_name.entry(name).or_default().push(cache);
            }
        }
        for (name, mut lives) in lives_by_name {
            let entry = self
                .caches
                .entry(name.clone())
                .or_insert_with(|| Entry { class: size_class(&name), ..Entry::default() });
            // As many lives as slabinfo has rows of this name can be there at once: the newest. Others are past lives.
            let rows = entry.slab.map_or(1, |slab| slab.rows);
            lives.sort_unstable_by_key(|cache| std::cmp::Reverse(cache.id));
            entry.traced = lives
                .iter()
                .take(usize::try_from(rows).unwrap_or(usize::MAX))
                .map(|cache| Traced { counts: cache.counts, rates: events.rates(cache.id), drift: None })
                .reduce(|sum, life| sum.plus(&life));
        }
    }

    /// Says of the caches in slabinfo that had no event so far that they had none.
    fn mark_untouched(&mut self, rates: Option<EventRates>) {
        for entry in self.caches.values_mut() {
            entry.traced.get_or_insert(Traced { counts: EventCounts::default(), rates, drift: None });
        }
    }

    fn add_pseudo_caches(&mut self, counted: &[CacheCounts], events: &EventHistory) {
        for counter in counted {
            let mut traced = Traced { counts: counter.counts, rates: events.rates(counter.id), drift: None };
            match counter.kind {
                CounterKind::Cache => {}
                CounterKind::LargeKmalloc => self.add_pseudo_cache(counter.name.clone(), None, traced),
                CounterKind::SizeClass => {
                    let class = size_class(&counter.name);
                    if let Some(bucket) = self.traced_bucket(&counter.name, class) {
                        bucket.counts.failures = bucket.counts.failures.saturating_add(traced.counts.failures);
                        traced.counts.failures = 0;
                        if traced.counts == EventCounts::default() {
                            continue;
                        }
                    }
                    let size = counter.name.strip_prefix("kmalloc-").unwrap_or(&counter.name);
                    let class = class.map(|class| SizeClass { bytes: class.bytes, kind: ClassKind::Other });
                    self.add_pseudo_cache(format!("{CLASS_PREFIX}{size}").into(), class, traced);
                }
            }
        }
    }

    fn add_pseudo_cache(&mut self, name: Arc<str>, class: Option<SizeClass>, traced: Traced) {
        let entry = self.caches.entry(name).or_insert_with(|| Entry { class, pseudo: true, ..Entry::default() });
        entry.traced = Some(match entry.traced {
            Some(sum) => sum.plus(&traced),
            None => traced,
        });
    }

    /// The counters of the live normal kmalloc cache of a size class: the one of that name, or (`kmalloc-1k` is
    /// `kmalloc-1024` on older kernels) of that class.
    fn traced_bucket(&mut self, name: &str, class: Option<SizeClass>) -> Option<&mut Traced> {
        let bucket = if self.caches.contains_key(name) {
            name.into()
        } else {
            let class = class?;
            self.caches.iter().find(|(_, entry)| !entry.pseudo && entry.class == Some(class))?.0.clone()
        };
        self.caches.get_mut(&bucket)?.traced.as_mut()
    }

    /// The name under which a counted cache is shown: slabinfo's own if it has a row, else what it is an alias of.
    fn joined_name(&self, name: &Arc<str>) -> Arc<str> {
        if self.caches.contains_key(name) {
            return name.clone();
        }
        self.aliases.resolve(name).unwrap_or(name).clone()
    }
}

fn attach_attributes(
    mut caches: Vec<CacheView>,
    attributes: &AttributesByName,
    aliases: &AliasIndex,
) -> Vec<CacheView> {
    for cache in caches.iter_mut().filter(|cache| !cache.pseudo) {
        let name = aliases.resolve(&cache.name).unwrap_or(&cache.name);
        cache.attributes = attributes.get(name).cloned();
    }
    caches
}

fn seconds_between(earlier: Duration, later: Duration) -> Option<f64> {
    later.checked_sub(earlier).map(|interval| interval.as_secs_f64()).filter(|&seconds| seconds > 0.0)
}

/// `None` if a counter went back: it was reset or wrapped, and the interval says nothing.
fn event_rates(before: &EventCounts, now: &EventCounts, seconds: f64) -> Option<EventRates> {
    let per_second = |before: u64, now: u64| now.checked_sub(before).map(|change| change as f64 / seconds);
    now.failures.checked_sub(before.failures)?;
    Some(EventRates {
        allocations_per_second: per_second(before.allocations, now.allocations)?,
        frees_per_second: per_second(before.frees, now.frees)?,
        requested_bytes_per_second: per_second(before.requested_bytes, now.requested_bytes)?,
        allocated_bytes_per_second: per_second(before.allocated_bytes, now.allocated_bytes)?,
        freed_bytes_per_second: per_second(before.freed_bytes, now.freed_bytes)?,
    })
}

fn row_memory_bytes(row: &SlabRow, page_size_bytes: u64) -> u64 {
    row.slabs.saturating_mul(row.pages_per_slab).saturating_mul(page_size_bytes)
}

fn sum_memory_bytes(rows: &[SlabRow], page_size_bytes: u64) -> u64 {
    rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row_memory_bytes(row, page_size_bytes)))
}

fn slab_state(row: &SlabRow, page_size_bytes: u64) -> SlabState {
    SlabState {
        active_objects: row.active_objects,
        objects: row.objects,
        object_size_bytes: Some(row.object_size_bytes),
        objects_per_slab: Some(row.objects_per_slab),
        pages_per_slab: Some(row.pages_per_slab),
        slabs: row.slabs,
        memory_bytes: row_memory_bytes(row, page_size_bytes),
        rows: 1,
        growth_bytes_per_second: None,
    }
}

/// The sum of two rows of one name. Growth is by name, so both sides carry the same.
fn add_slab_states(a: &SlabState, b: &SlabState) -> SlabState {
    let if_equal = |a: Option<u64>, b: Option<u64>| if a == b { a } else { None };
    SlabState {
        active_objects: a.active_objects.saturating_add(b.active_objects),
        objects: a.objects.saturating_add(b.objects),
        object_size_bytes: if_equal(a.object_size_bytes, b.object_size_bytes),
        objects_per_slab: if_equal(a.objects_per_slab, b.objects_per_slab),
        pages_per_slab: if_equal(a.pages_per_slab, b.pages_per_slab),
        slabs: a.slabs.saturating_add(b.slabs),
        memory_bytes: a.memory_bytes.saturating_add(b.memory_bytes),
        rows: a.rows.saturating_add(b.rows),
        growth_bytes_per_second: a.growth_bytes_per_second,
    }
}

fn memory_totals(meminfo: Option<MeminfoSample>, caches_bytes: Option<u64>) -> MemoryTotals {
    let meminfo = meminfo.unwrap_or_default();
    MemoryTotals {
        total_bytes: meminfo.total_bytes,
        available_bytes: meminfo.available_bytes,
        slab_bytes: meminfo.slab_bytes,
        reclaimable_bytes: meminfo.reclaimable_bytes,
        unreclaimable_bytes: meminfo.unreclaimable_bytes,
        caches_bytes,
        unexplained_bytes: meminfo
            .slab_bytes
            .zip(caches_bytes)
            .and_then(|(slab, caches)| i64::try_from(i128::from(slab) - i128::from(caches)).ok()),
    }
}

#[cfg(test)]
mod tests;
