//! The facts about this kernel, set by the loader before the programs are verified.
//!
//! Each is read on its own and volatile: the map is frozen, so the verifier knows the value and drops the branches
//! that do not apply to this kernel.

use core::ptr::addr_of;

use slabmon_common::{Config, Lookup};

#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata")]
static CONFIG: Config = Config {
    slots_log2: 0,
    page_shift: 0,
    page_struct_bytes: 0,
    page_head: 0,
    head_may_be_mask: 0,
    slab_cache: 0,
    slab_freelist: 0,
    slab_list: 0,
    slab_mark: 0,
    page_type: 0,
    slab_type: 0,
    large_type: 0,
    page_flags: 0,
    slab_flag_bit: 0,
    head_flag_bit: 0,
    compound_order: 0,
    cache_size: 0,
    cache_object_size: 0,
    cache_name: 0,
    cache_node: 0,
    node_partial: 0,
    alloc_has_cache: 0,
    free_has_cache: 0,
    large_fires_twice: 0,
    atomic: 0,
    largest_class: 0,
    cache_list: 0,
    sheaf_head: 0,
    sheaf_cache: 0,
    sheaf_size: 0,
    architecture: 0,
};

/// The one mutable global; the daemon writes it once the lookup is calibrated, and clears `usable` if it ever lies.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data")]
static mut LOOKUP: Lookup = Lookup { page_base: 0, usable: 0 };

macro_rules! facts {
    ($($field:ident),+ $(,)?) => {
        $(
            #[inline(always)]
            pub fn $field() -> u32 {
                unsafe { addr_of!(CONFIG.$field).read_volatile() }
            }
        )+
    };
}

facts!(
    slots_log2,
    page_shift,
    page_struct_bytes,
    page_head,
    head_may_be_mask,
    slab_cache,
    slab_freelist,
    slab_list,
    slab_mark,
    page_type,
    slab_type,
    large_type,
    page_flags,
    slab_flag_bit,
    head_flag_bit,
    compound_order,
    cache_size,
    cache_object_size,
    cache_name,
    cache_node,
    node_partial,
    alloc_has_cache,
    free_has_cache,
    large_fires_twice,
    atomic,
    largest_class,
    cache_list,
    sheaf_head,
    sheaf_cache,
    sheaf_size,
    architecture,
);

#[inline(always)]
pub fn lookup_usable() -> bool {
    unsafe { addr_of!(LOOKUP.usable).read_volatile() != 0 }
}

#[inline(always)]
pub fn page_base() -> u64 {
    unsafe { addr_of!(LOOKUP.page_base).read_volatile() }
}
