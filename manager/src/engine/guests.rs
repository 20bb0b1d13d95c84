//! Tasks of other controllers, which travel with the engine's own: the same sets and deltas, generations, epochs, stamps and acknowledgements.
//!
//! A controller says what a node shall hold, and is told what agents hold and report. Both ways only the latest state is kept, so that neither
//! side waits for the other and nothing grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kruise_api::ids::{Epoch, NodeName, TaskId};
use kruise_proto::dispatch::Order;
use kruise_proto::task::TaskStatus;
use tokio::sync::Notify;

/// What a controller wants.
#[derive(Clone, Debug)]
pub(crate) enum GuestChange {
    /// It has read its objects: until then no agent is let in, whose tasks would be taken back for nothing.
    Ready,
    /// This node shall hold this order, in place of an older one with its id.
    Hold { node: NodeName, order: Box<Order> },
    /// This node shall not hold this task, and may forget its result.
    Forget { node: NodeName, task: TaskId },
}

/// A node as a controller sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GuestNode {
    /// Whether its agent has a stream.
    pub(crate) attached: bool,
    /// Tasks that it holds, as last reported.
    pub(crate) tasks: BTreeMap<TaskId, TaskStatus>,
}

/// What happened on a node.
#[derive(Clone, Debug)]
pub(crate) enum GuestNews {
    /// An agent attached and holds exactly these.
    Attached(NodeName, Vec<TaskStatus>),
    /// Its stream is gone.
    Detached(NodeName),
    /// It reported.
    Reported(NodeName, Box<TaskStatus>),
    /// It was told to forget.
    Forgotten(NodeName, TaskId),
}

#[derive(Debug, Default)]
struct Board {
    epoch: Epoch,
    nodes: BTreeMap<NodeName, GuestNode>,
    changed: BTreeSet<NodeName>,
}

/// Latest state of all nodes, shared between the engine and one controller.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guests {
    board: Arc<Mutex<Board>>,
    news: Arc<Notify>,
    expected: Arc<AtomicBool>,
}

impl Guests {
    /// A controller will say when it is ready, under each leadership.
    pub(crate) fn expect(&self) {
        self.expected.store(true, Ordering::Relaxed);
    }

    pub(super) fn are_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Another leadership begins: nothing is known of any node.
    pub(super) fn begin(&self, epoch: Epoch) {
        *self.lock() = Board {
            epoch,
            ..Board::default()
        };
        self.news.notify_one();
    }

    /// Whether the engine leads under this number, so that it listens.
    pub(crate) fn is_at(&self, epoch: Epoch) -> bool {
        self.lock().epoch == epoch
    }

    pub(super) fn take(&self, news: Vec<GuestNews>) {
        if news.is_empty() {
            return;
        }
        let mut board = self.lock();
        for news in news {
            board.take(news);
        }
        drop(board);
        self.news.notify_one();
    }

    /// Nodes that have changed since the last call, as they stand now. Empty for another leadership than this one.
    pub(crate) fn changes(&self, epoch: Epoch) -> Vec<(NodeName, GuestNode)> {
        let mut board = self.lock();
        if board.epoch != epoch {
            return Vec::new();
        }
        let changed = std::mem::take(&mut board.changed);
        changed
            .into_iter()
            .map(|name| {
                let node = board.nodes.get(&name).cloned().unwrap_or_default();
                (name, node)
            })
            .collect()
    }

    /// Returns when something may have changed.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn take(&mut self, news: GuestNews) {
        let name = match news {
            GuestNews::Attached(name, tasks) => {
                let tasks = tasks.into_iter();
                let node = GuestNode {
                    attached: true,
                    tasks: tasks
                        .map(|status| (TaskId::new(status.task_id.as_str()), status))
                        .collect(),
                };
                self.nodes.insert(name.clone(), node);
                name
            }
            GuestNews::Detached(name) => {
                self.nodes.entry(name.clone()).or_default().attached = false;
                name
            }
            GuestNews::Reported(name, status) => {
                let node = self.nodes.entry(name.clone()).or_default();
                node.tasks.insert(TaskId::new(status.task_id.as_str()), *status);
                name
            }
            GuestNews::Forgotten(name, task) => {
                self.nodes.entry(name.clone()).or_default().tasks.remove(&task);
                name
            }
        };
        self.changed.insert(name);
    }
}
