//! Verdicts in words: the evidence, and what to do next.

use std::time::Duration;

use super::{
    top::percent,
    units::{bytes, fractional_bytes},
};
use crate::model::{history::Trend, verdict::Verdict};

/// A verdict in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The verdict itself, a few words.
    pub verdict: &'static str,
    /// The figures that it rests on.
    pub evidence: String,
    /// What to do about it.
    pub next_step: &'static str,
}

/// A verdict in words.
pub fn words(verdict: &Verdict) -> Words {
    Words { verdict: name(verdict), evidence: evidence(verdict), next_step: next_step(verdict) }
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Growing { reclaimable: Some(true), .. } => "growing, reclaimable",
        Verdict::Growing { .. } => "growing without end",
        Verdict::Settling { .. } => "settling",
        Verdict::Steady { .. } => "steady",
        Verdict::Fragmented { .. } => "fragmented",
        Verdict::NegativeDentries { .. } => "negative dentries, reclaimable",
        Verdict::DebugPadding { .. } => "debug padding",
        Verdict::CounterDrift { .. } => "counter drift",
        Verdict::NotInAnyCache { .. } => "not in any cache",
        Verdict::OneCacheHoldsMost { .. } => "one cache holds most",
        Verdict::EqualCounts { .. } => "equal counts in several sizes",
        Verdict::TooLittleData { .. } => "too little data",
    }
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { percent(part as f64 / whole as f64) }
}

fn evidence(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Growing { trend, .. } | Verdict::Settling { trend } | Verdict::Steady { trend } => movement(trend),
        Verdict::Fragmented { free_bytes, held_bytes } => {
            let live = held_bytes.saturating_sub(*free_bytes);
            format!(
                "{} of {} held are free objects inside slabs ({}), {} are not",
                bytes(*free_bytes),
                bytes(*held_bytes),
                share(*free_bytes, *held_bytes),
                bytes(live)
            )
        }
        Verdict::NegativeDentries { negative, dentries, held_bytes } => format!(
            "{negative} of {dentries} dentries ({}) are of names that do not exist; the cache holds {}",
            percent_with_digit(*negative, *dentries),
            bytes(*held_bytes)
        ),
        Verdict::DebugPadding { padding_bytes, held_bytes } => format!(
            "debugging and alignment take {} of {} held ({})",
            bytes(*padding_bytes),
            bytes(*held_bytes),
            share(*padding_bytes, *held_bytes)
        ),
        Verdict::CounterDrift { caches_bytes, slab_bytes } => format!(
            "the caches hold {}, meminfo's Slab is {}: {} less",
            bytes(*caches_bytes),
            bytes(*slab_bytes),
            bytes(caches_bytes.saturating_sub(*slab_bytes))
        ),
        Verdict::NotInAnyCache { outside_bytes, large_kmalloc_bytes, slab_bytes } => {
            let traced = large_kmalloc_bytes.map_or_else(
                || "large kmalloc is not traced".to_owned(),
                |large| format!("of it {} are large kmalloc that was traced", bytes(large)),
            );
            format!(
                "{} of Slab ({}) are in no cache; {traced}",
                bytes(*outside_bytes),
                share(*outside_bytes, *slab_bytes)
            )
        }
        Verdict::OneCacheHoldsMost { held_bytes, caches_bytes, active_objects } => format!(
            "it holds {} of {} ({}) in {active_objects} objects",
            bytes(*held_bytes),
            bytes(*caches_bytes),
            percent_with_digit(*held_bytes, *caches_bytes)
        ),
        Verdict::EqualCounts { caches, objects, held_bytes } => format!(
            "{} have about {objects} objects each or a small multiple of it, all in use, and hold {} together",
            caches.join(", "),
            bytes(*held_bytes)
        ),
        Verdict::TooLittleData { watched, points } => match points {
            0 | 1 => "one reading says nothing of growth".to_owned(),
            _ => format!("watched for {}, {points} readings", minutes(*watched)),
        },
    }
}

fn movement(trend: &Trend) -> String {
    let per_minute = |bytes_per_second: f64| {
        let per_minute = bytes_per_second * 60.0;
        let sign = if per_minute < -0.5 { "-" } else { "" };
        format!("{sign}{}", fractional_bytes(per_minute.abs()))
    };
    format!(
        "{} to {} in {}; a minute {} at first, then {}, {} at last",
        bytes(trend.first_bytes),
        bytes(trend.last_bytes),
        minutes(trend.watched),
        per_minute(trend.early_bytes_per_second),
        per_minute(trend.middle_bytes_per_second),
        per_minute(trend.late_bytes_per_second)
    )
}

fn minutes(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    if minutes < 120 { format!("{minutes} min") } else { format!("{} h", minutes / 60) }
}

/// `96.9%`: where the last percent is the story.
fn percent_with_digit(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 / whole as f64 * 100.0) }
}

fn next_step(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Growing { reclaimable: Some(true), .. } => {
            "nothing while memory is free: the kernel takes it back under pressure; else find who walks or creates files"
        }
        Verdict::Growing { .. } => {
            "find who allocates: slabmon top --by growth names the caches, their call sites who takes; do not \
             back-date from today's rate"
        }
        Verdict::Settling { .. } => "nothing: it slows down; look again in an hour",
        Verdict::Steady { .. } => "nothing",
        Verdict::Fragmented { .. } => {
            "for reclaimable caches a lower order or a moment of pressure (vm.drop_caches) gives slabs back; else find \
             what freed most of a burst and keeps a few of each slab"
        }
        Verdict::NegativeDentries { .. } => {
            "no leak: the kernel takes them back under pressure; find who looks up names that do not exist"
        }
        Verdict::DebugPadding { .. } => {
            "boot without slab_debug= (slub_debug=), or name only the caches under suspicion in it"
        }
        Verdict::CounterDrift { .. } => {
            "slabinfo estimates long lists of slabs and sees another moment; read both again, then report it to the \
             kernel's maintainers"
        }
        Verdict::NotInAnyCache { .. } => {
            "watch kmalloc-large in slabmon top: kmallocs above the largest class are whole pages in no cache"
        }
        Verdict::OneCacheHoldsMost { .. } => {
            "watch it for half an hour: if it grows, find who takes; if not, it is sized so. Today's rate does not date it \
             back"
        }
        Verdict::EqualCounts { .. } => {
            "one path takes some of each and keeps them: suspect a driver that leaks; watch the growth of one of them"
        }
        Verdict::TooLittleData { .. } => {
            "growth needs half an hour of readings: run the daemon (slabmon), then ask again"
        }
    }
}
