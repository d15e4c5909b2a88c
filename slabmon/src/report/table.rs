//! Aligned text tables, by what a terminal shows: UTF-8 width, and names that cannot drive it.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

/// Which edge of a column its cells keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Renders rows under a header, two spaces between columns, no space at the end of a line.
///
/// Cells beyond the header's columns are dropped, missing ones are empty.
pub fn render(header: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let empty = String::new();
    let cell = |row: &'_ [String], column: usize| row.get(column).unwrap_or(&empty).clone();
    let widths: Vec<usize> = header
        .iter()
        .enumerate()
        .map(|(column, (title, _))| {
            rows.iter().map(|row| row.get(column).map_or(0, |text| text.width())).fold(title.width(), usize::max)
        })
        .collect();
    let titles: Vec<String> = header.iter().map(|(title, _)| (*title).to_owned()).collect();
    let mut out = String::new();
    for row in std::iter::once(&titles).chain(rows) {
        let mut line = String::new();
        for (column, ((_, align), width)) in header.iter().zip(&widths).enumerate() {
            let text = cell(row, column);
            let padding = " ".repeat(width.saturating_sub(text.width()));
            let separator = if column == 0 { "" } else { "  " };
            let _ = match align {
                Align::Left => write!(line, "{separator}{text}{padding}"),
                Align::Right => write!(line, "{separator}{padding}{text}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Renders `name  value` lines, the values under each other.
pub fn render_pairs(pairs: &[(String, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, value) in pairs {
        let padding = " ".repeat(width.saturating_sub(name.width()));
        let line = format!("{name}{padding}  {value}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Text from the kernel made safe for a terminal and for one line: control characters, and characters that reorder or
/// hide text, become escapes such as `\n` or `\u{1b}`; all else stays as it is.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else if is_invisible(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// Format characters of Unicode: soft hyphen, zero-width, bidirectional controls, tags.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_display_width() {
        let rows =
            vec![vec!["é".to_owned(), "1".to_owned()], vec!["漢字".to_owned(), "22".to_owned()], vec!["a".to_owned()]];
        let text = render(&[("N", Align::Left), ("COUNT", Align::Right)], &rows);
        assert_eq!(text, "N     COUNT\né         1\n漢字     22\na\n");
    }

    #[test]
    fn pairs_line_up_and_lines_do_not_end_in_spaces() {
        let pairs = [("a".to_owned(), "1".to_owned()), ("long".to_owned(), String::new())];
        assert_eq!(render_pairs(&pairs), "a     1\nlong\n");
    }

    #[test]
    fn nothing_in_a_name_drives_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\nc\td\u{7f}\u{9b}"), r"a\u{1b}[2Jb\nc\td\u{7f}\u{9b}");
        assert_eq!(safe("x\u{202e}y\u{200b}z\u{feff}"), r"x\u{202e}y\u{200b}z\u{feff}");
        assert_eq!(safe(r#"ipc "ports" \ é 漢"#), r#"ipc "ports" \ é 漢"#);
    }
}
