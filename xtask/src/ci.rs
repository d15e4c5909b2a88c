//! `cargo xtask ci`: everything, from a machine that has only Rust.

use anyhow::Result;

use crate::{ebpf, setup, suite::Suite, test};

/// Installs what is missing, rebuilds the eBPF object and compares it, and runs all rings.
pub fn run() -> Result<()> {
    setup::run(&setup::Arguments::all())?;
    let mut suite = Suite::default();
    test::first_ring(&mut suite);
    suite.step("ebpf check", ebpf::check::run);
    test::second_ring(&mut suite);
    suite.finish()
}
