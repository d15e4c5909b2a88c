//! Snapshots rendered as text and CSV: pure functions, used by the HTTP API and by `slabmon top`.
//!
//! Text is for people: human units, an unknown is `-`, and no byte of a cache name can drive a terminal.
//! CSV is for programs: exact names and numbers, an unknown is an empty field.

use std::{str::FromStr, time::Duration};

use crate::model::query::UnknownWord;

pub mod account;
pub mod cache;
pub mod check;
pub mod client;
pub mod csv;
pub mod diff;
pub mod document;
pub mod sections;
pub mod status;
pub mod table;
pub mod top;
pub mod units;
pub mod words;

/// Which build answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The package's version.
    pub version: &'static str,
    /// The source revision, where the build was told.
    pub revision: Option<&'static str>,
}

/// This build.
pub const BUILD: Build = Build { version: env!("CARGO_PKG_VERSION"), revision: option_env!("SLABMON_REVISION") };

/// What a rendering needs beside the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Which build answers.
    pub build: Build,
    /// How old the snapshot's counters are, by the monotonic clock.
    pub age: Duration,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// JSON.
    Json,
    /// CSV with a header line.
    Csv,
    /// Markdown, of reports only.
    Markdown,
}

impl Format {
    /// The formats of a table, by the names that users write.
    pub const NAMES: &'static [&'static str] = &["text", "json", "csv"];
    /// The formats of a report.
    pub const REPORT_NAMES: &'static [&'static str] = &["text", "json", "csv", "markdown"];

    /// The name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Markdown => "markdown",
        }
    }
}

impl FromStr for Format {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Ok(match word {
            "text" => Self::Text,
            "json" => Self::Json,
            "csv" => Self::Csv,
            "markdown" => Self::Markdown,
            _ => return Err(UnknownWord { given: word.into(), allowed: Self::REPORT_NAMES }),
        })
    }
}
