//! How what is held moved over time, in bounded memory: a series is thinned when it is full, so that it always reaches
//! back to the start.

use std::{collections::HashMap, sync::Arc, time::Duration};

/// Points that a series keeps at most.
pub const MAX_POINTS: usize = 48;
/// Caches that are followed at most: those that came first, and any place that a vanished one leaves.
pub const MAX_CACHES: usize = 2048;

/// Bytes held over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    points: Vec<(Duration, u64)>,
    /// Least time between two kept points; doubles with each thinning.
    spacing: Duration,
    /// The newest reading, kept or not.
    newest: Option<(Duration, u64)>,
}

impl Series {
    /// Notes a reading; one that is not later than the last is passed over.
    pub fn push(&mut self, at: Duration, bytes: u64) {
        if self.newest.is_some_and(|(newest, _)| at <= newest) {
            return;
        }
        self.newest = Some((at, bytes));
        if let Some(&(last, _)) = self.points.last()
            && at.saturating_sub(last) < self.spacing
        {
            return;
        }
        self.points.push((at, bytes));
        if self.points.len() > MAX_POINTS {
            self.thin();
        }
    }

    /// Drops every second point, but never the first.
    fn thin(&mut self) {
        let mut keep = false;
        self.points.retain(|_| {
            keep = !keep;
            keep
        });
        let span = match (self.points.first(), self.points.last()) {
            (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
            _ => Duration::ZERO,
        };
        let intervals = u32::try_from(self.points.len().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        self.spacing = self.spacing.max(span / intervals);
    }

    /// All that is kept, the newest reading included, in order of time.
    pub fn points(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let newest = self.newest.filter(|newest| self.points.last() != Some(newest));
        self.points.iter().copied().chain(newest)
    }

    /// How it moved; `None` until there are two readings.
    pub fn trend(&self) -> Option<Trend> {
        Trend::of(&self.points().collect::<Vec<_>>())
    }
}

/// How bytes held moved over a time that was watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Readings that it is made of.
    pub points: usize,
    /// From the first to the last reading.
    pub watched: Duration,
    /// At the first reading.
    pub first_bytes: u64,
    /// At the last reading.
    pub last_bytes: u64,
    /// Bytes a second over the first third of the time.
    pub early_bytes_per_second: f64,
    /// Over the middle third.
    pub middle_bytes_per_second: f64,
    /// Over the last third.
    pub late_bytes_per_second: f64,
    /// The furthest that it ever fell below an earlier reading.
    pub largest_fall_bytes: u64,
}

impl Trend {
    /// Of readings in order of time; `None` for fewer than two, or no time between them.
    pub fn of(points: &[(Duration, u64)]) -> Option<Self> {
        let (&(first_at, first_bytes), &(last_at, last_bytes)) = (points.first()?, points.last()?);
        let watched = last_at.checked_sub(first_at).filter(|watched| !watched.is_zero())?;
        let third_seconds = watched.as_secs_f64() / 3.0;
        let at = |third: f64| bytes_at(points, first_at.as_secs_f64() + third * third_seconds);
        let per_second = |from: f64, to: f64| (at(to) - at(from)) / third_seconds;
        let mut highest = 0;
        let mut largest_fall_bytes = 0;
        for &(_, bytes) in points {
            highest = bytes.max(highest);
            largest_fall_bytes = largest_fall_bytes.max(highest - bytes);
        }
        Some(Self {
            points: points.len(),
            watched,
            first_bytes,
            last_bytes,
            early_bytes_per_second: per_second(0.0, 1.0),
            middle_bytes_per_second: per_second(1.0, 2.0),
            late_bytes_per_second: per_second(2.0, 3.0),
            largest_fall_bytes,
        })
    }

    /// What was gained; 0 if it shrank.
    pub fn growth_bytes(&self) -> u64 {
        self.last_bytes.saturating_sub(self.first_bytes)
    }
}

/// Bytes at a moment, in a straight line between the readings around it.
fn bytes_at(points: &[(Duration, u64)], seconds: f64) -> f64 {
    let after = points.partition_point(|(at, _)| at.as_secs_f64() < seconds);
    let before = after.checked_sub(1).and_then(|index| points.get(index));
    match (before, points.get(after)) {
        (Some((from, from_bytes)), Some((to, to_bytes))) => {
            let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
            let way = if to > from { (seconds - from) / (to - from) } else { 1.0 };
            *from_bytes as f64 + way * (*to_bytes as f64 - *from_bytes as f64)
        }
        (Some((_, bytes)), None) | (None, Some((_, bytes))) => *bytes as f64,
        (None, None) => 0.0,
    }
}

/// The trend of each cache that is followed, and of the totals.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trends {
    /// Bytes held, by cache.
    pub caches: HashMap<Arc<str>, Trend>,
    /// meminfo's SReclaimable.
    pub reclaimable: Option<Trend>,
    /// meminfo's SUnreclaim.
    pub unreclaimable: Option<Trend>,
}

/// The series of all caches and of the totals.
#[derive(Clone, Debug, Default)]
pub struct History {
    caches: HashMap<Arc<str>, Series>,
    reclaimable: Series,
    unreclaimable: Series,
}

impl History {
    /// Notes what each cache held at a moment; a cache that is not named is gone and forgotten.
    pub fn record_caches(&mut self, at: Duration, held: &HashMap<Arc<str>, u64>) {
        self.caches.retain(|name, _| held.contains_key(name));
        for (name, bytes) in held {
            if let Some(series) = self.caches.get_mut(name) {
                series.push(at, *bytes);
            } else if self.caches.len() < MAX_CACHES {
                let mut series = Series::default();
                series.push(at, *bytes);
                self.caches.insert(Arc::clone(name), series);
            }
        }
    }

    /// Notes meminfo's totals at a moment.
    pub fn record_totals(&mut self, at: Duration, reclaimable_bytes: Option<u64>, unreclaimable_bytes: Option<u64>) {
        if let Some(bytes) = reclaimable_bytes {
            self.reclaimable.push(at, bytes);
        }
        if let Some(bytes) = unreclaimable_bytes {
            self.unreclaimable.push(at, bytes);
        }
    }

    /// How each moved so far.
    pub fn trends(&self) -> Trends {
        Trends {
            caches: self.caches.iter().filter_map(|(name, series)| Some((Arc::clone(name), series.trend()?))).collect(),
            reclaimable: self.reclaimable.trend(),
            unreclaimable: self.unreclaimable.trend(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    const fn minutes(count: u64) -> Duration {
        Duration::from_secs(60 * count)
    }

    #[test]
    fn a_series_stays_bounded_and_reaches_back_to_its_start() {
        let mut series = Series::default();
        for reading in 0..100_000u64 {
            series.push(Duration::from_secs(10 * reading), reading * 4096);
        }
        let points: Vec<_> = series.points().collect();
        assert!(points.len() <= MAX_POINTS + 1, "{}", points.len());
        assert!(points.len() > MAX_POINTS / 2, "{}", points.len());
        assert_eq!(points.first(), Some(&(Duration::ZERO, 0)));
        assert_eq!(points.last(), Some(&(Duration::from_secs(999_990), 99_999 * 4096)));
        assert!(points.is_sorted());
        let trend = series.trend().unwrap();
        for rate in [trend.early_bytes_per_second, trend.middle_bytes_per_second, trend.late_bytes_per_second] {
            assert!((rate - 409.6).abs() < 0.1, "{rate}");
        }
    }

    #[test]
    fn one_reading_has_no_trend_and_an_old_one_is_passed_over() {
        let mut series = Series::default();
        series.push(minutes(5), 1);
        series.push(minutes(5), 2);
        series.push(minutes(4), 3);
        assert_eq!(series.trend(), None);
        series.push(minutes(6), 1);
        assert_eq!(series.trend().unwrap().points, 2);
    }

    #[test]
    fn a_fall_is_remembered() {
        let trend = Trend::of(&[(minutes(0), 10), (minutes(1), 50), (minutes(2), 20), (minutes(3), 60)]).unwrap();
        assert_eq!((trend.largest_fall_bytes, trend.growth_bytes()), (30, 50));
    }

    #[test]
    fn no_more_caches_are_followed_than_the_bound_and_a_vanished_one_makes_room() {
        let name = |number: usize| Arc::<str>::from(format!("cache-{number}"));
        let mut history = History::default();
        let held: HashMap<_, _> = (0..MAX_CACHES + 500).map(|number| (name(number), 4096)).collect();
        history.record_caches(minutes(0), &held);
        assert_eq!(history.caches.len(), MAX_CACHES);
        let fewer: HashMap<_, _> = (0..10).map(|number| (name(number), 8192)).collect();
        history.record_caches(minutes(1), &fewer);
        assert_eq!(history.caches.len(), 10);
    }
}
