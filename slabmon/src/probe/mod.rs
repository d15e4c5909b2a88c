//! The kernel side, seen from here: loads the object, attaches its programs, reads its tables as memory.
//!
//! The only module that knows aya and the only one that may use `unsafe`. One thread owns a [`Probe`]; nobody else
//! touches a map. Kernel addresses stay in here: outward a cache is a [`CacheId`](crate::model::sample::CacheId).

#![allow(unsafe_code)]

mod calibrate;
mod counters;
mod hooks;
mod load;
mod object;
mod program_info;
mod registry;

use std::time::Duration;

use aya::{
    Btf, Ebpf,
    maps::{HashMap, MapData, MapError},
    programs::{RawTracePoint, RawTracePointRunOptions, TestRun},
};
use slabmon_common::{CacheRecord, map, program};

pub use self::{calibrate::Calibration, load::LoadError};
use self::{
    counters::{CpuRecords, SlotTable},
    object::Plain,
    registry::{CacheIdentity, Registry},
};
use crate::{
    model::sample::{CounterSample, LookupProof, ProgramCounts, TableUse},
    plan::{Hook, Obstacle, ProbePlan},
};

/// The loaded programs and their tables. Dropping it detaches and unloads everything.
pub struct Probe {
    ebpf: Ebpf,
    /// Whether the cache iterator is there.
    lists_caches: bool,
    slots: SlotTable,
    records: CpuRecords,
    caches: HashMap<MapData, u64, Plain<CacheRecord>>,
    registry: Registry,
    #[cfg(feature = "bpf-log")]
    log: Option<aya_log::EbpfLogger<&'static dyn log::Log>>,
    attached: Vec<&'static str>,
    lookup_usable: bool,
}

impl Probe {
    /// Loads the object, calibrates and proves the page lookup, and attaches what `plan` names.
    ///
    /// What only loading can tell (an iterator that is refused, a lookup that is not proved) is written back into the
    /// plan's features; only a failure that leaves nothing to count is an error.
    pub fn start(plan: &mut ProbePlan, cpus: u32) -> Result<Self, LoadError> {
        let mut ebpf = load::load_object(&plan.config, cpus, !plan.hooks.is_empty())?;
        // Needed for what is attached by type alone; parsed once, and dropped with the memory it takes.
        let btf = if plan.iterator || !plan.hooks.is_empty() { Btf::from_sys_fs().ok() } else { None };
        if plan.iterator {
            let loaded = btf
                .as_ref()
                .ok_or_else(|| "the kernel's type information could not be parsed".to_owned())
                .and_then(|btf| calibrate::load_lister(&mut ebpf, btf));
            if let Err(reason) = loaded {
                plan.iterator = false;
                plan.calibrate_by_events = plan.config.alloc_has_cache != 0;
                plan.feature_failed("cache_iterator", reason, "names come from the first event of each cache");
            }
        }
        let slots = SlotTable::map(&ebpf, &plan.config, cpus, !plan.hooks.is_empty())?;
        let records = CpuRecords::map(&ebpf, cpus)?;
        let caches = load::take_hash_map(&mut ebpf, map::CACHES)?;
        load::load_program(&mut ebpf, program::DESCRIBE)?;

        // The shipped object has no log to read.
        #[cfg(feature = "bpf-log")]
        let log = aya_log::EbpfLogger::init(&mut ebpf).ok();
        let mut probe = Self {
            ebpf,
            lists_caches: plan.iterator,
            slots,
            records,
            caches,
            registry: Registry::default(),
            #[cfg(feature = "bpf-log")]
            log,
            attached: Vec::new(),
            lookup_usable: false,
        };
        if plan.page_lookup {
            match probe.calibrate(plan) {
                Ok(calibration) => {
                    probe.lookup_usable = true;
                    plan.feature_works("page_lookup", calibration.to_string());
                }
                Err(reason) => plan.feature_failed(
                    "page_lookup",
                    reason,
                    "kmalloc is counted by size class; frees by kfree are counted as unattributed",
                ),
            }
        }
        probe.attach_hooks(plan, btf.as_ref());
        drop(btf);
        probe.attach(plan)?;
        probe.relist();
        load::give_back_memory();
        Ok(probe)
    }

    fn calibrate(&mut self, plan: &ProbePlan) -> Result<Calibration, String> {
        let base = self.vote(plan).or_else(|_| {
            let _slabs = calibrate::PartialSlabs::make();
            self.vote(plan)
        })?;
        calibrate::write_lookup(&mut self.ebpf, base.page_base, true)?;
        let proof = calibrate::prove(&mut self.ebpf, &self.records);
        if proof.is_err() {
            calibrate::write_lookup(&mut self.ebpf, 0, false)?;
        }
        proof.map(|checks| Calibration { pairs: base.agreeing, checks })
    }

    fn vote(&mut self, plan: &ProbePlan) -> Result<calibrate::VotedBase, String> {
        let pairs: Vec<_> = if self.lists_caches {
            calibrate::list_caches(&mut self.ebpf)?.iter().map(|record| record.pair).collect()
        } else if plan.calibrate_by_events {
            calibrate::collect_pairs(&mut self.ebpf)?
        } else {
            calibrate::walk_caches(&mut self.ebpf)?
        };
        calibrate::vote(&pairs, &plan.config)
    }

    /// Hooks what fires no event. Before the tracepoints, so that no free is counted whose allocation was not; and one of
    /// them may stand for a tracepoint, which is then left out.
    fn attach_hooks(&mut self, plan: &mut ProbePlan, btf: Option<&Btf>) {
        for planned in plan.hooks.clone() {
            let mut refusals = Vec::new();
            let attached = planned.ways.iter().find(|way| match self.attach_way(way, btf) {
                Ok(()) => true,
                Err(error) => {
                    refusals.push(error);
                    false
                }
            });
            match attached {
                Some(way) => {
                    plan.feature_works(planned.feature, describe_way(way));
                    self.attached.extend(way.iter().map(|hook| hook.program));
                    if planned.feature == "free_at_entry" {
                        plan.programs.retain(|planned| planned.program != program::KMEM_CACHE_FREE);
                        plan.feature_works(program::KMEM_CACHE_FREE, "counted at the function's entry".into());
                    }
                }
                None => {
                    let permission = refusals.iter().all(LoadError::is_permission);
                    let reasons: Vec<_> = refusals.iter().map(LoadError::to_string).collect();
                    plan.feature_refused(
                        planned.feature,
                        reasons.join("; "),
                        "what goes this way is seen in slabinfo and in the drift alone",
                        if permission { Obstacle::Permission } else { Obstacle::Kernel },
                    );
                }
            }
        }
    }

    /// All hooks of a way, or none.
    fn attach_way(&mut self, way: &[Hook], btf: Option<&Btf>) -> Result<(), LoadError> {
        for (index, hook) in way.iter().enumerate() {
            if let Err(error) = hooks::attach(&mut self.ebpf, *hook, btf) {
                for earlier in way.iter().take(index) {
                    hooks::detach(&mut self.ebpf, *earlier);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn attach(&mut self, plan: &mut ProbePlan) -> Result<(), LoadError> {
        let mut first_error = None;
        for planned in plan.programs.clone() {
            let attached = load::load_program(&mut self.ebpf, planned.program)
                .and_then(|()| load::attach_program(&mut self.ebpf, planned.program, planned.event));
            match attached {
                Ok(()) => self.attached.push(planned.program),
                Err(error) => {
                    let obstacle = if error.is_permission() { Obstacle::Permission } else { Obstacle::Kernel };
                    plan.feature_refused(planned.event, error.to_string(), error.remedy(), obstacle);
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if self.attached.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads all counters. No system call but one a program for its misses, and one a cache never seen before.
    pub fn drain(&mut self, at: Duration) -> CounterSample {
        #[cfg(feature = "bpf-log")]
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let Self { ebpf, caches, registry, slots, .. } = self;
        slots.read(|key| identify(ebpf, caches, key), registry);
        let record = self.records.sum();
        let counted = self.registry.event_totals(&record);
        let mut programs = Vec::with_capacity(self.attached.len());
        for &name in &self.attached {
            programs.push(ProgramCounts {
                program: name,
                counted: counted.of(name),
                missed: program_info::recursion_misses(&self.ebpf, name),
                losses: counters::losses_of(&record, name),
            });
        }
        CounterSample {
            cpus: self.slots.cpus(),
            at,
            caches: self.registry.counts(&record),
            programs,
            large_duplicates: record.large_duplicates,
            proof: LookupProof { checks: record.proofs, mismatches: record.proof_mismatches },
            table: TableUse {
                slots_per_cpu: self.slots.slots_per_cpu(),
                used_on_fullest_cpu: self.slots.used_on_fullest_cpu(),
            },
        }
    }

    /// Asks the kernel for its caches anew, so that one that was destroyed and created again at the same address is
    /// told from its forerunner. Call it after each read of slabinfo.
    pub fn relist(&mut self) {
        if self.lists_caches {
            match calibrate::list_caches(&mut self.ebpf) {
                Ok(records) => {
                    let listing: Vec<_> =
                        records.iter().map(|record| (record.key, CacheIdentity::from(record))).collect();
                    self.registry.note_listing(&listing);
                    return;
                }
                Err(error) => tracing::warn!(%error, "the cache iterator failed; known caches are read one by one"),
            }
        }
        for key in self.registry.keys() {
            let identity = describe(&self.ebpf, &self.caches, key);
            self.registry.note_identity(key, identity);
        }
    }

    /// Whether kmalloc and kfree are put down to their caches.
    pub fn lookup_usable(&self) -> bool {
        self.lookup_usable
    }

    /// Capabilities that reading on needs. Before 5.19 reading a map takes CAP_BPF; a thread that has given all up tells.
    pub fn capabilities_needed(&self) -> Vec<caps::Capability> {
        let readable = std::thread::scope(|scope| {
            let attempt = scope.spawn(|| {
                let dropped = caps::clear(None, caps::CapSet::Effective).is_ok();
                dropped && !matches!(self.caches.get(&0, 0), Err(MapError::SyscallError(_)))
            });
            attempt.join().unwrap_or(false)
        });
        if readable { Vec::new() } else { vec![caps::Capability::CAP_BPF] }
    }

    /// Stops using the page lookup, for good: it was caught lying.
    pub fn disable_lookup(&mut self) -> Result<(), String> {
        self.lookup_usable = false;
        calibrate::write_lookup(&mut self.ebpf, 0, false)
    }
}

/// "fentry on kmem_cache_free_bulk"
fn describe_way(way: &[Hook]) -> String {
    let hooks: Vec<_> =
        way.iter().map(|hook| format!("{} on {}", format!("{:?}", hook.kind).to_lowercase(), hook.function)).collect();
    hooks.join(", ")
}

/// What the first event of a cache left behind, else what a look at it now tells.
fn identify(ebpf: &Ebpf, caches: &HashMap<MapData, u64, Plain<CacheRecord>>, key: u64) -> Option<CacheIdentity> {
    match caches.get(&key, 0) {
        Ok(record) => Some(CacheIdentity::from(&record.0)),
        Err(_) => describe(ebpf, caches, key),
    }
}

/// Has the kernel side read the cache at `key` now. `None` if it could not.
fn describe(ebpf: &Ebpf, caches: &HashMap<MapData, u64, Plain<CacheRecord>>, key: u64) -> Option<CacheIdentity> {
    let reader: &RawTracePoint = ebpf.program(program::DESCRIBE)?.try_into().ok()?;
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = key;
    let result = reader.test_run(options).ok()?;
    if result.return_value != 0 {
        return None;
    }
    caches.get(&key, 0).ok().map(|record| CacheIdentity::from(&record.0))
}
