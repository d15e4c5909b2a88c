//! Ring 2: the live kernel, as root. Everything here is held against something slabmon did not write: `perf stat`,
//! `/proc/slabinfo`, `bpftool`, or objects that the test itself makes.
//!
//! Run it by `cargo xtask test --ring 2`: one test at a time, because each counts the whole machine's events.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod attribution;
mod balance;
mod daemon;
mod degraded;
mod objects;
mod perf;
mod privileges;
mod report;
mod slabinfo;
mod support;
