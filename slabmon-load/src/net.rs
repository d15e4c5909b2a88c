//! Traffic over the loopback that leaves nothing behind.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
};

use nix::{
    libc,
    sys::socket::{setsockopt, sockopt::Linger},
};

use crate::{LoadError, failed};

const LOOPBACK: &str = "the loopback interface must be up";

/// Opens and closes `count` TCP connections over the loopback, a byte each way. They are reset at the end, so that none
/// waits for late packets.
///
/// # Errors
/// [`LoadError::Make`] when a connection fails.
pub fn tcp_connections(count: usize) -> Result<(), LoadError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("TCP listeners", 0, 1, LOOPBACK))?;
    let address = listener.local_addr().map_err(failed("TCP listeners", 0, 1, LOOPBACK))?;
    for index in 0..count {
        TcpStream::connect(address)
            .and_then(|client| listener.accept().map(|(server, _)| (client, server)))
            .and_then(|(client, server)| exchange(client, server))
            .map_err(failed("TCP connections", index, count, LOOPBACK))?;
    }
    Ok(())
}

fn exchange(mut client: TcpStream, mut server: TcpStream) -> io::Result<()> {
    let mut byte = [0];
    client.write_all(b"c")?;
    server.read_exact(&mut byte)?;
    server.write_all(&byte)?;
    client.read_exact(&mut byte)?;
    setsockopt(&client, Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?;
    drop(client);
    // Until the reset has arrived.
    match server.read(&mut byte) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sends and receives `count` UDP datagrams over the loopback.
///
/// # Errors
/// [`LoadError::Make`] when a datagram cannot be sent or received.
pub fn udp_datagrams(count: usize) -> Result<(), LoadError> {
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let (sender, receiver) =
        bind().and_then(|sender| Ok((sender, bind()?))).map_err(failed("UDP sockets", 0, 2, LOOPBACK))?;
    let address = receiver.local_addr().map_err(failed("UDP sockets", 1, 2, LOOPBACK))?;
    for index in 0..count {
        sender.send_to(&[0; 512], address).and_then(|_| receiver.recv(&mut [0; 512])).map_err(failed(
            "UDP datagrams",
            index,
            count,
            LOOPBACK,
        ))?;
    }
    Ok(())
}

/// Sends and receives `count` datagrams over a pair of unix sockets.
///
/// # Errors
/// [`LoadError::Make`] when a datagram cannot be sent or received.
pub fn unix_datagrams(count: usize) -> Result<(), LoadError> {
    let (sender, receiver) = UnixDatagram::pair().map_err(failed("datagram sockets", 0, 1, "see `ulimit -n`"))?;
    for index in 0..count {
        sender.send(&[0; 512]).and_then(|_| receiver.recv(&mut [0; 512])).map_err(failed(
            "unix datagrams",
            index,
            count,
            "see /proc/sys/net/unix/max_dgram_qlen",
        ))?;
    }
    Ok(())
}
