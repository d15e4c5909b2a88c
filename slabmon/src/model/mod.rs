//! Pure arithmetic over what was read: no I/O, no clock.

pub mod births;
pub mod class;
pub mod derive;
pub mod drift;
pub mod limits;
pub mod query;
pub mod sample;
pub mod snapshot;
