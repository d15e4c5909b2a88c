//! The files that are polled: opened once, read again and again, each failure a state of its own.

use std::{
    collections::HashMap,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    host::{
        dentry_state::{DentryState, DentryStateReader},
        facts::HostFacts,
        machine,
        meminfo::{Meminfo, MeminfoReader},
        slab_sysfs::{SlabIndex, SlabSysfs},
        slabinfo::{Slabinfo, SlabinfoError, SlabinfoReader},
        vmstat::VmstatReader,
        zoneinfo::ZoneinfoReader,
    },
    model::{
        derive::AttributesByName,
        sample::{DentryCounts, MachineSample, MeminfoSample, SlabRow, SlabinfoSample},
        snapshot::CollectorState,
    },
    plan::{Obstacle, ProbePlan},
};

const SLABINFO: &str = "slabinfo";
const SYSFS: &str = "sysfs";
const MEMINFO: &str = "meminfo";

/// The readers and what each read last.
pub struct Readers {
    slabinfo_reader: Option<SlabinfoReader>,
    sysfs_index: Option<SlabIndex>,
    meminfo_reader: Option<MeminfoReader>,
    machine_readers: MachineReaders,
    slabinfo: Option<Arc<SlabinfoSample>>,
    meminfo: Option<MeminfoSample>,
    machine: MachineSample,
    attributes: Arc<AttributesByName>,
    states: Vec<CollectorState>,
}

impl Readers {
    /// Opens all files below `root` while the permissions are there, and reads sysfs; what is not to be had is a feature
    /// that is off.
    pub fn open(root: &Path, facts: &HostFacts, plan: &mut ProbePlan) -> Self {
        let mut readers = Self {
            slabinfo_reader: None,
            sysfs_index: None,
            meminfo_reader: None,
            machine_readers: MachineReaders::open(root),
            slabinfo: None,
            meminfo: None,
            machine: MachineSample { pages: facts.pages(), ..MachineSample::default() },
            attributes: Arc::new(AttributesByName::new()),
            states: Vec::new(),
        };
        match SlabinfoReader::open(root).and_then(|mut reader| reader.read().map(|read| (reader, read))) {
            Ok((reader, read)) => {
                readers.slabinfo_reader = Some(reader);
                plan.feature_works(SLABINFO, format!("version {}, {} rows", read.version, read.rows.len()));
                readers.open_sysfs(root, &read, plan);
            }
            Err(error) => {
                let permission = matches!(error, SlabinfoError::PermissionDenied { .. });
                let obstacle = if permission { Obstacle::Permission } else { Obstacle::Kernel };
                let remedy = if permission { "run as root, or with CAP_DAC_READ_SEARCH" } else { "" };
                plan.feature_refused(SLABINFO, error.to_string(), remedy, obstacle);
                let reason = "without slabinfo it is not known which caches there are".to_owned();
                plan.feature_refused("slab_sysfs", reason, "see `slabinfo`", obstacle);
            }
        }
        match MeminfoReader::open(root) {
            Ok(reader) => readers.meminfo_reader = Some(reader),
            Err(error) => readers.note(MEMINFO, Duration::ZERO, Err(error.to_string())),
        }
        readers
    }

    fn open_sysfs(&mut self, root: &Path, slabinfo: &Slabinfo, plan: &mut ProbePlan) {
        let began = Instant::now();
        let names = || slabinfo.rows.iter().map(|row| &*row.name);
        let opened = SlabSysfs::read_index(root)
            .and_then(|mut index| index.refresh(names()).map(|refreshed| (index, refreshed)))
            .map_err(|error| error.to_string());
        let outcome = match opened {
            Ok((index, refreshed)) if refreshed.unreadable_files == 0 => {
                plan.feature_works("slab_sysfs", format!("{} caches", index.len()));
                self.sysfs_index = Some(index);
                Ok(())
            }
            Ok((index, refreshed)) => {
                let reason = format!("{} files of /sys/kernel/slab could not be read", refreshed.unreadable_files);
                let remedy = "run as root, or with CAP_DAC_READ_SEARCH";
                plan.feature_refused("slab_sysfs", reason.clone(), remedy, Obstacle::Permission);
                // The names of aliases are links, which everybody may read.
                self.sysfs_index = Some(index);
                Err(reason)
            }
            Err(reason) => {
                plan.feature_refused("slab_sysfs", reason.clone(), "mount sysfs on /sys", Obstacle::Kernel);
                Err(reason)
            }
        };
        self.note(SYSFS, began.elapsed(), outcome);
        self.publish_attributes(slabinfo);
    }

    /// Whether slabinfo can be read.
    pub fn has_slabinfo(&self) -> bool {
        self.slabinfo_reader.is_some()
    }

    /// Reads all files. `at` is the time since the daemon's start.
    pub fn read(&mut self, at: Duration, at_unix_seconds: f64) {
        self.read_slabinfo(at, at_unix_seconds);
        self.read_meminfo();
        self.machine_readers.read(&mut self.machine);
    }

    fn read_slabinfo(&mut self, at: Duration, at_unix_seconds: f64) {
        let Some(reader) = &mut self.slabinfo_reader else { return };
        let began = Instant::now();
        let read = reader.read();
        let duration = began.elapsed();
        match read {
            Ok(read) => {
                self.slabinfo = Some(Arc::new(SlabinfoSample { at, at_unix_seconds, rows: rows_of(&read) }));
                self.note(SLABINFO, duration, Ok(()));
                self.refresh_attributes(&read);
            }
            // The last good reading stays, with its own time stamp.
            Err(error) => self.note(SLABINFO, duration, Err(error.to_string())),
        }
    }

    fn refresh_attributes(&mut self, slabinfo: &Slabinfo) {
        let Some(index) = &mut self.sysfs_index else { return };
        let began = Instant::now();
        let refreshed = index.refresh(slabinfo.rows.iter().map(|row| &*row.name));
        let duration = began.elapsed();
        match refreshed {
            Ok(refreshed) => {
                if refreshed.read > 0 || refreshed.forgotten > 0 {
                    self.publish_attributes(slabinfo);
                }
                self.note(SYSFS, duration, Ok(()));
            }
            Err(error) => self.note(SYSFS, duration, Err(error.to_string())),
        }
    }

    fn publish_attributes(&mut self, slabinfo: &Slabinfo) {
        let Some(index) = &self.sysfs_index else { return };
        let attributes: HashMap<_, _> = slabinfo
            .rows
            .iter()
            .filter_map(|row| Some((Arc::clone(&row.name), Arc::clone(index.attributes(&row.name)?))))
            .collect();
        self.attributes = Arc::new(attributes);
    }

    fn read_meminfo(&mut self) {
        let Some(reader) = &mut self.meminfo_reader else { return };
        let began = Instant::now();
        let read = reader.read();
        let duration = began.elapsed();
        match read {
            Ok(read) => {
                self.meminfo = Some(MeminfoSample::from(&read));
                self.note(MEMINFO, duration, Ok(()));
            }
            Err(error) => self.note(MEMINFO, duration, Err(error.to_string())),
        }
    }

    /// Notes an attempt; a failure is logged when it begins and when it ends, not each time.
    fn note(&mut self, collector: &'static str, duration: Duration, outcome: Result<(), String>) {
        let error = outcome.err();
        let state = CollectorState { collector, success: error.is_none(), duration, error };
        let known = self.states.iter_mut().find(|known| known.collector == collector);
        let failed_before = known.as_ref().is_some_and(|known| !known.success);
        match &state.error {
            Some(error) if !failed_before => tracing::warn!(collector, %error, "could not be read"),
            None if failed_before => tracing::info!(collector, "can be read again"),
            _ => {}
        }
        match known {
            Some(known) => *known = state,
            None => self.states.push(state),
        }
    }

    /// Each reader and its last attempt.
    pub fn states(&self) -> impl Iterator<Item = &CollectorState> {
        self.states.iter()
    }

    /// The last slabinfo that could be read.
    pub fn slabinfo(&self) -> Option<&Arc<SlabinfoSample>> {
        self.slabinfo.as_ref()
    }

    /// The last meminfo that could be read.
    pub fn meminfo(&self) -> Option<MeminfoSample> {
        self.meminfo
    }

    /// The machine beside its slabs.
    pub fn machine(&self) -> MachineSample {
        self.machine
    }

    /// Attributes of the caches in slabinfo; the same `Arc` until something changes.
    pub fn attributes(&self) -> Arc<AttributesByName> {
        Arc::clone(&self.attributes)
    }

    /// Bytes of a page.
    pub fn page_size_bytes(&self) -> u64 {
        machine::page_size_bytes()
    }
}

impl From<&Meminfo> for MeminfoSample {
    fn from(read: &Meminfo) -> Self {
        Self {
            total_bytes: Some(read.total_bytes),
            available_bytes: read.available_bytes,
            slab_bytes: read.slab_bytes,
            reclaimable_bytes: read.reclaimable_bytes,
            unreclaimable_bytes: read.unreclaimable_bytes,
        }
    }
}

impl From<&DentryState> for DentryCounts {
    fn from(read: &DentryState) -> Self {
        Self { dentries: read.dentries, unused: read.unused, negative: read.negative }
    }
}

/// The small files that only the reports need; what cannot be had is unknown there.
struct MachineReaders {
    vmstat: Option<VmstatReader>,
    zoneinfo: Option<ZoneinfoReader>,
    dentry_state: Option<DentryStateReader>,
}

impl MachineReaders {
    fn open(root: &Path) -> Self {
        Self {
            vmstat: VmstatReader::open(root).ok(),
            zoneinfo: ZoneinfoReader::open(root).ok(),
            dentry_state: DentryStateReader::open(root).ok(),
        }
    }

    /// Reads what changes; the facts from BTF stay.
    fn read(&mut self, machine: &mut MachineSample) {
        let vmstat = self.vmstat.as_mut().and_then(|reader| reader.read().ok());
        machine.pages.memmap_pages = vmstat.and_then(|vmstat| {
            let boot = vmstat.memmap_boot_pages()?;
            Some(boot.saturating_add(vmstat.memmap_pages().unwrap_or(0)))
        });
        let zoneinfo = self.zoneinfo.as_mut().and_then(|reader| reader.read().ok());
        machine.pages.present_pages = zoneinfo.map(|zones| zones.present_pages);
        let dentries = self.dentry_state.as_mut().and_then(|reader| reader.read().ok());
        machine.dentries = dentries.as_ref().map(DentryCounts::from);
        machine.uptime = machine::uptime();
    }
}

/// The rows of a reading, as the model takes them.
pub fn rows_of(slabinfo: &Slabinfo) -> Vec<SlabRow> {
    slabinfo
        .rows
        .iter()
        .map(|row| SlabRow {
            name: Arc::clone(&row.name),
            active_objects: row.active_objects,
            objects: row.objects,
            object_size_bytes: row.object_size_bytes,
            objects_per_slab: row.objects_per_slab,
            pages_per_slab: row.pages_per_slab,
            slabs: row.slabs,
        })
        .collect()
}
