//! Questions put to a snapshot: which caches, in what order, summed how. Every surface asks through here.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use regex::{Regex, RegexBuilder};

use super::snapshot::{CacheView, ClassKind, SizeClass, SlabState, Snapshot};

/// Longest pattern that [`compile_pattern`] takes, bytes.
pub const MAX_PATTERN_BYTES: usize = 1000;
/// Rows of a top list unless asked otherwise.
pub const DEFAULT_LIMIT: usize = 20;
/// Rows of a top list at most.
pub const MAX_LIMIT: usize = 10_000;
/// Memory that a compiled pattern may take, bytes.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Below this likeness (0..=1) a name is no suggestion.
const LEAST_LIKENESS: f64 = 0.6;

/// What rows are ordered by: numbers downwards, the unknown last, then by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Bytes held.
    #[default]
    Bytes,
    /// Active objects.
    Objects,
    /// Allocations a second.
    AllocRate,
    /// Frees a second.
    FreeRate,
    /// Change of the bytes held, a second.
    Growth,
    /// Requested bytes a second.
    Requested,
    /// Name, upwards.
    Name,
}

/// A word that is not one of the allowed ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is none of {}", .allowed.join(", "))]
pub struct UnknownWord {
    /// What was given.
    pub given: String,
    /// What may be given.
    pub allowed: &'static [&'static str],
}

impl SortBy {
    /// All orders, by the names that users write.
    pub const NAMES: &'static [&'static str] =
        &["bytes", "objects", "alloc_rate", "free_rate", "growth", "requested", "name"];

    /// The name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Objects => "objects",
            Self::AllocRate => "alloc_rate",
            Self::FreeRate => "free_rate",
            Self::Growth => "growth",
            Self::Requested => "requested",
            Self::Name => "name",
        }
    }

    /// The number that `cache` is ordered by; `None` if unknown, and for [`SortBy::Name`].
    fn key(self, cache: &CacheView) -> Option<f64> {
        let rates = cache.traced.as_ref().and_then(|traced| traced.rates);
        match self {
            Self::Bytes => cache.slab.map(|slab| slab.memory_bytes as f64),
            Self::Objects => cache.slab.map(|slab| slab.active_objects as f64),
            Self::AllocRate => rates.map(|rates| rates.allocations_per_second),
            Self::FreeRate => rates.map(|rates| rates.frees_per_second),
            Self::Growth => cache.slab.and_then(|slab| slab.growth_bytes_per_second),
            Self::Requested => rates.map(|rates| rates.requested_bytes_per_second),
            Self::Name => None,
        }
    }
}

impl fmt::Display for SortBy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for SortBy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Ok(match word {
            "bytes" => Self::Bytes,
            "objects" => Self::Objects,
            "alloc_rate" => Self::AllocRate,
            "free_rate" => Self::FreeRate,
            "growth" => Self::Growth,
            "requested" => Self::Requested,
            "name" => Self::Name,
            _ => return Err(UnknownWord { given: word.into(), allowed: Self::NAMES }),
        })
    }
}

/// What one row stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// One cache.
    #[default]
    Cache,
    /// One kmalloc size class, all kinds summed; a cache that is of no class stays a row of its own, so that the rows
    /// still add up to the whole.
    Class,
}

impl Grouping {
    /// The groupings that users may ask for by name.
    pub const NAMES: &'static [&'static str] = &["class"];
}

impl FromStr for Grouping {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        match word {
            "class" => Ok(Self::Class),
            _ => Err(UnknownWord { given: word.into(), allowed: Self::NAMES }),
        }
    }
}

/// A pattern that cannot be used, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a regular expression that can be used: {0}")]
pub struct PatternError(String);

/// Compiles a user's pattern for cache names: unanchored, linear in time, bounded in memory.
pub fn compile_pattern(pattern: &str) -> Result<Regex, PatternError> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(PatternError(format!("{} bytes long, at most {MAX_PATTERN_BYTES} are allowed", pattern.len())));
    }
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build()
        .map_err(|error| PatternError(one_line(&error)))
}

/// The last line of a regex error says what is wrong; those before it draw the pattern.
fn one_line(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("needs more than {limit} bytes when compiled"),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

/// Which rows, in what order.
#[derive(Clone, Debug, Default)]
pub struct TopQuery {
    /// The order.
    pub by: SortBy,
    /// Rows at most; `None` is all.
    pub limit: Option<usize>,
    /// Keeps the rows whose name, a member's name or an alias matches.
    pub filter: Option<Regex>,
    /// What a row stands for.
    pub grouping: Grouping,
}

/// One row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<'a> {
    /// The cache, or the sum of a size class.
    pub view: Cow<'a, CacheView>,
    /// The caches that were summed, by name; `None` for a single cache.
    pub members: Option<Vec<&'a CacheView>>,
    /// The alias that the filter matched, where the name itself did not.
    pub matched_alias: Option<Arc<str>>,
}

/// The answer to a [`TopQuery`].
#[derive(Clone, Debug, PartialEq)]
pub struct Selection<'a> {
    /// The rows, in order, no more than the limit.
    pub rows: Vec<Row<'a>>,
    /// Rows that the filter let through, before the limit.
    pub matched: usize,
}

/// Answers a query.
pub fn select<'a>(snapshot: &'a Snapshot, query: &TopQuery) -> Selection<'a> {
    let all = match query.grouping {
        Grouping::Cache => snapshot.caches.iter().map(Row::of).collect(),
        Grouping::Class => group_by_class(snapshot),
    };
    let mut rows: Vec<Row<'a>> = match &query.filter {
        None => all,
        Some(filter) => all.into_iter().filter_map(|row| matched(row, filter)).collect(),
    };
    rows.sort_by(|a, b| {
        descending_unknown_last(query.by.key(&a.view), query.by.key(&b.view))
            .then_with(|| a.view.name.cmp(&b.view.name))
    });
    let matched = rows.len();
    rows.truncate(query.limit.unwrap_or(usize::MAX));
    Selection { rows, matched }
}

impl<'a> Row<'a> {
    /// The row of one cache.
    pub fn of(cache: &'a CacheView) -> Self {
        Self { view: Cow::Borrowed(cache), members: None, matched_alias: None }
    }
}

fn descending_unknown_last(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

fn aliases(cache: &CacheView) -> &[Arc<str>] {
    cache.attributes.as_ref().map_or(&[], |attributes| &attributes.aliases)
}

fn matched<'a>(mut row: Row<'a>, filter: &Regex) -> Option<Row<'a>> {
    let by_name =
        filter.is_match(&row.view.name) || row.members.iter().flatten().any(|member| filter.is_match(&member.name));
    if by_name {
        return Some(row);
    }
    let alias = match &row.members {
        None => aliases(&row.view).iter().find(|alias| filter.is_match(alias)).cloned(),
        Some(members) => {
            members.iter().flat_map(|member| aliases(member)).find(|alias| filter.is_match(alias)).cloned()
        }
    }?;
    row.matched_alias = Some(alias);
    Some(row)
}

fn group_by_class(snapshot: &Snapshot) -> Vec<Row<'_>> {
    let mut classes: BTreeMap<u64, Vec<&CacheView>> = BTreeMap::new();
    let mut rows = Vec::new();
    for cache in &snapshot.caches {
        match cache.class {
            Some(class) => classes.entry(class.bytes).or_default().push(cache),
            None => rows.push(Row::of(cache)),
        }
    }
    rows.extend(classes.into_iter().map(|(bytes, members)| sum_class(bytes, members)));
    rows
}

/// The name of a size class, as newer kernels write it: `kmalloc-64`, `kmalloc-1k`, `kmalloc-2M`.
pub fn class_name(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0..KIB => format!("kmalloc-{bytes}"),
        _ if bytes.is_multiple_of(MIB) => format!("kmalloc-{}M", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("kmalloc-{}k", bytes / KIB),
        _ => format!("kmalloc-{bytes}"),
    }
}

fn sum_class(bytes: u64, members: Vec<&CacheView>) -> Row<'_> {
    let kind = members.first().and_then(|first| first.class).map(|class| class.kind);
    let same_kind = members.iter().all(|member| member.class.map(|class| class.kind) == kind);
    let view = CacheView {
        name: class_name(bytes).into(),
        class: Some(SizeClass { bytes, kind: kind.filter(|_| same_kind).unwrap_or(ClassKind::Other) }),
        pseudo: members.iter().all(|member| member.pseudo),
        traced: members.iter().filter_map(|member| member.traced).reduce(|a, b| a.plus(&b)),
        slab: members.iter().filter_map(|member| member.slab).reduce(add_slabs),
        attributes: None,
    };
    Row { view: Cow::Owned(view), members: Some(members), matched_alias: None }
}

fn add_slabs(a: SlabState, b: SlabState) -> SlabState {
    let same = |a: Option<u64>, b: Option<u64>| if a == b { a } else { None };
    SlabState {
        active_objects: a.active_objects.saturating_add(b.active_objects),
        objects: a.objects.saturating_add(b.objects),
        object_size_bytes: same(a.object_size_bytes, b.object_size_bytes),
        objects_per_slab: same(a.objects_per_slab, b.objects_per_slab),
        pages_per_slab: same(a.pages_per_slab, b.pages_per_slab),
        slabs: a.slabs.saturating_add(b.slabs),
        memory_bytes: a.memory_bytes.saturating_add(b.memory_bytes),
        rows: a.rows.saturating_add(b.rows),
        growth_bytes_per_second: a.growth_bytes_per_second.zip(b.growth_bytes_per_second).map(|(a, b)| a + b),
    }
}

/// Part of a cache's objects that is active, 0..=1; `None` for a cache without objects.
pub fn use_ratio(slab: &SlabState) -> Option<f64> {
    (slab.objects > 0).then(|| slab.active_objects as f64 / slab.objects as f64)
}

/// Whether the kernel can reclaim the cache's objects (`reclaim_account`); `None` where sysfs did not say.
pub fn is_reclaimable(cache: &CacheView) -> Option<bool> {
    cache.attributes.as_ref().map(|attributes| attributes.flags.contains(&"reclaim_account"))
}

/// A cache found by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'a> {
    /// The cache.
    pub cache: &'a CacheView,
    /// Whether the name was an alias of the cache and not its own.
    pub by_alias: bool,
}

/// The cache of that name, or that has that alias.
pub fn find<'a>(snapshot: &'a Snapshot, name: &str) -> Option<Found<'a>> {
    if let Some(cache) = snapshot.caches.iter().find(|cache| *cache.name == *name) {
        return Some(Found { cache, by_alias: false });
    }
    snapshot
        .caches
        .iter()
        .find(|cache| aliases(cache).iter().any(|alias| **alias == *name))
        .map(|cache| Found { cache, by_alias: true })
}

/// The size class that `name` says: `64`, `1k`, `kmalloc-64`, `size-64`, or the name or alias of any cache of the class.
pub fn find_class<'a>(snapshot: &'a Snapshot, name: &str) -> Option<Row<'a>> {
    let bytes = class_bytes_of(name)
        .or_else(|| find(snapshot, name).and_then(|found| found.cache.class).map(|class| class.bytes))?;
    let members: Vec<&CacheView> =
        snapshot.caches.iter().filter(|cache| cache.class.is_some_and(|class| class.bytes == bytes)).collect();
    (!members.is_empty()).then(|| sum_class(bytes, members))
}

fn class_bytes_of(name: &str) -> Option<u64> {
    let size = name.strip_prefix("kmalloc-").or_else(|| name.strip_prefix("size-")).unwrap_or(name);
    let digits = size.trim_end_matches(['k', 'M']);
    let factor = match &size[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// The names among `candidates` that are most like `name`, the likest first, at most `limit`.
pub fn nearest<'c>(name: &str, candidates: impl IntoIterator<Item = &'c str>, limit: usize) -> Vec<&'c str> {
    let wanted = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = candidates
        .into_iter()
        .map(|candidate| (likeness(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score >= LEAST_LIKENESS)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(limit).map(|(_, candidate)| candidate).collect()
}

/// Spelling distance, with a part of a name counting as near: `ext4` is like `ext4_inode_cache`.
fn likeness(wanted: &str, candidate: &str) -> f64 {
    let spelling = strsim::normalized_damerau_levenshtein(wanted, candidate);
    if wanted.len() >= 3 && candidate.contains(wanted) { spelling.max(0.8) } else { spelling }
}

/// Cache and alias names that are most like `name`.
pub fn near_names<'a>(snapshot: &'a Snapshot, name: &str, limit: usize) -> Vec<&'a str> {
    let names = snapshot.caches.iter().map(|cache| &*cache.name);
    let other = snapshot.caches.iter().flat_map(|cache| aliases(cache).iter().map(|alias| &**alias));
    nearest(name, names.chain(other), limit)
}

/// Size classes that the machine has, as names, smallest first.
pub fn class_names(snapshot: &Snapshot) -> Vec<String> {
    let classes: std::collections::BTreeSet<u64> =
        snapshot.caches.iter().filter_map(|cache| cache.class.map(|class| class.bytes)).collect();
    classes.into_iter().map(class_name).collect()
}

#[cfg(test)]
mod tests;
