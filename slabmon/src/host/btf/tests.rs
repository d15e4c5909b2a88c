//! Blobs of BTF, written here type by type, whole and spoilt.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

/// Writes BTF: types get their ids in the order in which they are added, from 1.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    fn word(&mut self, word: u32) {
        self.types.extend_from_slice(&word.to_le_bytes());
    }

    /// A type's header, and its id.
    fn add(&mut self, name: &str, kind: u32, vlen: u32, flag: bool, size_or_type: u32) -> u32 {
        let name = self.string(name);
        self.word(name);
        self.word(kind << 24 | vlen | u32::from(flag) << 31);
        self.word(size_or_type);
        self.count += 1;
        self.count
    }

    /// A struct or union with (name, type, offset word) members.
    fn compound(&mut self, kind: u32, name: &str, flag: bool, bytes: u32, members: &[(&str, u32, u32)]) -> u32 {
        let id = self.add(name, kind, members.len() as u32, flag, bytes);
        for &(name, type_id, offset) in members {
            let name = self.string(name);
            self.word(name);
            self.word(type_id);
            self.word(offset);
        }
        id
    }

    fn finish(self) -> Vec<u8> {
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
    let per_node = w.compound(KIND_STRUCT, "kmem_cache_per_node_ptrs", false, 16, &[("node", long, 64)]);
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
                btf.member_is_array_of_structs(name, "per_node");
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
fn an_array_of_structs_is_told_from_one_of_pointers() {
    let btf = parsed(blob());
    assert_eq!(btf.member_is_array_of_structs("kmem_cache", "per_node"), Some(true));
    assert_eq!(btf.member_is_array_of_structs("kmem_cache", "node"), Some(false));
    assert_eq!(btf.member_is_array_of_structs("page", "flags"), None);
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
fn what_is_no_btf_is_told_by_its_reason() {
    let mut other_order = blob();
    other_order.swap(0, 1);
    let mut unknown_kind = blob();
    unknown_kind[24 + 7] = 31;
    let mut far_header = blob();
    far_header[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, reason) in [
        (Vec::new(), "cut off in the header"),
        (b"not BTF at all, not at all, not at all".to_vec(), "wrong magic number"),
        (other_order, "of the other byte order"),
        (unknown_kind, "a kind of type that is not known"),
        (far_header, "cut off"),
    ] {
        assert_eq!(Btf::parse(bytes, WANTED).err(), Some(reason));
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let whole = blob();
    for length in 0..whole.len() {
        assert!(Btf::parse(whole[..length].to_vec(), WANTED).is_err(), "cut after {length} bytes");
    }
}

#[test]
fn types_that_contain_themselves_end() {
    let mut w = Writer::new();
    w.compound(KIND_STRUCT, "loop", false, 8, &[("", 1, 0)]);
    w.add("loop_type", KIND_TYPEDEF, 0, false, 3);
    let pointer = w.add("", KIND_PTR, 0, false, 4);
    let prototype = w.add("", KIND_FUNC_PROTO, 1, false, 0);
    assert_eq!((pointer, prototype), (3, 4));
    w.word(0);
    w.word(5);
    w.add("", KIND_CONST, 0, false, 5);
    let btf = parsed(w.finish());
    assert_eq!(btf.member_offset_bytes("loop", "absent"), None);
    assert_eq!(btf.prototype("loop_type"), None, "its parameter is of a type that never ends");
}

#[test]
fn a_missing_file_is_named() {
    let error = Btf::read(Path::new("/nonexistent/vmlinux"), WANTED).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/vmlinux: "), "{error}");
}

#[test]
fn the_running_kernels_types_are_consistent() {
    let wanted = [(Named::Struct, "page"), (Named::Struct, "kmem_cache"), (Named::Typedef, "btf_trace_kfree")];
    let btf = Btf::read(&Path::new("/").join(VMLINUX), &wanted).unwrap();
    let page_bytes = btf.struct_bytes("page").unwrap();
    assert!((56..=128).contains(&page_bytes), "{page_bytes}");
    assert!(btf.member_offset_bytes("page", "flags").unwrap() < page_bytes);
    let name = btf.member_offset_bytes("kmem_cache", "name").unwrap();
    assert!(name < btf.struct_bytes("kmem_cache").unwrap());
    let parameters = btf.prototype("btf_trace_kfree").unwrap();
    assert_eq!(parameters.len(), 3, "{parameters:?}");
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
