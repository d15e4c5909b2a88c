//! slabmon: where the Linux kernel's slab memory goes and who takes it, live.
//!
//! The folder layout is the data path: [`host`] and [`probe`] read, [`model`] derives, [`metrics`], [`http`] and [`report`] render.
//! `ARCHITECTURE.md` says who may use whom.

pub mod app;
pub mod cli;
pub mod config;
mod exposition;
pub mod host;
pub mod http;
mod logging;
pub mod metrics;
pub mod model;
pub mod plan;
mod poll;
mod privileges;
pub mod probe;
pub mod readers;
pub mod report;
pub mod saved;
mod service;
mod shutdown;
