//! From a listening socket to connections that have finished their handshake.
//!
//! A connection waits for its peer's first bytes, then for its turn at a handshake, and then has its handshake. Thousands that come at the same
//! moment, as after a failover, so are served one after the other, each in full, instead of all at once and none in time: a handshake that is broken off
//! comes back as another one. Whoever makes us wait holds a place that others can have, and no turn.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::Connection;
use super::turns::Turns;
use crate::telemetry::ServeMetrics;

/// Finished handshakes that wait for the server to take them; it takes each at once.
const QUEUE: usize = 64;
/// A step that takes longer than this is taken for one that waits for its peer rather than for a processor.
const AT_WORK: Duration = Duration::from_millis(500);
/// After the system refused a connection (usually for want of file descriptors): it will not be better right away.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for the first bytes, and again for the handshake.
    pub handshake: Duration,
    /// Longest wait for a turn between the two. An agent gives up after 10 s.
    pub turn: Duration,
    /// Time for a first authenticated request after that.
    pub stranger: Duration,
    /// Handshakes at work at once.
    pub at_work: usize,
    /// Connections that wait for their peer before or in a handshake. One more makes the oldest go.
    pub idle: usize,
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
            turn: Duration::from_secs(8),
            stranger: Duration::from_secs(8),
            at_work: 128,
            idle: 1024,
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
        slots: Arc::new(Semaphore::new(limits.connections)),
        idle: Arc::default(),
        handshakes: JoinSet::new(),
        by_age: VecDeque::new(),
        common: Arc::new(Common {
            turns: Turns::new(limits.at_work),
            tls,
            limits,
            metrics,
            sender,
        }),
    };
    tokio::spawn(acceptor.run(listener));
    ReceiverStream::new(receiver)
}

/// What every handshake needs.
struct Common {
    tls: TlsAcceptor,
    limits: Limits,
    turns: Turns,
    metrics: ServeMetrics,
    sender: mpsc::Sender<std::io::Result<Connection>>,
}

struct Acceptor {
    common: Arc<Common>,
    slots: Arc<Semaphore>,
    /// How many handshakes wait for their peer.
    idle: Arc<AtomicUsize>,
    handshakes: JoinSet<()>,
    /// The handshakes by age. Finished ones stay for a while.
    by_age: VecDeque<(Mark, AbortHandle)>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let common = Arc::clone(&self.common);
        loop {
            // All branches are cancel-safe. Dropping the set at the end ends the handshakes.
            tokio::select! {
                () = common.sender.closed() => return,
                Some(_) = self.handshakes.join_next(), if !self.handshakes.is_empty() => {}
                accepted = listener.accept() => match accepted {
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
            self.common.metrics.closed_early("overload");
            return;
        };
        self.make_room();
        let mark = Mark::new(&self.idle);
        let handshake = Handshake {
            common: Arc::clone(&self.common),
            mark: mark.clone(),
        };
        let handle = self.handshakes.spawn(handshake.run(stream, peer, slot));
        self.by_age.push_back((mark, handle));
    }

    /// Makes the oldest go that wait for their peers, if those are too many.
    fn make_room(&mut self) {
        if self.by_age.len() > 2 * self.handshakes.len() + 64 {
            self.by_age.retain(|(_, handshake)| !handshake.is_finished());
        }
        while self.idle.load(Ordering::Relaxed) >= self.common.limits.idle.max(1) {
            let oldest = self.by_age.iter().position(|(mark, _)| mark.is_idle());
            let Some((mark, handshake)) = oldest.and_then(|index| self.by_age.remove(index)) else {
                return;
            };
            handshake.abort();
            mark.set(false);
            self.common.metrics.closed_early("overload");
        }
    }
}

/// Whether a handshake waits for its peer; it is counted while it does.
#[derive(Clone)]
struct Mark {
    idle: Arc<AtomicBool>,
    all: Arc<AtomicUsize>,
}

impl Mark {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        Self {
            idle: Arc::default(),
            all: Arc::clone(all),
        }
    }

    fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    fn set(&self, idle: bool) {
        match (self.idle.swap(idle, Ordering::Relaxed), idle) {
            (false, true) => self.all.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.all.fetch_sub(1, Ordering::Relaxed),
            _ => return,
        };
    }
}

struct Handshake {
    common: Arc<Common>,
    mark: Mark,
}

/// Why a handshake came to nothing.
enum Failure {
    TimedOut,
    NoTurn,
    Broken(std::io::Error),
}

impl Handshake {
    async fn run(self, stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
        // Small messages both ways: waiting to fill packets only costs time. A failure shows on the next read.
        let _ = stream.set_nodelay(true);
        let Common {
            limits,
            metrics,
            sender,
            ..
        } = &*self.common;
        let (reason, error) = match self.shake(stream, peer).await {
            Ok(stream) => {
                let connection = Connection::new(stream, peer, slot, limits.stranger, metrics.clone());
                // Nobody takes it any more when the server shuts down.
                let _ = sender.send(Ok(connection)).await;
                return;
            }
            Err(Failure::Broken(error)) => ("handshake_failed", error.to_string()),
            Err(Failure::TimedOut) => ("handshake_timeout", "the peer took too long".to_owned()),
            Err(Failure::NoTurn) => ("overload", "too many before it".to_owned()),
        };
        metrics.closed_early(reason);
        tracing::debug!(%peer, reason, error, "no TLS handshake");
    }

    async fn shake(&self, stream: TcpStream, peer: SocketAddr) -> Result<TlsStream<TcpStream>, Failure> {
        let Common {
            tls, limits, turns, ..
        } = &*self.common;
        // That a socket is said to be readable is a hint; looking tells whether there is a byte.
        let mut first = [0];
        self.step(stream.peek(&mut first), || ()).await?;
        let turn = timeout(limits.turn, turns.take(peer.ip().to_canonical())).await;
        let turn = turn.map_err(|_| Failure::NoTurn)?;
        self.step(tls.accept(stream), || drop(turn)).await
    }

    /// A step of which the peer does a part. When it is the peer that we wait for, others can have what was meant for this step.
    async fn step<T>(
        &self,
        step: impl Future<Output = std::io::Result<T>>,
        give_up: impl FnOnce(),
    ) -> Result<T, Failure> {
        let mut step = std::pin::pin!(step);
        if let Ok(done) = timeout(AT_WORK, &mut step).await {
            return done.map_err(Failure::Broken);
        }
        give_up();
        self.mark.set(true);
        let done = timeout(self.common.limits.handshake, step).await;
        self.mark.set(false);
        done.map_err(|_| Failure::TimedOut)?.map_err(Failure::Broken)
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.mark.set(false);
    }
}
