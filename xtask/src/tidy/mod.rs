//! `cargo xtask tidy`: the rules of ARCHITECTURE.md that neither compiler nor clippy checks.

mod links;
mod rules;
mod tokens;

use std::{collections::BTreeSet, fmt, fs};

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    /// File, relative to the repository's top.
    path: String,
    /// Line, from 1.
    line: usize,
    /// What is wrong, and what to do.
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks every file that is committed or about to be.
pub fn run() -> Result<()> {
    let paths = files()?;
    let mut findings = Vec::new();
    for path in &paths {
        let full = workspace::root().join(path);
        let bytes = fs::read(&full).with_context(|| format!("{} cannot be read", full.display()))?;
        // What is no text has no lines to check.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        findings.extend(check(path, &text, &paths));
    }
    if findings.is_empty() {
        println!("{} files are tidy", paths.len());
        return Ok(());
    }
    let lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    bail!("{} findings:\n  {}", lines.len(), lines.join("\n  "))
}

/// All rules on one file.
fn check(path: &str, text: &str, paths: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = rules::check_text(path, text);
    if path.ends_with(".rs") {
        match tokens::read(text) {
            Ok(tokens) => findings.extend(rules::check_rust(path, text, &tokens)),
            Err(line) => findings.push(Finding { path: path.to_owned(), line, message: "is no Rust".to_owned() }),
        }
    }
    if path.ends_with(".md") {
        findings.extend(links::check(path, text, paths));
    }
    findings
}

/// Every file that git knows of or would add, and that is there.
fn files() -> Result<BTreeSet<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = process::output(&mut process::program("git", arguments)).context("tidy asks git for the files")?;
    let there = listed.split('\0').filter(|path| !path.is_empty() && workspace::root().join(path).is_file());
    Ok(there.map(str::to_owned).collect())
}
