//! `/proc/sys/fs/dentry-state`: how many directory entries are cached, and how many of names that do not exist
//! (`struct dentry_stat_t`, fs/dcache.c; Documentation/admin-guide/sysctl/fs.rst).

use std::path::Path;

use super::proc_file::{HostFileError, ProcFile, parse_u64};

/// Relative to the root.
const PATH: &str = "proc/sys/fs/dentry-state";

/// The file's counts that mean something today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DentryState {
    /// `nr_dentry`: all.
    pub dentries: u64,
    /// `nr_unused`: not in use, kept in case.
    pub unused: u64,
    /// `nr_negative`: unused ones of names that do not exist. Kernels before 5.0 do not count them and print 0.
    pub negative: u64,
}

impl DentryState {
    /// Reads the file's text; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`HostFileError::Malformed`] for anything but six numbers.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, HostFileError> {
        let malformed = || HostFileError::malformed(path, 1, "six numbers below 2^64", text.trim_ascii());
        let mut numbers = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(parse_u64);
        let mut next = || numbers.next().flatten().ok_or_else(malformed);
        // The third and the fourth, age_limit and want_pages, have long meant nothing; the sixth is a dummy.
        let [dentries, unused, _, _, negative, _] = [next()?, next()?, next()?, next()?, next()?, next()?];
        if numbers.next().is_some() {
            return Err(malformed());
        }
        Ok(Self { dentries, unused, negative })
    }

    /// The negative part of all, 0 to 1; `None` if there is none at all.
    #[must_use]
    pub fn negative_share(&self) -> Option<f64> {
        (self.dentries > 0).then(|| self.negative as f64 / self.dentries as f64)
    }
}

/// `/proc/sys/fs/dentry-state`, opened once.
#[derive(Debug)]
pub struct DentryStateReader {
    file: ProcFile,
}

impl DentryStateReader {
    /// Opens `<root>/proc/sys/fs/dentry-state`.
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
    pub fn read(&mut self) -> Result<DentryState, HostFileError> {
        self.file.read()?;
        DentryState::parse(self.file.path(), self.file.text())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn anything_but_six_numbers_is_refused() {
        for text in ["", "1 2 3 4 5", "1 2 3 4 5 6 7", "1 2 3 4 -5 6", "a b c d e f"] {
            let error = DentryState::parse(Path::new("dentry-state"), text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("dentry-state:1: expected six numbers"), "{error}");
        }
    }

    #[test]
    fn no_dentries_have_no_share() {
        assert_eq!(DentryState::default().negative_share(), None);
    }

    #[test]
    fn this_machine_has_dentries() {
        let state = DentryStateReader::open(Path::new("/")).unwrap().read().unwrap();
        assert!(state.dentries > 0 && state.unused <= state.dentries);
    }
}
