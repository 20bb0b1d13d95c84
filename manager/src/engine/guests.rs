//! Tasks of other controllers, which travel with the engine's own: the same sets and deltas, generations, epochs, stamps and acknowledgements.
//!
//! A controller says what a node shall hold, and is told what agents hold and report. Both ways only the latest state is kept, so that neither
//! side waits for the other and nothing grows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kruise_api::ids::{Epoch, JobUid, NodeName, TaskId};
use kruise_planner::{cloneset, inplace, restart};
use kruise_proto::dispatch::Order;
use kruise_proto::task::TaskStatus;
use tokio::sync::Notify;

/// Controllers whose tasks travel with the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// Restarts of containers.
    Restarts,
    /// CloneSets: images that pods wait for before they are changed in place, and how long their containers were down then.
    CloneSets,
}

impl Guest {
    /// Whose task this is; none for the engine's own.
    pub(super) fn of(task: &TaskId) -> Option<Self> {
        if restart::request_of(task).is_some() {
            Some(Self::Restarts)
        } else if cloneset::is_gate_task(task) || inplace::is_swap_task(task) {
            Some(Self::CloneSets)
        } else {
            None
        }
    }
}

/// What a controller wants.
#[derive(Clone, Debug)]
pub(crate) enum GuestChange {
    /// It has read its objects: until then no agent is let in, whose tasks would be taken back for nothing.
    Ready,
    /// This node shall hold this order, in place of an older one with its id. A pull that one of these jobs, which may not be known yet, will bring to
    /// the node waits for the job's slot there, and the node comes first in the job.
    Hold {
        node: NodeName,
        order: Box<Order>,
        behind: Vec<JobUid>,
    },
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

/// The views of all controllers.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestRooms {
    restarts: Guests,
    clone_sets: Guests,
}

impl GuestRooms {
    pub(crate) fn of(&self, guest: Guest) -> &Guests {
        match guest {
            Guest::Restarts => &self.restarts,
            Guest::CloneSets => &self.clone_sets,
        }
    }

    /// Another leadership begins: nothing is known of any node.
    pub(super) fn begin(&self, epoch: Epoch) {
        self.restarts.begin(epoch);
        self.clone_sets.begin(epoch);
    }

    /// Whether agents are let in only once a controller has read its objects. CloneSets ask for what is missing, and lose nothing by asking again.
    pub(super) fn are_expected(&self) -> bool {
        self.restarts.are_expected()
    }

    /// Tells each controller what concerns it.
    pub(super) fn take(&self, news: &[GuestNews]) {
        for guest in [Guest::Restarts, Guest::CloneSets] {
            let own = news.iter().filter_map(|news| news.for_guest(guest)).collect();
            self.of(guest).take(own);
        }
    }
}

impl GuestNews {
    fn for_guest(&self, guest: Guest) -> Option<Self> {
        let id = |status: &TaskStatus| Guest::of(&TaskId::new(status.task_id.as_str()));
        match self {
            Self::Attached(node, tasks) => {
                let own = tasks.iter().filter(|task| id(task) == Some(guest)).cloned();
                Some(Self::Attached(node.clone(), own.collect()))
            }
            Self::Detached(_) => Some(self.clone()),
            Self::Reported(_, status) => (id(status) == Some(guest)).then(|| self.clone()),
            Self::Forgotten(_, task) => (Guest::of(task) == Some(guest)).then(|| self.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Board {
    epoch: Epoch,
    nodes: BTreeMap<NodeName, GuestNode>,
    changed: BTreeSet<NodeName>,
}

/// Latest state of all nodes as far as one controller is concerned.
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

    fn are_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed)
    }

    /// Another leadership begins: nothing is known of any node.
    fn begin(&self, epoch: Epoch) {
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

    fn take(&self, news: Vec<GuestNews>) {
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
