//! What slab debugging adds to an object, and which of its parts takes how much (`calculate_sizes`, mm/slub.c).

use super::{
    snapshot::{CacheView, SlabAttributes, Snapshot},
    waste::cache_waste,
};

/// How a kernel lays out an object, as far as debugging goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugLayout {
    /// Bytes of a pointer.
    pub word_bytes: u64,
    /// `sizeof(struct track)`, from BTF; two of them follow an object when its users are tracked. `None` if not known.
    pub track_bytes: Option<u64>,
}

impl Default for DebugLayout {
    fn default() -> Self {
        Self { word_bytes: 8, track_bytes: None }
    }
}

/// What lies between an object's own bytes and its stride, per object, bytes. The parts add up to
/// `slab_size - object_size`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugParts {
    /// Red zones on both sides, and the padding behind them.
    pub red_zone_bytes: u64,
    /// Who allocated and who freed it (`store_user`).
    pub tracking_bytes: u64,
    /// The free pointer, moved behind the object because poison fills it.
    pub poison_bytes: u64,
    /// Alignment, and a free pointer that lies outside for a reason other than poison.
    pub alignment_bytes: u64,
}

impl DebugParts {
    /// All parts.
    pub fn total_bytes(&self) -> u64 {
        [self.red_zone_bytes, self.tracking_bytes, self.poison_bytes, self.alignment_bytes]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    fn add(&mut self, of_object: Self, objects: u64) {
        let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes.saturating_mul(objects));
        add(&mut self.red_zone_bytes, of_object.red_zone_bytes);
        add(&mut self.tracking_bytes, of_object.tracking_bytes);
        add(&mut self.poison_bytes, of_object.poison_bytes);
        add(&mut self.alignment_bytes, of_object.alignment_bytes);
    }

    /// The parts that debugging alone adds.
    pub fn debug_bytes(&self) -> u64 {
        self.total_bytes().saturating_sub(self.alignment_bytes)
    }
}

/// Whether any debugging that makes objects larger is on.
pub fn is_debugged(attributes: &SlabAttributes) -> bool {
    attributes.flags.iter().any(|flag| matches!(*flag, "red_zone" | "poison" | "store_user"))
}

/// The parts of a cache's overhead per object.
///
/// `None` where sysfs does not say, and where the layout of `mm/slub.c` does not come out at the stride that the kernel
/// tells: then it is another layout, and a split would be a guess.
pub fn debug_parts(attributes: &SlabAttributes, is_kmalloc: bool, layout: DebugLayout) -> Option<DebugParts> {
    let object_bytes = attributes.object_size_bytes?;
    let stride_bytes = attributes.slab_size_bytes?;
    let overhead_bytes = stride_bytes.checked_sub(object_bytes)?;
    if !is_debugged(attributes) {
        return Some(DebugParts { alignment_bytes: overhead_bytes, ..DebugParts::default() });
    }
    let word = layout.word_bytes.max(1);
    let align = attributes.align_bytes.unwrap_or(word).max(word);
    let has = |flag| attributes.flags.contains(&flag);
    let rounding = object_bytes.checked_next_multiple_of(word)?.checked_sub(object_bytes)?;

    let mut parts = DebugParts::default();
    if has("red_zone") {
        // Behind the object: the bytes up to the next word, or a whole one; then a word of padding; before the object
        // of the next slot as much as keeps it aligned.
        let behind = if rounding == 0 { word } else { rounding };
        parts.red_zone_bytes = behind.checked_add(word)?.checked_add(word.checked_next_multiple_of(align)?)?;
    }
    if has("poison") {
        parts.poison_bytes = word;
    }
    if has("store_user") {
        // Since 6.1 a kmalloc object also remembers what was asked for, in an `unsigned int`; that falls into the
        // alignment where it is not there.
        let asked = if is_kmalloc { 4 } else { 0 };
        parts.tracking_bytes = layout.track_bytes?.checked_mul(2)?.checked_add(asked)?;
    }
    let known_bytes = parts.total_bytes();
    parts.alignment_bytes = overhead_bytes.checked_sub(known_bytes)?;
    // A free pointer that is outside for RCU or a constructor is a word; all else is less than the alignment.
    (parts.alignment_bytes < align.saturating_add(2 * word)).then_some(parts)
}

/// What debugging and alignment add to the live objects of all caches, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugTotals {
    /// By part, of the caches whose slots can be split.
    pub parts: DebugParts,
    /// Of the caches whose slots cannot be split.
    pub not_split_bytes: u64,
}

/// How the kernel of a snapshot lays out objects, as far as BTF tells.
pub fn layout_of(snapshot: &Snapshot) -> DebugLayout {
    DebugLayout { track_bytes: snapshot.evidence.machine.pages.track_struct_bytes, ..DebugLayout::default() }
}

/// The parts of one object of a cache; `None` as in [`debug_parts`].
pub fn cache_debug_parts(cache: &CacheView, layout: DebugLayout) -> Option<DebugParts> {
    debug_parts(cache.attributes.as_deref()?, cache.class.is_some(), layout)
}

/// The parts of all caches together.
pub fn total_debug(snapshot: &Snapshot) -> DebugTotals {
    let layout = layout_of(snapshot);
    let mut totals = DebugTotals::default();
    for cache in &snapshot.caches {
        let Some(bytes) = cache_waste(cache).and_then(|waste| waste.waterfall.debug_bytes) else { continue };
        let of_object = cache_debug_parts(cache, layout).filter(|parts| parts.total_bytes() > 0);
        // The waterfall's bytes are those of all live objects, so they are a whole number of times the parts of one;
        // unless slabinfo and sysfs were read around a change.
        let objects = of_object.and_then(|parts| bytes.checked_div(parts.total_bytes()));
        match of_object.zip(objects).filter(|(parts, objects)| parts.total_bytes().checked_mul(*objects) == Some(bytes))
        {
            Some((parts, objects)) => totals.parts.add(parts, objects),
            None => totals.not_split_bytes = totals.not_split_bytes.saturating_add(bytes),
        }
    }
    totals
}

/// The estimate of the 2007 kernel-list post: so many bytes an object, whatever the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugEstimate {
    /// Active objects × size.
    pub space_bytes: u64,
    /// Active objects × bytes an object, never more than the space.
    pub overhead_bytes: u64,
}

impl DebugEstimate {
    /// Of one cache.
    pub fn new(active_objects: u64, size_bytes: u64, debug_bytes_per_object: u64) -> Self {
        let space_bytes = active_objects.saturating_mul(size_bytes);
        let overhead_bytes = active_objects.saturating_mul(debug_bytes_per_object.min(size_bytes));
        Self { space_bytes, overhead_bytes }
    }

    /// Of two caches together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            space_bytes: self.space_bytes.saturating_add(other.space_bytes),
            overhead_bytes: self.overhead_bytes.saturating_add(other.overhead_bytes),
        }
    }

    /// Overhead as a share of the space, 0 to 1; `None` without objects.
    pub fn share(&self) -> Option<f64> {
        (self.space_bytes > 0).then(|| (self.overhead_bytes as f64 / self.space_bytes as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use std::sync::Arc;

    use super::*;
    use crate::model::{
        samples::{row, snapshot},
        waste::total_waste,
    };

    fn attributes(object: u64, stride: u64, align: u64, flags: &[&'static str]) -> SlabAttributes {
        SlabAttributes {
            object_size_bytes: Some(object),
            slab_size_bytes: Some(stride),
            align_bytes: Some(align),
            flags: flags.to_vec(),
            ..SlabAttributes::default()
        }
    }

    #[test]
    fn red_zones_alone_make_3072_bytes_of_a_kmalloc_1k() {
        // Linux 6.6 on a Raspberry Pi 4 prints 3072 for kmalloc-1k: buckets of a power of two are aligned to their size.
        let parts = debug_parts(&attributes(1024, 3072, 1024, &["red_zone"]), true, DebugLayout::default()).unwrap();
        let expected = DebugParts { red_zone_bytes: 8 + 8 + 1024, alignment_bytes: 1008, ..DebugParts::default() };
        assert_eq!(parts, expected);
        assert_eq!(parts.total_bytes(), 2048);
    }

    #[test]
    fn all_debugging_is_split_into_its_parts() {
        // 192 bytes, aligned to 8: 8 + 8 + 8 of red zone, 8 of free pointer, 2 × 32 of tracking.
        let flags = ["red_zone", "poison", "store_user"];
        let layout = DebugLayout { track_bytes: Some(32), ..DebugLayout::default() };
        let parts = debug_parts(&attributes(192, 288, 8, &flags), false, layout).unwrap();
        let expected = DebugParts { red_zone_bytes: 24, poison_bytes: 8, tracking_bytes: 64, alignment_bytes: 0 };
        assert_eq!(parts, expected);
        assert_eq!(parts.debug_bytes(), 96);
    }

    #[test]
    fn without_debugging_all_is_alignment() {
        let parts = debug_parts(&attributes(200, 256, 64, &["hwcache_align"]), false, DebugLayout::default()).unwrap();
        assert_eq!(parts, DebugParts { alignment_bytes: 56, ..DebugParts::default() });
    }

    #[test]
    fn a_stride_that_the_layout_does_not_give_is_not_split() {
        let layout = DebugLayout { track_bytes: Some(32), ..DebugLayout::default() };
        for (object, stride, flags) in [
            (192, 280, &["red_zone", "poison", "store_user"][..]),
            (192, 4096, &["red_zone"][..]),
            (192, 100, &["red_zone"][..]),
        ] {
            assert_eq!(debug_parts(&attributes(object, stride, 8, flags), false, layout), None, "{stride}");
        }
        let untold = debug_parts(&attributes(192, 288, 8, &["store_user"]), false, DebugLayout::default());
        assert_eq!(untold, None, "the size of struct track is not known");
        assert_eq!(debug_parts(&SlabAttributes::default(), false, layout), None);
    }

    #[test]
    fn all_caches_together_are_split_where_each_can_be() {
        let rows = vec![row("thing", [10, 18, 224, 18, 1, 1]), row("kmalloc-64", [3, 16, 256, 16, 1, 1])];
        let mut snapshot = snapshot(rows);
        let thing = snapshot.caches.iter_mut().find(|cache| &*cache.name == "thing").unwrap();
        thing.attributes = Some(Arc::new(attributes(192, 224, 8, &["red_zone", "poison"])));
        let parts = DebugParts { red_zone_bytes: 240, poison_bytes: 80, ..DebugParts::default() };
        assert_eq!(total_debug(&snapshot), DebugTotals { parts, not_split_bytes: 3 * 192 });
        let all = total_waste(&snapshot).debug_bytes;
        assert_eq!(all, Some(parts.total_bytes() + 3 * 192), "the same bytes as in the waterfall");
    }

    #[test]
    fn the_posts_estimate_is_24_bytes_an_object_and_never_above_the_space() {
        let size_32 = DebugEstimate::new(49882, 56, 24);
        assert_eq!((size_32.space_bytes, size_32.overhead_bytes), (2_793_392, 1_197_168));
        assert_eq!(DebugEstimate::new(10, 8, 24).share(), Some(1.0));
        assert_eq!(DebugEstimate::new(0, 8, 24).share(), None);
        assert_eq!(DebugEstimate::new(u64::MAX, u64::MAX, 24).plus(size_32).space_bytes, u64::MAX);
    }
}
