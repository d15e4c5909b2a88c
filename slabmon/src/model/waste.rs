//! The waterfall: where every byte that a cache holds goes. The parts add up to the whole, whatever the row says; what
//! cannot be told apart is a part of its own.

use super::snapshot::{CacheView, Snapshot};

/// Allocations that must have been traced before the rounding of a kmalloc cache is told from them.
pub const MIN_TRACED_ALLOCATIONS: u64 = 1000;

/// What slabinfo cannot mean: the row was caught in the middle of a change, or is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// More objects in use than there are.
    ActiveAboveObjects,
    /// More objects than the slabs have room for.
    ObjectsAboveSlabs,
    /// The objects need more bytes than the slabs have.
    ObjectsAboveHeld,
    /// The object without debugging is larger than with it.
    ObjectAboveStride,
    /// More bytes than 64 bits count.
    Overflow,
}

impl Anomaly {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ActiveAboveObjects => "more active objects than objects",
            Self::ObjectsAboveSlabs => "more objects than the slabs have room for",
            Self::ObjectsAboveHeld => "the objects need more bytes than the slabs have",
            Self::ObjectAboveStride => "the object is larger than its slot",
            Self::Overflow => "more bytes than 64 bits count",
        }
    }
}

/// A part of what is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Asked for by those who use the objects.
    Requested,
    /// A kmalloc bucket's size less what was asked for.
    Rounding,
    /// Slot less object: debugging and alignment.
    Debug,
    /// Slots of objects that are not in use.
    Free,
    /// The end of each slab, where no object fits.
    Tail,
    /// What cannot be told apart.
    Unknown,
}

impl Part {
    /// All parts, in the order in which the bytes run off.
    pub const ALL: [Self; 6] = [Self::Requested, Self::Rounding, Self::Debug, Self::Free, Self::Tail, Self::Unknown];

    /// Those that nobody asked for.
    pub const WASTE: [Self; 4] = [Self::Rounding, Self::Debug, Self::Free, Self::Tail];

    /// A label for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Rounding => "rounding",
            Self::Debug => "debug_and_alignment",
            Self::Free => "free_objects",
            Self::Tail => "slab_tail",
            Self::Unknown => "unknown",
        }
    }
}

/// Where the bytes of a cache (or of several) go. Every part is within what is held, and [`Self::sum_bytes`] is it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waterfall {
    /// Slabs × pages × page size.
    pub held_bytes: u64,
    /// See [`Part::Requested`].
    pub requested_bytes: Option<u64>,
    /// See [`Part::Rounding`].
    pub rounding_bytes: Option<u64>,
    /// See [`Part::Debug`].
    pub debug_bytes: Option<u64>,
    /// See [`Part::Free`].
    pub free_bytes: Option<u64>,
    /// See [`Part::Tail`].
    pub tail_bytes: Option<u64>,
    /// What the parts that are `None` make up together.
    pub unknown_bytes: u64,
}

impl Waterfall {
    /// One part; `None` where it is within [`Part::Unknown`].
    pub fn part_bytes(&self, part: Part) -> Option<u64> {
        match part {
            Part::Requested => self.requested_bytes,
            Part::Rounding => self.rounding_bytes,
            Part::Debug => self.debug_bytes,
            Part::Free => self.free_bytes,
            Part::Tail => self.tail_bytes,
            Part::Unknown => Some(self.unknown_bytes),
        }
    }

    /// All parts together.
    pub fn sum_bytes(&self) -> u64 {
        Part::ALL.iter().filter_map(|part| self.part_bytes(*part)).fold(0, u64::saturating_add)
    }

    /// A part as a share of what is held, 0 to 1; `None` where it is unknown or nothing is held.
    pub fn share(&self, part: Part) -> Option<f64> {
        let bytes = self.part_bytes(part)?;
        (self.held_bytes > 0).then(|| (bytes as f64 / self.held_bytes as f64).min(1.0))
    }

    /// Two caches together. A part that one of them does not know counts as far as it is known; the rest of it is in
    /// [`Part::Unknown`].
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (known, None) | (None, known) => known,
        };
        Self {
            held_bytes: self.held_bytes.saturating_add(other.held_bytes),
            requested_bytes: add(self.requested_bytes, other.requested_bytes),
            rounding_bytes: add(self.rounding_bytes, other.rounding_bytes),
            debug_bytes: add(self.debug_bytes, other.debug_bytes),
            free_bytes: add(self.free_bytes, other.free_bytes),
            tail_bytes: add(self.tail_bytes, other.tail_bytes),
            unknown_bytes: self.unknown_bytes.saturating_add(other.unknown_bytes),
        }
    }
}

/// A cache's waterfall and what is odd about its row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheWaste {
    /// The parts.
    pub waterfall: Waterfall,
    /// Used bytes of a full slab: objects per slab × size. `None` where the rows of the name differ.
    pub used_per_slab_bytes: Option<u64>,
    /// The end of a slab, where no object fits.
    pub empty_per_slab_bytes: Option<u64>,
    /// What the row cannot mean; the figures are then cut to what can be.
    pub anomalies: Vec<Anomaly>,
}

impl CacheWaste {
    /// The waste of the 2007 post: the ends of all slabs.
    pub fn slab_waste_bytes(&self, slabs: u64) -> Option<u64> {
        self.empty_per_slab_bytes.map(|empty| empty.saturating_mul(slabs))
    }
}

/// The size of an object without debugging and alignment: from sysfs, else from the name of a kmalloc bucket.
pub fn object_bytes(cache: &CacheView) -> Option<u64> {
    cache
        .attributes
        .as_ref()
        .and_then(|attributes| attributes.object_size_bytes)
        .or_else(|| cache.class.map(|class| class.bytes))
}

/// What an allocation asked for on average, as a fraction `(bytes, allocations)`. A cache that is no kmalloc bucket is
/// always asked for its object size.
fn mean_requested(cache: &CacheView, object_bytes: u64) -> Option<(u64, u64)> {
    if cache.class.is_none() {
        return Some((object_bytes, 1));
    }
    let counts = cache.traced?.counts;
    (counts.allocations >= MIN_TRACED_ALLOCATIONS).then_some((counts.requested_bytes, counts.allocations))
}

/// Where the bytes of a cache go; `None` for one that slabinfo does not list.
pub fn cache_waste(cache: &CacheView) -> Option<CacheWaste> {
    let slab = cache.slab.as_ref()?;
    let held_bytes = slab.memory_bytes;
    let mut anomalies = Vec::new();
    if slab.active_objects > slab.objects {
        anomalies.push(Anomaly::ActiveAboveObjects);
    }
    let room = slab.objects_per_slab.map(|per_slab| per_slab.saturating_mul(slab.slabs));
    if room.is_some_and(|room| slab.objects > room) {
        anomalies.push(Anomaly::ObjectsAboveSlabs);
    }
    if held_bytes == u64::MAX {
        anomalies.push(Anomaly::Overflow);
    }
    let slab_bytes = held_bytes.checked_div(slab.slabs);
    let used_per_slab_bytes =
        slab.object_size_bytes.zip(slab.objects_per_slab).map(|(size, count)| size.saturating_mul(count));
    let empty_per_slab_bytes = slab_bytes.zip(used_per_slab_bytes).and_then(|(slab, used)| slab.checked_sub(used));
    let Some(size_bytes) = slab.object_size_bytes else {
        let waterfall = Waterfall { held_bytes, unknown_bytes: held_bytes, ..Waterfall::default() };
        return Some(CacheWaste { waterfall, used_per_slab_bytes, empty_per_slab_bytes, anomalies });
    };

    let mut objects = room.map_or(slab.objects, |room| slab.objects.min(room));
    if slab.objects.checked_mul(size_bytes).is_none_or(|bytes| bytes > held_bytes) {
        anomalies.push(Anomaly::ObjectsAboveHeld);
    }
    if let Some(most) = held_bytes.checked_div(size_bytes) {
        objects = objects.min(most);
    }
    let active = slab.active_objects.min(objects);
    // Within `held_bytes` by now, so none of these can overflow.
    let object_area_bytes = objects.saturating_mul(size_bytes);
    let live_bytes = active.saturating_mul(size_bytes);
    let object_bytes = object_bytes(cache);
    if object_bytes.is_some_and(|object| object > size_bytes) {
        anomalies.push(Anomaly::ObjectAboveStride);
    }
    anomalies.sort_unstable();

    let mut waterfall = Waterfall {
        held_bytes,
        free_bytes: Some(object_area_bytes - live_bytes),
        tail_bytes: Some(held_bytes - object_area_bytes),
        unknown_bytes: live_bytes,
        ..Waterfall::default()
    };
    if let Some(object_bytes) = object_bytes.filter(|object| *object <= size_bytes) {
        split_live(&mut waterfall, cache, active, object_bytes, live_bytes);
    }
    Some(CacheWaste { waterfall, used_per_slab_bytes, empty_per_slab_bytes, anomalies })
}

/// Splits the bytes of active objects; `object_bytes` is at most the stride, and `live_bytes` is active × stride.
fn split_live(waterfall: &mut Waterfall, cache: &CacheView, active: u64, object_bytes: u64, live_bytes: u64) {
    let payload_bytes = active.saturating_mul(object_bytes);
    waterfall.debug_bytes = Some(live_bytes - payload_bytes);
    waterfall.unknown_bytes = payload_bytes;
    let Some((asked_bytes, allocations)) = mean_requested(cache, object_bytes).filter(|(_, count)| *count > 0) else {
        return;
    };
    let requested = u128::from(active) * u128::from(asked_bytes) / u128::from(allocations);
    let requested_bytes = u64::try_from(requested).unwrap_or(u64::MAX).min(payload_bytes);
    waterfall.requested_bytes = Some(requested_bytes);
    waterfall.rounding_bytes = Some(payload_bytes - requested_bytes);
    waterfall.unknown_bytes = 0;
}

/// All caches together.
pub fn total_waste(snapshot: &Snapshot) -> Waterfall {
    snapshot.caches.iter().filter_map(cache_waste).fold(Waterfall::default(), |sum, cache| sum.plus(&cache.waterfall))
}

#[cfg(test)]
mod tests;
