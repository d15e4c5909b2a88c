//! Object → cache, by the object's page: `page(addr) = page_base + (addr >> page_shift) * sizeof(struct page)`.

use slabmon_common::{ABSENT, slab_mark};

use crate::{config, kread};

/// What an address turned out to be.
pub enum Object {
    /// Lies in a slab of this `struct kmem_cache`.
    Slab { cache: u64 },
    /// Lies in a large kmalloc of this many bytes.
    Large { bytes: u64 },
    /// Neither.
    Unknown,
    /// Its page could not be read.
    Unreadable,
}

/// The 64 bytes of a `struct page`, which `struct slab` overlays.
type PageWords = [u64; 8];

#[inline(always)]
fn word(page: &PageWords, offset: u32) -> u64 {
    page[(offset as usize / 8) & 7]
}

/// Address of the `struct page` that describes `address`.
#[inline(always)]
fn page_of(address: u64) -> u64 {
    config::page_base()
        .wrapping_add((address >> config::page_shift()).wrapping_mul(u64::from(config::page_struct_bytes())))
}

/// Address of the head page, given a page and its head word: itself unless bit 0 says that it is a tail page.
#[inline(always)]
fn head_of(page: u64, head_word: u64) -> u64 {
    if head_word & 1 == 0 {
        page
    } else if config::head_may_be_mask() != 0 && head_word >> 32 == 0xffff_ffff {
        // include/linux/page-flags.h, 7.1: a mask that clears the low bits of the page's own address.
        page & head_word & !1
    } else {
        head_word - 1
    }
}

#[inline(always)]
fn is_slab(page: &PageWords) -> bool {
    if config::slab_mark() == slab_mark::PAGE_TYPE {
        page_type(page) == config::slab_type()
    } else {
        word(page, config::page_flags()) >> (config::slab_flag_bit() & 63) & 1 != 0
    }
}

#[inline(always)]
fn page_type(page: &PageWords) -> u32 {
    let shift = (config::page_type() & 4) * 8;
    ((word(page, config::page_type()) >> shift) as u32) >> 24
}

#[inline(always)]
fn is_large_kmalloc(page: &PageWords) -> bool {
    if config::large_type() != ABSENT {
        page_type(page) == config::large_type()
    } else {
        // Before 6.16 nothing marks it; what kfree is given and is in no slab is a compound page.
        word(page, config::page_flags()) >> (config::head_flag_bit() & 63) & 1 != 0
    }
}

/// log2 of the pages that the head page at `page` stands for.
#[inline(always)]
pub fn compound_order_of(page: u64) -> Option<u32> {
    let flags = kread::read::<u64>(page + u64::from(config::page_flags()))?;
    if flags >> (config::head_flag_bit() & 63) & 1 == 0 {
        return Some(0);
    }
    kread::read::<u8>(page + u64::from(config::compound_order())).map(u32::from)
}

/// Looks an object's page up. Needs a usable lookup (`config::lookup_usable`).
#[inline(always)]
pub fn resolve(object: u64) -> Object {
    let mut address = page_of(object);
    let Some(mut page) = kread::read::<PageWords>(address) else {
        return Object::Unreadable;
    };
    let head = head_of(address, word(&page, config::page_head()));
    if head != address {
        address = head;
        let Some(head_page) = kread::read::<PageWords>(address) else {
            return Object::Unreadable;
        };
        page = head_page;
    }
    if is_slab(&page) {
        return Object::Slab { cache: word(&page, config::slab_cache()) };
    }
    if is_large_kmalloc(&page) {
        return match compound_order_of(address) {
            Some(order) => Object::Large { bytes: 1 << ((config::page_shift() + order) & 63) },
            None => Object::Unreadable,
        };
    }
    Object::Unknown
}
