//! What the kernel pays to describe its pages: one `struct page` for each of them.

use super::snapshot::Snapshot;

/// Where the bytes of the memory map are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemmapSource {
    /// Counted by the kernel (`nr_memmap_boot_pages` and `nr_memmap_pages` of vmstat, since 6.11).
    Vmstat,
    /// Pages × size of `struct page`.
    Computed,
}

impl MemmapSource {
    /// For people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vmstat => "vmstat",
            Self::Computed => "computed",
        }
    }
}

/// Where the number of pages is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagesSource {
    /// `present` of `/proc/zoneinfo`: all physical memory.
    Zoneinfo,
    /// `MemTotal`, which leaves out what was reserved at boot.
    MemTotal,
}

impl PagesSource {
    /// For people and programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zoneinfo => "zoneinfo",
            Self::MemTotal => "MemTotal",
        }
    }
}

/// The cost of `struct page`; each field `None` where it cannot be known here.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StructPage {
    /// `sizeof(struct page)`.
    pub size_bytes: Option<u64>,
    /// Of it, bytes that are no member's.
    pub padding_bytes: Option<u64>,
    /// Pages in the machine, and who says so.
    pub pages: Option<(u64, PagesSource)>,
    /// Bytes of all `struct page`s, and who says so.
    pub memmap: Option<(u64, MemmapSource)>,
    /// Physical memory, bytes.
    pub ram_bytes: Option<u64>,
    /// The memory map as a share of it, 0 to 1.
    pub share_of_ram: Option<f64>,
    /// The part of the memory map that describes slab pages, bytes.
    pub slab_part_bytes: Option<u64>,
    /// What 8 bytes less a `struct page` would give back, bytes.
    pub per_8_bytes_less_bytes: Option<u64>,
    /// Physical RAM − MemTotal: the kernel's image, the memory map, and what firmware and others set aside at boot.
    pub boot_reserved_bytes: Option<u64>,
}

impl StructPage {
    /// The part of the memory map that describes slab pages, 0 to 1.
    pub fn slab_part_share(&self) -> Option<f64> {
        let (memmap_bytes, _) = self.memmap.filter(|(bytes, _)| *bytes > 0)?;
        Some((self.slab_part_bytes? as f64 / memmap_bytes as f64).min(1.0))
    }

    /// What the memory map costs, and what 8 bytes less would save, in the unit of `price_per_gib`.
    pub fn money(&self, price_per_gib: f64) -> Option<Money> {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        Some(Money {
            memmap: gib(self.memmap?.0) * price_per_gib,
            per_8_bytes_less: gib(self.per_8_bytes_less_bytes?) * price_per_gib,
        })
    }
}

/// In the unit of the price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Money {
    /// The whole memory map.
    pub memmap: f64,
    /// 8 bytes less a page.
    pub per_8_bytes_less: f64,
}

/// What `struct page` costs on the machine of a snapshot.
pub fn struct_page(snapshot: &Snapshot) -> StructPage {
    let facts = snapshot.evidence.machine.pages;
    let page_bytes = snapshot.evidence.page_size_bytes.filter(|bytes| *bytes > 0);
    let total_bytes = snapshot.memory.total_bytes;
    let size_bytes = facts.page_struct_bytes;
    let pages_of = |bytes: u64| page_bytes.map(|page| bytes / page);
    let pages = match facts.present_pages.filter(|pages| *pages > 0) {
        Some(pages) => Some((pages, PagesSource::Zoneinfo)),
        None => total_bytes.and_then(pages_of).map(|pages| (pages, PagesSource::MemTotal)),
    };
    let counted_bytes = facts
        .memmap_pages
        .filter(|pages| *pages > 0)
        .zip(page_bytes)
        .map(|(pages, page)| (pages.saturating_mul(page), MemmapSource::Vmstat));
    let computed_bytes =
        pages.zip(size_bytes).map(|((pages, _), size)| (pages.saturating_mul(size), MemmapSource::Computed));
    let memmap = counted_bytes.or(computed_bytes);
    let ram_bytes = pages.zip(page_bytes).map(|((pages, _), page)| pages.saturating_mul(page));
    let slab_pages = snapshot.memory.slab_bytes.or(snapshot.memory.caches_bytes).and_then(pages_of);
    StructPage {
        size_bytes,
        padding_bytes: facts.page_struct_padding_bytes,
        pages,
        memmap,
        ram_bytes,
        share_of_ram: memmap
            .zip(ram_bytes)
            .filter(|(_, ram)| *ram > 0)
            .map(|((memmap, _), ram)| (memmap as f64 / ram as f64).min(1.0)),
        slab_part_bytes: slab_pages.zip(size_bytes).map(|(pages, size)| pages.saturating_mul(size)),
        per_8_bytes_less_bytes: pages.map(|(pages, _)| pages.saturating_mul(8)),
        boot_reserved_bytes: match pages {
            Some((_, PagesSource::Zoneinfo)) => {
                ram_bytes.zip(total_bytes).and_then(|(ram, total)| ram.checked_sub(total))
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;
    use crate::model::{
        derive::{Deriver, SnapshotInput},
        sample::{MachineSample, MeminfoSample, PageFacts},
        samples::input,
    };

    const GIB: u64 = 1 << 30;

    fn page_of(pages: PageFacts) -> StructPage {
        let meminfo = MeminfoSample { total_bytes: Some(15 * GIB), slab_bytes: Some(GIB), ..MeminfoSample::default() };
        let machine = MachineSample { pages, ..MachineSample::default() };
        struct_page(&Deriver::new().derive(SnapshotInput { meminfo: Some(meminfo), machine, ..input(Vec::new()) }))
    }

    const FACTS: PageFacts = PageFacts {
        page_struct_bytes: Some(64),
        page_struct_padding_bytes: Some(4),
        track_struct_bytes: None,
        present_pages: Some(16 * GIB / 4096),
        memmap_pages: Some(65_536 + 512),
    };

    #[test]
    fn the_kernel_s_own_count_comes_first_and_says_so() {
        let page = page_of(FACTS);
        assert_eq!(page.memmap, Some((66_048 * 4096, MemmapSource::Vmstat)));
        assert_eq!(page.pages, Some((4 << 20, PagesSource::Zoneinfo)));
        assert_eq!((page.ram_bytes, page.boot_reserved_bytes), (Some(16 * GIB), Some(GIB)));
        assert_eq!((page.slab_part_bytes, page.per_8_bytes_less_bytes), (Some(16 << 20), Some(32 << 20)));
        assert!((page.slab_part_share().unwrap() - 1.0 / 16.0).abs() < 0.001);
    }

    #[test]
    fn without_it_the_memory_map_is_pages_times_size() {
        let page = page_of(PageFacts { memmap_pages: None, ..FACTS });
        assert_eq!(page.memmap, Some((256 << 20, MemmapSource::Computed)));
        assert_eq!(page.share_of_ram, Some(1.0 / 64.0), "64 of 4096 bytes");
        assert_eq!(page.money(2.0), Some(Money { memmap: 0.5, per_8_bytes_less: 0.0625 }));
    }

    #[test]
    fn without_zoneinfo_pages_are_those_of_memtotal_and_what_was_reserved_is_not_known() {
        let page = page_of(PageFacts { present_pages: None, memmap_pages: None, ..FACTS });
        assert_eq!(page.pages, Some((15 * GIB / 4096, PagesSource::MemTotal)));
        assert_eq!(page.boot_reserved_bytes, None);
    }

    #[test]
    fn without_btf_the_size_is_not_known_but_what_8_bytes_make_is() {
        let page = page_of(PageFacts { page_struct_bytes: None, memmap_pages: None, ..FACTS });
        assert_eq!((page.memmap, page.slab_part_bytes, page.money(1.0)), (None, None, None));
        assert_eq!(page.per_8_bytes_less_bytes, Some(32 << 20));
    }
}
