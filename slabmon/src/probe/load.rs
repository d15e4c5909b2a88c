//! Loading the object and its programs.

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{HashMap, MapData, MapError},
    programs::{ProgramError, RawTracePoint},
};
use slabmon_common::{CONFIG, Config, map};

use super::object::{Plain, object};

/// Why the kernel side is not there.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel did not take the object or one of its maps.
    #[error("the kernel did not take slabmon's BPF object: {0}")]
    Object(#[from] EbpfError),
    /// The object of a development build could not be read.
    #[error("the object that BPF_LOG_OBJECT names: {0}")]
    Read(std::io::Error),
    /// A program or map that the object must have is not in it.
    #[error("slabmon's BPF object has no `{0}`: it was not built from these sources; run `cargo xtask ebpf build`")]
    Missing(&'static str),
    /// The verifier or the attach call refused a program.
    #[error("program `{program}` was refused: {reason}")]
    Program {
        /// Which program.
        program: &'static str,
        /// The kernel's answer, without the verifier's log.
        reason: String,
        /// Whether the kernel answered EPERM or EACCES.
        permission: bool,
    },
    /// A map could not be opened or mapped as memory.
    #[error("map `{map}`: {reason}")]
    Map {
        /// Which map.
        map: &'static str,
        /// What failed.
        reason: String,
    },
}

impl LoadError {
    /// What the operator can do about it.
    pub fn remedy(&self) -> &'static str {
        if self.is_permission() {
            "run as root, or with CAP_BPF and CAP_PERFMON (and, before Linux 5.11, an unlimited RLIMIT_MEMLOCK)"
        } else {
            "report it with the kernel's version and `--log.level=debug` output"
        }
    }

    /// Whether a capability is missing, rather than the kernel unable.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Program { permission, .. } => *permission,
            Self::Object(error) => is_permission_error(error),
            Self::Missing(_) | Self::Map { .. } | Self::Read(_) => false,
        }
    }
}

fn is_permission_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(current) = source {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return matches!(io.raw_os_error(), Some(libc::EPERM | libc::EACCES));
        }
        source = current.source();
    }
    false
}

/// Parses the object, sets what this kernel is like, and creates its maps. Loads no program.
pub fn load_object(config: &Config, cpus: u32, with_untraced: bool) -> Result<Ebpf, LoadError> {
    let config = Plain(*config);
    let object = object().map_err(LoadError::Read)?;
    let slots = cpus.saturating_mul(1 << config.0.slots_log2);
    let ebpf = EbpfLoader::new()
        .btf(None)
        .override_global(CONFIG, &config, true)
        .map_max_entries(map::COUNTERS, slots)
        .map_max_entries(map::UNTRACED, if with_untraced { slots } else { 1 })
        .map_max_entries(map::CPU_RECORDS, cpus)
        .load(&object)?;
    Ok(ebpf)
}

/// The raw tracepoint program of that name.
pub fn raw_tracepoint<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut RawTracePoint, LoadError> {
    ebpf.program_mut(name).and_then(|program| program.try_into().ok()).ok_or(LoadError::Missing(name))
}

/// Has the kernel verify a program.
pub fn load_program(ebpf: &mut Ebpf, name: &'static str) -> Result<(), LoadError> {
    raw_tracepoint(ebpf, name)?.load().map_err(|error| program_error(name, &error))
}

/// Attaches a loaded program for as long as the object lives, or until it is unloaded.
pub fn attach_program(ebpf: &mut Ebpf, name: &'static str, event: &str) -> Result<(), LoadError> {
    raw_tracepoint(ebpf, name)?.attach(event).map(drop).map_err(|error| program_error(name, &error))
}

/// Detaches a program and gives its memory back.
pub fn unload_program(ebpf: &mut Ebpf, name: &'static str) -> Result<(), LoadError> {
    raw_tracepoint(ebpf, name)?.unload().map_err(|error| program_error(name, &error))
}

/// Takes a hash map out of the object.
pub fn take_hash_map<V: Copy + 'static>(
    ebpf: &mut Ebpf,
    name: &'static str,
) -> Result<HashMap<MapData, u64, Plain<V>>, LoadError> {
    let map = ebpf.take_map(name).ok_or(LoadError::Missing(name))?;
    HashMap::try_from(map).map_err(|error: MapError| LoadError::Map { map: name, reason: error.to_string() })
}

/// The kernel's answer in one line. The verifier's log names registers and offsets, which help at debug level only,
/// and may hold addresses: it is never part of the message.
pub fn program_error(program: &'static str, error: &ProgramError) -> LoadError {
    let (reason, permission) = match error {
        // The verifier's own refusal is EACCES; a capability that is missing is EPERM.
        ProgramError::LoadError { io_error, verifier_log } => {
            tracing::debug!(program, log = %last_lines(&verifier_log.to_string()), "the verifier's last words");
            (format!("load: {io_error}"), io_error.raw_os_error() == Some(libc::EPERM))
        }
        ProgramError::SyscallError(syscall) => (
            format!("{}: {}", syscall.call, syscall.io_error),
            matches!(syscall.io_error.raw_os_error(), Some(libc::EPERM | libc::EACCES)),
        ),
        other => (other.to_string(), is_permission_error(other)),
    };
    LoadError::Program { program, reason, permission }
}

/// The end of a verifier log, which says what it objects to; without registers' values, which may be addresses.
fn last_lines(log: &str) -> String {
    let lines: Vec<_> = log.lines().filter(|line| !line.contains("=0x") && !line.contains("imm=")).collect();
    lines.get(lines.len().saturating_sub(6)..).unwrap_or_default().join(" | ")
}

/// Gives the memory back that the parsed type information took; the C library would keep it for later.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
