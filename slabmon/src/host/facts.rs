//! What this host is, as far as the plan needs to know. A fact that could not be had is `None`: unknown is not "no".

use std::path::Path;

use super::{
    btf::{Btf, Named, Parameter, VMLINUX},
    machine,
};
use crate::model::{sample::PageFacts, snapshot::HostFact};

/// What kernel lockdown forbids (kernel_lockdown(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Nothing.
    None,
    /// Changing the kernel; reading it by BPF stays allowed.
    Integrity,
    /// Reading it as well.
    Confidentiality,
}

/// Effective capabilities of this process (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    const SYS_ADMIN: u32 = 21;
    const PERFMON: u32 = 38;
    const BPF: u32 = 39;

    fn has(self, number: u32) -> bool {
        self.0 >> number & 1 != 0
    }

    /// Whether tracing programs may be loaded and attached.
    pub fn allow_tracing(self) -> bool {
        self.has(Self::SYS_ADMIN) || (self.has(Self::BPF) && self.has(Self::PERFMON))
    }
}

/// Prototypes of the tracepoints, without the leading `void *__data`. `None`: this kernel has no such event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prototypes {
    /// `kmalloc`
    pub kmalloc: Option<Vec<Parameter>>,
    /// `kmalloc_node`, up to 6.0
    pub kmalloc_node: Option<Vec<Parameter>>,
    /// `kfree`
    pub kfree: Option<Vec<Parameter>>,
    /// `kmem_cache_alloc`
    pub kmem_cache_alloc: Option<Vec<Parameter>>,
    /// `kmem_cache_alloc_node`, up to 6.0
    pub kmem_cache_alloc_node: Option<Vec<Parameter>>,
    /// `kmem_cache_free`
    pub kmem_cache_free: Option<Vec<Parameter>>,
}

/// How the kernel marks a page of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabMark {
    /// `PGTY_slab` in the upper byte of `page_type` (6.12 and later).
    PageType(u32),
    /// Bit `PG_slab` of `flags`.
    FlagBit(u32),
}

/// Members of `struct slab_sheaf` (mm/slub.c), offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SheafOffsets {
    /// `rcu_head`
    pub head: u32,
    /// `cache`
    pub cache: u32,
    /// `size`: objects in it
    pub size: u32,
}

/// Functions on paths that fire no event; which of them exist is read, never concluded from the version.
pub const HOOKABLE: [&str; 9] = [
    "kmem_cache_free_bulk",
    "kmem_cache_alloc_bulk",
    "kmem_cache_alloc_bulk_noprof",
    "rcu_free_sheaf",
    "rcu_free_sheaf_nobarn",
    "kmalloc_nolock_noprof",
    "_kmalloc_nolock_noprof",
    "kfree_nolock",
    "kmem_cache_free",
];

/// What the kernel's type information says. Offsets in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BtfFacts {
    /// Prototypes of the events.
    pub prototypes: Prototypes,
    /// `sizeof(struct page)`
    pub page_struct_bytes: Option<u32>,
    /// Bytes of `struct page` that are no member's.
    pub page_struct_padding_bytes: Option<u32>,
    /// `sizeof(struct track)`: what slab debugging notes of an allocation or a free.
    pub track_struct_bytes: Option<u32>,
    /// `page.compound_head`, or `page.compound_info` from 7.1 on
    pub page_head: Option<u32>,
    /// Whether it is `compound_info`, which may be a mask instead of a pointer.
    pub head_may_be_mask: bool,
    /// `page.flags`
    pub page_flags: Option<u32>,
    /// `page.page_type`
    pub page_type: Option<u32>,
    /// `PGTY_slab` or `PG_slab`
    pub slab_mark: Option<SlabMark>,
    /// `PGTY_large_kmalloc` (6.16 and later)
    pub large_type: Option<u32>,
    /// Bit number of `PG_head`
    pub head_flag_bit: Option<u32>,
    /// From the head page: the byte that holds a compound page's order
    pub compound_order: Option<u32>,
    /// `slab.slab_cache` (`page.slab_cache` before 5.17)
    pub slab_cache: Option<u32>,
    /// `slab.freelist`
    pub slab_freelist: Option<u32>,
    /// `slab.slab_list`
    pub slab_list: Option<u32>,
    /// `kmem_cache.size`
    pub cache_size: Option<u32>,
    /// `kmem_cache.object_size`
    pub cache_object_size: Option<u32>,
    /// `kmem_cache.name`
    pub cache_name: Option<u32>,
    /// The first node's `struct kmem_cache_node *`: `kmem_cache.node`, or `per_node[0].node` from 7.1 on
    pub cache_node: Option<u32>,
    /// `kmem_cache_node.partial`
    pub node_partial: Option<u32>,
    /// `kmem_cache.list`
    pub cache_list: Option<u32>,
    /// `slab_sheaf.rcu_head`, `.cache` and `.size` (6.18 and later)
    pub sheaf: Option<SheafOffsets>,
    /// Which of [`HOOKABLE`] the kernel has.
    pub functions: Vec<&'static str>,
    /// Whether the allocator is SLUB: `kmem_cache` has `cpu_slab` or `cpu_sheaves`.
    pub is_slub: bool,
    /// Whether there is a BPF iterator over caches (6.13 and later).
    pub has_cache_iterator: bool,
    /// Whether a large kmalloc of variable size fires two events: the traced `__kmalloc_large_node_noprof` of 6.10 and
    /// later is called by functions that trace again (mm/slub.c).
    pub large_fires_twice: bool,
    /// Whether the kernel keeps a raw tracepoint program from interrupting itself: the counter of what that costs was
    /// made public for it, in 6.1 (kernel/trace/bpf_trace.c, `__bpf_trace_run`).
    pub guards_recursion: bool,
}

/// What this host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// As `uname -r` prints it.
    pub kernel_release: Option<String>,
    /// As `uname -m` prints it.
    pub architecture: String,
    /// Bytes of a page.
    pub page_size_bytes: u64,
    /// The highest possible CPU number + 1: what tables that are indexed by CPU need.
    pub possible_cpus: u32,
    /// `None`: securityfs is not mounted or not readable.
    pub lockdown: Option<Lockdown>,
    /// `None`: /proc/self/status could not be read.
    pub capabilities: Option<Capabilities>,
    /// The kernel's types, or why they are not to be had.
    pub btf: Result<BtfFacts, String>,
}

impl HostFacts {
    /// Reads all facts below `root`; the types from the file `btf`, where one is given, else from the kernel. What cannot
    /// be read is a fact that is not known.
    pub fn read(root: &Path, btf: Option<&Path>) -> Self {
        Self {
            kernel_release: machine::read_kernel_release(root).ok(),
            architecture: machine::architecture(),
            page_size_bytes: machine::page_size_bytes(),
            possible_cpus: machine::read_possible_cpus(root)
                .map_or_else(|_| online_cpus(), |cpus| cpus.highest().saturating_add(1)),
            lockdown: std::fs::read_to_string(root.join("sys/kernel/security/lockdown"))
                .ok()
                .and_then(|text| parse_lockdown(&text)),
            // This process's own, whatever the root.
            capabilities: std::fs::read_to_string("/proc/self/status").ok().and_then(|text| parse_capabilities(&text)),
            btf: btf.map_or_else(|| read_btf(&root.join(VMLINUX)), read_btf),
        }
    }

    /// What the kernel's types say of its pages.
    pub fn pages(&self) -> PageFacts {
        let Ok(btf) = &self.btf else { return PageFacts::default() };
        PageFacts {
            page_struct_bytes: btf.page_struct_bytes.map(u64::from),
            page_struct_padding_bytes: btf.page_struct_padding_bytes.map(u64::from),
            track_struct_bytes: btf.track_struct_bytes.map(u64::from),
            ..PageFacts::default()
        }
    }

    /// What `/status` says of the host.
    pub fn for_status(&self) -> Vec<HostFact> {
        let known = |value: Option<&str>| value.unwrap_or("unknown").to_owned();
        let lockdown = self.lockdown.map(|lockdown| match lockdown {
            Lockdown::None => "none",
            Lockdown::Integrity => "integrity",
            Lockdown::Confidentiality => "confidentiality",
        });
        let struct_page = self.btf.as_ref().ok().and_then(|btf| btf.page_struct_bytes).map(|bytes| bytes.to_string());
        vec![
            HostFact { name: "kernel_release", value: known(self.kernel_release.as_deref()) },
            HostFact { name: "architecture", value: self.architecture.clone() },
            HostFact { name: "page_size_bytes", value: self.page_size_bytes.to_string() },
            HostFact { name: "possible_cpus", value: self.possible_cpus.to_string() },
            HostFact { name: "lockdown", value: known(lockdown) },
            HostFact { name: "struct_page_bytes", value: known(struct_page.as_deref()) },
        ]
    }
}

/// Where the list of possible CPUs is not readable. A program on a CPU beyond it counts nothing, and says so nowhere:
/// better too many than too few.
fn online_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1024, |count| u32::try_from(count.get()).unwrap_or(1024).max(256))
}

/// The mode in brackets: `none [integrity] confidentiality`.
fn parse_lockdown(text: &str) -> Option<Lockdown> {
    let (_, rest) = text.split_once('[')?;
    match rest.split_once(']')?.0 {
        "none" => Some(Lockdown::None),
        "integrity" => Some(Lockdown::Integrity),
        "confidentiality" => Some(Lockdown::Confidentiality),
        _ => None,
    }
}

/// The line `CapEff:` of proc_pid_status(5).
fn parse_capabilities(status: &str) -> Option<Capabilities> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok().map(Capabilities)
}

const WANTED: &[(Named, &str)] = &[
    (Named::Struct, "page"),
    (Named::Struct, "slab"),
    (Named::Struct, "folio"),
    (Named::Struct, "track"),
    (Named::Struct, "kmem_cache"),
    (Named::Struct, "kmem_cache_node"),
    (Named::Enum, "pageflags"),
    (Named::Enum, "pagetype"),
    (Named::Typedef, "btf_trace_kmalloc"),
    (Named::Typedef, "btf_trace_kmalloc_node"),
    (Named::Typedef, "btf_trace_kfree"),
    (Named::Typedef, "btf_trace_kmem_cache_alloc"),
    (Named::Typedef, "btf_trace_kmem_cache_alloc_node"),
    (Named::Typedef, "btf_trace_kmem_cache_free"),
    (Named::Struct, "slab_sheaf"),
    (Named::Function, HOOKABLE[0]),
    (Named::Function, HOOKABLE[1]),
    (Named::Function, HOOKABLE[2]),
    (Named::Function, HOOKABLE[3]),
    (Named::Function, HOOKABLE[4]),
    (Named::Function, HOOKABLE[5]),
    (Named::Function, HOOKABLE[6]),
    (Named::Function, HOOKABLE[7]),
    (Named::Function, HOOKABLE[8]),
    (Named::Function, "bpf_iter_kmem_cache"),
    (Named::Function, "__kmalloc_large_node_noprof"),
    (Named::Function, "bpf_prog_inc_misses_counter"),
];

fn read_btf(path: &Path) -> Result<BtfFacts, String> {
    let btf = Btf::read(path, WANTED).map_err(|error| error.to_string())?;
    Ok(take_facts(&btf))
}

fn take_facts(btf: &Btf) -> BtfFacts {
    let prototype = |typedef| btf.prototype(typedef).map(|parameters| parameters.into_iter().skip(1).collect());
    let page = |member| btf.member_offset_bytes("page", member);
    // struct slab came with 5.17; before, a slab's fields are those of its page.
    let slab_struct =
        if btf.struct_bytes("slab").is_some_and(|_| btf.member_offset_bytes("slab", "slab_cache").is_some()) {
            "slab"
        } else {
            "page"
        };
    let slab = |member| btf.member_offset_bytes(slab_struct, member);
    let cache = |member| btf.member_offset_bytes("kmem_cache", member);
    let page_struct_bytes = btf.struct_bytes("page");
    let page_type_mark = btf.enumerator("pagetype", "PGTY_slab").map(|value| SlabMark::PageType(value as u32));
    let flag_mark = btf.enumerator("pageflags", "PG_slab").map(|value| SlabMark::FlagBit(value as u32));
    let head_info = page("compound_info");
    BtfFacts {
        prototypes: Prototypes {
            kmalloc: prototype("btf_trace_kmalloc"),
            kmalloc_node: prototype("btf_trace_kmalloc_node"),
            kfree: prototype("btf_trace_kfree"),
            kmem_cache_alloc: prototype("btf_trace_kmem_cache_alloc"),
            kmem_cache_alloc_node: prototype("btf_trace_kmem_cache_alloc_node"),
            kmem_cache_free: prototype("btf_trace_kmem_cache_free"),
        },
        page_struct_bytes,
        page_struct_padding_bytes: btf.padding_bytes("page"),
        track_struct_bytes: btf.struct_bytes("track"),
        page_head: page("compound_head").or(head_info),
        head_may_be_mask: head_info.is_some(),
        page_flags: page("flags"),
        page_type: page("page_type"),
        slab_mark: page_type_mark.or(flag_mark),
        large_type: btf.enumerator("pagetype", "PGTY_large_kmalloc").map(|value| value as u32),
        head_flag_bit: btf.enumerator("pageflags", "PG_head").map(|value| value as u32),
        compound_order: compound_order(btf, page_struct_bytes),
        slab_cache: slab("slab_cache"),
        slab_freelist: slab("freelist"),
        slab_list: slab("slab_list").or_else(|| slab("lru")),
        cache_size: cache("size"),
        cache_object_size: cache("object_size"),
        cache_name: cache("name"),
        cache_node: first_node(btf),
        node_partial: btf.member_offset_bytes("kmem_cache_node", "partial"),
        cache_list: cache("list"),
        sheaf: sheaf_offsets(btf),
        functions: HOOKABLE.into_iter().filter(|name| btf.has_function(name)).collect(),
        is_slub: cache("cpu_slab").is_some() || cache("cpu_sheaves").is_some(),
        has_cache_iterator: btf.has_function("bpf_iter_kmem_cache"),
        large_fires_twice: btf.has_function("__kmalloc_large_node_noprof"),
        guards_recursion: btf.has_function("bpf_prog_inc_misses_counter"),
    }
}

/// Up to 6.2 the second page has `compound_order`; then `folio._flags_1`, which lies in the second page as well,
/// holds the order in its lowest byte (include/linux/mm.h, `folio_large_order`).
fn compound_order(btf: &Btf, page_struct_bytes: Option<u32>) -> Option<u32> {
    match btf.member_offset_bytes("page", "compound_order") {
        Some(offset) => offset.checked_add(page_struct_bytes?),
        None => btf.member_offset_bytes("folio", "_flags_1"),
    }
}

fn sheaf_offsets(btf: &Btf) -> Option<SheafOffsets> {
    let member = |name| btf.member_offset_bytes("slab_sheaf", name);
    // `rcu_head` is a macro for the other name, members included (include/linux/types.h).
    let head = member("callback_head").or_else(|| member("rcu_head"))?;
    Some(SheafOffsets { head, cache: member("cache")?, size: member("size")? })
}

/// Up to 7.0 an array of pointers, then an array of structs that hold one (mm/slab.h, `struct kmem_cache`).
fn first_node(btf: &Btf) -> Option<u32> {
    btf.member_offset_bytes("kmem_cache", "node")
        .or_else(|| btf.first_element_member_offset_bytes("kmem_cache", "per_node", "node"))
}

#[cfg(test)]
pub(crate) mod tests;
