//! `/proc/meminfo`: the machine's memory totals (`meminfo_proc_show`, fs/proc/meminfo.c).

use std::path::Path;

use super::proc_file::{HostFileError, ProcFile, numbered_lines, parse_u64};

/// Relative to the root.
const PATH: &str = "proc/meminfo";

/// The lines that slabmon uses, in bytes; the file's `kB` are 1024 bytes. `None` where the kernel has no such line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meminfo {
    /// `MemTotal`; every kernel has it.
    pub total_bytes: u64,
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// `MemAvailable`, since 3.14.
    pub available_bytes: Option<u64>,
    /// `Slab`: the sum of the two below, large kmalloc included.
    pub slab_bytes: Option<u64>,
    /// `SReclaimable`, since 2.6.19.
    pub reclaimable_bytes: Option<u64>,
    /// `SUnreclaim`, since 2.6.19.
    pub unreclaimable_bytes: Option<u64>,
    /// `HighTotal`, 32-bit kernels with high memory, where slabs cannot lie.
    pub high_total_bytes: Option<u64>,
    /// `LowTotal`, 32-bit kernels with high memory.
    pub low_total_bytes: Option<u64>,
}

impl Meminfo {
    /// Reads the file's text; `path` is what errors call the file. Lines that are not used are not looked at.
    ///
    /// # Errors
    /// [`HostFileError::Malformed`] for a used line that is not `Name: N kB`, and where `MemTotal` is missing.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, HostFileError> {
        let mut meminfo = Self::default();
        let mut total = None;
        let mut last_line = 0;
        for (number, line) in numbered_lines(text) {
            last_line = number;
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = line.split_at(colon);
            let field = match name {
                b"MemTotal" => &mut total,
                b"MemFree" => &mut meminfo.free_bytes,
                b"MemAvailable" => &mut meminfo.available_bytes,
                b"Slab" => &mut meminfo.slab_bytes,
                b"SReclaimable" => &mut meminfo.reclaimable_bytes,
                b"SUnreclaim" => &mut meminfo.unreclaimable_bytes,
                b"HighTotal" => &mut meminfo.high_total_bytes,
                b"LowTotal" => &mut meminfo.low_total_bytes,
                _ => continue,
            };
            let bytes = parse_kib(&value[1..])
                .ok_or_else(|| HostFileError::malformed(path, number, "a number of kB below 2^64 bytes", line))?;
            *field = Some(bytes);
        }
        meminfo.total_bytes = total.ok_or_else(|| {
            HostFileError::malformed(path, last_line, "a line \"MemTotal: N kB\" before the end", b"")
        })?;
        Ok(meminfo)
    }
}

/// `  123 kB` in bytes.
fn parse_kib(value: &[u8]) -> Option<u64> {
    parse_u64(value.trim_ascii().strip_suffix(b"kB")?.trim_ascii_end())?.checked_mul(1024)
}

/// `/proc/meminfo`, opened once.
#[derive(Debug)]
pub struct MeminfoReader {
    file: ProcFile,
}

impl MeminfoReader {
    /// Opens `<root>/proc/meminfo`.
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
    pub fn read(&mut self) -> Result<Meminfo, HostFileError> {
        self.file.read()?;
        Meminfo::parse(self.file.path(), self.file.text())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Meminfo, String> {
        Meminfo::parse(Path::new("meminfo"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn used_lines_are_bytes_and_absent_lines_are_unknown() {
        let meminfo = parse("MemTotal:  2 kB\nHugePages_Total:   0\nSlab: 3 kB\nSReclaimable:1 kB\n").unwrap();
        let expected =
            Meminfo { total_bytes: 2048, slab_bytes: Some(3072), reclaimable_bytes: Some(1024), ..Meminfo::default() };
        assert_eq!(meminfo, expected);
    }

    #[test]
    fn a_wrong_line_is_named() {
        assert_eq!(
            parse("MemTotal: 2 kB\nSlab: many kB\n").unwrap_err(),
            "meminfo:2: expected a number of kB below 2^64 bytes, found \"Slab: many kB\""
        );
        for line in ["Slab: 3", "Slab: kB", "Slab:", "Slab: -1 kB", "Slab: 18446744073709551615 kB"] {
            assert!(parse(&format!("MemTotal: 2 kB\n{line}\n")).is_err(), "{line}");
        }
        assert!(parse("").is_err());
        assert!(parse("Slab: 3 kB\n").unwrap_err().contains("MemTotal"));
    }

    #[test]
    fn this_machine_has_slab_and_its_two_parts() {
        let mut reader = MeminfoReader::open(Path::new("/")).unwrap();
        let meminfo = reader.read().unwrap();
        let [slab, reclaimable, unreclaimable] =
            [meminfo.slab_bytes, meminfo.reclaimable_bytes, meminfo.unreclaimable_bytes].map(Option::unwrap);
        assert_eq!(slab, reclaimable + unreclaimable);
        assert!(slab < meminfo.total_bytes && meminfo.available_bytes.unwrap() < meminfo.total_bytes);
        assert_eq!(reader.read().unwrap().total_bytes, meminfo.total_bytes);
    }
}
