//! Pure arithmetic over what was read: no I/O, no clock.

pub mod sample;
pub mod snapshot;
