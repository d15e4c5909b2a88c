//! The kernel's own type information, `/sys/kernel/btf/vmlinux` (format: Documentation/bpf/btf.rst).
//!
//! Reads what it is asked for and nothing else: one pass notes where each type lies and which of the wanted names it
//! bears, so a few megabytes take milliseconds. Every bound is checked; a cut or hostile file gives an error or an
//! unknown, never a panic.

use std::{collections::HashMap, path::Path};

/// Where the running kernel's BTF is, below the root.
pub const VMLINUX: &str = "sys/kernel/btf/vmlinux";

/// Levels of anonymous members or type modifiers that are followed; the kernel has fewer than ten.
const MAX_DEPTH: u32 = 16;
/// A struct whose padding is asked for is no larger, bits.
const MAX_PADDED_BITS: u32 = 1 << 16;

/// Longest BTF that is read; the largest known kernel's is a tenth of it.
const MAX_BYTES: u64 = 256 << 20;

/// Longest name that is read; a kernel symbol has at most 512 bytes (include/linux/kallsyms.h, `KSYM_NAME_LEN`).
const MAX_NAME_BYTES: usize = 1024;

/// Members that one search looks at; the kernel's largest structs have a few hundred, anonymous ones included. Without
/// it, a struct that holds itself twice, anonymously, would be searched 2^[`MAX_DEPTH`] times, and more often for more.
const MAX_MEMBERS: u32 = 1 << 17;

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;

/// Why there is no type information.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("{path}: {error}")]
    Io {
        /// Which file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The bytes are no BTF, or not all of it.
    #[error("{path}: no BTF that slabmon can read: {reason}")]
    Malformed {
        /// Which file.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Kinds of named types that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Named {
    /// `struct` or `union`.
    Struct,
    /// `enum`, of 32 or 64 bits.
    Enum,
    /// `typedef`.
    Typedef,
    /// A function with code of its own.
    Function,
}

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// One parameter of a prototype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; empty where the kernel gives none.
    pub name: String,
    /// Its type as C would write it, qualifiers included: `const struct kmem_cache *`.
    pub type_name: String,
}

/// The wanted part of a kernel's type information.
pub struct Btf {
    bytes: Vec<u8>,
    types_at: usize,
    strings_at: usize,
    strings_end: usize,
    /// Place of each type, relative to `types_at`; type ids start at 1.
    places: Vec<u32>,
    named: HashMap<(Named, &'static str), u32>,
}

struct Header {
    kind: u32,
    vlen: u32,
    flag: bool,
    name: u32,
    /// Size or type id, by kind.
    size_or_type: u32,
    /// Where the kind's own data begins.
    data_at: usize,
}

impl Btf {
    /// Reads the BTF file at `path` and finds the `wanted` names.
    pub fn read(path: &Path, wanted: &[(Named, &'static str)]) -> Result<Self, BtfError> {
        let io = |error| BtfError::Io { path: path.display().to_string(), error };
        let length = std::fs::metadata(path).map_err(io)?.len();
        if length > MAX_BYTES {
            return Err(BtfError::Malformed { path: path.display().to_string(), reason: "larger than 256 MiB" });
        }
        let bytes = std::fs::read(path).map_err(io)?;
        Self::parse(bytes, wanted).map_err(|reason| BtfError::Malformed { path: path.display().to_string(), reason })
    }

    /// Notes where the types are; the error says what is wrong with the bytes.
    pub fn parse(bytes: Vec<u8>, wanted: &[(Named, &'static str)]) -> Result<Self, &'static str> {
        match u16_at(&bytes, 0) {
            Some(MAGIC) => {}
            Some(other) if other == MAGIC.swap_bytes() => return Err("of the other byte order"),
            Some(_) => return Err("wrong magic number"),
            None => return Err("cut off in the header"),
        }
        if bytes.get(2).is_some_and(|&version| version != VERSION) {
            return Err("of a version that is not known");
        }
        let header = |at| u32_at(&bytes, at).map(|value| value as usize).ok_or("cut off in the header");
        let header_length = header(4)?;
        if header_length < HEADER_BYTES {
            return Err("impossible header");
        }
        let types_at = header_length.checked_add(header(8)?).ok_or("impossible header")?;
        let types_end = types_at.checked_add(header(12)?).ok_or("impossible header")?;
        let strings_at = header_length.checked_add(header(16)?).ok_or("impossible header")?;
        let strings_end = strings_at.checked_add(header(20)?).ok_or("impossible header")?;
        if types_end > bytes.len() || strings_end > bytes.len() {
            return Err("cut off");
        }
        let mut btf = Self { bytes, types_at, strings_at, strings_end, places: Vec::new(), named: HashMap::new() };
        btf.index(types_end, wanted)?;
        Ok(btf)
    }

    fn index(&mut self, types_end: usize, wanted: &[(Named, &'static str)]) -> Result<(), &'static str> {
        let names: HashMap<&[u8], &'static str> = wanted.iter().map(|&(_, name)| (name.as_bytes(), name)).collect();
        // Twenty bytes is about the mean of a kernel's types.
        self.places.reserve((types_end - self.types_at) / 20);
        let mut at = self.types_at;
        while at < types_end {
            let header = self.header_at(at).filter(|header| header.data_at <= types_end).ok_or("cut off in a type")?;
            let data_bytes = data_bytes(header.kind, header.vlen).ok_or("a kind of type that is not known")?;
            let next = header.data_at.checked_add(data_bytes).filter(|&next| next <= types_end);
            let id = self.places.len() as u32 + 1;
            self.places.push((at - self.types_at) as u32);
            if let Some(named) = named_kind(header.kind)
                && let Some(&name) = self.string_at(header.name).and_then(|name| names.get(name))
                && wanted.contains(&(named, name))
            {
                // A forward use of a name by modules comes later; the first is the kernel's own.
                self.named.entry((named, name)).or_insert(id);
            }
            at = next.ok_or("cut off in a type")?;
        }
        Ok(())
    }

    fn header_at(&self, at: usize) -> Option<Header> {
        let info = u32_at(&self.bytes, at.checked_add(4)?)?;
        Some(Header {
            // Newer kernels use 7 and 24 bits, older ones 5 and 16, and leave the others 0 (include/uapi/linux/btf.h).
            kind: info >> 24 & 0x7f,
            vlen: info & 0xff_ffff,
            flag: info >> 31 != 0,
            name: u32_at(&self.bytes, at)?,
            size_or_type: u32_at(&self.bytes, at.checked_add(8)?)?,
            data_at: at.checked_add(12)?,
        })
    }

    fn header(&self, id: u32) -> Option<Header> {
        let place = *self.places.get(id.checked_sub(1)? as usize)?;
        self.header_at(self.types_at.checked_add(place as usize)?)
    }

    fn string_at(&self, offset: u32) -> Option<&[u8]> {
        let start = self.strings_at.checked_add(offset as usize)?;
        let end = self.strings_end.min(start.saturating_add(MAX_NAME_BYTES));
        let rest = self.bytes.get(start..end)?;
        rest.iter().position(|&byte| byte == 0).and_then(|end| rest.get(..end))
    }

    fn text_at(&self, offset: u32) -> Option<&str> {
        self.string_at(offset).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    fn id(&self, named: Named, name: &'static str) -> Option<u32> {
        self.named.get(&(named, name)).copied()
    }

    /// Whether the kernel has a function of that name.
    pub fn has_function(&self, name: &'static str) -> bool {
        self.id(Named::Function, name).is_some()
    }

    /// `sizeof`, bytes.
    pub fn struct_bytes(&self, name: &'static str) -> Option<u32> {
        self.header(self.id(Named::Struct, name)?).map(|header| header.size_or_type)
    }

    /// Bytes of a struct that no member covers. Members of anonymous structs and unions within count as its own; `None`
    /// where a member's size cannot be told.
    pub fn padding_bytes(&self, name: &'static str) -> Option<u32> {
        let bits = self.struct_bytes(name)?.checked_mul(8).filter(|bits| *bits <= MAX_PADDED_BITS)?;
        let mut covered = vec![false; bits as usize];
        self.cover(self.id(Named::Struct, name)?, 0, &mut covered, 0)?;
        let empty = covered.chunks(8).filter(|byte| byte.iter().all(|bit| !bit)).count();
        u32::try_from(empty).ok()
    }

    /// Marks the bits that the members of a struct or union take, which begins at bit `base`.
    fn cover(&self, id: u32, base: u32, covered: &mut [bool], depth: u32) -> Option<()> {
        let header = self.header(id).filter(|_| depth <= MAX_DEPTH)?;
        for index in 0..header.vlen as usize {
            let at = header.data_at.checked_add(index * 12)?;
            let is_anonymous = self.string_at(u32_at(&self.bytes, at)?)?.is_empty();
            let type_id = u32_at(&self.bytes, at + 4)?;
            let raw = u32_at(&self.bytes, at + 8)?;
            let (offset, field_bits) = if header.flag { (raw & 0xff_ffff, raw >> 24) } else { (raw, 0) };
            let start = base.checked_add(offset)?;
            if is_anonymous && matches!(self.header(type_id)?.kind, KIND_STRUCT | KIND_UNION) {
                self.cover(type_id, start, covered, depth + 1)?;
                continue;
            }
            let bits = if field_bits == 0 { self.type_bytes(type_id, 0)?.checked_mul(8)? } else { field_bits };
            let end = (start as usize).checked_add(bits as usize)?.min(covered.len());
            covered.get_mut(start as usize..end)?.fill(true);
        }
        Some(())
    }

    /// `sizeof` a type. A pointer has as many bytes as one of this program, which the kernel runs as its own.
    fn type_bytes(&self, id: u32, depth: u32) -> Option<u32> {
        let id = self.skip_modifiers(id).filter(|_| depth <= MAX_DEPTH)?;
        let header = self.header(id)?;
        match header.kind {
            KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => Some(header.size_or_type),
            KIND_PTR => u32::try_from(size_of::<usize>()).ok(),
            KIND_ARRAY => {
                let element = self.type_bytes(u32_at(&self.bytes, header.data_at)?, depth + 1)?;
                element.checked_mul(u32_at(&self.bytes, header.data_at.checked_add(8)?)?)
            }
            _ => None,
        }
    }

    /// Offset of a member, bytes; members of anonymous structs and unions within count as its own.
    pub fn member_offset_bytes(&self, struct_name: &'static str, member: &str) -> Option<u32> {
        self.find_member(self.id(Named::Struct, struct_name)?, member).map(|(offset, _)| offset)
    }

    /// Offset of a member of the first element of an array of structs, bytes, whatever that struct is called:
    /// `kmem_cache.per_node[0].node`. `None` if `array` is no such array.
    pub fn first_element_member_offset_bytes(
        &self,
        struct_name: &'static str,
        array: &str,
        member: &str,
    ) -> Option<u32> {
        let (array_at, type_id) = self.find_member(self.id(Named::Struct, struct_name)?, array)?;
        let array = self.header(self.skip_modifiers(type_id)?).filter(|header| header.kind == KIND_ARRAY)?;
        let element = self.skip_modifiers(u32_at(&self.bytes, array.data_at)?)?;
        let (member_at, _) = self.find_member(element, member)?;
        array_at.checked_add(member_at)
    }

    /// Offset and type of a member.
    fn find_member(&self, id: u32, member: &str) -> Option<(u32, u32)> {
        let mut members_left = MAX_MEMBERS;
        self.find_member_within(id, member, 0, &mut members_left)
    }

    fn find_member_within(&self, id: u32, member: &str, depth: u32, members_left: &mut u32) -> Option<(u32, u32)> {
        if depth > MAX_DEPTH {
            return None;
        }
        let header = self.header(id)?;
        if !matches!(header.kind, KIND_STRUCT | KIND_UNION) {
            return None;
        }
        for index in 0..header.vlen as usize {
            *members_left = members_left.checked_sub(1)?;
            let at = header.data_at.checked_add(index * 12)?;
            let name = self.string_at(u32_at(&self.bytes, at)?)?;
            let type_id = u32_at(&self.bytes, at + 4)?;
            let raw = u32_at(&self.bytes, at + 8)?;
            // With the flag set, the upper byte is the size of a bit field.
            let offset = if header.flag { raw & 0xff_ffff } else { raw } / 8;
            if name == member.as_bytes() {
                return Some((offset, type_id));
            }
            if name.is_empty()
                && let Some((inner, found)) = self.find_member_within(type_id, member, depth + 1, members_left)
            {
                return Some((offset.checked_add(inner)?, found));
            }
        }
        None
    }

    fn skip_modifiers(&self, mut id: u32) -> Option<u32> {
        for _ in 0..MAX_DEPTH {
            let header = self.header(id)?;
            match header.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => id = header.size_or_type,
                _ => return Some(id),
            }
        }
        None
    }

    /// Value of an enumerator.
    pub fn enumerator(&self, enum_name: &'static str, enumerator: &str) -> Option<u64> {
        let header = self.header(self.id(Named::Enum, enum_name)?)?;
        let stride = if header.kind == KIND_ENUM64 { 12 } else { 8 };
        for index in 0..header.vlen as usize {
            let at = header.data_at.checked_add(index * stride)?;
            if self.string_at(u32_at(&self.bytes, at)?)? == enumerator.as_bytes() {
                let low = u64::from(u32_at(&self.bytes, at + 4)?);
                let high = if stride == 12 { u64::from(u32_at(&self.bytes, at + 8)?) } else { 0 };
                return Some(low | high << 32);
            }
        }
        None
    }

    /// Parameters of the function type behind a typedef, such as `btf_trace_kfree` of each tracepoint.
    pub fn prototype(&self, typedef: &'static str) -> Option<Vec<Parameter>> {
        let pointer = self.header(self.id(Named::Typedef, typedef)?)?.size_or_type;
        let function = self.header(pointer).filter(|header| header.kind == KIND_PTR)?.size_or_type;
        let header = self.header(function).filter(|header| header.kind == KIND_FUNC_PROTO)?;
        (0..header.vlen as usize)
            .map(|index| {
                let at = header.data_at.checked_add(index * 8)?;
                Some(Parameter {
                    name: self.text_at(u32_at(&self.bytes, at)?)?.to_owned(),
                    type_name: self.type_name(u32_at(&self.bytes, at + 4)?, 0)?,
                })
            })
            .collect()
    }

    fn type_name(&self, id: u32, depth: u32) -> Option<String> {
        if id == 0 {
            return Some("void".into());
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let header = self.header(id)?;
        let inner = |btf: &Self| btf.type_name(header.size_or_type, depth + 1);
        Some(match header.kind {
            KIND_PTR => {
                let inner = inner(self)?;
                if inner.ends_with('*') { format!("{inner}*") } else { format!("{inner} *") }
            }
            KIND_CONST => format!("const {}", inner(self)?),
            KIND_VOLATILE => format!("volatile {}", inner(self)?),
            KIND_RESTRICT | KIND_TYPE_TAG => inner(self)?,
            KIND_STRUCT => format!("struct {}", self.text_at(header.name)?),
            KIND_UNION => format!("union {}", self.text_at(header.name)?),
            KIND_FWD => format!("{} {}", if header.flag { "union" } else { "struct" }, self.text_at(header.name)?),
            KIND_ENUM | KIND_ENUM64 => format!("enum {}", self.text_at(header.name)?),
            KIND_FUNC_PROTO => "function".into(),
            _ => self.text_at(header.name)?.to_owned(),
        })
    }
}

fn named_kind(kind: u32) -> Option<Named> {
    Some(match kind {
        KIND_STRUCT | KIND_UNION => Named::Struct,
        KIND_ENUM | KIND_ENUM64 => Named::Enum,
        KIND_TYPEDEF => Named::Typedef,
        KIND_FUNC => Named::Function,
        _ => return None,
    })
}

/// Bytes that follow a type's header.
fn data_bytes(kind: u32, vlen: u32) -> Option<usize> {
    let vlen = vlen as usize;
    Some(match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => vlen * 12,
        KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
        KIND_PTR | KIND_FWD | KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_FUNC | KIND_FLOAT
        | KIND_TYPE_TAG => 0,
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
pub(in crate::host) mod tests;
