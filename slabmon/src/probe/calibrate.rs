//! The page lookup's constant: found from slabs that the kernel shows, voted on, and proved before it is used.

use std::{
    collections::HashMap,
    fmt,
    io::Read,
    path::Path,
    time::{Duration, Instant},
};

use aya::{
    Btf, Ebpf,
    maps::Array,
    programs::{Iter, RawTracePointRunOptions, TestRun},
};
use slabmon_common::{CacheRecord, CalibrationPair, Config, Lookup, map, program};

use super::{counters::CpuRecords, load, object::Plain};
use crate::host::symbols;

/// Events that must bear the lookup out before it is used.
pub const REQUIRED_CHECKS: u64 = 1000;

/// Mappings that make partial slabs where the machine has none.
const MAPPINGS: usize = 4000;

/// How long the proof may wait for events. They are made here, so this is only met where something is badly wrong.
const PROOF_TIMEOUT: Duration = Duration::from_secs(2);

/// What the lookup stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Slabs that gave the constant.
    pub pairs: usize,
    /// Events whose own cache the lookup gave.
    pub checks: u64,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "calibrated from {} slabs, proved on {} events", self.pairs, self.checks)
    }
}

/// A constant and how many pairs gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VotedBase {
    /// `page(addr) - (addr >> page_shift) * sizeof(struct page)`.
    pub page_base: u64,
    /// Pairs that agree.
    pub agreeing: usize,
}

/// Loads the iterator program.
pub fn load_lister(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    let iterator: &mut Iter = ebpf
        .program_mut(program::LIST_CACHES)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| load::LoadError::Missing(program::LIST_CACHES).to_string())?;
    iterator.load("kmem_cache", btf).map_err(|error| load::program_error(program::LIST_CACHES, &error).to_string())
}

/// Has the kernel list its caches, newest first.
pub fn list_caches(ebpf: &mut Ebpf) -> Result<Vec<CacheRecord>, String> {
    let iterator: &mut Iter = ebpf
        .program_mut(program::LIST_CACHES)
        .and_then(|program| program.try_into().ok())
        .ok_or_else(|| load::LoadError::Missing(program::LIST_CACHES).to_string())?;
    let failed = |error: &dyn fmt::Display| format!("cache iterator: {error}");
    let link = iterator.attach().map_err(|error| failed(&error))?;
    let link = iterator.take_link(link).map_err(|error| failed(&error))?;
    let mut file = link.into_file().map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes.chunks_exact(size_of::<CacheRecord>()).map(record_of).collect())
}

fn record_of(bytes: &[u8]) -> CacheRecord {
    debug_assert_eq!(bytes.len(), size_of::<CacheRecord>());
    // SAFETY: the chunk is as long as the record, which is plain integers; it need not be aligned.
    unsafe { bytes.as_ptr().cast::<CacheRecord>().read_unaligned() }
}

/// Collects pairs from the slabs of the caches that have events just now.
pub fn collect_pairs(ebpf: &mut Ebpf) -> Result<Vec<CalibrationPair>, String> {
    let attached = Attached::new(ebpf, program::CALIBRATE)?;
    for _ in 0..REQUIRED_CHECKS {
        cause_events();
    }
    read_pairs(attached.ebpf)
}

/// Collects pairs along the kernel's own list of caches, whose address only kallsyms can tell (it needs KALLSYMS_ALL).
pub fn walk_caches(ebpf: &mut Ebpf) -> Result<Vec<CalibrationPair>, String> {
    let list = symbols::address_of(Path::new("/"), "slab_caches")?;
    load::load_program(ebpf, program::WALK_CACHES).map_err(|error| error.to_string())?;
    let walker = load::raw_tracepoint(ebpf, program::WALK_CACHES).map_err(|error| error.to_string())?;
    let mut options = RawTracePointRunOptions::new();
    options.args[0] = list;
    walker.test_run(options).map_err(|error| format!("the walk along the caches: {error}"))?;
    let pairs = read_pairs(ebpf)?;
    load::unload_program(ebpf, program::WALK_CACHES).map_err(|error| error.to_string())?;
    Ok(pairs)
}

fn read_pairs(ebpf: &Ebpf) -> Result<Vec<CalibrationPair>, String> {
    let pairs: Array<_, Plain<CalibrationPair>> = ebpf
        .map(map::PAIRS)
        .and_then(|map| Array::try_from(map).ok())
        .ok_or_else(|| load::LoadError::Missing(map::PAIRS).to_string())?;
    Ok(pairs.iter().filter_map(|pair| pair.ok().map(|pair| pair.0)).collect())
}

/// The constant that nearly all pairs give. A pair read while its list changed gives another one, so a few may differ; one
/// pair may be enough, since the proof that follows lets nothing wrong through.
pub fn vote(pairs: &[CalibrationPair], config: &Config) -> Result<VotedBase, String> {
    let mut votes: HashMap<u64, usize> = HashMap::new();
    let mut cast = 0usize;
    for pair in pairs.iter().filter(|pair| pair.page != 0 && pair.object != 0) {
        let index = pair.object >> config.page_shift;
        let base = pair.page.wrapping_sub(index.wrapping_mul(u64::from(config.page_struct_bytes)));
        *votes.entry(base).or_default() += 1;
        cast += 1;
    }
    match votes.into_iter().max_by_key(|&(_, count)| count) {
        Some((page_base, agreeing)) if agreeing * 10 >= cast * 9 => Ok(VotedBase { page_base, agreeing }),
        Some((_, agreeing)) => Err(format!("only {agreeing} of {cast} slabs agree on where struct page lies")),
        None => Err("no cache has a partial slab to calibrate from".into()),
    }
}

/// Tells the programs the constant, and whether they may use it.
pub fn write_lookup(ebpf: &mut Ebpf, page_base: u64, usable: bool) -> Result<(), String> {
    let mut lookup: Array<_, Plain<Lookup>> = ebpf
        .map_mut(map::LOOKUP)
        .and_then(|map| Array::try_from(map).ok())
        .ok_or_else(|| load::LoadError::Missing(map::LOOKUP).to_string())?;
    lookup
        .set(0, Plain(Lookup { page_base, usable: u64::from(usable) }), 0)
        .map_err(|error| format!("map `{}`: {error}", map::LOOKUP))
}

/// Holds the lookup against every kmem_cache_alloc event until enough have borne it out. Returns the number of checks.
pub fn prove(ebpf: &mut Ebpf, records: &CpuRecords) -> Result<u64, String> {
    let attached = Attached::new(ebpf, program::PROVE)?;
    let deadline = Instant::now() + PROOF_TIMEOUT;
    let record = loop {
        for _ in 0..64 {
            cause_events();
        }
        let record = records.sum();
        if record.proofs >= REQUIRED_CHECKS || Instant::now() >= deadline {
            break record;
        }
    };
    drop(attached);
    match (record.proofs, record.proof_mismatches) {
        (checks, 0) if checks >= REQUIRED_CHECKS => Ok(checks),
        (checks, 0) => Err(format!("only {checks} events came to prove it on, {REQUIRED_CHECKS} are needed")),
        (checks, mismatches) => Err(format!("{mismatches} of {checks} lookups gave another cache than the event")),
    }
}

/// Makes the kernel allocate and free a few objects: two files, an inode, a dentry, a memory area.
fn cause_events() {
    drop(std::io::pipe());
    drop(Mapping::new(1));
}

/// Slabs that are neither full nor empty, for as long as this lives: a machine that has just booted may have none on the
/// lists that the calibration reads.
pub struct PartialSlabs {
    _areas: Mapping,
}

impl PartialSlabs {
    /// Makes the kernel allocate thousands of memory areas, and free every second one.
    pub fn make() -> Self {
        let mapping = Mapping::new(MAPPINGS);
        // Areas of like protection would be merged into one.
        mapping.each_second_page(|page, page_bytes| {
            // SAFETY: a page of our own mapping, which nothing refers to.
            unsafe { libc::mprotect(page, page_bytes, libc::PROT_READ) };
        });
        mapping.each_second_page(|page, page_bytes| {
            // SAFETY: as above.
            unsafe { libc::munmap(page, page_bytes) };
        });
        Self { _areas: mapping }
    }
}

/// Pages of address space that nothing is ever read from.
struct Mapping {
    start: *mut libc::c_void,
    pages: usize,
    page_bytes: usize,
}

impl Mapping {
    fn new(pages: usize) -> Self {
        let page_bytes = rustix::param::page_size();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), pages * page_bytes, libc::PROT_NONE, flags, -1, 0) };
        // A refused mapping makes no slab partial, and that is all that it means here.
        let pages = if start == libc::MAP_FAILED { 0 } else { pages };
        Self { start, pages, page_bytes }
    }

    fn each_second_page(&self, act: impl Fn(*mut libc::c_void, usize)) {
        for index in (0..self.pages).step_by(2) {
            act(self.start.wrapping_byte_add(index * self.page_bytes), self.page_bytes);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.pages > 0 {
            // SAFETY: our own range; pages of it that are gone already are no error (munmap(2)).
            unsafe { libc::munmap(self.start, self.pages * self.page_bytes) };
        }
    }
}

/// A program that is attached to kmem_cache_alloc for as long as this lives, then unloaded.
struct Attached<'a> {
    ebpf: &'a mut Ebpf,
    program: &'static str,
}

impl<'a> Attached<'a> {
    fn new(ebpf: &'a mut Ebpf, program: &'static str) -> Result<Self, String> {
        load::load_program(ebpf, program)
            .and_then(|()| load::attach_program(ebpf, program, program::KMEM_CACHE_ALLOC))
            .map_err(|error| error.to_string())?;
        Ok(Self { ebpf, program })
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        if let Err(error) = load::unload_program(self.ebpf, self.program) {
            tracing::warn!(program = self.program, %error, "could not be unloaded");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CONFIG: Config = {
        // SAFETY of the zeros: plain integers.
        let mut config: Config = unsafe { std::mem::zeroed() };
        config.page_shift = 12;
        config.page_struct_bytes = 64;
        config
    };

    fn pair(page_index: u64, base: u64) -> CalibrationPair {
        CalibrationPair { page: base.wrapping_add(page_index * 64), object: (page_index << 12) + 128 }
    }

    #[test]
    fn pairs_that_agree_give_their_constant() {
        let base = 0u64.wrapping_sub(1 << 40);
        let pairs: Vec<_> = (1..40).map(|index| pair(index * 17, base)).collect();
        assert_eq!(vote(&pairs, &CONFIG), Ok(VotedBase { page_base: base, agreeing: 39 }));
    }

    #[test]
    fn one_pair_read_in_a_race_is_outvoted() {
        let mut pairs: Vec<_> = (1..40).map(|index| pair(index, 1 << 40)).collect();
        pairs.push(pair(7, 1 << 41));
        assert_eq!(vote(&pairs, &CONFIG).unwrap().page_base, 1 << 40);
    }

    #[test]
    fn pairs_that_disagree_give_nothing_and_say_so() {
        let pairs: Vec<_> = (1..40).map(|index| pair(index, (index % 3) << 40)).collect();
        assert!(vote(&pairs, &CONFIG).unwrap_err().contains("13 of 39"));
    }

    #[test]
    fn one_pair_is_enough_and_none_is_not() {
        assert_eq!(vote(&[pair(1, 1 << 40)], &CONFIG).unwrap().agreeing, 1, "the proof decides");
        assert!(vote(&[pair(1, 1 << 40), pair(2, 1 << 41)], &CONFIG).unwrap_err().contains("only 1 of 2"));
        assert!(vote(&[CalibrationPair::default()], &CONFIG).unwrap_err().contains("no cache"));
    }
}
