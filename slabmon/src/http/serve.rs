//! The server: connections that are slow, idle or many cost a bounded amount of it.
//!
//! `axum::serve` has no time limits, so connections are driven here: HTTP/1.1 only, since the version detection of
//! other servers waits for its first bytes without a limit.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{handlers::router, state::AppState};
use crate::config::ListenAddress;

/// Connections that a listener serves at the same time; later ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;
/// A request's head must be there after this long; an idle connection is closed after it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection is closed after this long, whatever it does.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Requests in flight may take this long after shutdown began.
const GRACE: Duration = Duration::from_secs(3);
/// Pause after accept failed for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Longest request head, bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Headers of a request at most.
const MAX_HEADERS: usize = 64;

/// Opens a listening socket. `:port` means all addresses of IPv6 and IPv4, or of IPv4 on a host without IPv6.
pub async fn bind(address: &ListenAddress) -> io::Result<TcpListener> {
    match *address {
        ListenAddress::Socket(socket) => TcpListener::bind(socket).await,
        ListenAddress::AllAddresses { port } => {
            match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
                }
                result => result,
            }
        }
    }
}

/// Serves until `shutdown`, then lets requests in flight finish for a short while. Never fails once it runs.
pub async fn run(listener: TcpListener, state: AppState, shutdown: CancellationToken) {
    let router = router(state);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let serving = serve_connection(stream, router.clone(), shutdown.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(slot);
                });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::select! {
                    () = shutdown.cancelled() => break,
                    () = sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

/// Errors that say something of the peer and nothing of the listener (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_connection(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    // Answers are written whole; waiting to fill a segment only delays them. Failure costs nothing else.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = timeout(CONNECTION_TIMEOUT, connection.as_mut()) => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await
        }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection failed"),
        Err(_) => tracing::debug!("a connection took too long and was closed"),
    }
}
