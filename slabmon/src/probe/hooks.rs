//! Programs on functions that fire no event; each is one that the kernel may refuse without anything else being lost.

use aya::{
    Btf, Ebpf,
    programs::{FEntry, FExit, KProbe, Program, ProgramError},
};

use super::load::{LoadError, program_error};
use crate::plan::{Hook, HookKind};

/// Loads and attaches one hook.
pub fn attach(ebpf: &mut Ebpf, hook: Hook, btf: Option<&Btf>) -> Result<(), LoadError> {
    let missing = || LoadError::Missing(hook.program);
    let failed = |error: ProgramError| program_error(hook.program, &error);
    let untyped = || LoadError::Program {
        program: hook.program,
        reason: "the kernel's type information could not be parsed".into(),
        permission: false,
    };
    let program = ebpf.program_mut(hook.program).ok_or_else(missing)?;
    match hook.kind {
        HookKind::Fentry => {
            let program: &mut FEntry = program.try_into().map_err(failed)?;
            program.load(hook.function, btf.ok_or_else(untyped)?).map_err(failed)?;
            program.attach().map(drop).or_else(|error| unload(program.unload(), failed(error)))
        }
        HookKind::Fexit => {
            let program: &mut FExit = program.try_into().map_err(failed)?;
            program.load(hook.function, btf.ok_or_else(untyped)?).map_err(failed)?;
            program.attach().map(drop).or_else(|error| unload(program.unload(), failed(error)))
        }
        // The object says which of the two a program is.
        HookKind::Kprobe | HookKind::Kretprobe => {
            let program: &mut KProbe = program.try_into().map_err(failed)?;
            program.load().map_err(failed)?;
            program.attach(hook.function, 0).map(drop).or_else(|error| unload(program.unload(), failed(error)))
        }
    }
}

/// Detaches and unloads one hook of a way that another hook spoilt.
pub fn detach(ebpf: &mut Ebpf, hook: Hook) {
    let unloaded = match ebpf.program_mut(hook.program) {
        Some(Program::FEntry(program)) => program.unload(),
        Some(Program::FExit(program)) => program.unload(),
        Some(Program::KProbe(program)) => program.unload(),
        _ => Ok(()),
    };
    if let Err(error) = unloaded {
        tracing::warn!(program = hook.program, %error, "could not be unloaded");
    }
}

/// A program that is loaded but cannot be attached is of no use.
fn unload(unloaded: Result<(), ProgramError>, reason: LoadError) -> Result<(), LoadError> {
    if let Err(error) = unloaded {
        tracing::debug!(%error, "a program that could not be attached could not be unloaded either");
    }
    Err(reason)
}
