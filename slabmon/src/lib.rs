//! slabmon: where the Linux kernel's slab memory goes and who takes it, live.
//!
//! `ARCHITECTURE.md` says who may use whom.

pub mod host;
pub mod metrics;
pub mod model;
