//! slabmon: where the Linux kernel's slab memory goes and who takes it, live.
//!
//! `ARCHITECTURE.md` says who may use whom.

pub mod cli;
pub mod config;
pub mod host;
pub mod http;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod probe;
pub mod report;
