//! Pure arithmetic over what was read: no I/O, no clock.

pub mod births;
pub mod class;
pub mod debug;
pub mod derive;
pub mod diff;
pub mod drift;
pub mod history;
pub mod limits;
pub mod query;
pub mod rank;
pub mod sample;
#[cfg(test)]
mod samples;
pub mod snapshot;
pub mod struct_page;
pub mod verdict;
pub mod waste;
pub mod what_if;
pub mod whole;
