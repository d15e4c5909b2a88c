//! The limit of the process that a load runs into first, and how to lift it.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Lifts the soft limit on open files to the hard one (getrlimit(2), `RLIMIT_NOFILE`), and says what it is now.
///
/// # Errors
/// When the limit cannot be read or set.
pub fn raise() -> io::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_on_open_files_is_lifted_to_the_hard_one() {
        let raised = raise().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (raised, raised));
    }
}
