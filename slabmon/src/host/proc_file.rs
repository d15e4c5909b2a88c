//! A text file of `/proc` that is opened once and read again and again, and the errors of the readers that sit on it.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Far above any file read here; a wrong file (a device, say) must not eat the machine's memory.
const MAX_FILE_BYTES: usize = 64 << 20;
/// Holds `/proc/slabinfo` of a few hundred caches without growing.
const FIRST_BUFFER_BYTES: usize = 64 << 10;
/// How much of an offending text an error quotes.
const QUOTED_CHARS: usize = 80;

/// Why a file of the host could not be used.
#[derive(Debug, thiserror::Error)]
pub enum HostFileError {
    /// Could not be opened.
    #[error("{}: cannot be opened: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Could not be read to its end.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Not what the kernel prints.
    #[error("{}:{line}: expected {expected}, found {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
        /// What stands there, shortened.
        found: String,
    },
}

impl HostFileError {
    pub(super) fn malformed(path: &Path, line: usize, expected: &'static str, found: &[u8]) -> Self {
        Self::Malformed { path: path.to_owned(), line, expected, found: quote(found) }
    }
}

/// The first characters of a text, fit for an error message.
pub(super) fn quote(text: &[u8]) -> String {
    // A character has at most four bytes, so this never cuts into the quoted part.
    let text = String::from_utf8_lossy(text.get(..4 * QUOTED_CHARS).unwrap_or(text));
    match text.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

/// An open file and a buffer that is used again. Reading needs no further privilege once it is open.
#[derive(Debug)]
pub(super) struct ProcFile {
    file: File,
    path: PathBuf,
    buffer: Vec<u8>,
    read_ends: Vec<usize>,
}

impl ProcFile {
    /// Opens `<root>/<relative>`.
    pub(super) fn open(root: &Path, relative: &str) -> Result<Self, HostFileError> {
        let path = root.join(relative);
        match File::open(&path) {
            Ok(file) => Ok(Self::from_file(file, path)),
            Err(source) => Err(HostFileError::Open { path, source }),
        }
    }

    /// Takes a file that is already open; `path` is what errors call it.
    pub(super) fn from_file(file: File, path: PathBuf) -> Self {
        Self { file, path, buffer: Vec::new(), read_ends: Vec::new() }
    }

    /// What errors call the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The whole text of the last read.
    pub(super) fn text(&self) -> &[u8] {
        self.read_ends.last().and_then(|end| self.buffer.get(..*end)).unwrap_or_default()
    }

    /// Where each system call of the last read ended, in bytes from the start.
    pub(super) fn read_ends(&self) -> &[usize] {
        &self.read_ends
    }

    /// Reads the file from its start to its end; [`Self::text`] has the result.
    pub(super) fn read(&mut self) -> Result<(), HostFileError> {
        self.read_from_start().map_err(|source| {
            self.read_ends.clear();
            self.buffer = Vec::new();
            HostFileError::Read { path: self.path.clone(), source }
        })
    }

    fn read_from_start(&mut self) -> io::Result<()> {
        self.read_ends.clear();
        let mut end = 0;
        loop {
            if end == self.buffer.len() {
                if end >= MAX_FILE_BYTES {
                    return Err(io::Error::new(
                        io::ErrorKind::FileTooLarge,
                        format!("more than {MAX_FILE_BYTES} bytes: not a file of /proc"),
                    ));
                }
                self.buffer.resize((2 * end).clamp(FIRST_BUFFER_BYTES, MAX_FILE_BYTES), 0);
            }
            match self.file.read_at(&mut self.buffer[end..], end as u64) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    end += read;
                    self.read_ends.push(end);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A whole number below 2^64 in decimal digits and nothing else.
pub(super) fn parse_u64(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// The lines of a text with their numbers, from 1.
pub(super) fn numbered_lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|byte| *byte == b'\n').zip(1..).map(|(line, number)| (number, line))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_grows_past_the_buffer_is_read_whole_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let long: Vec<u8> = (0..200_000_u32).map(|i| b'a' + (i % 26) as u8).collect();
        std::fs::write(&path, &long).unwrap();
        let mut file = ProcFile::open(directory.path(), "file").unwrap();
        file.read().unwrap();
        assert_eq!(file.text(), long);
        std::fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap().write_all(b"short").unwrap();
        file.read().unwrap();
        assert_eq!(file.text(), b"short");
        std::fs::write(&path, b"").unwrap();
        file.read().unwrap();
        assert_eq!(file.text(), b"");
    }

    #[test]
    fn an_endless_file_is_refused() {
        let mut file = ProcFile::open(Path::new("/"), "dev/zero").unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.starts_with("/dev/zero: cannot be read: more than"), "{error}");
        assert!(file.text().is_empty());
    }

    #[test]
    fn only_digits_below_two_to_the_64_are_a_number() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b"18446744073709551616"[..], b"", b"-1", b"+1", b"1 ", b"0x10", b"1e3"] {
            assert_eq!(parse_u64(wrong), None);
        }
    }

    #[test]
    fn a_long_text_is_quoted_short() {
        assert_eq!(quote("é".repeat(500).as_bytes()), format!("{}...", "é".repeat(80)));
        assert_eq!(quote(b"short"), "short");
    }
}
