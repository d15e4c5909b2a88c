//! Facts of five kernels, from types written as theirs are; and of hosts where something is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;

use super::*;
use crate::host::btf::tests::Writer;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const ENUM: u32 = 6;
const FWD: u32 = 7;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;

/// Members and their offsets in bytes, or enumerators and their values.
type Numbers = Vec<(&'static str, u32)>;

/// What of a kernel's types slabmon asks for. Offsets in bytes.
pub(crate) struct KernelTypes {
    /// Name, size, and members with their offsets.
    structs: Vec<(&'static str, u32, Numbers)>,
    /// Where `kmem_cache.per_node` is, an array of structs of two pointers, and what that struct is called.
    per_node: Option<(u32, &'static str)>,
    enums: Vec<(&'static str, Numbers)>,
    /// Tracepoint, and the types of its arguments.
    events: Vec<(&'static str, Vec<&'static str>)>,
    functions: Vec<&'static str>,
}

const SITE: &str = "long unsigned int";
const OBJECT: &str = "const void *";
const SIZE: &str = "size_t";
const CACHE: &str = "struct kmem_cache *";
const CONST_CACHE: &str = "const struct kmem_cache *";

impl KernelTypes {
    /// Debian's 5.10.223: fields of a slab are in its page, and six events name no cache.
    pub(crate) fn linux_5_10() -> Self {
        let alloc = vec![SITE, OBJECT, SIZE, SIZE, "gfp_t"];
        let alloc_node = vec![SITE, OBJECT, SIZE, SIZE, "gfp_t", "int"];
        let page = [
            ("flags", 0),
            ("compound_head", 8),
            ("slab_list", 8),
            ("lru", 8),
            ("compound_order", 17),
            ("slab_cache", 24),
            ("freelist", 32),
            ("page_type", 48),
        ];
        Self {
            structs: vec![
                ("page", 64, page.to_vec()),
                ("kmem_cache", 8416, cache("cpu_slab", 24, 96, Some(216))),
                ("kmem_cache_node", 64, vec![("list_lock", 0), ("nr_partial", 8), ("partial", 16)]),
            ],
            per_node: None,
            enums: vec![("pageflags", vec![("PG_locked", 0), ("PG_slab", 9), ("PG_head", 16)])],
            events: vec![
                ("kmalloc", alloc.clone()),
                ("kmalloc_node", alloc_node.clone()),
                ("kfree", vec![SITE, OBJECT]),
                ("kmem_cache_alloc", alloc),
                ("kmem_cache_alloc_node", alloc_node),
                ("kmem_cache_free", vec![SITE, OBJECT]),
            ],
            functions: vec!["kmem_cache_free", "kmem_cache_free_bulk", "kmem_cache_alloc_bulk"],
        }
    }

    /// Debian's 6.1.192: `struct slab`, four events, and a guard against recursion.
    pub(crate) fn linux_6_1() -> Self {
        let slab = vec![("slab_list", 8), ("slab_cache", 24), ("freelist", 32)];
        let page = vec![("flags", 0), ("compound_head", 8), ("lru", 8), ("compound_order", 17), ("page_type", 48)];
        let mut types = Self::linux_5_10();
        types.set_struct("page", 64, page);
        types.set_struct("slab", 64, slab);
        types.set_struct("folio", 128, vec![("flags", 0), ("_flags_1", 64)]);
        types.events = four_events();
        types.functions.push("bpf_prog_inc_misses_counter");
        types
    }

    /// 6.12.117: slabs are told by `page_type`, and the order is in the second page's flags.
    pub(crate) fn linux_6_12() -> Self {
        let mut types = Self::linux_6_1();
        types.set_struct("page", 64, vec![("flags", 0), ("compound_head", 8), ("lru", 8), ("page_type", 48)]);
        types.set_struct("slab", 64, vec![("slab_cache", 8), ("slab_list", 16), ("freelist", 32)]);
        types.enums = vec![
            ("pageflags", vec![("PG_locked", 0), ("PG_head", 6)]),
            ("pagetype", vec![("PGTY_buddy", 0xf0), ("PGTY_slab", 0xf5)]),
        ];
        types.functions.retain(|function| *function != "kmem_cache_alloc_bulk");
        types.functions.extend(["__kmalloc_large_node_noprof", "kmem_cache_alloc_bulk_noprof"]);
        types
    }

    /// 6.18.44: the iterator, a type for large kmalloc, and `kmem_cache` with sheaves beside the CPU slabs.
    pub(crate) fn linux_6_18() -> Self {
        let mut types = Self::linux_6_12();
        let mut members = cache("cpu_slab", 32, 104, Some(224));
        members.push(("cpu_sheaves", 8));
        types.set_struct("kmem_cache", 8416, members);
        if let Some((_, values)) = types.enums.iter_mut().find(|(name, _)| *name == "pagetype") {
            values.push(("PGTY_large_kmalloc", 0xf8));
        }
        let sheaf = vec![("callback_head", 0), ("cache", 16), ("size", 24)];
        types.set_struct("slab_sheaf", 32, sheaf);
        types.functions.extend([
            "bpf_iter_kmem_cache",
            "rcu_free_sheaf",
            "rcu_free_sheaf_nobarn",
            "kmalloc_nolock_noprof",
            "kfree_nolock",
        ]);
        types
    }

    /// 7.1.13: a head word that may be a mask, no CPU slabs, and nodes in an array of structs.
    pub(crate) fn linux_7_1() -> Self {
        let mut types = Self::linux_6_18();
        types.set_struct("page", 64, vec![("flags", 0), ("compound_info", 8), ("lru", 8), ("page_type", 48)]);
        types.set_struct("kmem_cache", 16_592, cache("cpu_sheaves", 24, 88, None));
        types.per_node = Some((208, "kmem_cache_per_node_ptrs"));
        types
    }

    fn set_struct(&mut self, name: &'static str, bytes: u32, members: Numbers) {
        self.structs.retain(|(other, ..)| *other != name);
        self.structs.push((name, bytes, members));
    }

    /// The facts that slabmon takes from such types.
    pub(crate) fn facts(&self) -> BtfFacts {
        take_facts(&Btf::parse(self.blob(), WANTED).unwrap())
    }
}

/// Members of `struct kmem_cache`. Where `node` lies depends on the kernel's configuration; this is one of them.
fn cache(of_cpus: &'static str, size: u32, name: u32, node: Option<u32>) -> Numbers {
    let mut members = vec![(of_cpus, 0), ("size", size), ("object_size", size + 4), ("name", name), ("list", name + 8)];
    members.extend(node.map(|node| ("node", node)));
    members
}

fn four_events() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("kmalloc", vec![SITE, OBJECT, SIZE, SIZE, "gfp_t", "int"]),
        ("kfree", vec![SITE, OBJECT]),
        ("kmem_cache_alloc", vec![SITE, OBJECT, CACHE, "gfp_t", "int"]),
        ("kmem_cache_free", vec![SITE, OBJECT, CONST_CACHE]),
    ]
}

impl KernelTypes {
    /// The bytes of `/sys/kernel/btf/vmlinux` with these types.
    fn blob(&self) -> Vec<u8> {
        let mut w = Writer::new();
        let mut ids = HashMap::new();
        for (name, bytes) in [("long unsigned int", 8), ("int", 4)] {
            ids.insert(name, w.add(name, INT, 0, false, bytes));
            w.word(bytes * 8);
        }
        for (name, of) in [("size_t", "long unsigned int"), ("gfp_t", "int")] {
            ids.insert(name, w.add(name, TYPEDEF, 0, false, ids[of]));
        }
        ids.insert("void *", w.add("", PTR, 0, false, 0));
        for (text, pointed_to) in [("const void *", 0), ("const char *", ids["int"]), (CACHE, 0), (CONST_CACHE, 0)] {
            let mut inner = pointed_to;
            if text.contains("kmem_cache") {
                inner = w.add("kmem_cache", FWD, 0, false, 0);
            }
            if text.starts_with("const") {
                inner = w.add("", CONST, 0, false, inner);
            }
            ids.insert(text, w.add("", PTR, 0, false, inner));
        }
        self.add_structs(&mut w, &ids);
        for (name, values) in &self.enums {
            w.add(name, ENUM, values.len() as u32, false, 4);
            for (name, value) in values {
                let name = w.string(name);
                w.word(name);
                w.word(*value);
            }
        }
        for (event, arguments) in &self.events {
            let prototype = w.add("", FUNC_PROTO, arguments.len() as u32 + 1, false, 0);
            for type_name in std::iter::once(&"void *").chain(arguments) {
                w.word(0);
                w.word(ids[type_name]);
            }
            let pointer = w.add("", PTR, 0, false, prototype);
            w.add(&format!("btf_trace_{event}"), TYPEDEF, 0, false, pointer);
        }
        for function in &self.functions {
            w.add(function, FUNC, 0, false, 0);
        }
        w.finish()
    }

    fn add_structs(&self, w: &mut Writer, ids: &HashMap<&str, u32>) {
        let (word, pointer) = (ids["long unsigned int"], ids["void *"]);
        let per_node = self.per_node.map(|(at, element_name)| {
            let element = w.compound(STRUCT, element_name, false, 16, &[("barn", pointer, 0), ("node", pointer, 64)]);
            let array = w.add("", ARRAY, 0, false, 0);
            for value in [element, word, 1024] {
                w.word(value);
            }
            ("per_node", array, at * 8)
        });
        for (name, bytes, members) in &self.structs {
            let mut members: Vec<_> = members.iter().map(|&(member, at)| (member, word, at * 8)).collect();
            members.extend(per_node.filter(|_| *name == "kmem_cache"));
            w.compound(STRUCT, name, false, *bytes, &members);
        }
    }
}

#[test]
fn the_mark_of_a_slab_is_a_flag_until_it_is_a_type() {
    for (types, mark, large, head_bit) in [
        (KernelTypes::linux_5_10(), SlabMark::FlagBit(9), None, 16),
        (KernelTypes::linux_6_1(), SlabMark::FlagBit(9), None, 16),
        (KernelTypes::linux_6_12(), SlabMark::PageType(0xf5), None, 6),
        (KernelTypes::linux_6_18(), SlabMark::PageType(0xf5), Some(0xf8), 6),
        (KernelTypes::linux_7_1(), SlabMark::PageType(0xf5), Some(0xf8), 6),
    ] {
        let facts = types.facts();
        assert_eq!((facts.slab_mark, facts.large_type, facts.head_flag_bit), (Some(mark), large, Some(head_bit)));
    }
}

#[test]
fn a_slabs_fields_are_in_its_page_before_there_is_struct_slab() {
    let place = |facts: BtfFacts| (facts.slab_list, facts.slab_cache, facts.slab_freelist);
    assert_eq!(place(KernelTypes::linux_5_10().facts()), (Some(8), Some(24), Some(32)));
    assert_eq!(place(KernelTypes::linux_6_1().facts()), (Some(8), Some(24), Some(32)));
    assert_eq!(place(KernelTypes::linux_6_12().facts()), (Some(16), Some(8), Some(32)));
    // `struct slab` without a cache is another allocator's, or not described.
    let mut types = KernelTypes::linux_5_10();
    types.set_struct("slab", 64, vec![("slab_list", 40)]);
    assert_eq!(place(types.facts()), (Some(8), Some(24), Some(32)));
}

#[test]
fn the_order_of_a_compound_page_is_in_its_second_page() {
    assert_eq!(KernelTypes::linux_5_10().facts().compound_order, Some(64 + 17));
    assert_eq!(KernelTypes::linux_6_1().facts().compound_order, Some(64 + 17));
    assert_eq!(KernelTypes::linux_6_12().facts().compound_order, Some(64));
    let mut types = KernelTypes::linux_6_12();
    types.structs.retain(|(name, ..)| *name != "folio");
    assert_eq!(types.facts().compound_order, None);
}

#[test]
fn the_head_word_may_be_a_mask_from_7_1_on() {
    let head = |facts: BtfFacts| (facts.page_head, facts.head_may_be_mask);
    assert_eq!(head(KernelTypes::linux_6_18().facts()), (Some(8), false));
    assert_eq!(head(KernelTypes::linux_7_1().facts()), (Some(8), true));
}

#[test]
fn the_first_node_is_found_whatever_the_struct_of_the_array_is_called() {
    assert_eq!(KernelTypes::linux_6_18().facts().cache_node, Some(224));
    for name in ["kmem_cache_per_node_ptrs", "renamed", ""] {
        let mut types = KernelTypes::linux_7_1();
        types.per_node = Some((208, name));
        assert_eq!(types.facts().cache_node, Some(208 + 8), "{name:?}");
    }
    let mut types = KernelTypes::linux_7_1();
    types.per_node = None;
    assert_eq!(types.facts().cache_node, None);
}

#[test]
fn slub_is_told_by_its_slabs_or_sheaves_of_each_cpu() {
    for types in [KernelTypes::linux_5_10(), KernelTypes::linux_6_18(), KernelTypes::linux_7_1()] {
        assert!(types.facts().is_slub);
    }
    let mut slab_allocator = KernelTypes::linux_5_10();
    slab_allocator.set_struct("kmem_cache", 512, cache("cpu_cache", 24, 96, Some(216)));
    assert!(!slab_allocator.facts().is_slub);
}

#[test]
fn what_a_kernel_can_do_is_told_by_its_functions() {
    let abilities = |facts: BtfFacts| (facts.guards_recursion, facts.large_fires_twice, facts.has_cache_iterator);
    assert_eq!(abilities(KernelTypes::linux_5_10().facts()), (false, false, false));
    assert_eq!(abilities(KernelTypes::linux_6_1().facts()), (true, false, false));
    assert_eq!(abilities(KernelTypes::linux_6_12().facts()), (true, true, false));
    assert_eq!(abilities(KernelTypes::linux_6_18().facts()), (true, true, true));
}

#[test]
fn prototypes_come_without_their_leading_context_and_an_absent_event_is_none() {
    let prototypes = KernelTypes::linux_6_1().facts().prototypes;
    let types = |parameters: Option<Vec<Parameter>>| -> Vec<String> {
        parameters.unwrap().into_iter().map(|parameter| parameter.type_name).collect()
    };
    assert_eq!(types(prototypes.kfree), [SITE, OBJECT]);
    assert_eq!(types(prototypes.kmem_cache_alloc), [SITE, OBJECT, CACHE, "gfp_t", "int"]);
    assert_eq!(types(prototypes.kmem_cache_free), [SITE, OBJECT, CONST_CACHE]);
    assert_eq!((prototypes.kmalloc_node, prototypes.kmem_cache_alloc_node), (None, None));
}

#[test]
fn types_that_say_nothing_give_facts_that_are_not_known() {
    assert_eq!(take_facts(&Btf::parse(Writer::new().finish(), WANTED).unwrap()), BtfFacts::default());
}

#[test]
fn the_mode_of_lockdown_is_the_one_in_brackets() {
    for (text, mode) in [
        ("[none] integrity confidentiality\n", Some(Lockdown::None)),
        ("none [integrity] confidentiality\n", Some(Lockdown::Integrity)),
        ("none integrity [confidentiality]\n", Some(Lockdown::Confidentiality)),
        ("none integrity [paranoia]\n", None),
        ("none integrity confidentiality\n", None),
        ("none [integrity", None),
        ("]none[", None),
        ("", None),
    ] {
        assert_eq!(parse_lockdown(text), mode, "{text:?}");
    }
}

#[test]
fn capabilities_are_the_effective_ones() {
    let status = |line: &str| format!("Name:\tslabmon\nCapPrm:\t000001ffffffffff\n{line}\nCapBnd:\t000001ffffffffff\n");
    for (line, set) in [
        ("CapEff:\t000001ffffffffff", Some(0x1ff_ffff_ffff)),
        ("CapEff:\t0000000000000000", Some(0)),
        ("CapEff:\tffffffffffffffff", Some(u64::MAX)),
        ("CapEff:\t1ffffffffffffffff", None),
        ("CapEff:\t-1", None),
        ("CapEff:", None),
        ("CapInh:\t0000000000000000", None),
    ] {
        assert_eq!(parse_capabilities(&status(line)), set.map(Capabilities), "{line}");
    }
}

#[test]
fn tracing_takes_both_new_capabilities_or_the_old_one() {
    let (bpf, perfmon, sys_admin) = (1 << 39, 1 << 38, 1 << 21);
    for (set, allowed) in [
        (0, false),
        (bpf, false),
        (perfmon, false),
        (!(bpf | sys_admin), false),
        (!(perfmon | sys_admin), false),
        (bpf | perfmon, true),
        (sys_admin, true),
    ] {
        assert_eq!(Capabilities(set).allow_tracing(), allowed, "{set:x}");
    }
}

/// A root in which there are the given files.
fn root(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    root
}

fn status_value(facts: &HostFacts, name: &str) -> String {
    facts.for_status().into_iter().find(|fact| fact.name == name).unwrap().value
}

#[test]
fn of_an_empty_root_nothing_is_known_and_status_says_so() {
    let root = root(&[]);
    let facts = HostFacts::read(root.path(), None);
    assert_eq!((&facts.kernel_release, facts.lockdown), (&None, None));
    let reason = facts.btf.as_ref().unwrap_err();
    assert!(reason.contains("sys/kernel/btf/vmlinux") && reason.contains("No such file"), "{reason}");
    assert!(facts.possible_cpus >= 256, "too many rather than too few: {}", facts.possible_cpus);
    for name in ["kernel_release", "lockdown", "struct_page_bytes"] {
        assert_eq!(status_value(&facts, name), "unknown", "{name}");
    }
}

#[test]
fn a_root_with_all_of_its_files_is_known_and_status_says_what() {
    let root = root(&[
        ("proc/sys/kernel/osrelease", b"7.1.13\n"),
        ("sys/kernel/security/lockdown", b"none [integrity] confidentiality\n"),
        ("sys/devices/system/cpu/possible", b"0-3\n"),
        (VMLINUX, &KernelTypes::linux_7_1().blob()),
    ]);
    let facts = HostFacts::read(root.path(), None);
    assert_eq!((facts.lockdown, facts.possible_cpus), (Some(Lockdown::Integrity), 4));
    assert_eq!(facts.btf, Ok(KernelTypes::linux_7_1().facts()));
    for (name, value) in [
        ("kernel_release", "7.1.13"),
        ("architecture", std::env::consts::ARCH),
        ("possible_cpus", "4"),
        ("lockdown", "integrity"),
        ("struct_page_bytes", "64"),
    ] {
        assert_eq!(status_value(&facts, name), value, "{name}");
    }
}

#[test]
fn cut_types_are_an_error_that_names_the_file() {
    let whole = KernelTypes::linux_6_18().blob();
    for length in [0, 3, 23, 24, whole.len() / 2, whole.len() - 1] {
        let root = root(&[(VMLINUX, &whole[..length])]);
        let reason = HostFacts::read(root.path(), None).btf.unwrap_err();
        let path = root.path().join(VMLINUX);
        assert!(reason.starts_with(&format!("{}: no BTF", path.display())), "{reason}");
        assert!(reason.contains("cut off"), "{reason}");
    }
}

#[test]
fn types_of_a_named_file_stand_for_the_kernels_own() {
    let file = root(&[("types.btf", &KernelTypes::linux_7_1().blob())]);
    let host = root(&[(VMLINUX, b"not BTF")]);
    let named = file.path().join("types.btf");
    assert_eq!(HostFacts::read(host.path(), Some(&named)).btf, Ok(KernelTypes::linux_7_1().facts()));
    let missing = file.path().join("other.btf");
    let reason = HostFacts::read(host.path(), Some(&missing)).btf.unwrap_err();
    assert!(reason.starts_with(&missing.display().to_string()), "{reason}");
}

#[test]
fn the_running_kernels_facts_are_whole() {
    let facts = HostFacts::read(Path::new("/"), None);
    assert!(facts.kernel_release.is_some() && facts.capabilities.is_some());
    let btf = facts.btf.unwrap();
    assert!(btf.is_slub);
    for (what, known) in [
        ("struct page", btf.page_struct_bytes),
        ("head", btf.page_head),
        ("flags", btf.page_flags),
        ("PG_head", btf.head_flag_bit),
        ("order", btf.compound_order),
        ("slab_cache", btf.slab_cache),
        ("freelist", btf.slab_freelist),
        ("slab_list", btf.slab_list),
        ("size", btf.cache_size),
        ("object_size", btf.cache_object_size),
        ("name", btf.cache_name),
        ("node", btf.cache_node),
        ("partial", btf.node_partial),
    ] {
        assert!(known.is_some(), "{what}");
    }
    assert!(btf.slab_mark.is_some());
}
