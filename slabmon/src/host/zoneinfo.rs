//! `/proc/zoneinfo`: how many pages of physical memory there are (`zoneinfo_show_print`, mm/vmstat.c).

use std::path::Path;

use super::proc_file::{HostFileError, ProcFile, numbered_lines, parse_u64};

/// Relative to the root.
const PATH: &str = "proc/zoneinfo";

/// Pages of all zones together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zoneinfo {
    /// `present`: physical memory, what was reserved at boot included.
    pub present_pages: u64,
}

impl Zoneinfo {
    /// Reads the file's text; `path` is what errors call the file. Lines that are not used are not looked at.
    ///
    /// # Errors
    /// [`HostFileError::Malformed`] for a used line without a number, and where no zone has a line `present`.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, HostFileError> {
        let mut zones = Self::default();
        let mut is_any = false;
        let mut last_line = 0;
        for (number, line) in numbered_lines(text) {
            last_line = number;
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            if words.next() != Some(b"present") {
                continue;
            }
            let pages = words
                .next()
                .and_then(parse_u64)
                .ok_or_else(|| HostFileError::malformed(path, number, "a number of pages", line))?;
            zones.present_pages = zones.present_pages.saturating_add(pages);
            is_any = true;
        }
        if is_any {
            Ok(zones)
        } else {
            Err(HostFileError::malformed(path, last_line, "a line \"present N\" before the end", b""))
        }
    }
}

/// `/proc/zoneinfo`, opened once.
#[derive(Debug)]
pub struct ZoneinfoReader {
    file: ProcFile,
}

impl ZoneinfoReader {
    /// Opens `<root>/proc/zoneinfo`.
    ///
    /// # Errors
    /// [`HostFileError::Open`].
    pub fn open(root: &Path) -> Result<Self, HostFileError> {
        Ok(Self { file: ProcFile::open(root, PATH)? })
    }

    /// Reads the file anew.
    ///
    /// # Errors
    /// [`HostFileError::Read`] or [`HostFileError::Malformed`].
    pub fn read(&mut self) -> Result<Zoneinfo, HostFileError> {
        self.file.read()?;
        Zoneinfo::parse(self.file.path(), self.file.text())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn zones_add_up_and_other_lines_are_passed_over() {
        let text = "Node 0, zone DMA\n  pages free 5\n        present  10\n        managed  9\n  cpu: 0\n\
                    Node 0, zone Normal\n        present  100\n        managed  90\n";
        let zones = Zoneinfo::parse(Path::new("zoneinfo"), text.as_bytes()).unwrap();
        assert_eq!(zones, Zoneinfo { present_pages: 110 });
    }

    #[test]
    fn a_wrong_line_and_no_zone_at_all_are_named() {
        let parse = |text: &str| Zoneinfo::parse(Path::new("zoneinfo"), text.as_bytes()).unwrap_err().to_string();
        assert!(parse("a\n present x\n").starts_with("zoneinfo:2: expected a number of pages"));
        assert!(parse("a\n").contains("present N"));
    }

    #[test]
    fn this_machine_has_no_less_memory_than_memtotal_says() {
        let zones = ZoneinfoReader::open(Path::new("/")).unwrap().read().unwrap();
        let meminfo = super::super::meminfo::MeminfoReader::open(Path::new("/")).unwrap().read().unwrap();
        let present_bytes = zones.present_pages * super::super::machine::page_size_bytes();
        assert!(present_bytes >= meminfo.total_bytes);
    }
}
