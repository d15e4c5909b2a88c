//! `/proc/slabinfo`: one row per cache, as the kernel prints it (`slab_show`, mm/slab_common.c; slabinfo(5)).
//!
//! Under SLUB the file exists only with `CONFIG_SLUB_DEBUG`, is readable by root only, and `active_objects` counts the
//! objects that are parked per CPU as active. A kernel may print one name several times; each row is kept.

mod parse;

use std::{
    fmt,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    names::NameInterner,
    proc_file::{HostFileError, ProcFile},
};

/// Relative to the root.
const PATH: &str = "proc/slabinfo";
/// How often a read that may have caught a cache's creation is done again before it is taken as it is.
const REREADS: usize = 2;

/// The format's version, from the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlabinfoVersion {
    /// `2.0`: up to 2.6.9.
    V2_0,
    /// `2.1`: since 2.6.10.
    V2_1,
}

impl fmt::Display for SlabinfoVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2_0 => "2.0",
            Self::V2_1 => "2.1",
        })
    }
}

/// The `tunables` columns; all zero under SLUB.
///
/// The header of 2.0, and of 2.1 until 2.6.24, calls the first number `batchcount` and the second `limit`. The kernel
/// always printed the limit first (and never allowed a batchcount above it), so the header is not followed here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunables {
    /// Most objects that a CPU's array holds.
    pub limit: u64,
    /// Objects moved between a CPU's array and the slabs at once.
    pub batchcount: u64,
    /// Size of the array that CPUs share, in batches.
    pub shared_factor: u64,
}

/// The `globalstat` and `cpustat` columns of a kernel with `CONFIG_DEBUG_SLAB`; objects unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabStatistics {
    /// Objects taken from the slabs' lists.
    pub list_allocations: u64,
    /// Most objects that were active at once.
    pub max_objects: u64,
    /// Slabs added.
    pub grown: u64,
    /// Slabs given back.
    pub reaped: u64,
    /// Errors.
    pub errors: u64,
    /// Most free objects found in a reap.
    pub max_freeable: u64,
    /// Free objects that may stay before slabs are given back. `None` where the file has no such column.
    pub free_limit: Option<u64>,
    /// Allocations that had to go to another node. `None` where the file has no such column.
    pub node_allocations: Option<u64>,
    /// Frees of an object of another node. `None` where the file has no such column.
    pub remote_frees: Option<u64>,
    /// Times that the array for another node's objects was full. `None` where the file has no such column.
    pub alien_overflows: Option<u64>,
    /// Allocations served by a CPU's array.
    pub allocation_hits: u64,
    /// Allocations that had to refill the array.
    pub allocation_misses: u64,
    /// Frees that the array took.
    pub free_hits: u64,
    /// Frees that had to flush the array.
    pub free_misses: u64,
}

impl SlabStatistics {
    /// Allocations since the cache was made (saturating).
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.allocation_hits.saturating_add(self.allocation_misses)
    }

    /// Frees since the cache was made (saturating).
    #[must_use]
    pub fn frees(&self) -> u64 {
        self.free_hits.saturating_add(self.free_misses)
    }

    /// Objects allocated and not freed. Less than `active_objects` by what is parked in the arrays. `None` if the
    /// kernel's counters, which wrap on 32-bit machines, show more frees than allocations.
    #[must_use]
    pub fn live(&self) -> Option<u64> {
        self.allocations().checked_sub(self.frees())
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabinfoRow {
    /// The cache's name as printed, without the padding; invalid UTF-8 replaced by U+FFFD. Not unique.
    pub name: Arc<str>,
    /// `active_objs`.
    pub active_objects: u64,
    /// `num_objs`: objects that the slabs have room for.
    pub objects: u64,
    /// `objsize`: the stride in bytes, debugging and alignment included.
    pub object_size_bytes: u64,
    /// `objperslab`.
    pub objects_per_slab: u64,
    /// `pagesperslab`.
    pub pages_per_slab: u64,
    /// `tunables`.
    pub tunables: Tunables,
    /// `active_slabs`; always `slabs` under SLUB.
    pub active_slabs: u64,
    /// `num_slabs`.
    pub slabs: u64,
    /// `sharedavail`: free objects in the array that CPUs share.
    pub shared_available: u64,
    /// Only where the file's first line says `(statistics)`.
    pub statistics: Option<SlabStatistics>,
}

impl SlabinfoRow {
    /// What the cache takes from the machine: slabs × pages per slab × page size (saturating).
    #[must_use]
    pub fn held_bytes(&self, page_size_bytes: u64) -> u64 {
        self.slabs.saturating_mul(self.pages_per_slab).saturating_mul(page_size_bytes)
    }
}

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slabinfo {
    /// Of the format.
    pub version: SlabinfoVersion,
    /// Whether the rows carry statistics.
    pub statistics: bool,
    /// In the file's order, duplicates included.
    pub rows: Vec<SlabinfoRow>,
}

impl Slabinfo {
    /// Reads a whole file's text, or nothing of it; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`SlabinfoError::UnknownVersion`] and [`SlabinfoError::Malformed`].
    pub fn parse(path: &Path, text: &[u8], names: &mut NameInterner) -> Result<Self, SlabinfoError> {
        parse::parse_file(text, names).map_err(|failure| failure.in_file(path))
    }
}

/// Why `/proc/slabinfo` could not be read; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SlabinfoError {
    /// The file is there, but not for this user.
    #[error(
        "{}: permission denied: only root may read it (mode 0400); run as root or with CAP_DAC_READ_SEARCH, \
         or let the service manager pass the open file",
        path.display()
    )]
    PermissionDenied {
        /// The file.
        path: PathBuf,
    },
    /// `/proc` has other files but not this one.
    #[error(
        "{}: the kernel does not provide it: it needs a kernel built with CONFIG_SLUB_DEBUG=y",
        path.display()
    )]
    NotBuiltIn {
        /// The file.
        path: PathBuf,
    },
    /// Nor has `/proc` the files that every kernel has.
    #[error(
        "{}: no such file, nor /proc/meminfo beside it: mount a whole procfs there \
         (no subset=pid; systemd: no ProcSubset=pid)",
        path.display()
    )]
    NoProcfs {
        /// The file.
        path: PathBuf,
    },
    /// Another failure to open or read.
    #[error(transparent)]
    File(#[from] HostFileError),
    /// A format that is not known here.
    #[error("{}:1: slabinfo version {found:?} is not known; known are 2.0 and 2.1", path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// The version that the first line names.
        found: String,
    },
    /// Not what the kernel prints.
    #[error(
        "{}:{line}: expected {expected}, found {found:?}; a row must be one whole line: was the text wrapped or cut?",
        path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
}

/// `/proc/slabinfo`, opened once: it can be read on after the privileges to open it are gone.
#[derive(Debug)]
pub struct SlabinfoReader {
    file: ProcFile,
    names: NameInterner,
}

impl SlabinfoReader {
    /// Opens `<root>/proc/slabinfo`.
    ///
    /// # Errors
    /// [`SlabinfoError::PermissionDenied`], [`SlabinfoError::NotBuiltIn`], [`SlabinfoError::NoProcfs`] or
    /// [`SlabinfoError::File`].
    pub fn open(root: &Path) -> Result<Self, SlabinfoError> {
        let path = root.join(PATH);
        match File::open(&path) {
            Ok(file) => Ok(Self::from_file(file, path)),
            Err(source) => Err(match source.kind() {
                io::ErrorKind::PermissionDenied => SlabinfoError::PermissionDenied { path },
                io::ErrorKind::NotFound if root.join("proc/meminfo").exists() => SlabinfoError::NotBuiltIn { path },
                io::ErrorKind::NotFound => SlabinfoError::NoProcfs { path },
                _ => HostFileError::Open { path, source }.into(),
            }),
        }
    }

    /// Takes a file that is already open, as a service manager passes it; `label` is what errors call it.
    #[must_use]
    pub fn from_file(file: File, label: impl Into<PathBuf>) -> Self {
        Self { file: ProcFile::from_file(file, label.into()), names: NameInterner::default() }
    }

    /// Reads the whole file from its start.
    ///
    /// The kernel hands out some 4 KiB per system call and finds its place again by counting caches, new ones first. A
    /// cache made meanwhile shows the last row of one call again in the next; such a read is repeated.
    ///
    /// # Errors
    /// [`SlabinfoError::File`], [`SlabinfoError::UnknownVersion`] or [`SlabinfoError::Malformed`].
    pub fn read(&mut self) -> Result<Slabinfo, SlabinfoError> {
        let mut slabinfo = self.read_once()?;
        for _ in 0..REREADS {
            if !repeats_across_reads(&slabinfo.rows, self.file.text(), self.file.read_ends()) {
                break;
            }
            slabinfo = self.read_once()?;
        }
        // The rows hold their names; a few hundred spares are not worth a walk.
        if self.names.len() > 2 * slabinfo.rows.len() + 64 {
            self.names.forget_unused();
        }
        Ok(slabinfo)
    }

    fn read_once(&mut self) -> Result<Slabinfo, SlabinfoError> {
        self.file.read()?;
        Slabinfo::parse(self.file.path(), self.file.text(), &mut self.names)
    }
}

/// Whether the first row of a system call has a name that the call before it printed, too.
fn repeats_across_reads(rows: &[SlabinfoRow], text: &[u8], read_ends: &[usize]) -> bool {
    let mut call_start = 0;
    let mut first_row_of_call = 0;
    for &call_end in read_ends {
        let lines = text.get(call_start..call_end).unwrap_or_default().iter().filter(|b| **b == b'\n').count();
        // The first call also has the two header lines.
        let header = if call_start == 0 { 2 } else { 0 };
        let next_row = first_row_of_call + lines.saturating_sub(header);
        if let (Some(printed), Some(next)) = (rows.get(first_row_of_call..next_row), rows.get(next_row))
            && printed.iter().any(|row| row.name == next.name)
        {
            return true;
        }
        (call_start, first_row_of_call) = (call_end, next_row);
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HEADER: &str = "slabinfo - version: 2.1\n# name\n";

    fn row(name: &str) -> String {
        format!("{name:<17} 1 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n")
    }

    /// Whether a text whose system calls returned these parts repeats a row.
    fn repeats(calls: &[String]) -> bool {
        let text = calls.concat();
        let ends: Vec<usize> = calls
            .iter()
            .scan(0, |end, call| {
                *end += call.len();
                Some(*end)
            })
            .collect();
        let slabinfo = Slabinfo::parse(Path::new("slabinfo"), text.as_bytes(), &mut NameInterner::default()).unwrap();
        repeats_across_reads(&slabinfo.rows, text.as_bytes(), &ends)
    }

    #[test]
    fn a_row_printed_again_by_the_next_call_is_seen() {
        let first = format!("{HEADER}{}{}", row("a"), row("b"));
        assert!(repeats(&[first.clone(), row("b") + &row("c")]));
        assert!(repeats(&[first.clone(), row("c"), row("c")]));
        assert!(repeats(&[first, row("a") + &row("b") + &row("c")]));
    }

    #[test]
    fn duplicate_names_within_a_call_are_no_repetition() {
        assert!(!repeats(&[format!("{HEADER}{}{}", row("a"), row("a")), row("b") + &row("b")]));
        assert!(!repeats(&[format!("{HEADER}{}", row("a"))]));
        assert!(!repeats(&[HEADER.to_owned()]));
    }

    #[test]
    fn a_missing_file_tells_a_missing_procfs_from_a_kernel_option() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(SlabinfoReader::open(root.path()), Err(SlabinfoError::NoProcfs { .. })));
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: 1 kB\n").unwrap();
        let error = SlabinfoReader::open(root.path()).unwrap_err();
        assert!(matches!(error, SlabinfoError::NotBuiltIn { .. }));
        assert!(error.to_string().contains("CONFIG_SLUB_DEBUG=y"), "{error}");
        std::fs::create_dir(root.path().join("proc/slabinfo")).unwrap();
        let error = SlabinfoReader::open(root.path()).and_then(|mut reader| reader.read()).unwrap_err();
        assert!(matches!(error, SlabinfoError::File(_)), "{error}");
    }

    #[test]
    fn a_second_read_sees_the_change_and_shares_the_names() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let path = root.path().join("proc/slabinfo");
        std::fs::write(&path, format!("{HEADER}{}{}", row("gone"), row("stays"))).unwrap();
        let mut reader = SlabinfoReader::open(root.path()).unwrap();
        let before = reader.read().unwrap();
        std::fs::write(&path, format!("{HEADER}{}", row("stays"))).unwrap();
        let after = reader.read().unwrap();
        assert_eq!(after.rows.len(), 1);
        assert!(Arc::ptr_eq(&before.rows[1].name, &after.rows[0].name));
    }

    #[test]
    fn held_bytes_and_statistics_saturate() {
        let statistics = SlabStatistics {
            allocation_hits: u64::MAX,
            allocation_misses: 1,
            free_hits: 1,
            ..SlabStatistics::default()
        };
        assert_eq!((statistics.allocations(), statistics.frees()), (u64::MAX, 1));
        assert_eq!(SlabStatistics { free_hits: 1, ..SlabStatistics::default() }.live(), None);
        let text = format!(
            "{HEADER}big {max} {max} {max} {max} {max} : tunables 0 0 0 : slabdata {max} {max} 0\n",
            max = u64::MAX
        );
        let slabinfo = Slabinfo::parse(Path::new("slabinfo"), text.as_bytes(), &mut NameInterner::default()).unwrap();
        assert_eq!(slabinfo.rows[0].held_bytes(4096), u64::MAX);
    }
}
