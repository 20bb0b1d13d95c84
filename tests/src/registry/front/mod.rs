//! A registry front that misbehaves on request.
//!
//! It stands in the control plane's network in front of the cluster's registry, on a thread of the test's
//! process. Images are named by its own address, so only the test that started it is affected. It keeps an
//! access log, which knows the node of every request by its address: an account of pulls that is
//! independent of what the product says about them.

mod body;
mod fault;
mod log;
mod serve;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::oneshot;

pub use fault::{Fault, Match, Rule};
pub use log::Access;

use self::body::Pace;
use crate::cluster::{API_IP, Cluster, netns_file};
use crate::net::spawn_in_namespace;

/// A running front. Dropping it closes every connection and forgets its route.
#[derive(Debug)]
pub struct Front {
    cluster: Cluster,
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// What the front's thread and the test both see.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    log: Vec<Access>,
    next_access: u64,
    rules: Vec<fault::Entry>,
    next_rule: usize,
    /// Bytes per second of each blob.
    each: Option<u64>,
    /// Bytes per second of all blobs together.
    all: Option<Arc<Mutex<Pace>>>,
    /// The header `authorization` without which nothing is passed on.
    login: Option<String>,
}

impl Front {
    /// Starts a front on a free port and tells every node's runtime to speak plain HTTP to it.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let server = serve::Server {
            cluster: cluster.clone(),
            shared: shared.clone(),
        };
        let namespace = netns_file(&cluster.layout().control_plane());
        let thread = spawn_in_namespace(&namespace, move || {
            let listener = TcpListener::bind((API_IP, 0)).context("cannot listen")?;
            let _ = tell.send(listener.local_addr().context("a bound socket has an address")?);
            server.run(listener, stopped)
        });
        let address = tokio::task::spawn_blocking(move || told.recv_timeout(Duration::from_secs(5)))
            .await
            .context("the wait for the front panicked")?
            .context("the registry front did not start")?;
        let front = Self {
            cluster: cluster.clone(),
            shared,
            address,
            stop: Some(stop),
            thread: Some(thread),
        };
        cluster.route_registry(&front.host(), &format!("http://{address}"))?;
        Ok(front)
    }

    /// How image references name this registry.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Adds a fault. Of the faults that match a request, the one added first is applied.
    #[must_use = "say how often, or `.always()`"]
    pub fn fault(&self, on: Match, fault: Fault) -> Rule {
        Rule::add(self.shared.clone(), on, fault)
    }

    /// Removes every fault and limit. Requests under way keep theirs.
    pub fn clear(&self) {
        let mut state = self.shared.lock();
        state.rules.clear();
        state.each = None;
        state.all = None;
    }

    /// Limits each blob to so many bytes per second, from the next request on.
    pub fn limit_each(&self, bytes_per_second: u64) {
        self.shared.lock().each = Some(bytes_per_second);
    }

    /// Limits all blobs together to so many bytes per second, from the next request on.
    pub fn limit_all(&self, bytes_per_second: u64) {
        self.shared.lock().all = Some(Arc::new(Mutex::new(Pace::new(bytes_per_second))));
    }

    /// From the next request on, only who logs in as this user is served.
    pub fn require_login(&self, user: &str, password: &str) {
        let plain = format!("{user}:{password}");
        self.shared.lock().login = Some(format!("Basic {}", STANDARD.encode(plain)));
    }

    /// Every request so far, in the order of their beginning. Those under way have no end yet.
    #[must_use]
    pub fn log(&self) -> Vec<Access> {
        self.shared.lock().log.clone()
    }

    /// Forgets the requests so far. Those under way are no longer accounted for.
    pub fn clear_log(&self) {
        self.shared.lock().log.clear();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of one request leaves the log and the rules whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("the registry front ended with: {error:#}"),
            Some(Err(_)) => eprintln!("the registry front panicked"),
            Some(Ok(Ok(()))) | None => {}
        }
        self.cluster.unroute_registry(&self.host());
    }
}
