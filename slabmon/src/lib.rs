//! slabmon: where the Linux kernel's slab memory goes and who takes it, live.
//!
//! The folder layout is the data path: [`host`] and `probe` read, [`model`] derives, `metrics`, `http` and `report` render.
//! `ARCHITECTURE.md` says who may use whom.

pub mod host;
pub mod model;
pub mod plan;
