//! A container runtime that is played: pulls take their time, nothing is fetched.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kruise_api::reference::ImageRef;
use kruise_daemon::runtime::containers::Containers;
use kruise_daemon::runtime::{ContentStore, Link, Pull, Runtime, RuntimeError};
use kruise_planner::node::reason::Code;
use kruise_proto::task;

use super::containers::{Played, Stops};
use super::control::{Stamp, stamp};
use super::script;

/// What all agents of a fleet share.
#[derive(Debug, Default)]
pub(super) struct Book {
    seed: u64,
    /// When orders came to runtimes, by image.
    orders: Mutex<BTreeMap<String, Vec<Stamp>>>,
    /// When containers were stopped.
    pub(super) stops: Arc<Stops>,
}

impl Book {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            ..Self::default()
        })
    }

    /// When orders of an image came, in order, once there are so many.
    pub(super) fn orders(&self, image: &str, count: usize) -> Option<Vec<Stamp>> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stamps = orders.get(image).filter(|stamps| stamps.len() >= count)?.clone();
        stamps.sort_unstable();
        Some(stamps)
    }

    pub(super) fn count(&self, image: &str) -> usize {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.get(image).map_or(0, Vec::len)
    }

    fn came(&self, image: &str) {
        let now = stamp();
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        match orders.get_mut(image) {
            Some(stamps) => stamps.push(now),
            None => drop(orders.insert(image.to_owned(), vec![now])),
        }
    }
}

/// The runtime of one agent.
#[derive(Debug)]
pub(super) struct Scripted {
    agent: usize,
    book: Arc<Book>,
    /// Images that were asked for, and whether they are there.
    images: Mutex<BTreeMap<String, bool>>,
    containers: Played,
}

impl Scripted {
    /// A link to the runtime of an agent. It is up for good.
    pub(super) fn link(agent: usize, book: &Arc<Book>) -> Link {
        let runtime = Self {
            agent,
            book: Arc::clone(book),
            images: Mutex::default(),
            containers: Played::new(Arc::clone(&book.stops)),
        };
        Link::Up {
            runtime: Arc::new(runtime),
            info: info(),
            disk: Some(task::DiskSpace::default()),
        }
    }

    async fn play(&self, pull: Pull) -> Result<(), RuntimeError> {
        let failed = |code, text: &str| RuntimeError {
            call: "PullImage",
            code,
            text: text.to_owned(),
        };
        let image = pull.image.canonical();
        let Some(script) = script::pull(self.book.seed, self.agent, image) else {
            return Err(failed(Code::NotFound, "not found"));
        };
        tokio::time::sleep(script.takes).await;
        if script.fails {
            return Err(failed(Code::NotFound, "not found"));
        }
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.insert(image.to_owned(), true);
        Ok(())
    }
}

fn info() -> task::Runtime {
    task::Runtime {
        name: "containerd".into(),
        version: "2.2.0".into(),
        socket: "/run/containerd/containerd.sock".into(),
        content_store: false,
    }
}

impl Runtime for Scripted {
    fn version(&self) -> BoxFuture<'_, Result<task::Runtime, RuntimeError>> {
        async { Ok(info()) }.boxed()
    }

    /// The agent's first question about an image is the first that a runtime hears of an order.
    fn image(&self, image: &ImageRef) -> BoxFuture<'_, Result<Option<String>, RuntimeError>> {
        let name = image.canonical();
        let known = {
            let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
            let known = images.get(name).copied();
            if known.is_none() {
                images.insert(name.to_owned(), false);
            }
            known
        };
        if known.is_none() {
            self.book.came(name);
        }
        let id = (known == Some(true)).then(|| format!("sha256:{:064x}", self.agent));
        async move { Ok(id) }.boxed()
    }

    fn pull(&self, pull: Pull) -> BoxFuture<'_, Result<(), RuntimeError>> {
        self.play(pull).boxed()
    }

    fn disk(&self) -> BoxFuture<'_, Result<task::DiskSpace, RuntimeError>> {
        async { Ok(task::DiskSpace::default()) }.boxed()
    }

    fn content(&self) -> Option<&dyn ContentStore> {
        None
    }

    fn containers(&self) -> Option<&dyn Containers> {
        Some(&self.containers)
    }
}
