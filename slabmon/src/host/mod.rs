//! Readers of the machine: `/proc`, `/sys` and the kernel's own type information.
//!
//! Every reader takes a root path, so that tests read fixture trees; every failure is a value with a reason.
