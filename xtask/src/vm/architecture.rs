//! The architectures that are tested.

use std::env::consts;

use clap::ValueEnum;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Architecture {
    /// 64-bit x86.
    #[value(name = "x86_64")]
    X86,
    /// 64-bit ARM.
    #[value(name = "aarch64")]
    Arm,
}

impl Architecture {
    /// As `uname -m` and Rust call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// As Debian calls it.
    pub const fn debian_name(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// The folder of its libraries, and the prefix of its compilers, on Debian.
    pub const fn multiarch_name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-linux-gnu",
            Self::Arm => "aarch64-linux-gnu",
        }
    }

    /// The target that Rust builds for.
    pub const fn rust_target(self) -> &'static str {
        match self {
            Self::X86 => "x86_64-unknown-linux-gnu",
            Self::Arm => "aarch64-unknown-linux-gnu",
        }
    }

    /// QEMU's program that emulates it.
    pub const fn emulator(self) -> &'static str {
        match self {
            Self::X86 => "qemu-system-x86_64",
            Self::Arm => "qemu-system-aarch64",
        }
    }

    /// The emulated machine, where there is more than one.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::X86 => "pc",
            Self::Arm => "virt",
        }
    }

    /// The kernel's name of the emulated serial port.
    pub const fn console(self) -> &'static str {
        match self {
            Self::X86 => "ttyS0",
            Self::Arm => "ttyAMA0",
        }
    }

    /// Whether this program runs on it.
    pub fn is_hosts_own(self) -> bool {
        consts::ARCH == self.name()
    }
}
