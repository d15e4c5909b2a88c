//! Giving up what is only needed at start.

use caps::{CapSet, Capability, CapsHashSet};

/// Why the capabilities are still there.
#[derive(Debug, thiserror::Error)]
#[error("capabilities could not be dropped: {0}; run with --capabilities.keep=true to go on with them")]
pub struct DropError(#[from] caps::errors::CapsError);

/// Drops every capability of this thread but `keep`, for good. Call it before other threads start: they inherit, and
/// each thread has its own.
pub fn drop_capabilities_except(keep: &[Capability]) -> Result<(), DropError> {
    let keep: CapsHashSet =
        caps::read(None, CapSet::Permitted)?.into_iter().filter(|capability| keep.contains(capability)).collect();
    caps::clear(None, CapSet::Ambient)?;
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    caps::clear(None, CapSet::Inheritable)?;
    Ok(())
}
