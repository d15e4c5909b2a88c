//! `cargo xtask setup`: installs what the tests and the eBPF build need, as far as it is missing.
//!
//! Written for Debian 12 and what derives from it. Elsewhere it says what to install by hand.

use std::{path::PathBuf, thread, time::Duration};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::{ebpf::toolchain, process, workspace};

/// For what to install.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What it is for.
    #[arg(long, value_enum, default_value = "all")]
    ring: Purpose,
}

impl Arguments {
    /// Everything.
    pub fn all() -> Self {
        Self { ring: Purpose::All }
    }
}

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// The unprivileged tests.
    #[value(name = "1")]
    FirstRing,
    /// The tests on the live kernel.
    #[value(name = "2")]
    SecondRing,
    /// The tests on emulated machines.
    #[value(name = "3")]
    ThirdRing,
    /// Building the eBPF object.
    Ebpf,
    /// All of them.
    All,
}

/// Something to have, and the packages that bring it.
#[derive(Clone, Copy, Debug)]
struct Need {
    purpose: Purpose,
    /// How to see that it is there.
    sign: Sign,
    /// Debian's packages that bring it.
    packages: &'static [&'static str],
    /// What to do where there are no such packages.
    otherwise: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Sign {
    /// A program of this name.
    Program(&'static str),
    /// A file of this name.
    File(&'static str),
}

const NEEDS: &[Need] = &[
    Need {
        purpose: Purpose::FirstRing,
        sign: Sign::Program("promtool"),
        packages: &["prometheus"],
        otherwise: "put promtool, from a Prometheus release, into PATH",
    },
    Need {
        purpose: Purpose::FirstRing,
        sign: Sign::Program("systemd-analyze"),
        packages: &["systemd"],
        otherwise: "put systemd-analyze, from systemd, into PATH",
    },
    Need {
        purpose: Purpose::SecondRing,
        sign: Sign::Program("perf"),
        packages: &["linux-perf"],
        otherwise: "install perf for your kernel (linux-tools, perf)",
    },
    Need {
        purpose: Purpose::SecondRing,
        sign: Sign::Program("bpftool"),
        packages: &["bpftool"],
        otherwise: "install bpftool (linux-tools, bpftool)",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::Program("qemu-system-x86_64"),
        packages: &["qemu-system-x86"],
        otherwise: "install QEMU with the emulation of x86_64 machines",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::Program("qemu-system-aarch64"),
        packages: &["qemu-system-arm"],
        otherwise: "install QEMU with the emulation of aarch64 machines",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::Program("aarch64-linux-gnu-gcc"),
        packages: &["gcc-aarch64-linux-gnu"],
        otherwise: "install a cross compiler for aarch64",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::File("/usr/aarch64-linux-gnu/lib/libc.a"),
        packages: &["libc6-dev-arm64-cross"],
        otherwise: "install the C library for aarch64, with what static linking takes",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::File(toolchain::RUSTC),
        packages: &["rustc-web"],
        otherwise: "rustup target add aarch64-unknown-linux-gnu",
    },
    Need {
        purpose: Purpose::ThirdRing,
        sign: Sign::Program("readelf"),
        packages: &["binutils"],
        otherwise: "install binutils",
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File(toolchain::RUSTC),
        packages: &["rustc-web"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File(toolchain::CARGO),
        packages: &["cargo-web"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File("/usr/lib/rustlib/src/rust/library/core/Cargo.toml"),
        packages: &["rust-web-src"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File("/usr/lib/llvm-22/bin/llvm-config"),
        packages: &["llvm-22-dev"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File(toolchain::LLVM_STRIP),
        packages: &["llvm-22"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
    Need {
        purpose: Purpose::Ebpf,
        sign: Sign::File("/usr/lib/llvm-22/lib/libPolly.a"),
        packages: &["libpolly-22-dev"],
        otherwise: TOOLCHAIN_BY_HAND,
    },
];

const TOOLCHAIN_BY_HAND: &str = "install a nightly Rust with rust-src and LLVM 22 with its headers, and name them in \
     SLABMON_EBPF_RUSTC, SLABMON_EBPF_CARGO and SLABMON_LLVM_STRIP; the committed object is Debian 12's, byte for byte, \
     so `ebpf check` passes there only";

const BPF_LINKER_VERSION: &str = "0.13.0";

/// Installs what is missing.
pub fn run(arguments: &Arguments) -> Result<()> {
    let wanted = NEEDS.iter().filter(|need| is_for(need.purpose, arguments.ring));
    // Whoever names another toolchain need not have Debian's.
    let wanted = wanted.filter(|need| need.purpose != Purpose::Ebpf || !toolchain::is_named_by_environment());
    let missing: Vec<Need> = wanted.filter(|need| !is_there(need.sign)).copied().collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
        for need in &missing {
            if !is_there(need.sign) {
                bail!("{} did not bring what was expected of it ({:?})", need.packages.join(" "), need.sign);
            }
        }
    }
    if is_for(Purpose::Ebpf, arguments.ring) {
        install_bpf_linker()?;
    }
    println!("everything that is needed is installed");
    Ok(())
}

fn is_for(purpose: Purpose, asked: Purpose) -> bool {
    asked == Purpose::All || asked == purpose
}

fn is_there(sign: Sign) -> bool {
    match sign {
        Sign::Program(name) => process::find(name).is_some(),
        Sign::File(path) => PathBuf::from(path).exists(),
    }
}

fn install_packages(missing: &[Need]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let by_hand = format!("apt-get update && apt-get install --no-install-recommends {}", packages.join(" "));
    if process::find("apt-get").is_none() {
        bail!("there is no apt-get here; by hand:\n  {}", by_hand_list(missing));
    }
    if !workspace::is_root() && process::output(&mut process::program("sudo", ["-n", "true"])).is_err() {
        bail!("packages are missing and this user may not install them; run as root:\n  {by_hand}");
    }
    apt_twice(&["update"])?;
    let unknown: Vec<Need> =
        missing.iter().filter(|need| !need.packages.iter().all(|name| is_known(name))).copied().collect();
    if !unknown.is_empty() {
        bail!("this system's package lists lack some of what is needed; by hand:\n  {}", by_hand_list(&unknown));
    }
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_twice(&arguments)
}

fn by_hand_list(needs: &[Need]) -> String {
    let mut lines: Vec<String> =
        needs.iter().map(|need| format!("{}: {}", need.packages.join(" "), need.otherwise)).collect();
    lines.dedup();
    lines.join("\n  ")
}

/// Whether apt knows a version of the package that could be installed.
fn is_known(package: &str) -> bool {
    process::output(&mut process::program("apt-cache", ["policy", package])).is_ok_and(|policy| has_candidate(&policy))
}

fn has_candidate(policy: &str) -> bool {
    policy.lines().filter_map(|line| line.trim().strip_prefix("Candidate: ")).any(|version| version != "(none)")
}

/// Runs apt-get, once more if it fails the first time: a mirror may be out of reach for a moment.
fn apt_twice(arguments: &[&str]) -> Result<()> {
    let once = || {
        let words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"].iter().chain(arguments);
        let mut command = if workspace::is_root() {
            process::program("env", words.skip(1))
        } else {
            process::program("sudo", std::iter::once(&"-n").chain(words))
        };
        process::run(command.stdin(std::process::Stdio::null()))
    };
    once().or_else(|error| {
        println!("{error:#}; once more in 5 seconds");
        thread::sleep(Duration::from_secs(5));
        once()
    })
}

/// Builds the linker against Debian's LLVM, unless the right version is there.
fn install_bpf_linker() -> Result<()> {
    let wanted = format!("bpf-linker {BPF_LINKER_VERSION}");
    let found = process::output(process::program("bpf-linker", ["--version"]).env("PATH", toolchain::path()?));
    if found.is_ok_and(|version| version.trim() == wanted) {
        return Ok(());
    }
    let mut command = process::cargo([
        "install",
        "bpf-linker",
        "--version",
        BPF_LINKER_VERSION,
        "--no-default-features",
        "--features",
        "llvm-22",
        "--locked",
        "--force",
    ]);
    // Its files are no part of this workspace's target folder.
    command.env("PATH", toolchain::path()?).env_remove("CARGO_TARGET_DIR");
    process::run(&mut command).context("bpf-linker could not be built")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_without_a_candidate_is_unknown() {
        assert!(has_candidate("bpftool:\n  Installed: (none)\n  Candidate: 7.1.0\n"));
        assert!(!has_candidate("llvm-22-dev:\n  Installed: (none)\n  Candidate: (none)\n"));
        assert!(!has_candidate(""));
    }

    #[test]
    fn what_is_asked_for_is_not_mixed_with_the_rest() {
        assert!(is_for(Purpose::Ebpf, Purpose::All));
        assert!(is_for(Purpose::Ebpf, Purpose::Ebpf));
        assert!(!is_for(Purpose::Ebpf, Purpose::FirstRing));
    }

    #[test]
    fn the_same_advice_is_given_once() {
        let needs: Vec<Need> = NEEDS.iter().filter(|need| need.purpose == Purpose::SecondRing).copied().collect();
        let advice = by_hand_list(&[needs.clone(), needs].concat());
        assert!(advice.starts_with("linux-perf: install perf"), "{advice}");
    }
}
