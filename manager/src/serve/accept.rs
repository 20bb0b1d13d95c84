//! From a listening socket to connections that have finished their handshake.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::Connection;
use crate::telemetry::ServeMetrics;

/// Finished handshakes that wait for the server to take them; it takes each at once.
const QUEUE: usize = 64;
/// A handshake that is younger than this is taken for one at work rather than one that waits for its peer.
const AT_WORK: Duration = Duration::from_millis(500);
/// After the system refused a connection (usually for want of file descriptors): it will not be better right away.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for a handshake.
    pub handshake: Duration,
    /// Time for a first authenticated request after that.
    pub stranger: Duration,
    /// Handshakes at work at once. While there are as many, connections wait in the system's queue: thousands that come at the same moment are
    /// served one after the other, each in full, instead of all at once and none in time.
    pub at_work: usize,
    /// Handshakes under way at once, those that wait for their peer included. One more makes the oldest go.
    pub handshakes: usize,
    /// Connections in all. One more is closed at once.
    pub connections: usize,
}

impl Limits {
    /// Descriptors kept for other uses than gRPC connections.
    const SPARE_FILES: u64 = 256;
    /// Connections when the process may open any number of files.
    const MOST: u64 = 20_000;

    /// Fits the number of connections to the files that this process may open.
    #[must_use]
    pub fn for_this_process() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = files
            .unwrap_or(u64::MAX)
            .saturating_sub(Self::SPARE_FILES)
            .clamp(64, Self::MOST);
        Self {
            connections: usize::try_from(most).unwrap_or(64),
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            stranger: Duration::from_secs(8),
            at_work: 128,
            handshakes: 1024,
            connections: 20_000,
        }
    }
}

/// Accepts until the stream is dropped.
pub(super) fn incoming(
    listener: TcpListener,
    tls: TlsAcceptor,
    limits: Limits,
    metrics: ServeMetrics,
) -> ReceiverStream<std::io::Result<Connection>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let acceptor = Acceptor {
        tls,
        limits,
        metrics,
        sender,
        slots: Arc::new(Semaphore::new(limits.connections)),
        handshakes: JoinSet::new(),
        oldest: VecDeque::new(),
    };
    tokio::spawn(acceptor.run(listener));
    ReceiverStream::new(receiver)
}

struct Acceptor {
    tls: TlsAcceptor,
    limits: Limits,
    metrics: ServeMetrics,
    sender: mpsc::Sender<std::io::Result<Connection>>,
    slots: Arc<Semaphore>,
    handshakes: JoinSet<()>,
    /// The handshakes by age, with their begin. Finished ones stay until they come to the front.
    oldest: VecDeque<(Instant, AbortHandle)>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        loop {
            let rest = self.busy_until();
            // All branches are cancel-safe. Dropping the set at the end ends the handshakes.
            tokio::select! {
                () = self.sender.closed() => return,
                () = sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {}
                Some(_) = self.handshakes.join_next(), if !self.handshakes.is_empty() => {}
                accepted = listener.accept(), if rest.is_none() => match accepted {
                    Ok((stream, peer)) => self.begin(stream, peer),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.metrics.closed_early("overload");
            return;
        };
        self.make_room();
        let handshake = Handshake {
            tls: self.tls.clone(),
            limits: self.limits,
            metrics: self.metrics.clone(),
            sender: self.sender.clone(),
        };
        let handle = self.handshakes.spawn(handshake.run(stream, peer, slot));
        self.oldest.push_back((Instant::now(), handle));
    }

    /// Until when nothing more is accepted, unless a handshake ends before.
    fn busy_until(&mut self) -> Option<Instant> {
        self.drop_finished();
        if self.handshakes.len() < self.limits.at_work.max(1) {
            return None;
        }
        let (oldest, _) = self.oldest.front()?;
        Some(*oldest + AT_WORK).filter(|until| *until > Instant::now())
    }

    fn drop_finished(&mut self) {
        while self
            .oldest
            .front()
            .is_some_and(|(_, handshake)| handshake.is_finished())
        {
            self.oldest.pop_front();
        }
    }

    fn make_room(&mut self) {
        self.drop_finished();
        if self.oldest.len() >= self.limits.handshakes {
            self.oldest.retain(|(_, handshake)| !handshake.is_finished());
        }
        while self.oldest.len() >= self.limits.handshakes.max(1) {
            let Some((_, handshake)) = self.oldest.pop_front() else {
                return;
            };
            handshake.abort();
            self.metrics.closed_early("overload");
        }
    }
}

struct Handshake {
    tls: TlsAcceptor,
    limits: Limits,
    metrics: ServeMetrics,
    sender: mpsc::Sender<std::io::Result<Connection>>,
}

impl Handshake {
    async fn run(self, stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
        // Small messages both ways: waiting to fill packets only costs time. A failure shows on the next read.
        let _ = stream.set_nodelay(true);
        match tokio::time::timeout(self.limits.handshake, self.tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let connection = Connection::new(stream, peer, slot, self.limits.stranger, self.metrics);
                // Nobody takes it any more when the server shuts down.
                let _ = self.sender.send(Ok(connection)).await;
            }
            Ok(Err(error)) => {
                self.metrics.closed_early("handshake_failed");
                tracing::debug!(%peer, %error, "TLS handshake failed");
            }
            Err(_) => {
                self.metrics.closed_early("handshake_timeout");
                tracing::debug!(%peer, "TLS handshake took too long");
            }
        }
    }
}
