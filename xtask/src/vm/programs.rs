//! The programs that a test machine runs: built here, or this machine's own.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use slabmon_vm_init::{Orders, orders};

use super::{architecture::Architecture, image::Image};
use crate::process;

/// What the tests run beside the daemon: packages util-linux, coreutils, bpftool and linux-perf.
const TOOLS: [&str; 5] = ["setpriv", "mkfifo", "true", "bpftool", "perf"];

/// What cargo built.
#[derive(Debug)]
pub struct Programs {
    /// The first process.
    init: PathBuf,
    /// The tests of the live kernel. They name the daemon by the path it was built at.
    pub tests: PathBuf,
    /// All else that is run.
    others: Vec<PathBuf>,
}

impl Programs {
    /// Builds them: the same tests, by the same words, as the second ring.
    pub fn build(architecture: Architecture) -> Result<Self> {
        if !architecture.is_hosts_own() {
            bail!("{} programs cannot be built here", architecture.name());
        }
        let tests = built(&["test", "--package", "slabmon", "--features", "live", "--test", "live", "--no-run"])?;
        let helpers = built(&["build", "--package", "slabmon-vm-init", "--package", "slabmon-load"])?;
        let named = |among: &[Built], name: &str| {
            let found = among.iter().find(|built| built.name == name).map(|built| built.file.clone());
            found.with_context(|| format!("cargo built no {name}"))
        };
        Ok(Self {
            init: named(&helpers, "slabmon-vm-init")?,
            tests: named(&tests, "live")?,
            others: vec![named(&tests, "slabmon")?, named(&helpers, "slabmon-load")?],
        })
    }

    /// Writes the file system with all of them and the orders in it; `orders` lacks only where programs are.
    pub fn write_image(&self, orders: Orders, file: &Path) -> Result<()> {
        let mut image = Image::default();
        image.add_program(&self.init)?;
        image.add_program_as("/init", &self.init)?;
        image.add_program(&self.tests)?;
        for program in &self.others {
            image.add_program(program)?;
        }
        for name in TOOLS {
            let tool =
                process::find(name).with_context(|| format!("{name} is not installed: run `cargo xtask setup`"))?;
            image.add_program(&tool)?;
        }
        let orders = Orders { programs: image.program_folders(), ..orders };
        image.add_text(orders::PATH, &orders.to_text());
        let output = File::create(file).with_context(|| format!("{}", file.display()))?;
        image.write(BufWriter::new(output))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Built {
    name: String,
    file: PathBuf,
}

fn built(arguments: &[&str]) -> Result<Vec<Built>> {
    let mut command = process::cargo(arguments);
    command.args(["--locked", "--release", "--message-format=json-render-diagnostics"]);
    command.stderr(std::process::Stdio::inherit());
    println!("+ {}", process::line(&command));
    Ok(executables(&process::output(&mut command)?))
}

/// The programs among cargo's messages (The Cargo Book, "External tools").
fn executables(messages: &str) -> Vec<Built> {
    let parsed = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let programs = parsed.filter_map(|message| {
        let file = PathBuf::from(message.get("executable")?.as_str()?);
        Some(Built { name: message.get("target")?.get("name")?.as_str()?.to_owned(), file })
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_that_cargo_says_only_programs_are_taken() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"serde"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"name":"live"},"executable":"/t/live-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executables(messages), [Built { name: "live".into(), file: "/t/live-1".into() }]);
    }
}
