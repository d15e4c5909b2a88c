//! What a change of a cache would give back: a smaller struct, another slab order, a size of the user's choice.

use super::snapshot::{CacheView, Snapshot};

/// Slab orders that are tried. The kernel goes above 3 only where an object needs it (`PAGE_ALLOC_COSTLY_ORDER`).
pub const ORDERS: [u32; 4] = [0, 1, 2, 3];
/// Alignment of a size where sysfs does not tell it: a pointer of a 64-bit kernel, or what the size itself is a multiple of.
pub const DEFAULT_ALIGN_BYTES: u64 = 8;
/// A struct is worth shrinking only by a part of it that may be found: a quarter.
const MAX_SHAVE_DIVISOR: u64 = 4;

/// Why there is nothing to be had from a smaller object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoGain {
    /// slabinfo does not list it, or its rows differ.
    NotKnown,
    /// It has no slab.
    Empty,
    /// One more object would fit as it is: the allocator keeps the room for its own (the slab header of SLAB).
    RoomIsTaken,
    /// One more would have to be smaller than an object can be.
    TooSmall,
}

impl NoGain {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotKnown => "size or slabs are not known",
            Self::Empty => "it has no slab",
            Self::RoomIsTaken => "one more object would fit as it is: the allocator keeps that room for itself",
            Self::TooSmall => "one more object would have to be smaller than its alignment",
        }
    }
}

/// The size that fits one more object a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneMore {
    /// Objects a slab now.
    pub objects_per_slab: u64,
    /// Objects a slab then.
    pub objects_per_slab_then: u64,
    /// Largest size at which they fit, before alignment.
    pub limit_bytes: u64,
    /// The same, rounded down to the alignment.
    pub size_bytes: u64,
    /// Bytes to take off the object.
    pub shave_bytes: u64,
    /// Held now.
    pub held_bytes: u64,
    /// Held then, for as many objects.
    pub held_then_bytes: u64,
}

impl OneMore {
    /// What comes back.
    pub fn returned_bytes(&self) -> u64 {
        self.held_bytes.saturating_sub(self.held_then_bytes)
    }
}

/// Objects of a size in slabs of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// log2 of the pages of a slab.
    pub order: u32,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Objects a slab; 0 if not one fits.
    pub objects_per_slab: u64,
    /// The end of each slab, where no object fits.
    pub tail_bytes: u64,
    /// Held for the cache's objects; `None` if not one fits.
    pub held_bytes: Option<u64>,
}

/// A cache as this module needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Objects that the slabs have room for.
    pub objects: u64,
    /// Stride, bytes.
    pub size_bytes: u64,
    /// Objects a slab.
    pub objects_per_slab: u64,
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Slabs × bytes of a slab.
    pub held_bytes: u64,
    /// What a size is rounded to.
    pub align_bytes: u64,
}

impl Shape {
    /// Of a cache.
    ///
    /// # Errors
    /// [`NoGain::NotKnown`] or [`NoGain::Empty`].
    pub fn of(cache: &CacheView) -> Result<Self, NoGain> {
        let slab = cache.slab.as_ref().ok_or(NoGain::NotKnown)?;
        let size_bytes = slab.object_size_bytes.filter(|size| *size > 0).ok_or(NoGain::NotKnown)?;
        let objects_per_slab = slab.objects_per_slab.filter(|count| *count > 0).ok_or(NoGain::NotKnown)?;
        let slab_bytes = slab.memory_bytes.checked_div(slab.slabs).ok_or(NoGain::Empty)?;
        let align = cache.attributes.as_ref().and_then(|attributes| attributes.align_bytes);
        Ok(Self {
            objects: slab.objects,
            size_bytes,
            objects_per_slab,
            slab_bytes,
            held_bytes: slab.memory_bytes,
            align_bytes: align.map_or(DEFAULT_ALIGN_BYTES.min(1 << size_bytes.trailing_zeros()), |align| {
                align.max(DEFAULT_ALIGN_BYTES)
            }),
        })
    }

    /// Held if a slab had `objects_per_slab`; never more than 64 bits count.
    fn held_by(&self, objects_per_slab: u64, slab_bytes: u64) -> Option<u64> {
        (objects_per_slab > 0).then(|| self.objects.div_ceil(objects_per_slab).saturating_mul(slab_bytes))
    }

    /// The size that fits one more object a slab, and what that gives back.
    ///
    /// # Errors
    /// [`NoGain::RoomIsTaken`] or [`NoGain::TooSmall`].
    pub fn one_more(&self) -> Result<OneMore, NoGain> {
        let then = self.objects_per_slab.saturating_add(1);
        let limit_bytes = self.slab_bytes / then;
        if limit_bytes >= self.size_bytes {
            return Err(NoGain::RoomIsTaken);
        }
        let size_bytes = limit_bytes - limit_bytes % self.align_bytes;
        if size_bytes < self.align_bytes {
            return Err(NoGain::TooSmall);
        }
        Ok(OneMore {
            objects_per_slab: self.objects_per_slab,
            objects_per_slab_then: then,
            limit_bytes,
            size_bytes,
            shave_bytes: self.size_bytes - size_bytes,
            held_bytes: self.held_bytes,
            held_then_bytes: self.held_by(then, self.slab_bytes).unwrap_or(self.held_bytes).min(self.held_bytes),
        })
    }

    /// Objects of `size_bytes` (rounded up to the alignment) in slabs of `order`.
    pub fn fit(&self, size_bytes: u64, order: u32, page_bytes: u64) -> Fit {
        let stride_bytes = size_bytes.max(1).checked_next_multiple_of(self.align_bytes).unwrap_or(u64::MAX);
        let slab_bytes = 1u64.checked_shl(order).unwrap_or(u64::MAX).saturating_mul(page_bytes);
        let objects_per_slab = slab_bytes / stride_bytes;
        Fit {
            order,
            slab_bytes,
            objects_per_slab,
            tail_bytes: slab_bytes - objects_per_slab * stride_bytes,
            held_bytes: self.held_by(objects_per_slab, slab_bytes),
        }
    }

    /// The order of 0 to 3 that wastes the smallest share of a slab for `size_bytes`; the lowest of those that are equal.
    pub fn best_order(&self, size_bytes: u64, page_bytes: u64) -> Option<Fit> {
        ORDERS
            .iter()
            .map(|order| self.fit(size_bytes, *order, page_bytes))
            .filter(|fit| fit.objects_per_slab > 0)
            .min_by(|a, b| {
                let left = u128::from(a.tail_bytes) * u128::from(b.slab_bytes);
                let right = u128::from(b.tail_bytes) * u128::from(a.slab_bytes);
                left.cmp(&right).then(a.order.cmp(&b.order))
            })
    }
}

/// What the user wants to know of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Another object size, bytes.
    pub size_bytes: Option<u64>,
    /// Another slab order.
    pub order: Option<u32>,
}

/// The order of a slab of so many bytes; `None` if it is no power of two of pages.
pub fn order_of(slab_bytes: u64, page_bytes: u64) -> Option<u32> {
    let pages = slab_bytes.checked_div(page_bytes)?;
    (pages.is_power_of_two() && slab_bytes.is_multiple_of(page_bytes)).then(|| pages.trailing_zeros())
}

/// A cache with the size or order that the user wishes; what is not wished for stays as it is.
pub fn wished(shape: &Shape, wish: Wish, page_bytes: u64) -> Option<Fit> {
    let order = wish.order.or_else(|| order_of(shape.slab_bytes, page_bytes))?;
    Some(shape.fit(wish.size_bytes.unwrap_or(shape.size_bytes), order, page_bytes))
}

/// A struct and what shrinking it returns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// The cache.
    pub cache: &'a CacheView,
    /// The change.
    pub one_more: OneMore,
}

/// Which struct is most worth shrinking: by the bytes returned, then by the fewest to shave, then by name. Only caches
/// of a struct (no kmalloc bucket), and only where at most a quarter of the object is to go.
pub fn worth_shrinking(snapshot: &Snapshot) -> Vec<Candidate<'_>> {
    let mut candidates: Vec<Candidate<'_>> = snapshot
        .caches
        .iter()
        .filter(|cache| cache.class.is_none() && !cache.pseudo)
        .filter_map(|cache| {
            let shape = Shape::of(cache).ok()?;
            let one_more = shape.one_more().ok()?;
            let within_reach = one_more.shave_bytes <= shape.size_bytes / MAX_SHAVE_DIVISOR;
            (within_reach && one_more.returned_bytes() > 0).then_some(Candidate { cache, one_more })
        })
        .collect();
    candidates.sort_by(|a, b| {
        b.one_more
            .returned_bytes()
            .cmp(&a.one_more.returned_bytes())
            .then(a.one_more.shave_bytes.cmp(&b.one_more.shave_bytes))
            .then_with(|| a.cache.name.cmp(&b.cache.name))
    });
    candidates
}

#[cfg(test)]
mod tests;
