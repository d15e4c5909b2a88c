//! Makes kernel objects of known number and size, for slabmon's tests and benchmarks.
//!
//! Two kinds of load:
//!
//! - [`held`] and [`messages`](mod@messages) make N objects and return a guard that keeps them until it is dropped,
//!   so that a test can compare a cache's numbers before, while and after.
//! - [`churn`] does N operations that allocate and free again, and leaves nothing behind.
//!
//! Everything here is bounded by its `count`, needs no privileges for small counts, and says in its error which limit
//! of the system was met. [`limits::raise`] lifts what the process may lift by itself.

pub mod churn;
pub mod held;
pub mod limits;
pub mod messages;
pub mod net;
pub mod workload;

use std::io;

pub use held::Held;
pub use messages::Messages;

/// A load that could not be made in full.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// One of the objects could not be made. Those before it are given back.
    #[error("{what}: number {number} of {wanted} failed: {source} ({limit})")]
    Make {
        /// What was being made, in the plural.
        what: &'static str,
        /// Which one failed, counted from 1.
        number: usize,
        /// How many were asked for.
        wanted: usize,
        /// The limits that most often stand behind such a failure, and how to look at them.
        limit: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An argument that the load cannot be made with.
    #[error("{argument} is {value}, but {rule}")]
    Argument {
        /// Name of the argument.
        argument: &'static str,
        /// Its value.
        value: usize,
        /// What it must fulfil.
        rule: &'static str,
    },
}

/// Adds to a failed system call what was being made.
fn failed(
    what: &'static str,
    index: usize,
    wanted: usize,
    limit: &'static str,
) -> impl FnOnce(io::Error) -> LoadError + use<> {
    move |source| LoadError::Make { what, number: index + 1, wanted, limit, source }
}
