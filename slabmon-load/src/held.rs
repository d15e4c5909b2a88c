//! Objects that stay until their guard is dropped.
//!
//! Each function's text lists the kernel objects that one item makes, as counted on 6.18 (64-bit). The names of their
//! caches differ between kernels and through merging, so tests resolve aliases; security modules add objects of their
//! own (`lsm_file_cache`, `lsm_inode_cache`).

use std::{
    fs::File,
    io::{self, PipeReader, PipeWriter},
    os::unix::net::UnixStream,
    path::Path,
};

use memmap2::{Mmap, MmapMut};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags},
    eventfd::{EfdFlags, EventFd},
    timerfd::{ClockId, TimerFd, TimerFlags},
};

use crate::{LoadError, failed};

const FILES_LIMIT: &str = "see `ulimit -n` and /proc/sys/fs/file-max";
const MAPS_LIMIT: &str = "see /proc/sys/vm/max_map_count";

/// Items that are held until this is dropped.
#[derive(Debug)]
#[must_use = "the objects go as soon as this is dropped"]
pub struct Held<T> {
    items: Vec<T>,
}

impl<T> Held<T> {
    /// Calls `make` for each of `count` items; at the first failure the ones made before are given back.
    fn make(
        what: &'static str,
        limit: &'static str,
        count: usize,
        mut make: impl FnMut(usize) -> io::Result<T>,
    ) -> Result<Self, LoadError> {
        let items = (0..count)
            .map(|index| make(index).map_err(failed(what, index, count, limit)))
            .collect::<Result<Vec<T>, LoadError>>()?;
        Ok(Self { items })
    }

    /// The items.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Makes `count` pipes.
///
/// One pipe (fs/pipe.c): a `pipe_inode_info` (kmalloc, accounted), its array of 16 `pipe_buffer` of 40 bytes (kmalloc,
/// accounted, class 1024), one `inode_cache`, one `dentry`, two `filp`.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files or on the user's pipe pages is met.
pub fn pipes(count: usize) -> Result<Held<(PipeReader, PipeWriter)>, LoadError> {
    Held::make("pipes", FILES_LIMIT, count, |_| io::pipe())
}

/// Makes `count` pairs of connected unix stream sockets.
///
/// One pair (net/unix/af_unix.c): two each of `UNIX-STREAM` (`UNIX` before 5.15), `sock_inode_cache`, `dentry`, `filp`.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files is met.
pub fn socketpairs(count: usize) -> Result<Held<(UnixStream, UnixStream)>, LoadError> {
    Held::make("socket pairs", FILES_LIMIT, count, |_| UnixStream::pair())
}

/// Makes `count` eventfds.
///
/// One (fs/eventfd.c): an `eventfd_ctx` (kmalloc, class 64), a `filp` and a `dentry`; the inode is shared by all.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files is met.
pub fn eventfds(count: usize) -> Result<Held<EventFd>, LoadError> {
    Held::make("eventfds", FILES_LIMIT, count, |_| Ok(EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?))
}

/// Makes `count` timerfds, not armed.
///
/// One (fs/timerfd.c): a `timerfd_ctx` (kmalloc, class 256), a `filp` and a `dentry`; the inode is shared by all.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files is met.
pub fn timerfds(count: usize) -> Result<Held<TimerFd>, LoadError> {
    Held::make("timerfds", FILES_LIMIT, count, |_| Ok(TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?))
}

/// An epoll instance and the eventfd that it watches.
#[derive(Debug)]
pub struct WatchedEvent {
    /// The epoll instance.
    pub epoll: Epoll,
    /// What it watches, with its own file descriptor number as data.
    pub event: EventFd,
}

/// Makes `count` epoll instances, each of which watches an eventfd of its own.
///
/// One (fs/eventpoll.c): an `eventpoll` (kmalloc, class 256), an `eventpoll_epi`, an `eventpoll_pwq`, an `ep_head`, a `filp`
/// and a `dentry`, beside what the eventfd takes.
///
/// # Errors
/// [`LoadError::Make`] when a limit on open files or on watches (`/proc/sys/fs/epoll/max_user_watches`) is met.
pub fn epolls(count: usize) -> Result<Held<WatchedEvent>, LoadError> {
    Held::make("epoll instances", FILES_LIMIT, count, |_| {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        epoll.add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        Ok(WatchedEvent { epoll, event })
    })
}

/// Makes `count` files without a name in `dir`, and keeps them open.
///
/// One: an inode from the file system's own cache (`ext4_inode_cache`, `shmem_inode_cache`, …), a `dentry`, a `filp`.
///
/// # Errors
/// [`LoadError::Make`] when `dir` cannot be written or a limit on open files is met.
pub fn files(dir: &Path, count: usize) -> Result<Held<File>, LoadError> {
    Held::make("files", FILES_LIMIT, count, |_| tempfile::tempfile_in(dir))
}

/// Makes `count` anonymous mappings of `bytes` each, every second one read-only, so that the kernel cannot merge
/// neighbours into one: each is a `vm_area_struct` of its own.
///
/// # Errors
/// [`LoadError::Argument`] for 0 bytes, [`LoadError::Make`] when the limit on mappings is met.
pub fn maps(count: usize, bytes: usize) -> Result<Held<Mapping>, LoadError> {
    if bytes == 0 {
        return Err(LoadError::Argument { argument: "bytes", value: bytes, rule: "a mapping needs at least 1" });
    }
    Held::make("mappings", MAPS_LIMIT, count, |index| {
        let writable = MmapMut::map_anon(bytes)?;
        Ok(if index % 2 == 0 { Mapping::Writable(writable) } else { Mapping::ReadOnly(writable.make_read_only()?) })
    })
}

/// One anonymous mapping.
#[derive(Debug)]
pub enum Mapping {
    /// Read and write.
    Writable(MmapMut),
    /// Read only.
    ReadOnly(Mmap),
}

impl Mapping {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Writable(map) => map,
            Self::ReadOnly(map) => map,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::{
        fs,
        io::{Read, Write},
        os::unix::fs::MetadataExt,
    };

    use nix::sys::epoll::EpollTimeout;

    use super::*;

    #[test]
    fn each_pipe_carries_its_own_bytes() {
        let mut pipes = pipes(3).unwrap();
        assert_eq!(pipes.len(), 3);
        for (index, (_, writer)) in pipes.items.iter_mut().enumerate() {
            writer.write_all(&[u8::try_from(index).unwrap()]).unwrap();
        }
        for (index, (reader, _)) in pipes.items.iter_mut().enumerate() {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), index);
        }
    }

    #[test]
    fn each_socket_of_a_pair_hears_the_other() {
        let pairs = socketpairs(2).unwrap();
        assert_eq!(pairs.len(), 2);
        for (left, right) in pairs.items() {
            (&*left).write_all(b"x").unwrap();
            let mut byte = [0];
            (&*right).read_exact(&mut byte).unwrap();
            assert_eq!(&byte, b"x");
        }
    }

    #[test]
    fn an_eventfd_gives_back_what_was_added() {
        let events = eventfds(2).unwrap();
        assert_eq!(events.len(), 2);
        for event in events.items() {
            event.write(7).unwrap();
            assert_eq!(event.read().unwrap(), 7);
        }
    }

    #[test]
    fn a_timerfd_is_not_armed() {
        let timers = timerfds(2).unwrap();
        assert_eq!(timers.len(), 2);
        for timer in timers.items() {
            assert!(timer.get().unwrap().is_none());
        }
    }

    #[test]
    fn an_epoll_reports_the_event_that_it_watches() {
        let epolls = epolls(2).unwrap();
        assert_eq!(epolls.len(), 2);
        for watched in epolls.items() {
            let mut ready = [EpollEvent::empty()];
            assert_eq!(watched.epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap(), 0);
            watched.event.write(1).unwrap();
            assert_eq!(watched.epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap(), 1);
        }
    }

    #[test]
    fn files_are_distinct_and_leave_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), 4).unwrap();
        let mut inodes: Vec<u64> = files.items().iter().map(|file| file.metadata().unwrap().ino()).collect();
        inodes.sort_unstable();
        inodes.dedup();
        assert_eq!(inodes.len(), 4);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let error = files(&dir.path().join("absent"), 2).unwrap_err();
        assert!(error.to_string().starts_with("files: number 1 of 2 failed: "), "{error}");
    }

    #[test]
    fn each_mapping_is_an_area_of_its_own() {
        let maps = maps(10, 4096).unwrap();
        let areas = fs::read_to_string("/proc/self/maps").unwrap();
        let starts: Vec<usize> =
            areas.lines().map(|line| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()).collect();
        // The first and the last may have been merged with a neighbour that was there before.
        for mapping in &maps.items()[1..9] {
            let start = mapping.bytes().as_ptr() as usize;
            assert!(starts.contains(&start), "a mapping was merged:\n{areas}");
        }
    }

    #[test]
    fn an_empty_mapping_is_refused() {
        let error = maps(1, 0).unwrap_err();
        assert_eq!(error.to_string(), "bytes is 0, but a mapping needs at least 1");
    }
}
