//! What the machine is: page size, CPUs, kernel release, architecture.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::proc_file::HostFileError;

/// Relative to the root.
const POSSIBLE_CPUS_PATH: &str = "sys/devices/system/cpu/possible";
/// Relative to the root.
const RELEASE_PATH: &str = "proc/sys/kernel/osrelease";

/// Bytes of a page, from the auxiliary vector (getauxval(3), `AT_PAGESZ`).
#[must_use]
pub fn page_size_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The kernel's name of the architecture, as uname(2) gives it: `x86_64`, `aarch64`.
#[must_use]
pub fn architecture() -> String {
    rustix::system::uname().machine().to_string_lossy().into_owned()
}

/// How long the machine runs, suspended time included (clock_gettime(2), `CLOCK_BOOTTIME`). `None` for a clock that tells
/// nonsense.
#[must_use]
pub fn uptime() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// The kernel's release, as `uname -r` prints it.
///
/// # Errors
/// [`HostFileError::Open`], or [`HostFileError::Malformed`] for an empty file.
pub fn read_kernel_release(root: &Path) -> Result<String, HostFileError> {
    let (path, text) = read_small(root, RELEASE_PATH)?;
    match text.trim() {
        "" => Err(HostFileError::malformed(&path, 1, "a kernel release", b"")),
        release => Ok(release.to_owned()),
    }
}

/// The CPUs that may ever come online. Per-CPU memory in the kernel is indexed by CPU number, so it has
/// [`CpuSet::highest`] + 1 places, which may be more than there are CPUs.
///
/// # Errors
/// [`HostFileError::Open`] or [`HostFileError::Malformed`].
pub fn read_possible_cpus(root: &Path) -> Result<CpuSet, HostFileError> {
    let (path, text) = read_small(root, POSSIBLE_CPUS_PATH)?;
    CpuSet::parse(&text).ok_or_else(|| {
        HostFileError::malformed(&path, 1, "a rising list of CPUs such as \"0-3,8\"", text.trim().as_bytes())
    })
}

fn read_small(root: &Path, relative: &str) -> Result<(PathBuf, String), HostFileError> {
    let path = root.join(relative);
    match fs::read_to_string(&path) {
        Ok(text) => Ok((path, text)),
        Err(source) => Err(HostFileError::Open { path, source }),
    }
}

/// A set of CPUs, not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    /// First and last of each run, rising, apart.
    runs: Vec<(u32, u32)>,
}

impl CpuSet {
    /// Reads the kernel's list form, `0-3,8` (bitmaps(9), `%*pbl`). `None` if it is anything else, or empty.
    #[must_use]
    pub fn parse(list: &str) -> Option<Self> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for run in list.trim().split(',') {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (parse_cpu(first)?, parse_cpu(last)?);
            if first > last || runs.last().is_some_and(|(_, previous)| *previous >= first) {
                return None;
            }
            runs.push((first, last));
        }
        Some(Self { runs })
    }

    /// How many CPUs.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// The highest CPU's number.
    #[must_use]
    pub fn highest(&self) -> u32 {
        self.runs.last().map_or(0, |(_, last)| *last)
    }

    /// All CPUs, rising.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }
}

fn parse_cpu(digits: &str) -> Option<u32> {
    // `parse` alone would take a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_holes_counts_its_cpus_and_knows_the_highest() {
        let cpus = CpuSet::parse("0-3,8,10-11\n").unwrap();
        assert_eq!((cpus.count(), cpus.highest()), (7, 11));
        assert_eq!(cpus.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(CpuSet::parse("0").unwrap().count(), 1);
        assert_eq!(CpuSet::parse("0-4294967295").unwrap().count(), 1 << 32);
    }

    #[test]
    fn anything_else_is_no_list() {
        for list in ["", "\n", "a", "0-", "-1", "+1", "3-0", "0,0", "0-3,2", "0-4294967296", "0, 1", "0-1-2"] {
            assert_eq!(CpuSet::parse(list), None, "{list}");
        }
    }

    #[test]
    fn a_wrong_or_missing_file_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(read_possible_cpus(root.path()), Err(HostFileError::Open { .. })));
        assert!(matches!(read_kernel_release(root.path()), Err(HostFileError::Open { .. })));
        for (path, text) in [(POSSIBLE_CPUS_PATH, "none\n"), (RELEASE_PATH, "\n")] {
            fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
            fs::write(root.path().join(path), text).unwrap();
        }
        let error = read_possible_cpus(root.path()).unwrap_err().to_string();
        assert!(error.contains("cpu/possible:1: expected a rising list of CPUs"), "{error}");
        assert!(matches!(read_kernel_release(root.path()), Err(HostFileError::Malformed { .. })));
    }

    #[test]
    fn this_machine_is_what_the_system_calls_say() {
        let root = Path::new("/");
        assert!(page_size_bytes().is_power_of_two() && page_size_bytes() >= 4096);
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        assert_eq!(read_kernel_release(root).unwrap(), release);
        let online = std::thread::available_parallelism().unwrap().get() as u64;
        assert!(read_possible_cpus(root).unwrap().count() >= online);
        assert!(!architecture().is_empty());
    }
}
