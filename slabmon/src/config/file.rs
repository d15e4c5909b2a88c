//! The configuration file.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use toml::de::{DeTable, DeValue};

use super::*;

/// The file's text; `None` if it is missing and need not be there.
pub(super) fn read_file(path: &Path, must_exist: bool) -> Result<Option<String>, ConfigError> {
    let unreadable = |problem: String| ConfigError::Unreadable { path: shown(path), problem };
    let mut bytes = Vec::new();
    let result = if path == Path::new("-") {
        io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
    };
    match result {
        Ok(_) if bytes.len() as u64 > MAX_FILE_BYTES => {
            Err(unreadable(format!("longer than {MAX_FILE_BYTES} bytes, which no configuration is")))
        }
        Ok(_) => String::from_utf8(bytes).map(Some).map_err(|error| ConfigError::Syntax {
            path: shown(path),
            line: line_at(error.as_bytes(), error.utf8_error().valid_up_to()),
            problem: "not UTF-8".to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !must_exist => Ok(None),
        Err(error) => Err(unreadable(format!("cannot be read: {error}"))),
    }
}

/// Line of a byte offset, from 1.
fn line_at(text: &[u8], offset: usize) -> usize {
    1 + text.iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// A key of the file and what it is set to.
struct FileEntry<'t> {
    section: &'t str,
    /// `None` for a key that stands outside any table.
    name: Option<&'t str>,
    line: usize,
    value_line: usize,
    value: &'t DeValue<'t>,
    offset: usize,
}

pub(super) fn apply_file(config: &mut Config, path: &Path, text: &str) -> Result<(), ConfigError> {
    let line = |offset: usize| line_at(text.as_bytes(), offset);
    let document = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: shown(path),
        line: line(error.span().map_or(0, |span| span.start)),
        problem: one_line(error.message()),
    })?;
    let mut entries = Vec::new();
    for (section, value) in document.get_ref() {
        let entry = FileEntry {
            section: section.get_ref().as_ref(),
            name: None,
            line: line(section.span().start),
            value_line: line(value.span().start),
            value: value.get_ref(),
            offset: section.span().start,
        };
        match value.get_ref() {
            DeValue::Table(table) if is_section(entry.section) => {
                entries.extend(table.iter().map(|(name, value)| FileEntry {
                    section: entry.section,
                    name: Some(name.get_ref().as_ref()),
                    line: line(name.span().start),
                    value_line: line(value.span().start),
                    value: value.get_ref(),
                    offset: name.span().start,
                }));
            }
            _ => entries.push(entry),
        }
    }
    // The first mistake in the file is the one that is told.
    entries.sort_by_key(|entry| entry.offset);
    for entry in entries {
        let known = SETTINGS
            .iter()
            .find(|setting| setting.section == entry.section && Some(setting.name) == entry.name)
            .ok_or_else(|| unknown_key(path, &entry))?;
        let origin = Origin::File { path: path.to_owned(), line: entry.value_line };
        let given = given_in_file(entry.value, line).map_err(|problem| value_error(known, &origin, problem))?;
        config.apply(known, &given, origin)?;
    }
    Ok(())
}

fn is_section(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.section == name)
}

fn given_in_file(value: &DeValue<'_>, line: impl Fn(usize) -> usize) -> Result<Given, Problem> {
    Ok(match value {
        DeValue::String(text) => Given::Text(text.to_string()),
        DeValue::Integer(integer) => Given::Integer { digits: integer.as_str().to_owned(), radix: integer.radix() },
        DeValue::Boolean(value) => Given::Boolean(*value),
        DeValue::Array(items) => {
            let mut list = Vec::new();
            for item in items.iter() {
                let line = line(item.span().start);
                match item.get_ref() {
                    DeValue::String(text) => list.push((text.to_string(), line)),
                    _ => return Err(Problem { text: "lists hold text in quotes only".to_owned(), line: Some(line) }),
                }
            }
            Given::List(list)
        }
        DeValue::Float(_) => Given::Other("a number with a point"),
        DeValue::Datetime(_) => Given::Other("a date"),
        DeValue::Table(_) => Given::Other("a table"),
    })
}

fn unknown_key(path: &Path, entry: &FileEntry<'_>) -> ConfigError {
    let error = |key: String, hint: String| ConfigError::UnknownKey {
        path: shown(path),
        line: entry.line,
        key: one_line(&key),
        hint,
    };
    let sections = || {
        let mut names: Vec<&str> = SETTINGS.iter().map(|setting| setting.section).collect();
        names.dedup();
        names
    };
    let Some(name) = entry.name else {
        // Outside any table, or a table that there is not.
        if is_section(entry.section) {
            return error(
                entry.section.to_owned(),
                format!("which is a table; write [{}] above its keys", entry.section),
            );
        }
        if !matches!(entry.value, DeValue::Table(_))
            && let Some(setting) = like(entry.section, SETTINGS.iter())
        {
            return error(entry.section.to_owned(), format!("did you mean `{}.{}`?", setting.section, setting.name));
        }
        let hint = match nearest(entry.section, sections(), 1).first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the tables are {}", sections().join(", ")),
        };
        return error(entry.section.to_owned(), hint);
    };
    let here = || SETTINGS.iter().filter(|setting| setting.section == entry.section);
    let hint = if let Some(setting) = like(name, here()) {
        format!("did you mean `{}`?", setting.name)
    } else if let Some(setting) = like(name, SETTINGS.iter()) {
        format!("did you mean `{}.{}`?", setting.section, setting.name)
    } else {
        let names: Vec<&str> = here().map(|setting| setting.name).collect();
        format!("[{}] has {}", entry.section, names.join(", "))
    };
    error(format!("{}.{name}", entry.section), hint)
}
