//! Operations that allocate, free again and leave nothing behind.

use std::{
    fs,
    io::{self, Read},
    os::fd::AsRawFd,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use memmap2::MmapMut;
use nix::sys::{
    socket::{ControlMessage, MsgFlags, UnixCredentials, sendmsg},
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};

use crate::{LoadError, failed};

/// Bytes that one control message with credentials takes: a header of 16, 12 of text, rounded up to 8 (cmsg(3)).
pub const CONTROL_MESSAGE_BYTES: usize = 32;

/// Sends `count` datagrams with `control_bytes` of control data each, and receives them.
///
/// Above 36 bytes of control data the kernel takes a kmalloc of just that size for the time of the call (net/socket.c
/// `____sys_sendmsg`, `sock_kmalloc`). 12,000 bytes are more than the largest class: a large kmalloc, and one whose size
/// is known only at run time.
///
/// # Errors
/// [`LoadError::Argument`] where `control_bytes` is no multiple of [`CONTROL_MESSAGE_BYTES`] or 0; [`LoadError::Make`] when it is
/// above `/proc/sys/net/core/optmem_max`.
pub fn control_data(count: usize, control_bytes: usize) -> Result<(), LoadError> {
    const WHAT: &str = "datagrams with control data";
    const LIMIT: &str = "see /proc/sys/net/core/optmem_max";
    if control_bytes == 0 || !control_bytes.is_multiple_of(CONTROL_MESSAGE_BYTES) {
        return Err(LoadError::Argument {
            argument: "control_bytes",
            value: control_bytes,
            rule: "control data comes in messages of 32 bytes",
        });
    }
    let (sender, receiver) = UnixDatagram::pair().map_err(failed("datagram sockets", 0, 1, "see `ulimit -n`"))?;
    let credentials = UnixCredentials::new();
    let control = vec![ControlMessage::ScmCredentials(&credentials); control_bytes / CONTROL_MESSAGE_BYTES];
    let text = [io::IoSlice::new(b"c")];
    for index in 0..count {
        sendmsg::<()>(sender.as_raw_fd(), &text, &control, MsgFlags::empty(), None)
            .map_err(io::Error::from)
            .and_then(|_| receiver.recv(&mut [0]))
            .map_err(failed(WHAT, index, count, LIMIT))?;
    }
    Ok(())
}

/// Runs `true` `count` times, one after the other: a process with its `task_struct`, `mm_struct`, `vm_area_struct`s,
/// `signal_cache`, `sighand_cache`, `files_cache`, `pid` and so on comes and goes.
///
/// # Errors
/// [`LoadError::Make`] when no process can be started, or it fails.
pub fn exec(count: usize) -> Result<(), LoadError> {
    for index in 0..count {
        Command::new("true")
            .stdin(Stdio::null())
            .status()
            .and_then(|status| if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) })
            .map_err(failed("processes", index, count, "see `ulimit -u`"))?;
    }
    Ok(())
}

/// Asks for `count` different names in `dir` that are not there. Each leaves a negative `dentry`, which the kernel keeps
/// until memory is wanted or `dir` goes.
///
/// # Errors
/// [`LoadError::Make`] when `dir` cannot be searched, or one of the names exists.
pub fn stat_absent_names(dir: &Path, count: usize) -> Result<(), LoadError> {
    for index in 0..count {
        let outcome = match fs::symlink_metadata(dir.join(format!("absent-{index}"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::symlink_metadata(dir).map(drop),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
        };
        outcome.map_err(failed("absent names", index, count, "the directory must exist"))?;
    }
    Ok(())
}

/// Makes, closes and removes a file in `dir`, `count` times.
///
/// # Errors
/// [`LoadError::Make`] when `dir` cannot be written.
pub fn open_and_close(dir: &Path, count: usize) -> Result<(), LoadError> {
    for index in 0..count {
        tempfile::tempfile_in(dir).map_err(failed("files", index, count, "the directory must be writable"))?;
    }
    Ok(())
}

/// Maps `bytes` of anonymous memory, touches the first byte and gives them back, `count` times.
///
/// # Errors
/// [`LoadError::Make`] when there is no memory.
pub fn map_and_unmap(count: usize, bytes: usize) -> Result<(), LoadError> {
    for index in 0..count {
        let mut map = MmapMut::map_anon(bytes).map_err(failed("mappings", index, count, "see `ulimit -v`"))?;
        if let Some(first) = map.first_mut() {
            *first = 1;
        }
    }
    Ok(())
}

/// Makes, arms, disarms and closes a timerfd, `count` times. The kernel frees its part by `kfree_rcu`, for which no
/// event fires.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files is met.
pub fn timers(count: usize) -> Result<(), LoadError> {
    let in_an_hour = Expiration::OneShot(TimeSpec::from(Duration::from_secs(3600)));
    for index in 0..count {
        TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
            .and_then(|timer| {
                timer.set(in_an_hour, TimerSetTimeFlags::empty())?;
                timer.unset()
            })
            .map_err(io::Error::from)
            .map_err(failed("timerfds", index, count, "see `ulimit -n`"))?;
    }
    Ok(())
}

/// Reads a small sysctl `count` times into a buffer of `buffer_bytes`: the kernel takes as much for the time of the read
/// (fs/proc/proc_sysctl.c, `proc_sys_call_handler`).
///
/// # Errors
/// [`LoadError::Make`] when `/proc/sys` is not there.
pub fn read_sysctl(count: usize, buffer_bytes: usize) -> Result<(), LoadError> {
    let mut buffer = vec![0; buffer_bytes];
    for index in 0..count {
        fs::File::open("/proc/sys/kernel/ostype").and_then(|mut file| file.read(&mut buffer)).map_err(failed(
            "reads of a sysctl",
            index,
            count,
            "/proc must be mounted",
        ))?;
    }
    Ok(())
}

/// The directory that loads with files use when none is given.
#[must_use]
pub fn default_dir() -> PathBuf {
    std::env::temp_dir()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_with_more_control_data_than_the_largest_class_arrive() {
        control_data(20, 12_000).unwrap();
    }

    #[test]
    fn control_data_that_is_no_whole_message_is_refused() {
        for bytes in [0, 33] {
            assert!(matches!(control_data(1, bytes), Err(LoadError::Argument { argument: "control_bytes", .. })));
        }
    }

    #[test]
    fn control_data_above_the_system_s_limit_names_the_limit() {
        let error = control_data(1, 64 << 20).unwrap_err();
        assert!(error.to_string().contains("optmem_max"), "{error}");
    }

    #[test]
    fn processes_run_to_their_end() {
        exec(2).unwrap();
    }

    #[test]
    fn absent_names_stay_absent() {
        let dir = tempfile::tempdir().unwrap();
        stat_absent_names(dir.path(), 50).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_that_exists_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("absent-1"), "").unwrap();
        let error = stat_absent_names(dir.path(), 3).unwrap_err();
        assert!(error.to_string().starts_with("absent names: number 2 of 3"), "{error}");
    }

    #[test]
    fn names_in_a_directory_that_is_not_there_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(stat_absent_names(&dir.path().join("no"), 1).is_err());
    }

    #[test]
    fn opened_files_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        open_and_close(dir.path(), 10).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_is_mapped_and_given_back() {
        map_and_unmap(10, 1 << 16).unwrap();
    }

    #[test]
    fn timers_come_and_go() {
        timers(10).unwrap();
    }
}
