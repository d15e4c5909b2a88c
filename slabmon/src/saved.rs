//! Saved files of a machine, this one or another, as a snapshot: what is not given is unknown.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    host::{
        dentry_state::DentryState,
        machine,
        meminfo::Meminfo,
        proc_file::HostFileError,
        slab_sysfs::{SlabSysfs, SlabSysfsError},
        slabinfo::{SlabinfoError, SlabinfoReader},
    },
    http::parse_caches,
    model::{
        derive::{AttributesByName, Deriver, SnapshotInput},
        diff::{SavedCache, SavedCaches},
        history::{History, Trends},
        sample::{DentryCounts, MachineSample, MeminfoSample, SlabRow, SlabinfoSample},
        snapshot::{CacheView, Snapshot},
    },
    readers::rows_of,
};

/// Why saved files could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// A slabinfo.
    #[error(transparent)]
    Slabinfo(#[from] SlabinfoError),
    /// Another file.
    #[error(transparent)]
    File(#[from] HostFileError),
    /// A copy of `/sys/kernel/slab`.
    #[error(transparent)]
    Sysfs(#[from] SlabSysfsError),
    /// A series of totals.
    #[error("{}: line {line}: {problem}", path.display())]
    Totals {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A saved answer of the API.
    #[error("{}: not an answer of /caches?format=json: {problem}", path.display())]
    Answer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}

/// Which files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedFiles {
    /// A copy of `/proc/slabinfo`.
    pub slabinfo: Option<PathBuf>,
    /// A copy of `/proc/meminfo`.
    pub meminfo: Option<PathBuf>,
    /// A copy of the directory `/sys/kernel/slab`.
    pub sysfs: Option<PathBuf>,
    /// A copy of `/proc/sys/fs/dentry-state`.
    pub dentry_state: Option<PathBuf>,
    /// Totals of meminfo over time, see [`parse_totals`].
    pub totals: Option<PathBuf>,
    /// Bytes of a page of the machine that they are from; `None` is as on this one.
    pub page_size_bytes: Option<u64>,
}

impl SavedFiles {
    /// Whether any file is given.
    pub fn is_any(&self) -> bool {
        [&self.slabinfo, &self.meminfo, &self.sysfs, &self.dentry_state, &self.totals].into_iter().any(Option::is_some)
    }

    /// Reads all that are given.
    ///
    /// # Errors
    /// Any [`SavedError`]; it names the file.
    pub fn read(&self) -> Result<Snapshot, SavedError> {
        let rows = self.slabinfo.as_deref().map(read_rows).transpose()?;
        let attributes = match &self.sysfs {
            Some(directory) => read_attributes(directory, rows.as_deref().unwrap_or_default())?,
            None => AttributesByName::new(),
        };
        let meminfo = self.meminfo.as_deref().map(read_meminfo).transpose()?;
        let dentries = self.dentry_state.as_deref().map(read_dentries).transpose()?;
        let totals = self.totals.as_deref().map(read_totals).transpose()?.unwrap_or_default();
        let slabinfo = rows.map(|rows| Arc::new(SlabinfoSample { at: Duration::ZERO, at_unix_seconds: 0.0, rows }));
        let mut snapshot = Deriver::new().derive(SnapshotInput {
            taken_at_unix_seconds: 0.0,
            uptime: Duration::ZERO,
            page_size_bytes: self.page_size_bytes.unwrap_or_else(machine::page_size_bytes),
            counters: None,
            page_lookup: false,
            slabinfo,
            meminfo,
            attributes: Arc::new(attributes),
            features: Arc::default(),
            collectors: Vec::new(),
            host: Arc::default(),
            machine: MachineSample { dentries, ..MachineSample::default() },
        });
        if let Some(trends) = trends_of(&totals) {
            snapshot.evidence.trends = Arc::new(trends);
        }
        Ok(snapshot)
    }
}

/// meminfo's totals at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TotalsAt {
    /// Since any moment.
    pub at: Duration,
    /// SReclaimable.
    pub reclaimable_bytes: u64,
    /// SUnreclaim.
    pub unreclaimable_bytes: u64,
}

fn trends_of(totals: &[TotalsAt]) -> Option<Trends> {
    let mut history = History::default();
    for point in totals {
        history.record_totals(point.at, Some(point.reclaimable_bytes), Some(point.unreclaimable_bytes));
    }
    (!totals.is_empty()).then(|| history.trends())
}

fn read_totals(path: &Path) -> Result<Vec<TotalsAt>, SavedError> {
    parse_totals(&String::from_utf8_lossy(&read(path)?)).map_err(|(line, problem)| SavedError::Totals {
        path: path.to_owned(),
        line,
        problem,
    })
}

/// Reads a series of meminfo's totals: a line for each reading with minutes, Slab, SReclaimable and SUnreclaim, the last
/// three in kB as in meminfo. Lines that begin with `#` and empty ones are passed over.
///
/// # Errors
/// The number of the line, from 1, and what is wrong with it.
pub fn parse_totals(text: &str) -> Result<Vec<TotalsAt>, (usize, String)> {
    let mut totals: Vec<TotalsAt> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |problem: &str| (index + 1, problem.to_owned());
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        let Some(&[minutes, _, reclaimable, unreclaimable]) = numbers.as_deref() else {
            return Err(wrong("not four whole numbers: minutes, Slab, SReclaimable, SUnreclaim (in kB)"));
        };
        let bytes = |kib: u64| kib.checked_mul(1024).ok_or_else(|| wrong("more bytes than 64 bits count"));
        let seconds = minutes.checked_mul(60).ok_or_else(|| wrong("too many minutes"))?;
        let point = TotalsAt {
            at: Duration::from_secs(seconds),
            reclaimable_bytes: bytes(reclaimable)?,
            unreclaimable_bytes: bytes(unreclaimable)?,
        };
        if totals.last().is_some_and(|last| last.at >= point.at) {
            return Err(wrong("not later than the line before"));
        }
        totals.push(point);
    }
    Ok(totals)
}

fn open(path: &Path) -> Result<File, HostFileError> {
    File::open(path).map_err(|source| HostFileError::Open { path: path.to_owned(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, HostFileError> {
    fs::read(path).map_err(|source| HostFileError::Open { path: path.to_owned(), source })
}

fn read_rows(path: &Path) -> Result<Vec<SlabRow>, SavedError> {
    let slabinfo = SlabinfoReader::from_file(open(path)?, path).read()?;
    Ok(rows_of(&slabinfo))
}

fn read_meminfo(path: &Path) -> Result<MeminfoSample, SavedError> {
    let meminfo = Meminfo::parse(path, &read(path)?)?;
    Ok(MeminfoSample::from(&meminfo))
}

fn read_dentries(path: &Path) -> Result<DentryCounts, SavedError> {
    let state = DentryState::parse(path, &read(path)?)?;
    Ok(DentryCounts::from(&state))
}

fn read_attributes(directory: &Path, rows: &[SlabRow]) -> Result<AttributesByName, SavedError> {
    let mut index = SlabSysfs::read_index_at(directory.to_owned())?;
    index.refresh(rows.iter().map(|row| &*row.name))?;
    let attributes: HashMap<_, _> =
        rows.iter().filter_map(|row| Some((Arc::clone(&row.name), Arc::clone(index.attributes(&row.name)?)))).collect();
    Ok(attributes)
}

/// Reads the caches of a saved slabinfo, or of a saved answer of `/caches?format=json`, which begins with a brace.
///
/// # Errors
/// Any [`SavedError`].
pub fn read_caches(path: &Path, page_size_bytes: Option<u64>) -> Result<SavedCaches, SavedError> {
    let text = read(path)?;
    if text.trim_ascii_start().starts_with(b"{") {
        return parse_caches(&text).map_err(|problem| SavedError::Answer { path: path.to_owned(), problem });
    }
    let files = SavedFiles { slabinfo: Some(path.to_owned()), page_size_bytes, ..SavedFiles::default() };
    let saved = |cache: CacheView| {
        let slab = cache.slab?;
        let saved = SavedCache {
            held_bytes: slab.memory_bytes,
            active_objects: slab.active_objects,
            size_bytes: slab.object_size_bytes,
            objects_per_slab: slab.objects_per_slab,
        };
        Some((cache.name.to_string(), saved))
    };
    Ok(files.read()?.caches.into_iter().filter_map(saved).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    #[test]
    fn a_series_is_read_and_a_wrong_line_is_named() {
        let totals = parse_totals("# minutes\n1 3 1 2\n\n10\t7\t3\t4\n").unwrap();
        let expected = TotalsAt { at: Duration::from_secs(600), reclaimable_bytes: 3072, unreclaimable_bytes: 4096 };
        assert_eq!((totals.len(), totals[1]), (2, expected));
        for (text, line) in
            [("1 2 3\n", 1), ("1 1 1 1\n1 1 1 1\n", 2), ("1 1 1 18446744073709551615", 1), ("# x\na b c d", 2)]
        {
            assert_eq!(parse_totals(text).unwrap_err().0, line, "{text}");
        }
    }
}
