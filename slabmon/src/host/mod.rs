//! Readers of the machine: `/proc`, `/sys` and the kernel's own type information.
//!
//! Every reader takes a root path, so that tests read fixture trees; every failure is a value with a reason.

pub mod btf;
pub mod dentry_state;
pub mod facts;
pub mod machine;
pub mod meminfo;
pub mod names;
pub mod proc_file;
pub mod process;
pub mod slab_sysfs;
pub mod slabinfo;
pub mod symbols;
pub mod vmstat;
pub mod zoneinfo;
