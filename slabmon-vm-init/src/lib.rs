//! What the host (`cargo xtask vm`) and the first process of a test machine say to each other.
//!
//! The host puts [`Orders`] into the machine's file system; the machine answers with [`Report`] lines on its serial
//! console, in between whatever the kernel and the tests print there.

pub mod orders;
pub mod report;

pub use orders::Orders;
pub use report::{Report, Verdict};
