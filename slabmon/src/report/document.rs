//! A report as lines and tables of typed cells, and its renderings as text, Markdown and CSV.
//!
//! Text and Markdown are for people. CSV is one long table for programs, a figure a row, exact.

use std::fmt::Write;

use ::csv::{Terminator, WriterBuilder};
use unicode_width::UnicodeWidthStr;

use super::{
    table::{Align, render, safe},
    top::percent,
    units::{UNKNOWN, bytes, signed_bytes},
};

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name from the kernel, or words.
    Text(String),
    /// A number of things.
    Count(Option<u64>),
    /// Bytes, with a unit for people.
    Bytes(Option<u64>),
    /// Bytes, to the last one also for people: sizes of objects.
    Exact(Option<u64>),
    /// Bytes with a sign.
    Change(Option<i64>),
    /// A change of a number.
    Signed(Option<i64>),
    /// 0 to 1; a percentage for people.
    Share(Option<f64>),
    /// Any other number, with two digits.
    Number(Option<f64>),
}

impl Cell {
    fn for_people(&self) -> String {
        let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        match self {
            Self::Text(text) => safe(text),
            Self::Count(value) | Self::Exact(value) => known(value.map(|value| value.to_string())),
            Self::Bytes(value) => known(value.map(bytes)),
            Self::Change(value) => known(value.map(|value| signed_bytes(value as f64))),
            Self::Signed(value) => known(value.map(|value| if value == 0 { "0".into() } else { format!("{value:+}") })),
            Self::Share(value) => known(value.map(percent)),
            Self::Number(value) => known(value.map(|value| format!("{value:.2}"))),
        }
    }

    fn for_programs(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Count(value) | Self::Bytes(value) | Self::Exact(value) => {
                value.map(|value| value.to_string()).unwrap_or_default()
            }
            Self::Change(value) | Self::Signed(value) => value.map(|value| value.to_string()).unwrap_or_default(),
            Self::Share(value) | Self::Number(value) => value.map(|value| value.to_string()).unwrap_or_default(),
        }
    }

    fn align(&self) -> Align {
        if matches!(self, Self::Text(_)) { Align::Left } else { Align::Right }
    }
}

/// A column: its title for people, its name for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// For people.
    pub title: &'static str,
    /// For programs, with its unit.
    pub field: &'static str,
}

/// Part of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Name of the section, for programs.
    pub section: &'static str,
    /// What is told, for people.
    pub title: String,
    /// Sentences above the table; for people only, as programs find the figures elsewhere.
    pub lines: Vec<String>,
    /// The table's columns; the first is the row's name.
    pub columns: Vec<Column>,
    /// The table's rows.
    pub rows: Vec<Vec<Cell>>,
    /// Sentences below the table.
    pub notes: Vec<String>,
    /// What the sentences say, for programs: name, field, value.
    pub figures: Vec<(String, &'static str, String)>,
    /// Whether the title stands in the table's first column rather than above it: a line less, in an overview.
    pub is_compact: bool,
}

impl Block {
    /// A block without a table.
    pub fn new(section: &'static str, title: impl Into<String>) -> Self {
        Self { section, title: title.into(), ..Self::default() }
    }

    /// Sets the columns, as pairs of title and field.
    #[must_use]
    pub fn columns(mut self, columns: &[(&'static str, &'static str)]) -> Self {
        self.columns = columns.iter().map(|&(title, field)| Column { title, field }).collect();
        self
    }

    /// Whether there is nothing in it for anybody.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.rows.is_empty() && self.notes.is_empty() && self.figures.is_empty()
    }

    /// Sentences in place of the table, which stays for programs.
    #[must_use]
    pub fn told(mut self, lines: Vec<String>) -> Self {
        for row in self.rows.drain(..) {
            let Some((name, cells)) = row.split_first() else { continue };
            let name = name.for_programs();
            let figures = cells.iter().zip(self.columns.iter().skip(1));
            self.figures.extend(figures.map(|(cell, column)| (name.clone(), column.field, cell.for_programs())));
        }
        self.lines = lines;
        self
    }

    fn has_table(&self) -> bool {
        !self.columns.is_empty() && !self.rows.is_empty()
    }

    fn title_is_in_table(&self) -> bool {
        self.is_compact && self.has_table() && self.lines.is_empty()
    }

    /// Titles of the columns, the first replaced by that of the block if it is compact.
    fn titles(&self) -> Vec<&str> {
        let mut titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        if let Some(first) = titles.first_mut().filter(|_| self.title_is_in_table()) {
            *first = &self.title;
        }
        titles
    }

    fn alignments(&self) -> Vec<Align> {
        let of = |column: usize| {
            let right = self.rows.iter().filter_map(|row| row.get(column)).any(|cell| cell.align() == Align::Right);
            if right { Align::Right } else { Align::Left }
        };
        (0..self.columns.len()).map(of).collect()
    }

    fn cells(&self) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(Cell::for_people).collect()).collect()
    }
}

/// Columns of a terminal that sentences are broken at.
const TEXT_COLUMNS: usize = 100;

/// For a terminal.
pub fn text(blocks: &[Block]) -> String {
    let mut out = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if !block.title.is_empty() && !block.title_is_in_table() {
            let _ = writeln!(out, "{}", safe(&block.title));
        }
        block.lines.iter().for_each(|line| wrap(&mut out, &safe(line)));
        if block.has_table() {
            let titles: Vec<String> = block.titles().into_iter().map(safe).collect();
            let header: Vec<_> = titles.iter().map(String::as_str).zip(block.alignments()).collect();
            out.push_str(&render(&header, &block.cells()));
        }
        block.notes.iter().for_each(|note| wrap(&mut out, &safe(note)));
    }
    out
}

/// Writes a sentence in lines of at most [`TEXT_COLUMNS`], the further ones indented four more than the first. A word that is
/// too long stays whole.
fn wrap(out: &mut String, sentence: &str) {
    let text = sentence.trim_start();
    let indent = sentence.len() - text.len();
    let mut width = indent;
    out.push_str(&" ".repeat(indent));
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 && width + 1 + word.width() > TEXT_COLUMNS {
            width = indent + 4;
            let _ = write!(out, "\n{}", " ".repeat(width));
        } else if index > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.width();
    }
    out.push('\n');
}

/// For a mail, an issue or a commit message.
pub fn markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if !block.title.is_empty() {
            let _ = writeln!(out, "## {}\n", escape_markdown(&safe(&block.title)));
        }
        paragraphs(&mut out, &block.lines);
        if block.has_table() && !block.lines.is_empty() {
            out.push('\n');
        }
        if block.has_table() {
            let titles: Vec<_> = block.columns.iter().map(|column| column.title).collect();
            let _ = writeln!(out, "| {} |", titles.join(" | "));
            let rules: Vec<_> =
                block.alignments().iter().map(|align| if *align == Align::Right { "---:" } else { "---" }).collect();
            let _ = writeln!(out, "| {} |", rules.join(" | "));
            for row in block.cells() {
                let cells: Vec<_> = row.iter().map(|cell| escape_markdown(cell)).collect();
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
        }
        if (block.has_table() || !block.lines.is_empty()) && !block.notes.is_empty() {
            out.push('\n');
        }
        paragraphs(&mut out, &block.notes);
    }
    out
}

fn paragraphs(out: &mut String, lines: &[String]) {
    for (index, line) in lines.iter().enumerate() {
        let separator = if index + 1 < lines.len() { "  \n" } else { "\n" };
        let _ = write!(out, "{}{separator}", escape_markdown(&safe(line)));
    }
}

/// Nothing in a name is markup or HTML.
fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

/// For programs: `section,name,field,value`, an unknown value empty; lines end in `\n`.
///
/// # Errors
/// What the writer says; it writes to memory.
pub fn csv(blocks: &[Block]) -> Result<String, ::csv::Error> {
    let mut writer = WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(Vec::new());
    writer.write_record(["section", "name", "field", "value"])?;
    for block in blocks {
        for (name, field, value) in &block.figures {
            writer.write_record([block.section, name, field, value])?;
        }
        for row in &block.rows {
            let Some((name, figures)) = row.split_first() else { continue };
            for (cell, column) in figures.iter().zip(block.columns.iter().skip(1)) {
                writer.write_record([block.section, &name.for_programs(), column.field, &cell.for_programs()])?;
            }
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    // Only UTF-8 went in.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn example() -> Vec<Block> {
        let mut block = Block::new("rank", "most *held*").columns(&[("CACHE", "cache"), ("HELD", "held_bytes")]);
        block.rows.push(vec![Cell::Text("a|b<i>".to_owned()), Cell::Bytes(Some(2048))]);
        block.rows.push(vec![Cell::Text("x\u{1b}[2J,y".to_owned()), Cell::Bytes(None)]);
        block.notes.push("a note".to_owned());
        vec![block]
    }

    #[test]
    fn text_is_safe_for_a_terminal_and_an_unknown_is_a_dash() {
        let expected = "most *held*\nCACHE            HELD\na|b<i>        2.0 KiB\nx\\u{1b}[2J,y        -\na note\n";
        assert_eq!(text(&example()), expected);
    }

    #[test]
    fn a_long_sentence_is_broken_between_words_and_keeps_its_indent() {
        let note = format!("  {}", vec!["word"; 30].join(" "));
        let text = text(&[Block { notes: vec![note.clone()], ..Block::new("x", "") }]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.len() <= TEXT_COLUMNS) && lines[0].starts_with("  word"));
        assert!(lines[1].starts_with("      word"));
        assert_eq!(text.split_whitespace().count(), 30);
    }

    #[test]
    fn a_table_that_is_told_stays_for_programs() {
        let block = example().remove(0).told(vec!["two kibibytes".to_owned()]);
        assert_eq!(text(std::slice::from_ref(&block)), "most *held*\ntwo kibibytes\na note\n");
        assert_eq!(csv(&[block]).unwrap(), csv(&example()).unwrap());
    }

    #[test]
    fn markdown_lets_no_name_be_markup() {
        let text = markdown(&example());
        assert!(text.starts_with("## most \\*held\\*\n\n| CACHE | HELD |\n| --- | ---: |\n"), "{text}");
        assert!(text.contains("| a\\|b&lt;i&gt; | 2.0 KiB |"), "{text}");
        assert!(text.ends_with("\n\na note\n"), "{text:?}");
    }

    #[test]
    fn csv_has_exact_numbers_and_names_and_an_unknown_is_empty() {
        let expected = "section,name,field,value\nrank,a|b<i>,held_bytes,2048\nrank,\"x\u{1b}[2J,y\",held_bytes,\n";
        assert_eq!(csv(&example()).unwrap(), expected);
    }
}
