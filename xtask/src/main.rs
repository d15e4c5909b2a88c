//! Builds, checks and tests slabmon: one subcommand a module.
fn main() {}
