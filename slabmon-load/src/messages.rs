//! Messages that wait in System V queues: the plainest way to have the kernel make a kmalloc of a chosen size.
#![allow(unsafe_code, reason = "no crate wraps msgget, msgsnd and msgctl safely; they are used in this file only")]

use std::{
    ffi::{c_int, c_long},
    io, ptr,
};

use nix::libc;

use crate::{LoadError, failed};

const LIMIT: &str = "see /proc/sys/kernel/msgmni, msgmnb and msgmax";

/// Bytes of the `struct msg_msg` that the kernel puts before a message's text (ipc/msgutil.c, include/linux/msg.h).
pub const HEADER_BYTES: usize = 48;

/// Largest text that is still one allocation on a machine with pages of 4,096 bytes (`DATALEN_MSG` in ipc/msgutil.c);
/// longer ones go on in further allocations.
pub const LARGEST_TEXT_BYTES: usize = 4096 - HEADER_BYTES;

/// Messages that wait, and the queues that hold them. A process that is killed leaves its queues behind
/// (`ipcrm --all=msg` removes them); any other end removes them.
#[derive(Debug)]
#[must_use = "the messages go as soon as this is dropped"]
pub struct Messages {
    queues: Vec<Queue>,
    count: usize,
    text_bytes: usize,
}

/// Sends `count` messages of `text_bytes` each and leaves them in their queues.
///
/// One message (ipc/msgutil.c `alloc_msg`): one kmalloc of `text_bytes + 48`, accounted; from 6.11 on out of the kernel's
/// own buckets for it (`msg_msg-64` and so on) where those are built in, else from `kmalloc-cg-*`. One queue (ipc/msg.c):
/// a `msg_queue` (kmalloc, accounted, class 256); a queue takes `/proc/sys/kernel/msgmnb` bytes of text.
///
/// # Errors
/// [`LoadError::Argument`] for more than [`LARGEST_TEXT_BYTES`]; [`LoadError::Make`] when there can be no more queues.
pub fn messages(count: usize, text_bytes: usize) -> Result<Messages, LoadError> {
    if text_bytes > LARGEST_TEXT_BYTES {
        return Err(LoadError::Argument {
            argument: "text_bytes",
            value: text_bytes,
            rule: "a message in one allocation has at most 4048",
        });
    }
    let message = Message { kind: 1, text: [b'm'; LARGEST_TEXT_BYTES] };
    let mut messages = Messages { queues: Vec::new(), count: 0, text_bytes };
    while messages.count < count {
        let explain = failed("messages", messages.count, count, LIMIT);
        let sent = messages.fill_a_queue(&message, count - messages.count).map_err(explain)?;
        messages.count += sent;
    }
    Ok(messages)
}

impl Messages {
    /// Makes one more queue and sends until it is full or `wanted` messages wait; says how many.
    fn fill_a_queue(&mut self, message: &Message, wanted: usize) -> io::Result<usize> {
        let queue = Queue::new()?;
        let mut sent = 0;
        while sent < wanted {
            match queue.send(message, self.text_bytes) {
                Ok(()) => sent += 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.queues.push(queue);
        Ok(sent)
    }

    /// How many messages wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many queues hold them.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Bytes that the kernel asks its allocator for, a message.
    #[must_use]
    pub fn requested_bytes(&self) -> usize {
        self.text_bytes + HEADER_BYTES
    }
}

/// What msgsnd(2) takes: a type above 0, then the text.
#[repr(C)]
struct Message {
    kind: c_long,
    text: [u8; LARGEST_TEXT_BYTES],
}

/// A private queue (msgget(2)), removed with its messages when dropped.
#[derive(Debug)]
struct Queue(c_int);

impl Queue {
    fn new() -> io::Result<Self> {
        // SAFETY: msgget takes no pointers.
        let id = unsafe { libc::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        if id < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(id)) }
    }

    /// Sends the first `text_bytes` of the text, or says `WouldBlock` when the queue is full.
    fn send(&self, message: &Message, text_bytes: usize) -> io::Result<()> {
        let text_bytes = text_bytes.min(message.text.len());
        // SAFETY: `message` is a c_long followed by at least `text_bytes` of text, as msgsnd(2) wants, and is only read.
        let outcome = unsafe { libc::msgsnd(self.0, ptr::from_ref(message).cast(), text_bytes, libc::IPC_NOWAIT) };
        if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Nothing to do about a failure: then somebody else has removed the queue already.
        // SAFETY: IPC_RMID ignores the buffer (msgctl(2)).
        unsafe { libc::msgctl(self.0, libc::IPC_RMID, ptr::null_mut()) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    /// Messages and bytes of text in the queue, as /proc/sysvipc/msg (proc(5)) tells; `None` if there is no such queue.
    fn waiting(id: c_int) -> Option<(usize, usize)> {
        let table = fs::read_to_string("/proc/sysvipc/msg").unwrap();
        table.lines().skip(1).find_map(|line| {
            let columns: Vec<usize> = line.split_whitespace().map(|column| column.parse().unwrap_or(0)).collect();
            (columns[1] == usize::try_from(id).unwrap()).then(|| (columns[4], columns[3]))
        })
    }

    #[test]
    fn every_message_waits_with_its_size_until_the_guard_goes() {
        let messages = messages(13, 3000).unwrap();
        assert_eq!((messages.len(), messages.requested_bytes()), (13, 3048));
        assert!(messages.queues() > 1, "13 × 3000 bytes are more than one queue takes by default");
        let held: Vec<(usize, usize)> = messages.queues.iter().map(|queue| waiting(queue.0).unwrap()).collect();
        assert_eq!(held.iter().map(|(count, _)| count).sum::<usize>(), 13);
        assert_eq!(held.iter().map(|(_, bytes)| bytes).sum::<usize>(), 39_000);

        let ids: Vec<c_int> = messages.queues.iter().map(|queue| queue.0).collect();
        drop(messages);
        assert!(ids.into_iter().all(|id| waiting(id).is_none()));
    }

    #[test]
    fn a_message_may_be_empty() {
        let messages = messages(2, 0).unwrap();
        assert_eq!((messages.len(), messages.queues(), messages.requested_bytes()), (2, 1, 48));
    }

    #[test]
    fn a_message_that_needs_two_allocations_is_refused() {
        let error = messages(1, 4049).unwrap_err();
        assert_eq!(error.to_string(), "text_bytes is 4049, but a message in one allocation has at most 4048");
        assert_eq!(messages(1, 4048).unwrap().requested_bytes(), 4096);
    }
}
