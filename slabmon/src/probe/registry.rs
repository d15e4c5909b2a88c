//! Address of a cache → its present life, its name and its counters. Pure: no map is touched here.

use std::{collections::HashMap, sync::Arc};

use slabmon_common::{CACHE_NAME_BYTES, CLASS_KEY, CacheRecord, CpuRecord, Slot, UntracedSlot, program};

use crate::model::{
    births::births,
    sample::{CacheCounts, CacheId, CounterKind, EventCounts},
};

/// Name of the pseudo-cache of large kmalloc.
pub const LARGE_KMALLOC: &str = "kmalloc-large";

/// Name of a cache whose record could not be read; more than one may bear it.
const UNNAMED: &str = "unknown";

/// What tells one cache from another at the same address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheIdentity {
    name: Arc<str>,
    size_bytes: u32,
    object_size_bytes: u32,
    kind: CounterKind,
}

impl From<&CacheRecord> for CacheIdentity {
    fn from(record: &CacheRecord) -> Self {
        let end = record.name.iter().position(|&byte| byte == 0).unwrap_or(CACHE_NAME_BYTES);
        let name = String::from_utf8_lossy(record.name.get(..end).unwrap_or_default());
        Self {
            name: name.into(),
            size_bytes: record.size,
            object_size_bytes: record.object_size,
            kind: CounterKind::Cache,
        }
    }
}

impl CacheIdentity {
    /// A size class, known by its stride alone; named as the kernel would (mm/slab_common.c, `kmalloc_info`).
    pub fn of_class(stride_bytes: u64) -> Self {
        let name = if stride_bytes >= 1024 && stride_bytes.is_multiple_of(1024) {
            format!("kmalloc-{}k", stride_bytes / 1024)
        } else {
            format!("kmalloc-{stride_bytes}")
        };
        Self {
            name: name.into(),
            size_bytes: u32::try_from(stride_bytes).unwrap_or(u32::MAX),
            object_size_bytes: 0,
            kind: CounterKind::SizeClass,
        }
    }
}

/// The events of one cache, as the slots hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawCounts {
    kmallocs: u64,
    kmalloc_requested_bytes: u64,
    cache_allocs: u64,
    kfrees: u64,
    cache_frees: u64,
    failures: u64,
    untraced: UntracedSlot,
}

impl From<&Slot> for RawCounts {
    fn from(slot: &Slot) -> Self {
        Self {
            kmallocs: slot.kmallocs,
            kmalloc_requested_bytes: slot.kmalloc_requested_bytes,
            cache_allocs: slot.cache_allocs,
            kfrees: slot.kfrees,
            cache_frees: slot.cache_frees,
            failures: slot.failures,
            untraced: UntracedSlot::default(),
        }
    }
}

impl From<&UntracedSlot> for RawCounts {
    fn from(untraced: &UntracedSlot) -> Self {
        Self { untraced: *untraced, ..Self::default() }
    }
}

impl RawCounts {
    fn combine(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            kmallocs: with(self.kmallocs, other.kmallocs),
            kmalloc_requested_bytes: with(self.kmalloc_requested_bytes, other.kmalloc_requested_bytes),
            cache_allocs: with(self.cache_allocs, other.cache_allocs),
            kfrees: with(self.kfrees, other.kfrees),
            cache_frees: with(self.cache_frees, other.cache_frees),
            failures: with(self.failures, other.failures),
            untraced: UntracedSlot {
                allocs: with(self.untraced.allocs, other.untraced.allocs),
                frees: with(self.untraced.frees, other.untraced.frees),
                requested_bytes: with(self.untraced.requested_bytes, other.untraced.requested_bytes),
                sized_allocs: with(self.untraced.sized_allocs, other.untraced.sized_allocs),
            },
        }
    }

    /// Every object of a cache takes its stride, so the bytes follow from the counts.
    fn to_events(self, identity: &CacheIdentity) -> EventCounts {
        let untraced = self.untraced;
        let allocations = self.kmallocs.wrapping_add(self.cache_allocs).wrapping_add(untraced.allocs);
        let frees = self.kfrees.wrapping_add(self.cache_frees).wrapping_add(untraced.frees);
        // Those that name no size of their own take the cache's.
        let of_object_size = self.cache_allocs.wrapping_add(untraced.allocs).wrapping_sub(untraced.sized_allocs);
        let size_bytes = u64::from(identity.size_bytes);
        EventCounts {
            allocations,
            frees,
            requested_bytes: self
                .kmalloc_requested_bytes
                .wrapping_add(untraced.requested_bytes)
                .wrapping_add(of_object_size.wrapping_mul(u64::from(identity.object_size_bytes))),
            allocated_bytes: allocations.wrapping_mul(size_bytes),
            freed_bytes: frees.wrapping_mul(size_bytes),
            failures: self.failures,
            untraced_allocations: untraced.allocs,
            untraced_frees: untraced.frees,
        }
    }
}

/// Events of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventTotals {
    kmalloc: u64,
    kfree: u64,
    cache_alloc: u64,
    cache_free: u64,
    hooked_objects: [u64; 8],
}

impl EventTotals {
    /// The events that a program counted, objects on untraced paths; a `_node` program's are in its sister's.
    pub fn of(&self, name: &str) -> u64 {
        let [free_bulk, alloc_bulk, free_sheaf, free_sheaf_nobarn, kmalloc_nolock, kfree_nolock, ..] =
            self.hooked_objects;
        match name {
            program::FREE_BULK | program::FREE_BULK_KPROBE => free_bulk,
            program::ALLOC_BULK | program::ALLOC_BULK_RETURN => alloc_bulk,
            program::FREE_SHEAF => free_sheaf,
            program::FREE_SHEAF_NOBARN => free_sheaf_nobarn,
            program::KMALLOC_NOLOCK => kmalloc_nolock,
            program::KFREE_NOLOCK => kfree_nolock,
            program::KMALLOC => self.kmalloc,
            program::KFREE => self.kfree,
            program::KMEM_CACHE_ALLOC => self.cache_alloc,
            program::KMEM_CACHE_FREE | program::CACHE_FREE_ENTRY | program::CACHE_FREE_KPROBE => self.cache_free,
            _ => 0,
        }
    }
}

struct Entry {
    key: u64,
    id: CacheId,
    /// `None` until the cache's record could be read.
    identity: Option<CacheIdentity>,
    /// Sum over CPUs, as of the last reading.
    now: RawCounts,
    /// What earlier lives at this address had counted.
    before: RawCounts,
    /// Whether it had an event before the last listing: only then can a birth since be a second life.
    before_listing: bool,
}

/// All caches that ever had an event.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Entry>,
    places: HashMap<u64, u32>,
    next_id: u32,
    listing: Vec<(u64, CacheIdentity)>,
}

impl Registry {
    /// Whether a slot's key is a size class and not the address of a cache.
    pub fn is_class_key(key: u64) -> bool {
        key & !0xffff_ffff == CLASS_KEY
    }

    /// Starts a new sum over CPUs.
    pub fn begin_reading(&mut self) {
        for entry in &mut self.entries {
            entry.now = RawCounts::default();
        }
    }

    /// Where the cache at `key` is kept.
    pub fn place_of(&mut self, key: u64) -> u32 {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let place = self.entries.len() as u32;
        let id = self.new_id();
        self.entries.push(Entry {
            key,
            id,
            identity: None,
            now: RawCounts::default(),
            before: RawCounts::default(),
            before_listing: false,
        });
        self.places.insert(key, place);
        place
    }

    fn new_id(&mut self) -> CacheId {
        self.next_id += 1;
        CacheId(self.next_id)
    }

    /// Whether the cache at `place` has no name yet.
    pub fn is_unnamed(&self, place: u32) -> bool {
        self.entries.get(place as usize).is_some_and(|entry| entry.identity.is_none())
    }

    /// Names the cache at `place`; `None` leaves it unnamed, to be asked for again.
    pub fn name(&mut self, place: u32, identity: Option<CacheIdentity>) {
        if let Some(entry) = self.entries.get_mut(place as usize) {
            entry.identity = identity;
        }
    }

    /// Adds one CPU's slot.
    pub fn add(&mut self, place: u32, counts: &RawCounts) {
        if let Some(entry) = self.entries.get_mut(place as usize) {
            entry.now = entry.now.combine(counts, u64::wrapping_add);
        }
    }

    /// Addresses of all caches that had an event.
    pub fn keys(&self) -> Vec<u64> {
        self.entries.iter().map(|entry| entry.key).filter(|&key| !Self::is_class_key(key)).collect()
    }

    /// Takes in the kernel's own listing, newest cache first: one born since the last listing starts a new life.
    pub fn note_listing(&mut self, listing: &[(u64, CacheIdentity)]) {
        if !self.listing.is_empty() {
            for index in births(&self.listing, listing) {
                if let Some((key, identity)) = listing.get(index)
                    && self.entry(*key).is_some_and(|entry| entry.before_listing)
                {
                    self.begin_life(*key, identity.clone());
                }
            }
        }
        for (key, identity) in listing {
            self.note_identity(*key, Some(identity.clone()));
        }
        self.listing = listing.to_vec();
        for entry in &mut self.entries {
            entry.before_listing = true;
        }
    }

    fn entry(&mut self, key: u64) -> Option<&mut Entry> {
        self.places.get(&key).and_then(|&place| self.entries.get_mut(place as usize))
    }

    /// Takes in what a look at the cache at `key` told now: another name or size there is another cache.
    pub fn note_identity(&mut self, key: u64, identity: Option<CacheIdentity>) {
        let Some(identity) = identity else { return };
        let Some(entry) = self.entry(key) else { return };
        match &entry.identity {
            None => entry.identity = Some(identity),
            Some(known) if *known == identity => {}
            Some(_) => self.begin_life(key, identity),
        }
    }

    /// The cache at `key` is a new one from here on. Counted from the last reading: events between that and the
    /// birth go to the new life, at most one drain interval's worth.
    fn begin_life(&mut self, key: u64, identity: CacheIdentity) {
        let id = self.new_id();
        let Some(entry) = self.entry(key) else { return };
        entry.id = id;
        entry.before = entry.now;
        entry.identity = Some(identity);
    }

    /// Events of each kind since attach, whatever became of their caches.
    pub fn event_totals(&self, record: &CpuRecord) -> EventTotals {
        let mut totals = EventTotals {
            kmalloc: record.large_allocs.wrapping_add(record.large_failures).wrapping_add(record.large_duplicates),
            kfree: record.large_frees,
            hooked_objects: record.hooked_objects,
            ..EventTotals::default()
        };
        for entry in &self.entries {
            let now = &entry.now;
            totals.kmalloc = totals.kmalloc.wrapping_add(now.kmallocs);
            totals.kfree = totals.kfree.wrapping_add(now.kfrees);
            totals.cache_alloc = totals.cache_alloc.wrapping_add(now.cache_allocs);
            totals.cache_free = totals.cache_free.wrapping_add(now.cache_frees);
            // A failed kmalloc names no cache, only its class; up to 5.19 a failed kmem_cache_alloc does as well.
            if Self::is_class_key(entry.key) {
                totals.kmalloc = totals.kmalloc.wrapping_add(now.failures);
            } else {
                totals.cache_alloc = totals.cache_alloc.wrapping_add(now.failures);
            }
        }
        totals
    }

    /// What each cache has counted in its present life, and large kmalloc.
    pub fn counts(&self, record: &CpuRecord) -> Vec<CacheCounts> {
        let unnamed =
            CacheIdentity { name: UNNAMED.into(), size_bytes: 0, object_size_bytes: 0, kind: CounterKind::Cache };
        let mut counts: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let identity = entry.identity.as_ref().unwrap_or(&unnamed);
                CacheCounts {
                    id: entry.id,
                    kind: identity.kind,
                    name: Arc::clone(&identity.name),
                    size_bytes: (identity.size_bytes != 0).then_some(identity.size_bytes),
                    object_size_bytes: (identity.object_size_bytes != 0).then_some(identity.object_size_bytes),
                    counts: entry.now.combine(&entry.before, u64::wrapping_sub).to_events(identity),
                }
            })
            .collect();
        counts.push(CacheCounts {
            id: CacheId(0),
            kind: CounterKind::LargeKmalloc,
            name: LARGE_KMALLOC.into(),
            size_bytes: None,
            object_size_bytes: None,
            counts: EventCounts {
                allocations: record.large_allocs,
                frees: record.large_frees.wrapping_add(record.untraced_large_frees),
                requested_bytes: record.large_requested_bytes,
                allocated_bytes: record.large_allocated_bytes,
                freed_bytes: record.large_freed_bytes.wrapping_add(record.untraced_large_freed_bytes),
                failures: record.large_failures,
                untraced_allocations: 0,
                untraced_frees: record.untraced_large_frees,
            },
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const KEY: u64 = 0x8000_0000_0000_1000;

    fn identity(name: &str) -> CacheIdentity {
        CacheIdentity { name: name.into(), size_bytes: 192, object_size_bytes: 184, kind: CounterKind::Cache }
    }

    fn slot(cache_allocs: u64, cache_frees: u64) -> RawCounts {
        RawCounts { cache_allocs, cache_frees, ..RawCounts::default() }
    }

    fn read(registry: &mut Registry, key: u64, identity: &CacheIdentity, slots: &[RawCounts]) {
        registry.begin_reading();
        let place = registry.place_of(key);
        if registry.is_unnamed(place) {
            registry.name(place, Some(identity.clone()));
        }
        for slot in slots {
            registry.add(place, slot);
        }
    }

    fn only(registry: &Registry) -> CacheCounts {
        let counts = registry.counts(&CpuRecord::default());
        assert_eq!(counts.len(), 2, "one cache and large kmalloc");
        counts.into_iter().next().unwrap()
    }

    #[test]
    fn the_slots_of_all_cpus_are_added_and_bytes_follow_from_the_sizes() {
        let mut registry = Registry::default();
        let kmalloc = RawCounts { kmallocs: 2, kmalloc_requested_bytes: 300, kfrees: 1, ..RawCounts::default() };
        read(&mut registry, KEY, &identity("filp"), &[slot(10, 4), slot(5, 0), kmalloc]);
        assert_eq!(
            only(&registry).counts,
            EventCounts {
                allocations: 17,
                frees: 5,
                requested_bytes: 15 * 184 + 300,
                allocated_bytes: 17 * 192,
                freed_bytes: 5 * 192,
                ..EventCounts::default()
            }
        );
    }

    #[test]
    fn a_second_reading_replaces_the_first() {
        let mut registry = Registry::default();
        read(&mut registry, KEY, &identity("filp"), &[slot(10, 4)]);
        read(&mut registry, KEY, &identity("filp"), &[slot(12, 4)]);
        assert_eq!(only(&registry).counts.allocations, 12);
    }

    #[test]
    fn another_cache_at_the_same_address_starts_at_zero_under_a_new_id() {
        let mut registry = Registry::default();
        read(&mut registry, KEY, &identity("old"), &[slot(10, 10)]);
        let old = only(&registry);
        registry.note_identity(KEY, Some(identity("new")));
        read(&mut registry, KEY, &identity("new"), &[slot(13, 11)]);
        let new = only(&registry);
        assert_eq!((&*new.name, new.counts.allocations, new.counts.frees), ("new", 3, 1));
        assert_ne!(new.id, old.id);
    }

    #[test]
    fn the_same_name_born_again_at_the_same_address_starts_at_zero() {
        let mut registry = Registry::default();
        let listing = [(KEY + 64, identity("young")), (KEY, identity("nfsd")), (KEY + 128, identity("old"))];
        read(&mut registry, KEY, &identity("nfsd"), &[slot(10, 10)]);
        registry.note_listing(&listing);
        let old = only(&registry);
        let [young, nfsd, last] = listing;
        registry.note_listing(&[nfsd, young, last]);
        read(&mut registry, KEY, &identity("nfsd"), &[slot(12, 10)]);
        let new = only(&registry);
        assert_eq!((new.counts.allocations, new.counts.frees), (2, 0));
        assert_ne!(new.id, old.id);
    }

    #[test]
    fn a_cache_whose_first_event_came_after_the_last_listing_keeps_what_it_counted() {
        let mut registry = Registry::default();
        registry.note_listing(&[(KEY + 128, identity("old"))]);
        read(&mut registry, KEY, &identity("fresh"), &[slot(3, 0)]);
        registry.note_listing(&[(KEY, identity("fresh")), (KEY + 128, identity("old"))]);
        assert_eq!(only(&registry).counts.allocations, 3);
    }

    #[test]
    fn a_listing_that_did_not_change_changes_nothing() {
        let mut registry = Registry::default();
        let listing = [(KEY, identity("filp")), (KEY + 64, identity("dentry"))];
        read(&mut registry, KEY, &identity("filp"), &[slot(3, 0)]);
        registry.note_listing(&listing);
        let before = only(&registry);
        registry.note_listing(&listing);
        assert_eq!(only(&registry), before);
    }

    #[test]
    fn a_cache_that_could_not_be_read_is_unknown_until_it_can_be() {
        let mut registry = Registry::default();
        registry.begin_reading();
        let place = registry.place_of(KEY);
        registry.name(place, None);
        registry.add(place, &slot(1, 0));
        assert_eq!(&*only(&registry).name, UNNAMED);
        assert_eq!(only(&registry).size_bytes, None);
        registry.note_identity(KEY, Some(identity("filp")));
        assert_eq!((&*only(&registry).name, only(&registry).counts.allocations), ("filp", 1));
    }

    #[test]
    fn a_size_class_bears_the_name_of_the_kernels_own_cache() {
        for (stride, name) in [(64, "kmalloc-64"), (1024, "kmalloc-1k"), (8192, "kmalloc-8k"), (1536, "kmalloc-1536")] {
            assert_eq!(&*CacheIdentity::of_class(stride).name, name);
        }
        assert!(Registry::is_class_key(CLASS_KEY | 64));
        assert!(!Registry::is_class_key(KEY));
    }

    #[test]
    fn a_record_with_an_odd_name_is_read_whole() {
        let mut record = CacheRecord::EMPTY;
        let name = "my\"quoted\\cache é".as_bytes();
        record.name[..name.len()].copy_from_slice(name);
        assert_eq!(&*CacheIdentity::from(&record).name, "my\"quoted\\cache é");
        record.name = [b'x'; CACHE_NAME_BYTES];
        assert_eq!(CacheIdentity::from(&record).name.len(), CACHE_NAME_BYTES);
    }
}
