//! Cache names: one shared string per name for as long as someone holds it, and the names of per-cgroup caches.

use std::{collections::HashSet, sync::Arc};

/// Hands out one `Arc<str>` per name, so that a file that is read every few seconds allocates a name once.
#[derive(Debug, Default)]
pub struct NameInterner {
    names: HashSet<Arc<str>>,
}

impl NameInterner {
    /// The shared string of these bytes. The kernel does not promise UTF-8: what is none becomes U+FFFD.
    pub fn intern(&mut self, name: &[u8]) -> Arc<str> {
        let name = String::from_utf8_lossy(name);
        if let Some(known) = self.names.get(name.as_ref()) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(name);
        self.names.insert(Arc::clone(&new));
        new
    }

    /// Drops the names that nobody else holds any more.
    pub fn forget_unused(&mut self) {
        self.names.retain(|name| Arc::strong_count(name) > 1);
    }

    /// How many names are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no name is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Splits the name of a per-cgroup cache, `root(id:cgroup)`, as kernels before 5.9 made them (`memcg_create_kmem_cache`,
/// mm/slab_common.c), into the root cache's name and the cgroup's id and name.
///
/// Any other name comes back whole: `biovec-(256)` and `size-64(DMA)` have parentheses but no id.
#[must_use]
pub fn split_memcg_name(name: &str) -> (&str, Option<(u64, &str)>) {
    let whole = (name, None);
    let Some(inner) = name.strip_suffix(')') else { return whole };
    for (open, _) in inner.match_indices('(') {
        let (root, suffix) = inner.split_at(open);
        let Some((id, cgroup)) = suffix[1..].split_once(':') else { return whole };
        // `parse` alone would take a sign.
        if root.is_empty() || cgroup.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        if let Ok(id) = id.parse() {
            return (root, Some((id, cgroup)));
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_read_twice_is_one_string() {
        let mut names = NameInterner::default();
        let first = names.intern(b"dentry");
        let second = names.intern(b"dentry");
        assert!(Arc::ptr_eq(&first, &second));
    }

    #[test]
    fn a_name_that_nobody_holds_is_forgotten() {
        let mut names = NameInterner::default();
        let held = names.intern(b"dentry");
        drop(names.intern(b"gone"));
        names.forget_unused();
        assert_eq!(names.len(), 1);
        assert!(Arc::ptr_eq(&held, &names.intern(b"dentry")));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(&*NameInterner::default().intern(b"ca\xffche"), "ca\u{fffd}che");
    }

    #[test]
    fn parentheses_without_an_id_do_not_split() {
        for name in [
            "biovec-(256)",
            "size-64(DMA)",
            "dentry",
            "",
            "(12:a)",
            "a(12:)",
            "a(:b)",
            "a(+1:b)",
            "a(12:b",
            "a(99999999999999999999:b)",
        ] {
            assert_eq!(split_memcg_name(name), (name, None));
        }
    }

    #[test]
    fn a_root_or_a_cgroup_with_parentheses_and_colons_splits_at_the_id() {
        assert_eq!(split_memcg_name("size-64(DMA)(12:a.slice)"), ("size-64(DMA)", Some((12, "a.slice"))));
        assert_eq!(split_memcg_name("dentry(7:x(3:y))"), ("dentry", Some((7, "x(3:y)"))));
        assert_eq!(split_memcg_name("odd(a:b)(12:c)"), ("odd(a:b)", Some((12, "c"))));
    }
}
