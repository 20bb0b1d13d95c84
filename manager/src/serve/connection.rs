//! A connection after its handshake: bytes, who is at the other end, and how long a stranger may stay.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::auth::known_reason;
use crate::identity::Bucket;
use crate::telemetry::ServeMetrics;

/// How long somebody who must go gets to read why.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Calls of one connection in a second, and at once. An agent makes one call in its life; a follower makes those of all who ask it.
const CALLS_PER_SECOND: u32 = 200;
const CALLS_AT_ONCE: u32 = 1_000;

const NEW: u8 = 0;
const KNOWN: u8 = 1;
const REFUSED: u8 = 2;
const EXPELLED: u8 = 3;

/// The other end of a connection; in the extensions of each request.
#[derive(Clone, Debug)]
pub struct PeerInfo {
    address: SocketAddr,
    standing: Arc<AtomicU8>,
    calls: Arc<Mutex<Bucket>>,
    metrics: ServeMetrics,
}

impl PeerInfo {
    /// A socket of both families shows IPv4 as `::ffff:10.0.0.1`, which is the same address by another name.
    fn new(address: SocketAddr, metrics: ServeMetrics) -> Self {
        Self {
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
            standing: Arc::new(AtomicU8::new(NEW)),
            calls: Arc::new(Mutex::new(Bucket::with_burst(CALLS_PER_SECOND, CALLS_AT_ONCE))),
            metrics,
        }
    }

    /// Where it comes from.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A request was authenticated: the connection may stay.
    pub(super) fn known(&self) {
        // Failing means that it was expelled: there is no way back from there.
        let _ = self
            .standing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                (now != EXPELLED).then_some(KNOWN)
            });
    }

    /// Whether one more call is within what a connection may make.
    pub(super) fn may_call(&self, now: Duration) -> bool {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.take(now).is_ok()
    }

    /// Counts a refusal that came when the call had begun already.
    pub fn refused_later(&self, reason: &str) {
        self.metrics.refused(known_reason(reason));
    }

    /// Closes the connection after a moment for last words, however well known it is.
    pub fn expel(&self) {
        self.standing.store(EXPELLED, Ordering::Relaxed);
    }

    /// A request was refused. A known connection stays: one of many callers behind a proxy may have a bad token.
    pub(super) fn refused(&self) {
        // Failing means that it is known, or was refused before.
        let _ = self
            .standing
            .compare_exchange(NEW, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// A TLS connection that ends itself when nobody authenticates on it, or when its peer is expelled.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    peer: PeerInfo,
    deadline: Pin<Box<Sleep>>,
    leaving: bool,
    metrics: ServeMetrics,
    _slot: OwnedSemaphorePermit,
}

impl Connection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        address: SocketAddr,
        slot: OwnedSemaphorePermit,
        stranger: Duration,
        metrics: ServeMetrics,
    ) -> Self {
        metrics.connections.inc();
        Self {
            stream,
            peer: PeerInfo::new(address, metrics.clone()),
            deadline: Box::pin(tokio::time::sleep(stranger)),
            leaving: false,
            metrics,
            _slot: slot,
        }
    }

    /// Fails when the time of somebody who must go is up; also arranges to be asked again then.
    fn poll_welcome(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let standing = self.peer.standing.load(Ordering::Relaxed);
        match standing {
            KNOWN => return Ok(()),
            REFUSED | EXPELLED if !self.leaving => {
                self.leaving = true;
                self.deadline.as_mut().reset(Instant::now() + LAST_WORDS);
            }
            _ => {}
        }
        match self.deadline.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                let (reason, words) = if standing == EXPELLED {
                    ("expelled", "the peer was expelled")
                } else {
                    ("unauthenticated", "nobody authenticated on this connection")
                };
                self.metrics.closed_early(reason);
                Err(io::Error::new(io::ErrorKind::TimedOut, words))
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

impl Connected for Connection {
    type ConnectInfo = PeerInfo;

    fn connect_info(&self) -> PeerInfo {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_welcome(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Here as well: the refusal itself is a write, and starts the time for last words.
        self.poll_welcome(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
