//! Raises the loopback interface: one netlink request and its answer (rtnetlink(7)).

use std::{io, os::fd::AsRawFd};

use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket};

const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST_AND_ACK: u16 = 1 | 4;
const NLMSG_ERROR: u16 = 2;
const IFF_UP: u32 = 1;
/// The loopback interface is the first of a network namespace (net/core/dev.c, `LOOPBACK_IFINDEX`).
const LOOPBACK_INDEX: i32 = 1;
/// `struct nlmsghdr` is 16 bytes, `struct ifinfomsg` too.
const REQUEST_BYTES: u32 = 32;

/// Raises it; the kernel gives it 127.0.0.1 by itself.
///
/// # Errors
/// What the kernel answered.
pub fn raise() -> io::Result<()> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    sendto(socket.as_raw_fd(), &request(), &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    answered(answer.get(..length).unwrap_or_default())
}

/// `struct nlmsghdr`, then `struct ifinfomsg`.
fn request() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(REQUEST_BYTES.to_ne_bytes());
    bytes.extend(RTM_NEWLINK.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_AND_ACK.to_ne_bytes());
    bytes.extend([0; 8]); // sequence number, port
    bytes.extend([0; 4]); // family, padding, device type
    bytes.extend(LOOPBACK_INDEX.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes()); // its new flags
    bytes.extend(IFF_UP.to_ne_bytes()); // which of them change
    bytes
}

/// `struct nlmsgerr` begins with the negative error number, 0 for success.
fn answered(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(io::Error::from_raw_os_error(-error)),
        _ => Err(io::Error::other("the kernel's answer is no acknowledgement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_as_long_as_it_says() {
        assert_eq!(request().len(), REQUEST_BYTES as usize);
    }

    #[test]
    fn an_error_in_the_answer_is_the_error() {
        let mut answer = [0_u8; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert!(answered(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        assert_eq!(answered(&answer).map_err(|error| error.raw_os_error()), Err(Some(1)));
        assert!(answered(&[]).is_err());
    }
}
