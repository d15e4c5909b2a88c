//! What to load and attach on this host, and what to leave off and why: facts in, plan out, no I/O.

use slabmon_common::{ABSENT, Config, architecture, program, slab_mark};

use crate::{
    host::{
        btf::Parameter,
        facts::{BtfFacts, HostFacts, Lockdown, SlabMark},
    },
    model::snapshot::Feature,
    report::check::Finding,
};

pub use crate::report::check::Obstacle;

/// What the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether to trace at all.
    pub trace: bool,
    /// Slots of the counter table that each CPU has: a power of two.
    pub slots_per_cpu: u32,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { trace: true, slots_per_cpu: 1024 }
    }
}

/// A program and the event that it is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedProgram {
    /// Its name in the object.
    pub program: &'static str,
    /// The tracepoint, which is also the feature's name.
    pub event: &'static str,
}

/// How a function is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// At its entry, by a trampoline.
    Fentry,
    /// At its return, by a trampoline.
    Fexit,
    /// At its entry, by a breakpoint or ftrace.
    Kprobe,
    /// At its return, by a return address of another's.
    Kretprobe,
}

/// One way to hook a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name in the object.
    pub program: &'static str,
    /// The kernel's function.
    pub function: &'static str,
    /// How.
    pub kind: HookKind,
}

/// A path and the ways to count it, best first; the first that the kernel takes whole is used, alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedHook {
    /// The feature's name.
    pub feature: &'static str,
    /// The ways, each of one program or more.
    pub ways: Vec<Vec<Hook>>,
}

/// What to load, and the state of each feature.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePlan {
    /// Empty: nothing is traced, and the feature `tracing` says why.
    pub programs: Vec<PlannedProgram>,
    /// Functions on paths that fire no event.
    pub hooks: Vec<PlannedHook>,
    /// What the programs need to know of this kernel.
    pub config: Config,
    /// Whether to calibrate and use the page lookup.
    pub page_lookup: bool,
    /// Whether to load the iterator over caches.
    pub iterator: bool,
    /// Whether the lookup can be calibrated from events, where there is no iterator.
    pub calibrate_by_events: bool,
    /// Each optional part; what loading finds out is written back here.
    pub features: Vec<Feature>,
    /// What stands in the way of a feature that is off.
    obstacles: Vec<(&'static str, Obstacle)>,
}

/// Features without which the daemon cannot do its main job.
const REQUIRED: [&str; 7] =
    ["tracing", "kmalloc", "kfree", "kmem_cache_alloc", "kmem_cache_free", "page_lookup", "slabinfo"];

/// Features that count what fires no event.
const HOOKS: [&str; 7] = [
    "hook_free_bulk",
    "hook_alloc_bulk",
    "hook_kmalloc_nolock",
    "hook_kfree_nolock",
    "hook_free_sheaf",
    "hook_free_sheaf_nobarn",
    "free_at_entry",
];

/// Features that are parts of tracing: off with it.
const TRACED: [&str; 10] = [
    "kmalloc",
    "kmalloc_node",
    "kfree",
    "kmem_cache_alloc",
    "kmem_cache_alloc_node",
    "kmem_cache_free",
    "page_lookup",
    "cache_iterator",
    "large_kmalloc_once",
    "recursion_misses",
];

impl ProbePlan {
    /// Decides. What only loading can tell is planned as if it worked.
    pub fn new(facts: &HostFacts, options: &PlanOptions) -> Self {
        let mut plan = Self {
            programs: Vec::new(),
            hooks: Vec::new(),
            config: Config::default(),
            page_lookup: false,
            iterator: false,
            calibrate_by_events: false,
            features: Vec::new(),
            obstacles: Vec::new(),
        };
        match &facts.btf {
            Ok(_) => plan.on("btf", "the kernel describes its types"),
            Err(reason) => plan.off("btf", reason.clone(), NO_BTF, Obstacle::Kernel),
        }
        match tracing_obstacle(facts, options) {
            Some((reason, remedy, obstacle)) => plan.tracing_failed(reason, remedy, obstacle),
            None => {
                plan.on("tracing", "raw tracepoints");
                if let Ok(btf) = &facts.btf {
                    plan.plan_probes(facts, btf, options);
                }
            }
        }
        plan
    }

    fn plan_probes(&mut self, facts: &HostFacts, btf: &BtfFacts, options: &PlanOptions) {
        self.config = config_of(facts, btf, options);
        self.plan_events(btf);
        if self.programs.is_empty() {
            self.tracing_failed("none of the slab events can be used".into(), REPORT, Obstacle::Kernel);
            return;
        }
        self.iterator = btf.has_cache_iterator;
        self.calibrate_by_events = !self.iterator && self.config.alloc_has_cache != 0;
        self.plan_lookup(btf);
        if self.iterator {
            self.on("cache_iterator", "names and births of caches from the kernel's own list");
        } else {
            let reason = "this kernel has no BPF iterator over caches (they came with 6.13)";
            self.off(
                "cache_iterator",
                reason.into(),
                "names come from the first event of each cache",
                Obstacle::Kernel,
            );
        }
        self.plan_hooks(btf);
        if btf.large_fires_twice {
            self.on("large_kmalloc_once", "the second event of a large kmalloc is left out by its call site");
        } else {
            self.on("large_kmalloc_once", "this kernel fires one event for a large kmalloc");
        }
        if btf.guards_recursion {
            self.on("recursion_misses", "the kernel counts events that a program missed");
        } else {
            let reason = "this kernel does not keep a program from interrupting itself, so nothing is missed";
            self.off("recursion_misses", reason.into(), "additions are atomic instead", Obstacle::Kernel);
        }
    }

    /// Each untraced path that this kernel has, and each that it has not.
    fn plan_hooks(&mut self, btf: &BtfFacts) {
        use HookKind::{Fentry, Fexit, Kprobe, Kretprobe};
        let hook = |program, function, kind| Hook { program, function, kind };
        let mut paths = vec![
            (
                "hook_free_bulk",
                vec![
                    vec![hook(program::FREE_BULK, "kmem_cache_free_bulk", Fentry)],
                    vec![hook(program::FREE_BULK_KPROBE, "kmem_cache_free_bulk", Kprobe)],
                ],
            ),
            (
                "hook_alloc_bulk",
                ["kmem_cache_alloc_bulk_noprof", "kmem_cache_alloc_bulk"]
                    .into_iter()
                    .flat_map(|function| {
                        let mut ways = vec![vec![hook(program::ALLOC_BULK, function, Fexit)]];
                        // The pair knows its calls by the stack pointer, which only there is the same at both ends.
                        if self.config.architecture == architecture::AARCH64 {
                            ways.push(vec![
                                hook(program::ALLOC_BULK_RETURN, function, Kretprobe),
                                hook(program::ALLOC_BULK_ENTRY, function, Kprobe),
                            ]);
                        }
                        ways
                    })
                    .collect(),
            ),
            (
                "hook_kmalloc_nolock",
                vec![
                    vec![hook(program::KMALLOC_NOLOCK, "kmalloc_nolock_noprof", Fexit)],
                    vec![hook(program::KMALLOC_NOLOCK, "_kmalloc_nolock_noprof", Fexit)],
                ],
            ),
            ("hook_kfree_nolock", vec![vec![hook(program::KFREE_NOLOCK, "kfree_nolock", Fentry)]]),
        ];
        if btf.sheaf.is_some() {
            let nobarn = hook(program::FREE_SHEAF_NOBARN, "rcu_free_sheaf_nobarn", Fentry);
            paths.push(("hook_free_sheaf", vec![vec![hook(program::FREE_SHEAF, "rcu_free_sheaf", Fentry)]]));
            paths.push(("hook_free_sheaf_nobarn", vec![vec![nobarn]]));
        } else {
            paths.push(("hook_free_sheaf", Vec::new()));
            paths.push(("hook_free_sheaf_nobarn", Vec::new()));
        }
        for (feature, mut ways) in paths {
            ways.retain(|way| way.iter().all(|hook| btf.functions.contains(&hook.function)));
            if ways.is_empty() {
                self.off(feature, "this kernel has no such path".into(), "", Obstacle::Kernel);
            } else {
                self.on(feature, "to be attached");
                self.hooks.push(PlannedHook { feature, ways });
            }
        }
        if self.config.free_has_cache != 0 {
            self.on("free_at_entry", "not needed: the event comes before the free and names its cache");
        } else if btf.functions.contains(&"kmem_cache_free") {
            // Up to 5.15 the tracepoint comes after the free, when the page may be another's already.
            let function = "kmem_cache_free";
            let ways = vec![
                vec![hook(program::CACHE_FREE_ENTRY, function, Fentry)],
                vec![hook(program::CACHE_FREE_KPROBE, function, Kprobe)],
            ];
            self.on("free_at_entry", "to be attached");
            self.hooks.push(PlannedHook { feature: "free_at_entry", ways });
        } else {
            let reason = "the event comes after the free, and this kernel has no function to hook before it";
            let remedy = "a free may be put down to the cache that has the page next";
            self.off("free_at_entry", reason.into(), remedy, Obstacle::Kernel);
        }
    }

    fn plan_lookup(&mut self, btf: &BtfFacts) {
        if let Some(what) = missing_for_lookup(btf) {
            let reason = format!("this kernel's type information lacks {what}");
            self.off("page_lookup", reason, REPORT, Obstacle::Kernel);
        } else if !self.iterator && !self.calibrate_by_events && self.config.cache_list == ABSENT {
            let reason = "this kernel offers no list of its caches and no events that name their cache";
            let remedy = "kmalloc is counted by size class; frees by kfree are counted as unattributed";
            self.off("page_lookup", reason.into(), remedy, Obstacle::Kernel);
        } else {
            self.page_lookup = true;
            self.on("page_lookup", "to be calibrated");
        }
    }

    fn plan_events(&mut self, btf: &BtfFacts) {
        let prototypes = &btf.prototypes;
        let events = [
            (program::KMALLOC, &prototypes.kmalloc, Shape::Kmalloc),
            (program::KMALLOC_NODE, &prototypes.kmalloc_node, Shape::Kmalloc),
            (program::KFREE, &prototypes.kfree, Shape::Free),
            (program::KMEM_CACHE_ALLOC, &prototypes.kmem_cache_alloc, Shape::CacheAlloc),
            (program::KMEM_CACHE_ALLOC_NODE, &prototypes.kmem_cache_alloc_node, Shape::CacheAlloc),
            (program::KMEM_CACHE_FREE, &prototypes.kmem_cache_free, Shape::Free),
        ];
        for (event, prototype, shape) in events {
            match prototype {
                None if event.ends_with("_node") => {
                    let reason = "this kernel has no such event: since 6.1 the plain one stands for both";
                    self.off(event, reason.into(), "", Obstacle::Kernel);
                }
                None => {
                    let reason = "this kernel's type information has no such event";
                    self.off(event, reason.into(), REPORT, Obstacle::Kernel);
                }
                Some(parameters) if shape.fits(parameters) => {
                    self.programs.push(PlannedProgram { program: event, event });
                    self.on(event, "raw tracepoint");
                }
                Some(parameters) => {
                    let reason = format!("its arguments are not what slabmon knows: {}", prototype_text(parameters));
                    self.off(event, reason, REPORT, Obstacle::Kernel);
                }
            }
        }
    }

    /// Tracing as a whole is off, and with it all its parts, by the same obstacle. A part that is off already keeps its
    /// own reason: it may be the cause.
    pub fn tracing_failed(&mut self, reason: String, remedy: &str, obstacle: Obstacle) {
        self.programs.clear();
        self.hooks.clear();
        self.page_lookup = false;
        self.iterator = false;
        self.calibrate_by_events = false;
        self.off("tracing", reason, remedy, obstacle);
        for part in TRACED.into_iter().chain(HOOKS) {
            match self.feature(part).cloned().filter(|feature| !feature.enabled) {
                Some(known) => self.off(part, known.reason, &known.remedy, obstacle),
                None => self.off(part, "nothing is traced".into(), "see `tracing`", obstacle),
            }
        }
    }

    /// Loading found that a feature does not work.
    pub fn feature_failed(&mut self, name: &'static str, reason: String, remedy: &str) {
        self.off(name, reason, remedy, Obstacle::Kernel);
    }

    /// A reader was not permitted what a feature needs, or the kernel has it not.
    pub fn feature_refused(&mut self, name: &'static str, reason: String, remedy: &str, obstacle: Obstacle) {
        self.off(name, reason, remedy, obstacle);
    }

    /// Loading or reading found that a feature works, and how.
    pub fn feature_works(&mut self, name: &'static str, how: String) {
        self.set(Feature { name, enabled: true, reason: how, remedy: String::new() });
        self.obstacles.retain(|(other, _)| *other != name);
    }

    /// The state of a feature.
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// What stands in the way of serving anything at all: a permission if one would help tracing or slabinfo.
    pub fn obstacle(&self) -> Obstacle {
        let permission =
            |name| self.obstacles.iter().any(|&(other, obstacle)| other == name && obstacle == Obstacle::Permission);
        if permission("tracing") || permission("slabinfo") { Obstacle::Permission } else { Obstacle::Kernel }
    }

    /// Each feature with what it means and what stands in its way, for `slabmon check`.
    pub fn findings(&self) -> Vec<Finding> {
        self.features
            .iter()
            .map(|feature| Finding {
                feature: feature.clone(),
                required: REQUIRED.contains(&feature.name),
                obstacle: self.obstacles.iter().find(|(name, _)| *name == feature.name).map(|&(_, obstacle)| obstacle),
            })
            .collect()
    }

    fn on(&mut self, name: &'static str, how: &str) {
        self.feature_works(name, how.to_owned());
    }

    fn off(&mut self, name: &'static str, reason: String, remedy: &str, obstacle: Obstacle) {
        self.set(Feature { name, enabled: false, reason, remedy: remedy.to_owned() });
        self.obstacles.retain(|(other, _)| *other != name);
        self.obstacles.push((name, obstacle));
    }

    fn set(&mut self, feature: Feature) {
        match self.features.iter_mut().find(|known| known.name == feature.name) {
            Some(known) => *known = feature,
            None => self.features.push(feature),
        }
    }
}

const NO_BTF: &str =
    "a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed for tracing, or a file with its types: --btf FILE";
const REPORT: &str = "report it with the kernel's version";
const NEED_CAPABILITIES: &str = "run as root, or with CAP_BPF and CAP_PERFMON";

/// Why nothing can be traced, what to do, and what kind of obstacle it is.
fn tracing_obstacle(facts: &HostFacts, options: &PlanOptions) -> Option<(String, &'static str, Obstacle)> {
    if !options.trace {
        return Some(("switched off".into(), "start with --trace=true", Obstacle::Configuration));
    }
    let btf = match &facts.btf {
        Ok(btf) => btf,
        Err(reason) => return Some((format!("no type information: {reason}"), NO_BTF, Obstacle::Kernel)),
    };
    if facts.lockdown == Some(Lockdown::Confidentiality) {
        let reason = "kernel lockdown is in confidentiality mode, which keeps BPF programs from reading kernel memory";
        return Some((reason.into(), "boot with lockdown=integrity or none", Obstacle::Kernel));
    }
    if !btf.is_slub {
        let reason = "the kernel's slab allocator is not SLUB";
        return Some((reason.into(), "a kernel with CONFIG_SLUB=y is needed for tracing", Obstacle::Kernel));
    }
    for (what, known) in [
        ("kmem_cache.size", btf.cache_size),
        ("kmem_cache.object_size", btf.cache_object_size),
        ("kmem_cache.name", btf.cache_name),
    ] {
        if known.is_none() {
            return Some((format!("this kernel's type information lacks {what}"), REPORT, Obstacle::Kernel));
        }
    }
    if facts.capabilities.is_some_and(|capabilities| !capabilities.allow_tracing()) {
        let reason = "this process has not CAP_BPF and CAP_PERFMON";
        return Some((reason.into(), NEED_CAPABILITIES, Obstacle::Permission));
    }
    None
}

/// The first thing that the page lookup needs and this kernel's types do not tell.
fn missing_for_lookup(btf: &BtfFacts) -> Option<&'static str> {
    let needs_page_type = matches!(btf.slab_mark, Some(SlabMark::PageType(_)));
    [
        ("sizeof(struct page)", btf.page_struct_bytes.is_some()),
        ("page.compound_head", btf.page_head.is_some()),
        ("page.flags", btf.page_flags.is_some()),
        ("page.page_type", btf.page_type.is_some() || !needs_page_type),
        ("PGTY_slab or PG_slab", btf.slab_mark.is_some()),
        ("PG_head", btf.head_flag_bit.is_some()),
        ("the order of a compound page", btf.compound_order.is_some()),
        ("slab.slab_cache", btf.slab_cache.is_some()),
        ("slab.freelist", btf.slab_freelist.is_some()),
        ("slab.slab_list", btf.slab_list.is_some()),
        ("kmem_cache.node", btf.cache_node.is_some()),
        ("kmem_cache_node.partial", btf.node_partial.is_some()),
    ]
    .into_iter()
    .find_map(|(what, known)| (!known).then_some(what))
}

fn config_of(facts: &HostFacts, btf: &BtfFacts, options: &PlanOptions) -> Config {
    let offset = |fact: Option<u32>| fact.unwrap_or(ABSENT);
    let (mark, slab_type, slab_flag_bit) = match btf.slab_mark {
        Some(SlabMark::PageType(value)) => (slab_mark::PAGE_TYPE, value, 0),
        Some(SlabMark::FlagBit(bit)) => (slab_mark::FLAG_BIT, 0, bit),
        None => (0, 0, 0),
    };
    let names_cache = |parameters: &Option<Vec<Parameter>>| {
        u32::from(parameters.as_ref().is_some_and(|parameters| is_cache(parameters.get(2))))
    };
    Config {
        slots_log2: options.slots_per_cpu.checked_next_power_of_two().map_or(31, u32::trailing_zeros),
        page_shift: facts.page_size_bytes.trailing_zeros(),
        page_struct_bytes: offset(btf.page_struct_bytes),
        page_head: offset(btf.page_head),
        head_may_be_mask: u32::from(btf.head_may_be_mask),
        slab_cache: offset(btf.slab_cache),
        slab_freelist: offset(btf.slab_freelist),
        slab_list: offset(btf.slab_list),
        slab_mark: mark,
        page_type: offset(btf.page_type),
        slab_type,
        large_type: offset(btf.large_type),
        page_flags: offset(btf.page_flags),
        slab_flag_bit,
        head_flag_bit: offset(btf.head_flag_bit),
        compound_order: offset(btf.compound_order),
        cache_size: offset(btf.cache_size),
        cache_object_size: offset(btf.cache_object_size),
        cache_name: offset(btf.cache_name),
        cache_node: offset(btf.cache_node),
        node_partial: offset(btf.node_partial),
        alloc_has_cache: names_cache(&btf.prototypes.kmem_cache_alloc),
        free_has_cache: names_cache(&btf.prototypes.kmem_cache_free),
        large_fires_twice: u32::from(btf.large_fires_twice),
        atomic: u32::from(!btf.guards_recursion),
        // KMALLOC_MAX_CACHE_SIZE of SLUB (include/linux/slab.h): two pages.
        cache_list: offset(btf.cache_list),
        sheaf_head: offset(btf.sheaf.map(|sheaf| sheaf.head)),
        sheaf_cache: offset(btf.sheaf.map(|sheaf| sheaf.cache)),
        sheaf_size: offset(btf.sheaf.map(|sheaf| sheaf.size)),
        architecture: if facts.architecture == "aarch64" { architecture::AARCH64 } else { architecture::X86_64 },
        largest_class: u32::try_from(facts.page_size_bytes.saturating_mul(2)).unwrap_or(u32::MAX),
    }
}

/// Argument lists that the programs understand (include/trace/events/kmem.h, 5.10 to 7.3).
#[derive(Clone, Copy)]
enum Shape {
    /// call site, object, bytes_req, bytes_alloc, ...
    Kmalloc,
    /// call site, object, then the cache, or bytes_req and bytes_alloc
    CacheAlloc,
    /// call site, object, ...
    Free,
}

impl Shape {
    fn fits(self, parameters: &[Parameter]) -> bool {
        let is_pointer = |index: usize| parameters.get(index).is_some_and(|p| p.type_name.ends_with('*'));
        let is_size = |index: usize| parameters.get(index).is_some_and(|p| p.type_name == "size_t");
        // As GCC calls it and as Clang does.
        let is_site = |p: &Parameter| matches!(&*p.type_name, "long unsigned int" | "unsigned long");
        let begins_right = parameters.first().is_some_and(is_site) && is_pointer(1);
        begins_right
            && match self {
                Self::Kmalloc => is_size(2) && is_size(3),
                Self::CacheAlloc => is_cache(parameters.get(2)) || (is_size(2) && is_size(3)),
                Self::Free => true,
            }
    }
}

fn is_cache(parameter: Option<&Parameter>) -> bool {
    parameter.is_some_and(|p| matches!(&*p.type_name, "struct kmem_cache *" | "const struct kmem_cache *"))
}

fn prototype_text(parameters: &[Parameter]) -> String {
    let words: Vec<_> = parameters.iter().map(|p| format!("{} {}", p.type_name, p.name)).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests;
