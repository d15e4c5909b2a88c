//! What the numbers mean, in one of a few verdicts, each with the figures that it rests on.
//!
//! A verdict has a floor, so that noise gets none, and growth needs a time that was watched: a host that has just booted
//! fills its caches, and that is no leak. Nothing is said of a time before the watching began.

use std::{sync::Arc, time::Duration};

use super::{
    debug::is_debugged,
    history::Trend,
    query::{is_reclaimable, use_ratio},
    snapshot::{CacheView, Snapshot},
    waste::{cache_waste, total_waste},
    whole::whole,
};

/// Least growth that is called so, bytes.
pub const GROWTH_FLOOR_BYTES: u64 = 32 << 20;
/// Least growth that is called so, as a part of RAM: a two-hundredth.
pub const GROWTH_FLOOR_RAM_DIVISOR: u64 = 200;
/// Growth is not judged before it was watched for so long,
pub const MIN_WATCHED: Duration = Duration::from_secs(30 * 60);
/// nor before the machine runs so long (where that is known),
pub const MIN_HOST_UPTIME: Duration = Duration::from_secs(60 * 60);
/// nor from fewer readings.
pub const MIN_POINTS: usize = 4;
/// Growth whose last third is slower than this share of its first is settling.
const SETTLING_RATIO: f64 = 0.5;
/// Growth below this share of what is held now is steady, however it slows.
const SETTLED_SHARE: f64 = 0.02;
/// Growth that fell back by more than this share of itself is no steady climb.
const MAX_FALL_RATIO: f64 = 0.25;
/// A growing cache less full than this has room of its own: that is fragmentation.
const FULL_RATIO: f64 = 0.9;
/// Free objects that are worth a word, bytes,
pub const FRAGMENTED_FLOOR_BYTES: u64 = 32 << 20;
/// and as a share of what is held.
const FRAGMENTED_SHARE: f64 = 0.25;
/// Dentries that are worth a word, bytes.
const DENTRY_FLOOR_BYTES: u64 = 64 << 20;
/// From this share of negative dentries on they are the story.
const NEGATIVE_SHARE: f64 = 0.5;
/// Debug padding that is worth a word, as a share of what is held.
const DEBUG_SHARE: f64 = 0.10;
/// A difference between the kernel's counters that is worth a word, as a share of Slab,
const DRIFT_SHARE: f64 = 0.02;
/// and bytes.
const DRIFT_FLOOR_BYTES: u64 = 1 << 20;
/// Slab outside all caches that is worth a word, as a share of Slab,
const OUTSIDE_SHARE: f64 = 0.10;
/// and bytes.
const OUTSIDE_FLOOR_BYTES: u64 = 16 << 20;
/// One cache with so much of all is the story,
const ONE_CACHE_SHARE: f64 = 0.6;
/// if it holds so many bytes.
const ONE_CACHE_FLOOR_BYTES: u64 = 256 << 20;
/// Objects from which on equal counts are no chance.
const EQUAL_COUNTS_FLOOR: u64 = 100_000;
/// How far equal counts may lie apart.
const EQUAL_COUNTS_SPREAD: f64 = 0.02;
/// A size of which each event takes several has a multiple of the count, up to this.
const MOST_OF_EACH: f64 = 4.0;
/// Caches of equal count that make a pattern,
const EQUAL_COUNTS_CACHES: usize = 3;
/// if they hold so much of all.
const EQUAL_COUNTS_SHARE: f64 = 0.25;

/// What the numbers mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It climbs, and does not slow down.
    Growing {
        /// How it moved.
        trend: Trend,
        /// Whether the kernel can take it back under pressure; `None` if that is not known.
        reclaimable: Option<bool>,
    },
    /// It climbs ever more slowly.
    Settling {
        /// How it moved.
        trend: Trend,
    },
    /// It moves within the noise, or up and down.
    Steady {
        /// How it moved.
        trend: Trend,
    },
    /// Slabs that are far from full.
    Fragmented {
        /// Free objects, bytes.
        free_bytes: u64,
        /// All, bytes.
        held_bytes: u64,
    },
    /// The directory cache is full of names that do not exist.
    NegativeDentries {
        /// Of names that do not exist.
        negative: u64,
        /// All.
        dentries: u64,
        /// What the cache holds, bytes.
        held_bytes: u64,
    },
    /// Debugging makes objects much larger.
    DebugPadding {
        /// Slot less object, for all active objects, bytes.
        padding_bytes: u64,
        /// All, bytes.
        held_bytes: u64,
    },
    /// The caches hold more than the kernel's own total says.
    CounterDrift {
        /// Sum of the caches.
        caches_bytes: u64,
        /// meminfo's Slab.
        slab_bytes: u64,
    },
    /// Slab memory that no cache holds: large kmalloc.
    NotInAnyCache {
        /// Slab − caches.
        outside_bytes: u64,
        /// Of it, large kmalloc that was traced; `None` if not known.
        large_kmalloc_bytes: Option<u64>,
        /// meminfo's Slab.
        slab_bytes: u64,
    },
    /// One cache that cannot be taken back holds most of all.
    OneCacheHoldsMost {
        /// It holds, bytes.
        held_bytes: u64,
        /// All caches hold, bytes.
        caches_bytes: u64,
        /// Objects in use.
        active_objects: u64,
    },
    /// Several kmalloc sizes with the same number of objects, or a small multiple of it, all in use: one path takes some of
    /// each and keeps them.
    EqualCounts {
        /// The caches.
        caches: Vec<Arc<str>>,
        /// Objects of the one with the fewest.
        objects: u64,
        /// They hold together, bytes.
        held_bytes: u64,
    },
    /// Growth cannot be judged yet.
    TooLittleData {
        /// How long it was watched.
        watched: Duration,
        /// Readings.
        points: usize,
    },
}

impl Verdict {
    /// A label for programs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Growing { reclaimable: Some(true), .. } => "growing_reclaimable",
            Self::Growing { .. } => "growing",
            Self::Settling { .. } => "settling",
            Self::Steady { .. } => "steady",
            Self::Fragmented { .. } => "fragmented",
            Self::NegativeDentries { .. } => "negative_dentries",
            Self::DebugPadding { .. } => "debug_padding",
            Self::CounterDrift { .. } => "counter_drift",
            Self::NotInAnyCache { .. } => "not_in_any_cache",
            Self::OneCacheHoldsMost { .. } => "one_cache_holds_most",
            Self::EqualCounts { .. } => "equal_counts",
            Self::TooLittleData { .. } => "too_little_data",
        }
    }
}

/// A verdict and whom it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The cache; `None` is the machine.
    pub cache: Option<Arc<str>>,
    /// What is the matter.
    pub verdict: Verdict,
}

/// Judges how something grew. `full` is its share of objects in use, where it has objects.
pub fn judge_growth(
    trend: Option<&Trend>,
    ram_bytes: Option<u64>,
    host_uptime: Option<Duration>,
    reclaimable: Option<bool>,
    full: Option<f64>,
) -> Verdict {
    let Some(trend) = trend else { return Verdict::TooLittleData { watched: Duration::ZERO, points: 0 } };
    if trend.watched < MIN_WATCHED
        || trend.points < MIN_POINTS
        || host_uptime.is_some_and(|uptime| uptime < MIN_HOST_UPTIME)
    {
        return Verdict::TooLittleData { watched: trend.watched, points: trend.points };
    }
    let trend = *trend;
    let growth = trend.growth_bytes();
    let slows = trend.late_bytes_per_second < SETTLING_RATIO * trend.early_bytes_per_second;
    let climbs = trend.early_bytes_per_second > 0.0
        && trend.middle_bytes_per_second > 0.0
        && trend.late_bytes_per_second > 0.0
        && trend.largest_fall_bytes as f64 <= MAX_FALL_RATIO * growth as f64;
    let floor = GROWTH_FLOOR_BYTES.max(ram_bytes.unwrap_or(0) / GROWTH_FLOOR_RAM_DIVISOR);
    if climbs && slows && growth as f64 > SETTLED_SHARE * trend.last_bytes as f64 {
        return Verdict::Settling { trend };
    }
    if climbs && !slows && growth >= floor && full.is_none_or(|full| full >= FULL_RATIO) {
        return Verdict::Growing { trend, reclaimable };
    }
    Verdict::Steady { trend }
}

/// The verdicts on one cache: the one on its growth first.
pub fn cache_verdicts(snapshot: &Snapshot, cache: &CacheView) -> Vec<Verdict> {
    let Some(slab) = cache.slab.as_ref() else { return Vec::new() };
    let reclaimable = reclaims(cache);
    let growth = judge_growth(
        snapshot.evidence.trends.caches.get(&cache.name),
        snapshot.memory.total_bytes,
        snapshot.evidence.machine.uptime,
        reclaimable,
        use_ratio(slab),
    );
    let mut verdicts = vec![growth];
    if let Some(waste) = cache_waste(cache) {
        let waterfall = waste.waterfall;
        verdicts.extend(waterfall.free_bytes.and_then(|free| fragmented(snapshot, free, waterfall.held_bytes)));
        verdicts.extend(debug_bytes(cache).and_then(|bytes| debug_padding(bytes, waterfall.held_bytes)));
    }
    if is_dentry_cache(cache) {
        verdicts.extend(negative_dentries(snapshot, slab.memory_bytes));
    }
    verdicts.extend(one_cache_holds_most(snapshot, cache));
    verdicts
}

/// The verdicts on the machine and on those caches that have one worth a word: growth of the machine first, then by the
/// bytes that are at stake; that the machine does not grow, or that it cannot be told, is last.
pub fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let memory = &snapshot.memory;
    let on_machine = |verdict| Finding { cache: None, verdict };
    let growth = judge_growth(
        snapshot.evidence.trends.unreclaimable.as_ref(),
        memory.total_bytes,
        snapshot.evidence.machine.uptime,
        Some(false),
        None,
    );
    let mut others: Vec<Finding> = Vec::new();
    let total = total_waste(snapshot);
    others.extend(total.free_bytes.and_then(|free| fragmented(snapshot, free, total.held_bytes)).map(on_machine));
    others.extend(counter_drift(snapshot).map(on_machine));
    others.extend(not_in_any_cache(snapshot).map(on_machine));
    others.extend(equal_counts(snapshot).map(on_machine));
    let padding_bytes = snapshot.caches.iter().filter_map(debug_bytes).fold(0, u64::saturating_add);
    let padding = debug_padding(padding_bytes, total.held_bytes);
    let all_are_padded = padding.is_some();
    others.extend(padding.map(on_machine));
    for cache in &snapshot.caches {
        let verdicts = cache_verdicts(snapshot, cache);
        let worth_a_word = verdicts.into_iter().filter(|verdict| match verdict {
            Verdict::TooLittleData { .. } | Verdict::Steady { .. } | Verdict::Settling { .. } => false,
            Verdict::DebugPadding { .. } => !all_are_padded,
            _ => true,
        });
        others.extend(worth_a_word.map(|verdict| Finding { cache: Some(Arc::clone(&cache.name)), verdict }));
    }
    others.sort_by(|a, b| stake_bytes(b).cmp(&stake_bytes(a)).then_with(|| a.cache.cmp(&b.cache)));
    let is_news = matches!(growth, Verdict::Growing { .. } | Verdict::Settling { .. });
    others.insert(if is_news { 0 } else { others.len() }, on_machine(growth));
    others
}

/// The bytes that a finding is about.
fn stake_bytes(finding: &Finding) -> u64 {
    match &finding.verdict {
        Verdict::Growing { trend, .. } | Verdict::Settling { trend } | Verdict::Steady { trend } => {
            trend.growth_bytes()
        }
        Verdict::Fragmented { free_bytes, .. } => *free_bytes,
        Verdict::NegativeDentries { held_bytes, .. }
        | Verdict::OneCacheHoldsMost { held_bytes, .. }
        | Verdict::EqualCounts { held_bytes, .. } => *held_bytes,
        Verdict::DebugPadding { padding_bytes, .. } => *padding_bytes,
        Verdict::CounterDrift { caches_bytes, slab_bytes } => caches_bytes.abs_diff(*slab_bytes),
        Verdict::NotInAnyCache { outside_bytes, .. } => *outside_bytes,
        Verdict::TooLittleData { .. } => 0,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn fragmented(snapshot: &Snapshot, free_bytes: u64, held_bytes: u64) -> Option<Verdict> {
    let floor = FRAGMENTED_FLOOR_BYTES.max(snapshot.memory.total_bytes.unwrap_or(0) / GROWTH_FLOOR_RAM_DIVISOR);
    (free_bytes >= floor && share(free_bytes, held_bytes) >= FRAGMENTED_SHARE)
        .then_some(Verdict::Fragmented { free_bytes, held_bytes })
}

fn debug_padding(padding_bytes: u64, held_bytes: u64) -> Option<Verdict> {
    (padding_bytes >= DRIFT_FLOOR_BYTES && share(padding_bytes, held_bytes) >= DEBUG_SHARE)
        .then_some(Verdict::DebugPadding { padding_bytes, held_bytes })
}

/// What debugging and the alignment that comes with it add to the live objects; `None` where nothing says that debugging
/// is on.
fn debug_bytes(cache: &CacheView) -> Option<u64> {
    let is_on = cache.attributes.as_deref().map_or_else(|| padded_bucket(cache), is_debugged);
    cache_waste(cache)?.waterfall.debug_bytes.filter(|_| is_on)
}

/// A kmalloc bucket whose slots are larger than its name says.
fn padded_bucket(cache: &CacheView) -> bool {
    let stride = cache.slab.as_ref().and_then(|slab| slab.object_size_bytes);
    cache.class.zip(stride).is_some_and(|(class, stride)| stride > class.bytes)
}

fn is_dentry_cache(cache: &CacheView) -> bool {
    matches!(&*cache.name, "dentry" | "dentry_cache")
}

fn negative_dentries(snapshot: &Snapshot, held_bytes: u64) -> Option<Verdict> {
    let counts = snapshot.evidence.machine.dentries?;
    let negative = counts.negative.min(counts.dentries);
    (held_bytes >= DENTRY_FLOOR_BYTES && share(negative, counts.dentries) >= NEGATIVE_SHARE)
        .then_some(Verdict::NegativeDentries { negative, dentries: counts.dentries, held_bytes })
}

fn counter_drift(snapshot: &Snapshot) -> Option<Verdict> {
    let (slab_bytes, caches_bytes) = snapshot.memory.slab_bytes.zip(snapshot.memory.caches_bytes)?;
    let excess = caches_bytes.checked_sub(slab_bytes)?;
    (excess >= DRIFT_FLOOR_BYTES && share(excess, slab_bytes) > DRIFT_SHARE)
        .then_some(Verdict::CounterDrift { caches_bytes, slab_bytes })
}

fn not_in_any_cache(snapshot: &Snapshot) -> Option<Verdict> {
    let (slab_bytes, caches_bytes) = snapshot.memory.slab_bytes.zip(snapshot.memory.caches_bytes)?;
    let outside_bytes = slab_bytes.checked_sub(caches_bytes)?;
    (outside_bytes >= OUTSIDE_FLOOR_BYTES && share(outside_bytes, slab_bytes) >= OUTSIDE_SHARE).then(|| {
        Verdict::NotInAnyCache { outside_bytes, large_kmalloc_bytes: whole(snapshot).large_kmalloc_bytes, slab_bytes }
    })
}

/// Whether the kernel can take the cache back, by sysfs; by name for those that every kernel has where sysfs does not
/// tell.
pub fn reclaims(cache: &CacheView) -> Option<bool> {
    let by_name = || {
        let name = &*cache.name;
        let known = is_dentry_cache(cache)
            || name.ends_with("inode_cache")
            || matches!(name, "buffer_head" | "radix_tree_node" | "xfs_inode" | "lsm_inode_cache");
        known.then_some(true)
    };
    is_reclaimable(cache).or_else(by_name)
}

fn one_cache_holds_most(snapshot: &Snapshot, cache: &CacheView) -> Option<Verdict> {
    let slab = cache.slab.as_ref()?;
    let caches_bytes = snapshot.memory.caches_bytes?;
    (reclaims(cache) != Some(true)
        && slab.memory_bytes >= ONE_CACHE_FLOOR_BYTES
        && share(slab.memory_bytes, caches_bytes) >= ONE_CACHE_SHARE
        && use_ratio(slab).is_some_and(|full| full >= FULL_RATIO))
    .then_some(Verdict::OneCacheHoldsMost {
        held_bytes: slab.memory_bytes,
        caches_bytes,
        active_objects: slab.active_objects,
    })
}

/// The largest group of kmalloc buckets that are full and have the same number of objects.
fn equal_counts(snapshot: &Snapshot) -> Option<Verdict> {
    let mut buckets: Vec<(&CacheView, u64, u64)> = snapshot
        .caches
        .iter()
        .filter(|cache| cache.class.is_some() && reclaims(cache) != Some(true))
        .filter_map(|cache| {
            let slab = cache.slab.as_ref()?;
            let full = use_ratio(slab).is_some_and(|full| full >= FULL_RATIO);
            (full && slab.active_objects >= EQUAL_COUNTS_FLOOR).then_some((
                cache,
                slab.active_objects,
                slab.memory_bytes,
            ))
        })
        .collect();
    buckets.sort_by_key(|(_, objects, _)| *objects);
    let group_from = |start: usize| {
        let rest = buckets.get(start..).unwrap_or_default();
        let most = rest.first().map_or(0.0, |(_, objects, _)| *objects as f64 * (1.0 + EQUAL_COUNTS_SPREAD));
        let length = rest.iter().take_while(|(_, objects, _)| *objects as f64 <= most).count();
        rest.get(..length).unwrap_or_default()
    };
    let equal = (0..buckets.len()).map(group_from).max_by_key(|group| group.len())?;
    let (_, objects, _) = equal.first()?;
    let group: Vec<_> = buckets
        .iter()
        .filter(|(_, count, _)| {
            let times = *count as f64 / *objects as f64;
            (1.0..=MOST_OF_EACH * (1.0 + EQUAL_COUNTS_SPREAD)).contains(&times.max(times.round()))
                && (times / times.round() - 1.0).abs() <= EQUAL_COUNTS_SPREAD
        })
        .collect();
    let held_bytes = group.iter().fold(0u64, |sum, (_, _, held)| sum.saturating_add(*held));
    (equal.len() >= EQUAL_COUNTS_CACHES && share(held_bytes, snapshot.memory.caches_bytes?) >= EQUAL_COUNTS_SHARE).then(
        || Verdict::EqualCounts {
            caches: group.iter().map(|(cache, ..)| Arc::clone(&cache.name)).collect(),
            objects: *objects,
            held_bytes,
        },
    )
}

#[cfg(test)]
mod tests;
