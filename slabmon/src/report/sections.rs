//! Which parts of the report are wanted, and what the user adds to them.

use std::str::FromStr;

use crate::model::{query::UnknownWord, what_if::Wish};

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The sums against the kernel's totals.
    Whole,
    /// Where every byte goes, in total and by cache.
    Waterfall,
    /// The caches by the space of their objects.
    Rank,
    /// The ends of slabs, as the 2007 post counted them.
    Waste,
    /// What debugging adds.
    Debug,
    /// What a change would give back.
    WhatIf,
    /// What `struct page` costs.
    StructPage,
    /// What the numbers mean.
    Verdict,
}

impl Section {
    /// All, in the report's order.
    pub const ALL: [Self; 8] = [
        Self::Whole,
        Self::Waterfall,
        Self::Rank,
        Self::Waste,
        Self::Debug,
        Self::WhatIf,
        Self::StructPage,
        Self::Verdict,
    ];
    /// All, by the names that users write.
    pub const NAMES: &'static [&'static str] =
        &["whole", "waterfall", "rank", "waste", "debug", "what_if", "struct_page", "verdict"];

    /// The name that users write.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Waterfall => "waterfall",
            Self::Rank => "rank",
            Self::Waste => "waste",
            Self::Debug => "debug",
            Self::WhatIf => "what_if",
            Self::StructPage => "struct_page",
            Self::Verdict => "verdict",
        }
    }
}

impl FromStr for Section {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|section| section.as_str() == word)
            .ok_or_else(|| UnknownWord { given: word.into(), allowed: Self::NAMES })
    }
}

/// Largest object that may be asked about, bytes: the largest slab that a kernel makes.
pub const MAX_OBJECT_BYTES: u64 = 1 << 30;
/// Largest slab order that may be asked about.
pub const MAX_ORDER: u32 = 10;

/// Reads a price.
///
/// # Errors
/// What to write instead.
pub fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse::<f64>().ok().filter(|price| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "give a number of your currency for a GiB, such as 3.50".to_owned())
}

/// What the user wants of the report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportOptions {
    /// The sections in full; none is the overview on one screen.
    pub sections: Vec<Section>,
    /// Rows of a table at most; `None` is as many as the section has by itself.
    pub limit: Option<usize>,
    /// Bytes that debugging adds to an object, for files without sysfs.
    pub debug_bytes_per_object: Option<u64>,
    /// Price of a GiB of memory, in the user's currency.
    pub price_per_gib: Option<f64>,
    /// The cache that a wish is about.
    pub cache: Option<String>,
    /// The wish.
    pub wish: Wish,
}
