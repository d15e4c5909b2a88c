//! Small snapshots for the tests of this module.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{sync::Arc, time::Duration};

use super::{
    derive::{Deriver, SnapshotInput},
    sample::{MachineSample, MeminfoSample, SlabRow, SlabinfoSample},
    snapshot::Snapshot,
};

pub const PAGE_BYTES: u64 = 4096;

/// `[active, objects, size, per slab, pages per slab, slabs]`, as slabinfo prints them.
pub fn row(name: &str, numbers: [u64; 6]) -> SlabRow {
    let [active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs] = numbers;
    SlabRow { name: name.into(), active_objects, objects, object_size_bytes, objects_per_slab, pages_per_slab, slabs }
}

/// The input of a snapshot in which only these rows are known.
pub fn input(rows: Vec<SlabRow>) -> SnapshotInput {
    SnapshotInput {
        taken_at_unix_seconds: 0.0,
        uptime: Duration::ZERO,
        page_size_bytes: PAGE_BYTES,
        counters: None,
        page_lookup: false,
        slabinfo: Some(Arc::new(SlabinfoSample { at: Duration::ZERO, at_unix_seconds: 0.0, rows })),
        meminfo: None,
        attributes: Arc::default(),
        features: Arc::default(),
        collectors: Vec::new(),
        host: Arc::default(),
        machine: MachineSample::default(),
    }
}

/// A snapshot in which only these rows are known.
pub fn snapshot(rows: Vec<SlabRow>) -> Snapshot {
    Deriver::new().derive(input(rows))
}

/// The same beside meminfo.
pub fn snapshot_with(rows: Vec<SlabRow>, meminfo: MeminfoSample) -> Snapshot {
    Deriver::new().derive(SnapshotInput { meminfo: Some(meminfo), ..input(rows) })
}
