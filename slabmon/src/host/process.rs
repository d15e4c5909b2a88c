//! This process as the kernel accounts for it: the figures behind the `process_*` metrics (proc(5)).

use std::{
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use rustix::fs::{Dir, Mode, OFlags};

use super::proc_file::{HostFileError, ProcFile, numbered_lines, parse_u64};

/// What this process uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessUsage {
    /// CPU time of all threads, user and kernel, since the start.
    pub cpu_seconds: f64,
    /// File descriptors open now, without the one that counting needs.
    pub open_fds: u64,
    /// The soft limit of open file descriptors; `None` if there is no limit.
    pub max_fds: Option<u64>,
    /// Address space.
    pub virtual_bytes: u64,
    /// Memory in RAM.
    pub resident_bytes: u64,
    /// Unix time of the start, to a clock tick.
    pub start_time_unix_seconds: f64,
}

/// The files of `/proc/self`, opened once: a process that gave up its privileges may not open all of them again.
#[derive(Debug)]
pub struct ProcessReader {
    stat: ProcFile,
    status: ProcFile,
    limits: ProcFile,
    fd_path: PathBuf,
    boot_time_unix_seconds: u64,
    ticks_per_second: f64,
}

impl ProcessReader {
    /// Opens `<root>/proc/self/{stat,status,limits}` and reads the boot time from `<root>/proc/stat`.
    ///
    /// # Errors
    /// Any [`HostFileError`].
    pub fn open(root: &Path) -> Result<Self, HostFileError> {
        let mut machine = ProcFile::open(root, "proc/stat")?;
        machine.read()?;
        Ok(Self {
            stat: ProcFile::open(root, "proc/self/stat")?,
            status: ProcFile::open(root, "proc/self/status")?,
            limits: ProcFile::open(root, "proc/self/limits")?,
            fd_path: root.join("proc/self/fd"),
            boot_time_unix_seconds: parse_boot_time(machine.path(), machine.text())?,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
        })
    }

    /// Reads the files anew.
    ///
    /// # Errors
    /// Any [`HostFileError`].
    pub fn read(&mut self) -> Result<ProcessUsage, HostFileError> {
        self.stat.read()?;
        self.status.read()?;
        self.limits.read()?;
        let ticks = parse_ticks(self.stat.path(), self.stat.text())?;
        let memory = parse_memory(self.status.path(), self.status.text())?;
        Ok(ProcessUsage {
            cpu_seconds: ticks.cpu as f64 / self.ticks_per_second,
            open_fds: count_open_fds(&self.fd_path)?,
            max_fds: parse_max_fds(self.limits.path(), self.limits.text())?,
            virtual_bytes: memory.virtual_bytes,
            resident_bytes: memory.resident_bytes,
            start_time_unix_seconds: self.boot_time_unix_seconds as f64 + ticks.start as f64 / self.ticks_per_second,
        })
    }
}

/// Clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Ticks {
    cpu: u64,
    start: u64,
}

/// `utime`, `stime` and `starttime` of `/proc/self/stat`. Errors quote nothing: the line holds addresses.
fn parse_ticks(path: &Path, text: &[u8]) -> Result<Ticks, HostFileError> {
    let malformed = |expected| HostFileError::malformed(path, 1, expected, b"");
    // The second field is the process's name in parentheses, which may hold spaces and parentheses itself.
    let name_end = text.iter().rposition(|byte| *byte == b')').ok_or_else(|| malformed("a name in parentheses"))?;
    // What follows begins with field 3.
    let field = |number: usize, expected| {
        let mut words = text[name_end + 1..].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(number - 3).and_then(parse_u64).ok_or_else(|| malformed(expected))
    };
    let user = field(14, "a number as field 14, utime")?;
    let system = field(15, "a number as field 15, stime")?;
    let start = field(22, "a number as field 22, starttime")?;
    Ok(Ticks { cpu: user.saturating_add(system), start })
}

#[derive(Debug, PartialEq, Eq)]
struct Memory {
    virtual_bytes: u64,
    resident_bytes: u64,
}

/// `VmSize` and `VmRSS` of `/proc/self/status`.
fn parse_memory(path: &Path, text: &[u8]) -> Result<Memory, HostFileError> {
    let bytes = |name: &[u8], expected| {
        let (number, line, value) = numbered_lines(text)
            .find_map(|(number, line)| Some((number, line, line.strip_prefix(name)?)))
            .ok_or_else(|| HostFileError::malformed(path, 1, expected, b""))?;
        value
            .trim_ascii()
            .strip_suffix(b" kB")
            .and_then(parse_u64)
            .and_then(|kib| kib.checked_mul(1024))
            .ok_or_else(|| HostFileError::malformed(path, number, expected, line))
    };
    Ok(Memory {
        virtual_bytes: bytes(b"VmSize:", "a line \"VmSize: N kB\"")?,
        resident_bytes: bytes(b"VmRSS:", "a line \"VmRSS: N kB\"")?,
    })
}

/// The soft limit of `Max open files` of `/proc/self/limits`.
fn parse_max_fds(path: &Path, text: &[u8]) -> Result<Option<u64>, HostFileError> {
    const EXPECTED: &str = "a line \"Max open files\" with a number or \"unlimited\"";
    let (number, line, limits) = numbered_lines(text)
        .find_map(|(number, line)| Some((number, line, line.strip_prefix(b"Max open files")?)))
        .ok_or_else(|| HostFileError::malformed(path, 1, EXPECTED, b""))?;
    match limits.split(u8::is_ascii_whitespace).find(|word| !word.is_empty()) {
        Some(b"unlimited") => Ok(None),
        Some(soft) if let Some(soft) = parse_u64(soft) => Ok(Some(soft)),
        _ => Err(HostFileError::malformed(path, number, EXPECTED, line)),
    }
}

/// `btime` of `/proc/stat`: Unix time of the boot, seconds.
fn parse_boot_time(path: &Path, text: &[u8]) -> Result<u64, HostFileError> {
    const EXPECTED: &str = "a line \"btime N\"";
    let (number, line, seconds) = numbered_lines(text)
        .find_map(|(number, line)| Some((number, line, line.strip_prefix(b"btime ")?)))
        .ok_or_else(|| HostFileError::malformed(path, 1, EXPECTED, b""))?;
    parse_u64(seconds.trim_ascii()).ok_or_else(|| HostFileError::malformed(path, number, EXPECTED, line))
}

/// Entries of a directory of file descriptors, but the one that reads it.
fn count_open_fds(path: &Path) -> Result<u64, HostFileError> {
    let open_error = |source: rustix::io::Errno| HostFileError::Open { path: path.to_owned(), source: source.into() };
    let read_error = |source: rustix::io::Errno| HostFileError::Read { path: path.to_owned(), source: source.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(open_error)?;
    let own = directory.as_raw_fd().to_string();
    let mut count = 0;
    for entry in Dir::new(directory).map_err(read_error)? {
        let entry = entry.map_err(read_error)?;
        let name = entry.file_name().to_bytes();
        count += u64::from(name != b"." && name != b".." && name != own.as_bytes());
    }
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        fs,
        time::{SystemTime, UNIX_EPOCH},
    };

    use super::*;

    const STAT: &[u8] = b"42 (a) b (c) S 1 1 1 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 1 0 12345 1000 20 1 2 3\n";

    #[test]
    fn a_process_name_with_parentheses_shifts_no_field() {
        assert_eq!(parse_ticks(Path::new("stat"), STAT).unwrap(), Ticks { cpu: 200, start: 12345 });
    }

    #[test]
    fn a_short_stat_line_is_refused_without_quoting_it() {
        let error = parse_ticks(Path::new("stat"), b"42 (a) S 1 1 1 0 -1 4194560 1 2 3 4 150").unwrap_err();
        assert_eq!(error.to_string(), "stat:1: expected a number as field 15, stime, found \"\"");
        assert!(parse_ticks(Path::new("stat"), b"").is_err());
    }

    #[test]
    fn memory_is_bytes() {
        let memory = parse_memory(Path::new("status"), b"Name:\tx\nVmSize:\t   8 kB\nVmRSS:\t   2 kB\n").unwrap();
        assert_eq!(memory, Memory { virtual_bytes: 8192, resident_bytes: 2048 });
        assert!(parse_memory(Path::new("status"), b"VmSize:\t   8 kB\n").is_err());
        let error = parse_memory(Path::new("status"), b"Name:\tx\nVmSize:\t8 MB\nVmRSS:\t2 kB\n").unwrap_err();
        assert!(error.to_string().starts_with("status:2: expected a line \"VmSize: N kB\""), "{error}");
    }

    #[test]
    fn the_soft_limit_is_the_limit() {
        let limits = |files: &str| {
            let text = format!("Limit          Soft Limit  Hard Limit  Units\nMax open files {files} files\n");
            parse_max_fds(Path::new("limits"), text.as_bytes())
        };
        assert_eq!(limits("1024 524288").unwrap(), Some(1024));
        assert_eq!(limits("unlimited unlimited").unwrap(), None);
        assert!(limits("").is_err());
        assert!(parse_max_fds(Path::new("limits"), b"").is_err());
    }

    #[test]
    fn a_fixture_tree_is_read_as_a_process() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("proc/self");
        fs::create_dir_all(own.join("fd")).unwrap();
        fs::write(root.path().join("proc/stat"), "cpu 1\nbtime 1000\n").unwrap();
        fs::write(own.join("stat"), STAT).unwrap();
        fs::write(own.join("status"), "VmSize: 8 kB\nVmRSS: 2 kB\n").unwrap();
        fs::write(own.join("limits"), "Max open files  10  20  files\n").unwrap();
        for descriptor in ["100000", "100001", "100002"] {
            fs::write(own.join("fd").join(descriptor), "").unwrap();
        }
        let usage = ProcessReader::open(root.path()).unwrap().read().unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let expected = ProcessUsage {
            cpu_seconds: 200.0 / ticks,
            open_fds: 3,
            max_fds: Some(10),
            virtual_bytes: 8192,
            resident_bytes: 2048,
            start_time_unix_seconds: 1000.0 + 12345.0 / ticks,
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn a_missing_boot_time_is_named() {
        let error = parse_boot_time(Path::new("stat"), b"cpu 1\n").unwrap_err().to_string();
        assert!(error.contains("btime"), "{error}");
    }

    #[test]
    fn this_process_started_before_now_and_uses_memory() {
        let mut reader = ProcessReader::open(Path::new("/")).unwrap();
        let usage = reader.read().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(usage.start_time_unix_seconds <= now + 1.0 && usage.start_time_unix_seconds > 1e9);
        assert!(usage.resident_bytes > 0 && usage.resident_bytes <= usage.virtual_bytes);
        // The three files that the reader keeps are among them.
        assert!(usage.open_fds >= 3);
        assert!(usage.max_fds.is_none_or(|max| max >= usage.open_fds));
        assert!(reader.read().unwrap().cpu_seconds >= usage.cpu_seconds);
    }
}
