//! Blobs of BTF, written here type by type, whole and spoilt.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

/// Writes BTF: types get their ids in the order in which they are added, from 1.
#[derive(Default)]
pub(in crate::host) struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    pub(in crate::host) fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    pub(in crate::host) fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    pub(in crate::host) fn word(&mut self, word: u32) {
        self.types.extend_from_slice(&word.to_le_bytes());
    }

    /// A type's header, and its id.
    pub(in crate::host) fn add(&mut self, name: &str, kind: u32, vlen: u32, flag: bool, size_or_type: u32) -> u32 {
        let name = self.string(name);
        self.word(name);
        self.word(kind << 24 | vlen | u32::from(flag) << 31);
        self.word(size_or_type);
        self.count += 1;
        self.count
    }

    /// A struct or union with (name, type, offset word) members.
    pub(in crate::host) fn compound(
        &mut self,
        kind: u32,
        name: &str,
        flag: bool,
        bytes: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let id = self.add(name, kind, members.len() as u32, flag, bytes);
        for &(name, type_id, offset) in members {
            let name = self.string(name);
            self.word(name);
            self.word(type_id);
            self.word(offset);
        }
        id
    }

    pub(in crate::host) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[1, 0]);
        for word in [24, 0, self.types.len() as u32, self.types.len() as u32, self.strings.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

const WANTED: &[(Named, &str)] = &[
    (Named::Struct, "page"),
    (Named::Struct, "bits"),
    (Named::Struct, "kmem_cache"),
    (Named::Struct, "loop"),
    (Named::Enum, "pagetype"),
    (Named::Enum, "wide"),
    (Named::Typedef, "btf_trace_kmem_cache_free"),
    (Named::Typedef, "loop_type"),
    (Named::Function, "kfree"),
];

/// A blob with one of everything.
fn blob() -> Vec<u8> {
    let mut w = Writer::new();
    let int = w.add("int", KIND_INT, 0, false, 4);
    w.word(0);
    let long = w.add("long unsigned int", KIND_INT, 0, false, 8);
    w.word(0);
    w.add("a variable", KIND_VAR, 0, false, int);
    w.word(0);
    w.add("a section", KIND_DATASEC, 1, false, 8);
    for word in [3, 0, 4] {
        w.word(word);
    }
    w.add("a float", KIND_FLOAT, 0, false, 8);
    w.add("a tag", KIND_DECL_TAG, 0, false, int);
    w.word(0);
    let inner = w.compound(KIND_STRUCT, "", false, 16, &[("slab_list", long, 0), ("freelist", long, 64)]);
    let union = w.compound(KIND_UNION, "", false, 16, &[("mapping", long, 0), ("", inner, 0)]);
    w.compound(KIND_STRUCT, "page", false, 64, &[("flags", long, 0), ("", union, 128), ("page_type", int, 384)]);
    // Bit fields: the upper byte of the offset word is the width.
    w.compound(KIND_STRUCT, "bits", true, 8, &[("inuse", int, 16 << 24 | 32), ("objects", int, 15 << 24 | 48)]);
    let per_node = w.compound(KIND_STRUCT, "of_any_name", false, 16, &[("node", long, 64)]);
    let array = w.add("", KIND_ARRAY, 0, false, 0);
    for word in [per_node, int, 4] {
        w.word(word);
    }
    let pointer = w.add("", KIND_PTR, 0, false, per_node);
    let pointers = w.add("", KIND_ARRAY, 0, false, 0);
    for word in [pointer, int, 4] {
        w.word(word);
    }
    let cache =
        w.compound(KIND_STRUCT, "kmem_cache", false, 256, &[("per_node", array, 512), ("node", pointers, 1024)]);
    w.add("pagetype", KIND_ENUM, 1, false, 4);
    let name = w.string("PGTY_slab");
    w.word(name);
    w.word(0xf5);
    w.add("wide", KIND_ENUM64, 1, false, 8);
    let name = w.string("WIDE");
    w.word(name);
    w.word(1);
    w.word(2);
    let const_cache = w.add("", KIND_CONST, 0, false, cache);
    let cache_pointer = w.add("", KIND_PTR, 0, false, const_cache);
    let void_pointer = w.add("", KIND_PTR, 0, false, 0);
    let prototype = w.add("", KIND_FUNC_PROTO, 3, false, 0);
    for (name, type_id) in [("__data", void_pointer), ("call_site", long), ("s", cache_pointer)] {
        let name = w.string(name);
        w.word(name);
        w.word(type_id);
    }
    let function_pointer = w.add("", KIND_PTR, 0, false, prototype);
    w.add("btf_trace_kmem_cache_free", KIND_TYPEDEF, 0, false, function_pointer);
    w.add("kfree", KIND_FUNC, 0, false, prototype);
    w.finish()
}

fn parsed(bytes: Vec<u8>) -> Btf {
    Btf::parse(bytes, WANTED).unwrap_or_else(|reason| panic!("{reason}"))
}

/// Asks for everything; the answers may be anything, but there must be some.
fn ask_all(btf: &Btf) {
    for (named, name) in WANTED {
        match named {
            Named::Struct => {
                btf.struct_bytes(name);
                btf.member_offset_bytes(name, "freelist");
                btf.first_element_member_offset_bytes(name, "per_node", "node");
            }
            Named::Enum => {
                btf.enumerator(name, "PGTY_slab");
            }
            Named::Typedef => {
                btf.prototype(name);
            }
            Named::Function => {
                btf.has_function(name);
            }
        }
    }
}

#[test]
fn members_are_found_at_any_depth_of_anonymous_structs_and_unions() {
    let btf = parsed(blob());
    assert_eq!(btf.struct_bytes("page"), Some(64));
    assert_eq!(btf.member_offset_bytes("page", "flags"), Some(0));
    assert_eq!(btf.member_offset_bytes("page", "mapping"), Some(16));
    assert_eq!(btf.member_offset_bytes("page", "freelist"), Some(24));
    assert_eq!(btf.member_offset_bytes("page", "page_type"), Some(48));
    assert_eq!(btf.member_offset_bytes("page", "compound_head"), None);
    assert_eq!(btf.struct_bytes("loop"), None);
}

#[test]
fn the_width_of_a_bit_field_is_no_part_of_its_offset() {
    let btf = parsed(blob());
    assert_eq!(btf.member_offset_bytes("bits", "inuse"), Some(4));
    assert_eq!(btf.member_offset_bytes("bits", "objects"), Some(6));
}

#[test]
fn a_member_of_an_arrays_first_struct_is_found_whatever_the_struct_is_called() {
    let btf = parsed(blob());
    assert_eq!(btf.first_element_member_offset_bytes("kmem_cache", "per_node", "node"), Some(64 + 8));
    assert_eq!(btf.first_element_member_offset_bytes("kmem_cache", "per_node", "absent"), None);
    assert_eq!(btf.first_element_member_offset_bytes("kmem_cache", "node", "node"), None, "an array of pointers");
    assert_eq!(btf.first_element_member_offset_bytes("page", "flags", "node"), None, "no array");
}

#[test]
fn enumerators_of_32_and_64_bits_have_their_values() {
    let btf = parsed(blob());
    assert_eq!(btf.enumerator("pagetype", "PGTY_slab"), Some(0xf5));
    assert_eq!(btf.enumerator("wide", "WIDE"), Some(1 | 2 << 32));
    assert_eq!(btf.enumerator("pagetype", "PGTY_other"), None);
}

#[test]
fn a_tracepoints_prototype_is_read_with_its_qualifiers() {
    let parameters = parsed(blob()).prototype("btf_trace_kmem_cache_free").unwrap();
    let text: Vec<_> = parameters.iter().map(|p| format!("{} {}", p.type_name, p.name)).collect();
    assert_eq!(text, ["void * __data", "long unsigned int call_site", "const struct kmem_cache * s"]);
}

#[test]
fn functions_are_known_by_name() {
    let btf = parsed(blob());
    assert!(btf.has_function("kfree"));
    assert!(!btf.has_function("page"), "a struct is no function");
}

#[test]
fn each_kind_that_is_not_asked_for_is_stepped_over() {
    // A type after each of them is still found, so each was taken for as long as it is.
    for (kind, vlen, words) in [
        (KIND_INT, 0, 1),
        (KIND_PTR, 0, 0),
        (KIND_ARRAY, 0, 3),
        (KIND_UNION, 2, 6),
        (KIND_ENUM, 3, 6),
        (KIND_FWD, 0, 0),
        (KIND_TYPEDEF, 0, 0),
        (KIND_VOLATILE, 0, 0),
        (KIND_CONST, 0, 0),
        (KIND_RESTRICT, 0, 0),
        (KIND_FUNC, 1, 0),
        (KIND_FUNC_PROTO, 2, 4),
        (KIND_VAR, 0, 1),
        (KIND_DATASEC, 2, 6),
        (KIND_FLOAT, 0, 0),
        (KIND_DECL_TAG, 0, 1),
        (KIND_TYPE_TAG, 0, 0),
        (KIND_ENUM64, 2, 6),
        // More members than 16 bits hold, as newer kernels allow.
        (KIND_ENUM, 0x1_0001, 2 * 0x1_0001),
    ] {
        let mut w = Writer::new();
        w.add("other", kind, vlen, false, 0);
        // As a header, a word of ones is of a kind that is not known.
        (0..words).for_each(|_| w.word(u32::MAX));
        w.add("kfree", KIND_FUNC, 0, false, 0);
        assert!(parsed(w.finish()).has_function("kfree"), "kind {kind} with {vlen}");
    }
}

#[test]
fn the_first_type_of_a_name_and_kind_is_taken() {
    let mut w = Writer::new();
    w.add("page", KIND_FWD, 0, false, 0);
    w.add("page", KIND_FUNC, 0, false, 0);
    w.compound(KIND_STRUCT, "page", false, 64, &[]);
    w.compound(KIND_STRUCT, "page", false, 32, &[]);
    assert_eq!(parsed(w.finish()).struct_bytes("page"), Some(64));
}

#[test]
fn what_is_no_btf_is_told_by_its_reason() {
    let spoilt = |change: fn(&mut Vec<u8>)| {
        let mut bytes = blob();
        change(&mut bytes);
        bytes
    };
    for (bytes, reason) in [
        (Vec::new(), "cut off in the header"),
        (b"not BTF at all, not at all, not at all".to_vec(), "wrong magic number"),
        (spoilt(|bytes| bytes.swap(0, 1)), "of the other byte order"),
        (spoilt(|bytes| bytes[2] = 2), "of a version that is not known"),
        (spoilt(|bytes| bytes[4] = 23), "impossible header"),
        (spoilt(|bytes| bytes[24 + 7] = 0), "a kind of type that is not known"),
        (spoilt(|bytes| bytes[24 + 7] = 20), "a kind of type that is not known"),
        // With 5 bits it would pass for KIND_INT.
        (spoilt(|bytes| bytes[24 + 7] = 0x21), "a kind of type that is not known"),
        (spoilt(|bytes| bytes[12] += 1), "cut off in a type"),
        (spoilt(|bytes| bytes[12] -= 1), "cut off in a type"),
    ] {
        assert_eq!(Btf::parse(bytes, WANTED).err(), Some(reason));
    }
}

#[test]
fn lengths_near_the_largest_number_are_refused_wherever_they_stand() {
    for at in [4, 8, 12, 16, 20] {
        for value in [u32::MAX, u32::MAX - 1, u32::MAX - 23, 1 << 31] {
            let mut bytes = blob();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(Btf::parse(bytes, WANTED).err(), Some("cut off"), "{value} at {at}");
        }
    }
    let mut bytes = blob();
    bytes[4..24].fill(0xff);
    assert_eq!(Btf::parse(bytes, WANTED).err(), Some("cut off"));
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let whole = blob();
    for length in 0..whole.len() {
        assert!(Btf::parse(whole[..length].to_vec(), WANTED).is_err(), "cut after {length} bytes");
    }
}

#[test]
fn a_search_through_structs_that_hold_themselves_ends() {
    // One anonymous member goes 16 deep; 64 of them, without a bound, would be 64^16 members to look at.
    for copies in [1, 2, 64] {
        let mut w = Writer::new();
        w.compound(KIND_STRUCT, "loop", false, 8, &vec![("", 1, 0); copies]);
        assert_eq!(parsed(w.finish()).member_offset_bytes("loop", "absent"), None, "{copies}");
    }
    // An array of itself.
    let mut w = Writer::new();
    w.compound(KIND_STRUCT, "loop", false, 8, &[("per_node", 2, 0)]);
    w.add("", KIND_ARRAY, 0, false, 0);
    for word in [2, 2, 1] {
        w.word(word);
    }
    assert_eq!(parsed(w.finish()).first_element_member_offset_bytes("loop", "per_node", "node"), None);
}

#[test]
fn a_prototype_of_types_that_never_end_is_not_known() {
    for kind in [KIND_TYPEDEF, KIND_PTR, KIND_CONST, KIND_VOLATILE, KIND_RESTRICT, KIND_TYPE_TAG] {
        let mut w = Writer::new();
        let itself = w.add("loop_type", kind, 0, false, 1);
        let prototype = w.add("", KIND_FUNC_PROTO, 1, false, 0);
        w.word(0);
        w.word(itself);
        let pointer = w.add("", KIND_PTR, 0, false, prototype);
        w.add("btf_trace_kmem_cache_free", KIND_TYPEDEF, 0, false, pointer);
        let btf = parsed(w.finish());
        assert_eq!(btf.prototype("loop_type"), None, "a typedef of itself is no function");
        let named_by_a_typedef =
            (kind == KIND_TYPEDEF).then(|| vec![Parameter { name: String::new(), type_name: "loop_type".into() }]);
        assert_eq!(btf.prototype("btf_trace_kmem_cache_free"), named_by_a_typedef, "kind {kind}");
    }
}

#[test]
fn a_name_that_does_not_end_or_points_nowhere_is_unknown() {
    let mut w = Writer::new();
    let type_id = w.compound(KIND_STRUCT, "page", false, 64, &[("flags", 1, 0)]);
    assert_eq!(type_id, 1);
    let whole = w.finish();
    // The last string, `flags`, loses its NUL: the string section ends with it.
    let mut endless = whole.clone();
    endless.pop();
    endless[20] -= 1;
    assert_eq!(parsed(whole.clone()).member_offset_bytes("page", "flags"), Some(0));
    assert_eq!(parsed(endless).member_offset_bytes("page", "flags"), None);
    let mut nowhere = whole;
    nowhere[24 + 12..24 + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(parsed(nowhere).member_offset_bytes("page", "flags"), None);
}

#[test]
fn a_missing_file_is_named() {
    let error = Btf::read(Path::new("/nonexistent/vmlinux"), WANTED).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/vmlinux: "), "{error}");
}

#[test]
fn the_running_kernels_types_are_consistent() {
    const EVENTS: [&str; 4] =
        ["btf_trace_kmalloc", "btf_trace_kfree", "btf_trace_kmem_cache_alloc", "btf_trace_kmem_cache_free"];
    let members = [
        ("page", "flags"),
        ("page", "page_type"),
        ("kmem_cache", "size"),
        ("kmem_cache", "object_size"),
        ("kmem_cache", "name"),
        ("kmem_cache_node", "partial"),
    ];
    let structs = ["page", "kmem_cache", "kmem_cache_node"].map(|name| (Named::Struct, name));
    let wanted = [&structs[..], &EVENTS.map(|name| (Named::Typedef, name))].concat();
    let btf = Btf::read(&Path::new("/").join(VMLINUX), &wanted).unwrap();
    let page_bytes = btf.struct_bytes("page").unwrap();
    assert!((56..=128).contains(&page_bytes), "{page_bytes}");
    for (name, member) in members {
        let (at, bytes) = (btf.member_offset_bytes(name, member).unwrap(), btf.struct_bytes(name).unwrap());
        assert!(at < bytes, "{name}.{member} at {at} of {bytes}");
    }
    for event in EVENTS {
        let parameters = btf.prototype(event).unwrap_or_else(|| panic!("{event}"));
        let types: Vec<_> = parameters.iter().map(|parameter| &*parameter.type_name).collect();
        assert_eq!(types[..3], ["void *", "long unsigned int", "const void *"], "{event}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(btf) = Btf::parse(bytes, WANTED) {
            ask_all(&btf);
        }
    }

    #[test]
    fn no_spoilt_blob_panics(spoils in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = blob();
        for (index, value) in spoils {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(btf) = Btf::parse(bytes, WANTED) {
            ask_all(&btf);
        }
    }
}
