//! `/proc/vmstat`: the machine's memory counters (`vmstat_show`, mm/vmstat.c).

use std::{collections::HashMap, path::Path};

use super::proc_file::{HostFileError, ProcFile, numbered_lines, parse_u64};

/// Relative to the root.
const PATH: &str = "proc/vmstat";

/// All counters by name, in the kernel's own units.
///
/// The slab counters are in pages on every kernel: 5.9 made them bytes inside the kernel (`NR_SLAB_*_B`) but prints
/// pages here as before. Only a cgroup's `memory.stat` shows bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vmstat {
    counters: HashMap<Box<str>, u64>,
}

impl Vmstat {
    /// Reads the file's text; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`HostFileError::Malformed`] for a line that is not `name number`.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, HostFileError> {
        let mut counters = HashMap::with_capacity(256);
        for (number, line) in numbered_lines(text) {
            let counter = line.iter().position(|byte| *byte == b' ').and_then(|space| {
                let (name, value) = line.split_at(space);
                Some((str::from_utf8(name).ok().filter(|name| !name.is_empty())?, parse_u64(&value[1..])?))
            });
            let (name, value) = counter
                .ok_or_else(|| HostFileError::malformed(path, number, "a name and a number below 2^64", line))?;
            counters.insert(Box::from(name), value);
        }
        Ok(Self { counters })
    }

    /// The counter of this name; `None` where this kernel has none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    /// `nr_slab_reclaimable`: pages of caches that a shrinker can empty. meminfo's SReclaimable is the same.
    #[must_use]
    pub fn slab_reclaimable_pages(&self) -> Option<u64> {
        self.get("nr_slab_reclaimable")
    }

    /// `nr_slab_unreclaimable`: pages of all other caches and of large kmalloc. meminfo's SUnreclaim is the same.
    #[must_use]
    pub fn slab_unreclaimable_pages(&self) -> Option<u64> {
        self.get("nr_slab_unreclaimable")
    }

    /// `nr_memmap_pages`, since 6.11: pages of `struct page`s that were allocated after boot.
    #[must_use]
    pub fn memmap_pages(&self) -> Option<u64> {
        self.get("nr_memmap_pages")
    }

    /// `nr_memmap_boot_pages`, since 6.11: pages of `struct page`s that were set aside at boot.
    #[must_use]
    pub fn memmap_boot_pages(&self) -> Option<u64> {
        self.get("nr_memmap_boot_pages")
    }
}

/// `/proc/vmstat`, opened once.
#[derive(Debug)]
pub struct VmstatReader {
    file: ProcFile,
}

impl VmstatReader {
    /// Opens `<root>/proc/vmstat`.
    ///
    /// # Errors
    /// [`HostFileError::Open`].
    pub fn open(root: &Path) -> Result<Self, HostFileError> {
        Ok(Self { file: ProcFile::open(root, PATH)? })
    }

    /// Reads the file anew.
    ///
    /// # Errors
    /// [`HostFileError::Read`] or [`HostFileError::Malformed`].
    pub fn read(&mut self) -> Result<Vmstat, HostFileError> {
        self.file.read()?;
        Vmstat::parse(self.file.path(), self.file.text())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vmstat, String> {
        Vmstat::parse(Path::new("vmstat"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn counters_are_found_by_name_and_absent_ones_are_unknown() {
        let vmstat = parse("nr_slab_reclaimable 67742\nnr_slab_unreclaimable 8818\nnr_memmap_pages 0\n").unwrap();
        assert_eq!(vmstat.slab_reclaimable_pages(), Some(67742));
        assert_eq!(vmstat.slab_unreclaimable_pages(), Some(8818));
        assert_eq!(vmstat.memmap_pages(), Some(0));
        assert_eq!(vmstat.memmap_boot_pages(), None);
        assert_eq!(vmstat.get("nr_slab"), None);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for line in ["nr_slab", "nr_slab -1", " 1", "nr_slab 1 2", ""] {
            let error = parse(&format!("a 1\n{line}\nb 2\n")).unwrap_err();
            assert!(error.starts_with("vmstat:2: expected a name and a number below 2^64, found"), "{error}");
        }
    }

    #[test]
    fn this_machine_counts_its_slab_pages_as_meminfo_does() {
        let vmstat = VmstatReader::open(Path::new("/")).unwrap().read().unwrap();
        let meminfo = super::super::meminfo::MeminfoReader::open(Path::new("/")).unwrap().read().unwrap();
        let pages = vmstat.slab_reclaimable_pages().unwrap() + vmstat.slab_unreclaimable_pages().unwrap();
        let by_vmstat = pages * super::super::machine::page_size_bytes();
        // Two moments of a live machine, but never the factor of thousands between pages and bytes.
        let ratio = by_vmstat as f64 / meminfo.slab_bytes.unwrap() as f64;
        assert!((0.5..2.0).contains(&ratio), "{ratio}");
    }
}
