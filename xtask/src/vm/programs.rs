//! The programs of this workspace that a test machine runs.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{cross::Cross, image::Image, libraries::Root};
use crate::process;

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
    pub fn build(cross: Option<&Cross>) -> Result<Self> {
        let built = |arguments: &[&str]| built(arguments, cross);
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

    /// Puts them into the file system, with the libraries that they need from `root`.
    pub fn add_to(&self, image: &mut Image, root: &Root) -> Result<()> {
        image.add_program_as("/init", &self.init)?;
        for program in [&self.init, &self.tests].into_iter().chain(&self.others) {
            image.add_program_built(root, program, program)?;
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Built {
    name: String,
    file: PathBuf,
}

fn built(arguments: &[&str], cross: Option<&Cross>) -> Result<Vec<Built>> {
    let mut command = process::cargo(arguments);
    command.args(["--locked", "--release", "--message-format=json-render-diagnostics"]);
    if let Some(cross) = cross {
        cross.set(&mut command);
    }
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
