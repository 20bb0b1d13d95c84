//! A TCP proxy in a cluster's network that delays, cuts and resets what goes through it. It works on bytes
//! of accepted connections, so nothing is lost by a cut: what was held goes on when the cut is healed, as
//! over a network that comes back before anybody gives up.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::spawn_in_namespace;
use crate::cluster::{API_IP, Cluster, netns_file};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client that connected.
    ToServer,
    ToClient,
    Both,
}

/// How the proxy treats connections at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mood {
    delay: Duration,
    hold_to_server: bool,
    hold_to_client: bool,
    refuse: bool,
    /// Connections made under a lower number are reset.
    reset: u64,
}

/// A running proxy. Dropping it ends every connection.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    mood: watch::Sender<Mood>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl TcpProxy {
    /// Listens on a free port of the control plane's address, which nodes and pods reach, and passes
    /// connections on to `target`: a pod, a Service or a component.
    pub fn start(cluster: &Cluster, target: SocketAddr) -> Result<Self> {
        let (mood, watched) = watch::channel(Mood::default());
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = spawn_in_namespace(&netns_file(&cluster.layout().control_plane()), move || {
            let listener = TcpListener::bind((API_IP, 0)).context("cannot listen")?;
            let _ = tell.send(listener.local_addr().context("a bound socket has an address")?);
            run(listener, target, &watched, stopped)
        });
        let address = told
            .recv_timeout(Duration::from_secs(5))
            .context("the proxy did not start")?;
        Ok(Self {
            address,
            mood,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where to connect to, inside the cluster's network.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays every byte, each way, from now on.
    pub fn delay(&self, delay: Duration) {
        self.mood.send_modify(|m| m.delay = delay);
    }

    /// Holds back what goes this way until [`TcpProxy::heal`]. New connections are still accepted.
    pub fn cut(&self, direction: Direction) {
        self.mood.send_modify(|m| {
            m.hold_to_server |= direction != Direction::ToClient;
            m.hold_to_client |= direction != Direction::ToServer;
        });
    }

    /// Resets new connections instead of serving them.
    pub fn refuse(&self) {
        self.mood.send_modify(|m| m.refuse = true);
    }

    /// Resets every connection there is.
    pub fn reset_all(&self) {
        self.mood.send_modify(|m| m.reset += 1);
    }

    /// Ends delays, cuts and refusals.
    pub fn heal(&self) {
        self.mood.send_modify(|m| {
            *m = Mood {
                reset: m.reset,
                ..Mood::default()
            }
        });
    }

    /// Cuts and heals both ways in turn, each for so long, so many times.
    pub async fn flap(&self, each: Duration, times: usize) {
        for _ in 0..times {
            self.cut(Direction::Both);
            tokio::time::sleep(each).await;
            self.heal();
            tokio::time::sleep(each).await;
        }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("the proxy ended with: {error:#}");
        }
    }
}

fn run(
    listener: TcpListener,
    target: SocketAddr,
    mood: &watch::Receiver<Mood>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    listener
        .set_nonblocking(true)
        .context("cannot prepare the listener")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        tokio::select! {
            ended = accept(listener, target, mood) => ended,
            _ = stopped => Ok(()),
        }
    })
}

async fn accept(listener: TcpListener, target: SocketAddr, mood: &watch::Receiver<Mood>) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch the listener")?;
    loop {
        let (client, _) = listener.accept().await.context("cannot accept")?;
        // Whatever ends this connection early ends it with a reset, as a broken network would.
        let _ = linger(&client, Some(Duration::ZERO));
        let now = *mood.borrow();
        if !now.refuse {
            tokio::spawn(carry(client, target, mood.clone(), now.reset));
        }
    }
}

async fn carry(
    mut client: TcpStream,
    target: SocketAddr,
    mut mood: watch::Receiver<Mood>,
    born: u64,
) -> io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    linger(&server, Some(Duration::ZERO))?;
    // Borrowed halves: owned ones say goodbye when dropped, and a reset does not.
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let up = pump(from_client, to_server, mood.clone(), |m| m.hold_to_server);
    let down = pump(from_server, to_client, mood.clone(), |m| m.hold_to_client);
    let ended = tokio::select! {
        both = async { tokio::try_join!(up, down) } => both.map(|_| true)?,
        _ = mood.wait_for(|m| m.reset > born) => false,
    };
    if ended {
        // Both ends said that they were done: an ordinary end.
        linger(&client, None)?;
        linger(&server, None)?;
    }
    Ok(())
}

fn linger(socket: &TcpStream, time: Option<Duration>) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(socket, time)?)
}

/// Moves bytes one way. Reading goes on while they wait, up to a bound, so that a delay does not become a
/// lower rate.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mood: watch::Receiver<Mood>,
    held: impl Fn(&Mood) -> bool,
) -> io::Result<()> {
    const BOUND: usize = 1 << 20;
    let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut queued, mut ended) = (0, false);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let due = waiting.front().map(|(due, _)| *due);
        tokio::select! {
            read = from.read(&mut buffer), if !ended && queued < BOUND => {
                let length = read?;
                let delay = mood.borrow().delay;
                ended = length == 0;
                queued += length;
                // An empty piece stands for the end, which waits its turn like everything else.
                waiting.push_back((Instant::now() + delay, buffer[..length].to_vec()));
            }
            piece = next_piece(due, &mut mood, &held, &mut waiting), if due.is_some() => {
                if piece.is_empty() {
                    return to.shutdown().await;
                }
                queued -= piece.len();
                to.write_all(&piece).await?;
            }
        }
    }
}

/// The oldest piece, once it is due and nothing holds it back. Dropped half-way it takes nothing.
async fn next_piece(
    due: Option<Instant>,
    mood: &mut watch::Receiver<Mood>,
    held: &impl Fn(&Mood) -> bool,
    waiting: &mut VecDeque<(Instant, Vec<u8>)>,
) -> Vec<u8> {
    if let Some(due) = due {
        sleep_until(due).await;
    }
    // The sender lives as long as the proxy; without it the runtime is about to end.
    let _ = mood.wait_for(|m| !held(m)).await;
    waiting.pop_front().map(|(_, piece)| piece).unwrap_or_default()
}
