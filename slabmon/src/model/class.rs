//! From a cache's name to the kmalloc bucket that it belongs to.

use super::snapshot::{ClassKind, SizeClass};

/// The kmalloc size class that `name` belongs to; `None` for a cache that is no kmalloc bucket.
///
/// Only the name decides: slab debugging makes the stride of a bucket larger, not its class. Families by kernel:
/// mm/slab_common.c (`kmalloc-`, `-rcl-`, `-cg-`, `-rnd-NN-`, `-part-NN-`, `-no-objext-`, `dma-kmalloc-`), older SLUB
/// (`kmalloc_dma-`) and SLAB (`size-N`, `size-N(DMA)`).
///
/// A family that is not known here but follows the pattern `kmalloc-<words>-<size>` is [`ClassKind::Other`].
pub fn size_class(name: &str) -> Option<SizeClass> {
    let (kind, size) = split_family(name)?;
    let bytes = parse_size_bytes(size)?;
    is_bucket_size(bytes).then_some(SizeClass { bytes, kind })
}

/// The family of a kmalloc name and the text of its size.
fn split_family(name: &str) -> Option<(ClassKind, &str)> {
    if let Some(size) = name.strip_prefix("dma-kmalloc-").or_else(|| name.strip_prefix("kmalloc_dma-")) {
        return Some((ClassKind::Dma, size));
    }
    if let Some(size) = name.strip_prefix("size-") {
        return Some(match size.strip_suffix("(DMA)") {
            Some(size) => (ClassKind::Dma, size),
            None => (ClassKind::Normal, size),
        });
    }
    let rest = name.strip_prefix("kmalloc-")?;
    let Some((family, size)) = rest.rsplit_once('-') else {
        return Some((ClassKind::Normal, rest));
    };
    let kind = match family.split_once('-') {
        None if family == "rcl" => ClassKind::Reclaimable,
        None if family == "cg" => ClassKind::Accounted,
        Some(("rnd" | "part", copy)) if is_decimal(copy) => ClassKind::Partitioned,
        // A size in the middle (`kmalloc-64-2k`) is nobody's family.
        _ if family.split('-').all(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())) => ClassKind::Other,
        _ => return None,
    };
    Some((kind, size))
}

/// `64`, `1k`, `8M`: the kernel cuts whole KiB and MiB off its bucket names since 5.3 (older ones print all digits).
fn parse_size_bytes(text: &str) -> Option<u64> {
    let (digits, unit_bytes) = if let Some(digits) = text.strip_suffix('k') {
        (digits, 1 << 10)
    } else if let Some(digits) = text.strip_suffix('M') {
        (digits, 1 << 20)
    } else {
        (text, 1)
    };
    if !is_decimal(digits) || digits.starts_with('0') {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit_bytes)
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The kernel has buckets of the powers of two from 8 bytes on, and of 96 and 192 bytes (`kmalloc_info` in mm/slab_common.c).
fn is_bucket_size(bytes: u64) -> bool {
    (bytes.is_power_of_two() && bytes >= 8) || bytes == 96 || bytes == 192
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size that a kernel of 4 to 64 KiB pages names, as text and in bytes.
    const SIZES: &[(&str, u64)] = &[
        ("8", 8),
        ("16", 16),
        ("32", 32),
        ("64", 64),
        ("96", 96),
        ("128", 128),
        ("192", 192),
        ("256", 256),
        ("512", 512),
        ("1k", 1 << 10),
        ("2k", 2 << 10),
        ("4k", 4 << 10),
        ("8k", 8 << 10),
        ("16k", 16 << 10),
        ("32k", 32 << 10),
        ("64k", 64 << 10),
        ("128k", 128 << 10),
        ("256k", 256 << 10),
        ("512k", 512 << 10),
        ("1M", 1 << 20),
        ("2M", 2 << 20),
        ("4M", 4 << 20),
        ("8M", 8 << 20),
        ("16M", 16 << 20),
        ("32M", 32 << 20),
        ("1024", 1 << 10),
        ("2048", 2 << 10),
        ("4096", 4 << 10),
        ("8192", 8 << 10),
        ("131072", 128 << 10),
        ("33554432", 32 << 20),
    ];

    #[test]
    fn every_family_in_every_size_is_its_class() {
        let mut families: Vec<(String, String, ClassKind)> = [
            ("kmalloc-", "", ClassKind::Normal),
            ("size-", "", ClassKind::Normal),
            ("kmalloc-rcl-", "", ClassKind::Reclaimable),
            ("kmalloc-cg-", "", ClassKind::Accounted),
            ("dma-kmalloc-", "", ClassKind::Dma),
            ("kmalloc_dma-", "", ClassKind::Dma),
            ("size-", "(DMA)", ClassKind::Dma),
            ("kmalloc-no-objext-", "", ClassKind::Other),
        ]
        .into_iter()
        .map(|(prefix, suffix, kind)| (prefix.to_owned(), suffix.to_owned(), kind))
        .collect();
        for copy in 1..=15 {
            for family in ["rnd", "part"] {
                families.push((format!("kmalloc-{family}-{copy:02}-"), String::new(), ClassKind::Partitioned));
            }
        }
        for (prefix, suffix, kind) in &families {
            for &(size, bytes) in SIZES {
                let name = format!("{prefix}{size}{suffix}");
                assert_eq!(size_class(&name), Some(SizeClass { bytes, kind: *kind }), "{name}");
            }
        }
    }

    #[test]
    fn a_family_of_a_later_kernel_that_follows_the_pattern_is_other() {
        for name in ["kmalloc-foo-64", "kmalloc-dma32-64", "kmalloc-rnd-64", "kmalloc-class-64", "kmalloc-a-b-c-64"] {
            assert_eq!(size_class(name), Some(SizeClass { bytes: 64, kind: ClassKind::Other }), "{name}");
        }
    }

    #[test]
    fn what_is_no_kmalloc_bucket_has_no_class() {
        for name in [
            "",
            "kmalloc",
            "kmalloc-",
            "kmalloc_buckets",
            "kmalloc-large",
            "kmalloc-64-",
            "kmalloc--64",
            "kmalloc-64k8",
            "kmalloc-64-2k",
            "kmalloc-rnd-x7-",
            "kmalloc-k",
            "kmalloc-M",
            "kmalloc-1K",
            "kmalloc-1m",
            "kmalloc-064",
            "kmalloc-0",
            "kmalloc-+64",
            "kmalloc--1",
            "kmalloc-100",
            "kmalloc-4",
            "kmalloc-3k",
            "kmalloc-64 ",
            " kmalloc-64",
            "kmalloc-64(DMA)",
            "kmalloc-512(18223:docker.service)",
            "kmalloc-99999999999999999999",
            "kmalloc-18446744073709551615k",
            "kmalloc-17592186044416M",
            "dma-kmalloc",
            "dma-kmalloc-",
            "dma-kmalloc-cg-64",
            "msg_msg-64",
            "memdup_user-8k",
            "size-",
            "size-64(dma)",
            "size-64(DMA)x",
            "size_64",
            "my-kmalloc-64",
            "sgpool-64",
            "bio-256",
            "biovec-64",
            "pool_workqueue",
            "dentry",
        ] {
            assert_eq!(size_class(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_debugged_bucket_keeps_the_class_of_its_name() {
        // Linux 6.10 with slab debugging: kmalloc-8k has a stride of 24576 bytes.
        assert_eq!(size_class("kmalloc-8k"), Some(SizeClass { bytes: 8192, kind: ClassKind::Normal }));
        assert_eq!(size_class("kmalloc-cg-8k"), Some(SizeClass { bytes: 8192, kind: ClassKind::Accounted }));
    }
}
