//! The series budget: which caches get series in `/metrics` when not all may.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use regex::RegexSet;

use super::{
    snapshot::{CacheView, SlabState},
    waste::{Part, cache_waste},
};

/// Caches that get series of their waste and drift: the largest ones, as the others have little of either.
pub const DETAILED_CACHES: usize = 40;

/// Why limits cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// A pattern is no regular expression.
    #[error("the {list} pattern `{pattern}` is no regular expression: {reason}; correct or remove it")]
    BadPattern {
        /// `include` or `exclude`.
        list: &'static str,
        /// As configured.
        pattern: String,
        /// What the parser says, in one line.
        reason: String,
    },
    /// Each pattern is fine, but together they are too large.
    #[error("the {list} patterns cannot be used together: {reason}; use fewer or simpler ones")]
    BadPatterns {
        /// `include` or `exclude`.
        list: &'static str,
        /// What the parser says, in one line.
        reason: String,
    },
}

/// Which cache names are wanted. A pattern matches anywhere in the name, unless it is anchored with `^` and `$`.
#[derive(Clone, Debug, Default)]
pub struct CachePatterns {
    /// Empty: all names.
    include: RegexSet,
    exclude: RegexSet,
}

impl CachePatterns {
    /// Patterns from their text. No include pattern means all names.
    ///
    /// # Errors
    /// [`LimitsError`] names the first pattern that is no regular expression.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, LimitsError> {
        Ok(Self { include: parse_patterns("include", include)?, exclude: parse_patterns("exclude", exclude)? })
    }

    /// Whether `name` is included and not excluded.
    pub fn admit(&self, name: &str) -> bool {
        (self.include.is_empty() || self.include.is_match(name)) && !self.exclude.is_match(name)
    }
}

fn parse_patterns<S: AsRef<str>>(list: &'static str, patterns: &[S]) -> Result<RegexSet, LimitsError> {
    for pattern in patterns {
        if let Err(error) = regex::Regex::new(pattern.as_ref()) {
            return Err(LimitsError::BadPattern {
                list,
                pattern: pattern.as_ref().to_owned(),
                reason: last_line(&error),
            });
        }
    }
    RegexSet::new(patterns).map_err(|error| LimitsError::BadPatterns { list, reason: last_line(&error) })
}

/// The parser draws a picture of several lines; the last one says what is wrong.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Caches and the series that they would have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Caches.
    pub caches: usize,
    /// Their series.
    pub series: usize,
}

impl LeftOut {
    fn add(&mut self, series: usize) {
        self.caches += 1;
        self.series += series;
    }
}

/// Which caches get series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesChoice {
    /// Sorted.
    kept: Vec<Arc<str>>,
    /// Those of them that get series of their waste and drift; sorted.
    kept_details: Vec<Arc<str>>,
    /// Series of the kept caches.
    pub kept_series: usize,
    /// Left out by the patterns.
    pub by_pattern: LeftOut,
    /// Left out because the budget was used up.
    pub by_budget: LeftOut,
}

impl SeriesChoice {
    /// All of `caches`.
    pub fn all(caches: &[CacheView]) -> Self {
        SeriesBudget::new(CachePatterns::default(), usize::MAX).choose(caches)
    }

    /// Whether the cache of this name gets series.
    pub fn keeps(&self, name: &str) -> bool {
        self.kept.binary_search_by(|kept| (**kept).cmp(name)).is_ok()
    }

    /// Whether the cache of this name gets series of its waste and drift.
    pub fn keeps_details(&self, name: &str) -> bool {
        self.kept_details.binary_search_by(|kept| (**kept).cmp(name)).is_ok()
    }

    /// How many caches get series.
    pub fn kept_caches(&self) -> usize {
        self.kept.len()
    }
}

/// Chooses the caches that get series, and remembers them so that series do not come and go.
#[derive(Clone, Debug)]
pub struct SeriesBudget {
    patterns: CachePatterns,
    max_series: usize,
    kept: HashSet<Arc<str>>,
    kept_details: HashSet<Arc<str>>,
}

impl SeriesBudget {
    /// At most `max_series` series over all caches; 0 is none.
    pub fn new(patterns: CachePatterns, max_series: usize) -> Self {
        Self { patterns, max_series, kept: HashSet::new(), kept_details: HashSet::new() }
    }

    /// Chooses among `caches`.
    ///
    /// Pseudo-caches come first, then caches by the bytes that they hold, largest first, ties by name. A cache that was
    /// chosen before is taken for twice as large as it is: only one that holds more than double can push it out, so
    /// that series do not flap, and yet one that grows without end gets in. The [`DETAILED_CACHES`] largest get series of
    /// their waste and drift beside the others, by the same rule.
    pub fn choose(&mut self, caches: &[CacheView]) -> SeriesChoice {
        let mut choice = SeriesChoice::default();
        let mut candidates = Vec::with_capacity(caches.len());
        for cache in caches {
            if self.patterns.admit(&cache.name) {
                candidates.push(cache);
            } else {
                choice.by_pattern.add(series_of(cache));
            }
        }
        let detailed = self.choose_detailed(&candidates);
        candidates.sort_unstable_by_key(|cache| rank(cache, &self.kept));
        for cache in candidates {
            let details = detailed.get(&*cache.name);
            let series = series_of(cache) + details.copied().unwrap_or(0);
            if series <= self.max_series - choice.kept_series {
                choice.kept_series += series;
                choice.kept.push(cache.name.clone());
                choice.kept_details.extend(details.map(|_| cache.name.clone()));
            } else {
                choice.by_budget.add(series);
            }
        }
        choice.kept.sort_unstable();
        choice.kept_details.sort_unstable();
        self.kept = choice.kept.iter().cloned().collect();
        self.kept_details = choice.kept_details.iter().cloned().collect();
        choice
    }

    /// The caches that get series of their waste and drift, and how many.
    fn choose_detailed<'a>(&self, candidates: &[&'a CacheView]) -> HashMap<&'a str, usize> {
        let mut largest: Vec<&CacheView> = candidates.iter().copied().filter(|cache| cache.slab.is_some()).collect();
        largest.sort_unstable_by_key(|cache| rank(cache, &self.kept_details));
        largest.truncate(DETAILED_CACHES);
        largest.into_iter().map(|cache| (&*cache.name, detail_series_of(cache))).collect()
    }
}

/// Sorts the cache to keep first to the front.
fn rank<'a>(cache: &'a CacheView, kept: &HashSet<Arc<str>>) -> (Reverse<bool>, Reverse<u128>, Reverse<bool>, &'a str) {
    let was_kept = kept.contains(&cache.name);
    let weight = u128::from(held_bytes(cache)) * if was_kept { 2 } else { 1 };
    (Reverse(cache.pseudo), Reverse(weight), Reverse(was_kept), &cache.name)
}

/// Bytes held by slabinfo, else those that the probes saw allocated and not freed.
fn held_bytes(cache: &CacheView) -> u64 {
    match (&cache.slab, &cache.traced) {
        (Some(slab), _) => slab.memory_bytes,
        (None, Some(traced)) => traced.counts.allocated_bytes.saturating_sub(traced.counts.freed_bytes),
        (None, None) => 0,
    }
}

/// How many series a cache has in `/metrics`, those of its waste and drift aside.
pub fn series_of(cache: &CacheView) -> usize {
    /// Allocations, frees, failures; requested, allocated and freed bytes.
    const TRACED: usize = 6;
    /// Active objects, objects, slabs, bytes held.
    const SLAB: usize = 4;
    let traced = cache.traced.map_or(0, |_| TRACED);
    let slab = cache.slab.map_or(0, |SlabState { object_size_bytes, objects_per_slab, pages_per_slab, .. }| {
        SLAB + [object_size_bytes, objects_per_slab, pages_per_slab].into_iter().flatten().count()
    });
    traced + slab
}

/// How many series a cache's waste and drift have: one for each part that is known, the drift and its bound.
pub fn detail_series_of(cache: &CacheView) -> usize {
    let waste = cache_waste(cache)
        .map_or(0, |waste| Part::WASTE.into_iter().filter_map(|part| waste.waterfall.part_bytes(part)).count());
    let drift = cache.traced.and_then(|traced| traced.drift);
    waste + drift.map_or(0, |drift| 1 + usize::from(drift.bound_objects.is_some()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::snapshot::Traced;

    /// Of one cache: 13, and of its waste free objects and slab tail.
    const SERIES: usize = 15;

    fn cache(name: &str, memory_bytes: u64) -> CacheView {
        CacheView {
            name: name.into(),
            class: None,
            pseudo: false,
            traced: Some(Traced::default()),
            slab: Some(SlabState {
                object_size_bytes: Some(64),
                objects_per_slab: Some(64),
                pages_per_slab: Some(1),
                memory_bytes,
                ..SlabState::default()
            }),
            attributes: None,
        }
    }

    fn pseudo_cache(name: &str) -> CacheView {
        CacheView { pseudo: true, slab: None, ..cache(name, 0) }
    }

    fn budget(caches: usize) -> SeriesBudget {
        SeriesBudget::new(CachePatterns::default(), caches * SERIES)
    }

    fn kept(choice: &SeriesChoice) -> Vec<&str> {
        choice.kept.iter().map(|name| &**name).collect()
    }

    #[test]
    fn within_the_budget_all_caches_are_kept() {
        let choice = budget(2).choose(&[cache("a", 1), cache("b", 2)]);
        assert_eq!(kept(&choice), ["a", "b"]);
        assert_eq!(
            (choice.kept_series, choice.by_budget, choice.by_pattern),
            (2 * SERIES, LeftOut::default(), LeftOut::default())
        );
    }

    #[test]
    fn the_largest_caches_are_kept_and_the_rest_is_counted() {
        let choice = budget(2).choose(&[cache("a", 1), cache("b", 3), cache("c", 2), cache("d", 0)]);
        assert_eq!(kept(&choice), ["b", "c"]);
        assert_eq!(choice.by_budget, LeftOut { caches: 2, series: 2 * SERIES });
        assert!(choice.keeps("b") && !choice.keeps("a") && !choice.keeps("zz"));
    }

    #[test]
    fn a_tie_goes_by_name_whatever_the_order_of_the_caches() {
        let mut caches = vec![cache("a", 5), cache("b", 5), cache("c", 5)];
        assert_eq!(kept(&budget(2).choose(&caches)), ["a", "b"]);
        caches.reverse();
        assert_eq!(kept(&budget(2).choose(&caches)), ["a", "b"]);
    }

    #[test]
    fn a_kept_cache_stays_until_another_holds_more_than_double() {
        let mut budget = budget(1);
        assert_eq!(kept(&budget.choose(&[cache("a", 100), cache("b", 99)])), ["a"]);
        assert_eq!(kept(&budget.choose(&[cache("a", 100), cache("b", 200)])), ["a"]);
        assert_eq!(kept(&budget.choose(&[cache("a", 100), cache("b", 201)])), ["b"]);
        assert_eq!(kept(&budget.choose(&[cache("a", 100), cache("b", 51)])), ["b"]);
    }

    #[test]
    fn a_kept_cache_that_vanished_makes_room() {
        let mut budget = budget(1);
        budget.choose(&[cache("a", 100), cache("b", 1)]);
        assert_eq!(kept(&budget.choose(&[cache("b", 1)])), ["b"]);
    }

    #[test]
    fn kept_caches_that_hold_nothing_stay_too() {
        let mut budget = budget(1);
        budget.choose(&[cache("b", 0)]);
        assert_eq!(kept(&budget.choose(&[cache("a", 0), cache("b", 0)])), ["b"]);
    }

    #[test]
    fn pseudo_caches_come_first() {
        let choice = budget(1).choose(&[cache("a", u64::MAX), pseudo_cache("kmalloc-large")]);
        assert_eq!(kept(&choice), ["kmalloc-large"]);
        assert_eq!((choice.kept_series, choice.by_budget), (6, LeftOut { caches: 1, series: SERIES }));
    }

    #[test]
    fn only_the_largest_caches_get_series_of_their_details_and_they_keep_them() {
        let name = |number: usize| format!("cache-{number:03}");
        let of = |bytes: &dyn Fn(usize) -> u64| -> Vec<CacheView> {
            (0..DETAILED_CACHES + 10).map(|number| cache(&name(number), bytes(number))).collect()
        };
        let mut budget = budget(usize::MAX / SERIES);
        let choice = budget.choose(&of(&|number| 1000 - number as u64));
        assert_eq!((choice.kept_caches(), choice.kept_details.len()), (DETAILED_CACHES + 10, DETAILED_CACHES));
        assert_eq!(choice.kept_series, (DETAILED_CACHES + 10) * 13 + DETAILED_CACHES * 2);
        assert!(choice.keeps_details(&name(DETAILED_CACHES - 1)) && !choice.keeps_details(&name(DETAILED_CACHES)));
        let again = budget.choose(&of(&|number| 1000 + number as u64));
        assert_eq!(again.kept_details, choice.kept_details, "a little more does not push anything out");
        let doubled = budget.choose(&of(&|number| if number == DETAILED_CACHES { 3000 } else { 1000 }));
        assert!(doubled.keeps_details(&name(DETAILED_CACHES)));
    }

    #[test]
    fn without_slabinfo_the_bytes_not_freed_decide() {
        let traced = |name, allocated_bytes, freed_bytes| {
            let mut cache = cache(name, 0);
            cache.slab = None;
            cache.traced.as_mut().unwrap().counts.allocated_bytes = allocated_bytes;
            cache.traced.as_mut().unwrap().counts.freed_bytes = freed_bytes;
            cache
        };
        let choice =
            budget(1).choose(&[traced("a", 100, 100), traced("b", 50, 10), traced("c", 50, 20), traced("d", 0, 9)]);
        assert_eq!(kept(&choice), ["b", "c"]);
    }

    #[test]
    fn a_budget_of_nothing_keeps_nothing_and_says_so() {
        let choice = budget(0).choose(&[cache("a", 1)]);
        assert_eq!((choice.kept_caches(), choice.by_budget), (0, LeftOut { caches: 1, series: SERIES }));
    }

    #[test]
    fn patterns_leave_out_before_the_budget_is_spent() {
        let patterns = CachePatterns::new(&["^kmalloc-", "dentry"], &["-cg-"]).unwrap();
        let mut budget = SeriesBudget::new(patterns, SERIES);
        let choice = budget.choose(&[
            cache("dentry", 1),
            cache("kmalloc-64", 5),
            cache("kmalloc-cg-64", 9),
            cache("my-kmalloc-64", 9),
        ]);
        assert_eq!(kept(&choice), ["kmalloc-64"]);
        assert_eq!(choice.by_pattern, LeftOut { caches: 2, series: 26 });
        assert_eq!(choice.by_budget, LeftOut { caches: 1, series: SERIES });
    }

    #[test]
    fn exclude_wins_over_include() {
        let patterns = CachePatterns::new(&["dentry"], &["dentry"]).unwrap();
        assert!(!patterns.admit("dentry"));
    }

    #[test]
    fn without_patterns_every_name_is_admitted() {
        assert!(CachePatterns::default().admit("page->ptl") && CachePatterns::default().admit(""));
    }

    #[test]
    fn a_bad_pattern_is_named_with_its_list_in_one_line() {
        let error = CachePatterns::new(&["fine"], &["fine", "kmalloc-(64"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the exclude pattern `kmalloc-(64` is no regular expression: unclosed group; correct or remove it"
        );
    }

    #[test]
    fn summed_rows_that_differ_have_fewer_series() {
        let mut cache = cache("file_lock_cache", 8192);
        cache.slab.as_mut().unwrap().object_size_bytes = None;
        assert_eq!(series_of(&cache), 12);
        cache.traced = None;
        assert_eq!(series_of(&cache), 6);
        cache.slab = None;
        assert_eq!(series_of(&cache), 0);
    }
}
