//! Pulls images on order.
//!
//! One engine owns all tasks, their records and the journal. Each task in work has a worker, which may be dropped at any moment.
//!
//! ```text
//!   session ── Command (bounded) ──▶ engine ──▶ board (latest states) ──▶ session, node service
//!                                    │   ▲
//!                            spawn, drop │ Note (bounded)
//!                                    ▼   │
//!                                   workers ──▶ calls (one per image) ──▶ gate, runtime
//! ```

pub mod board;
mod call;
mod calls;
mod engine;
mod gate;
pub mod here;
pub mod order;
pub mod record;
mod shared;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::{Epoch, TaskId};
use kruise_planner::node::stall::Rules;
use tokio::sync::{mpsc, oneshot, watch};

use self::board::Board;
use self::here::Here;
use self::order::Order;
use crate::clock::Clock;
use crate::credentials::Keychain;
use crate::journal::{Journal, State};
use crate::metrics::Metrics;
use crate::runtime::Link;

/// Commands that wait for the engine. There are a handful of senders, and each waits for its answer.
const COMMANDS: usize = 16;
/// Most tasks that are held; the manager's windows keep a node far below.
pub const MAX_TASKS: usize = 5_000;

/// How pulls are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Pulls at once; none is no limit.
    pub slots: Option<usize>,
    /// Pulls at once from one registry; none is no limit.
    pub per_registry: Option<usize>,
    /// When a pull is stalled.
    pub rules: Rules,
    /// How the node itself logs in at registries.
    pub keychain: Keychain,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            slots: Some(3),
            per_registry: None,
            rules: Rules {
                min_rate: 64 << 10,
                timeout: Duration::from_secs(30),
            },
            keychain: Keychain::empty(),
        }
    }
}

/// Number of the welcome that an order or a loss of contact belongs to. Orders that were given before a loss count no more, and a
/// loss that was noticed before a welcome stops nothing that was ordered after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Welcome(pub u64);

/// Why orders were not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Two orders, one id, different images.
    #[error("task {0} is known with another image")]
    Conflict(TaskId),
    /// More than [`MAX_TASKS`].
    #[error("{0} tasks are more than the {MAX_TASKS} that a node holds")]
    TooMany(usize),
    /// More than [`here::MAX_HERE`].
    #[error("{} pulls for callers on this machine run already", here::MAX_HERE)]
    TooManyHere,
    /// Contact was lost since.
    #[error("contact with the leader was lost in the meantime")]
    ContactLost,
    /// The agent stops.
    #[error("the agent stops")]
    Stopping,
}

/// What the engine is told.
#[derive(Debug)]
enum Command {
    Replace {
        welcome: Welcome,
        orders: Vec<Order>,
        answer: Answer<Result<(), Refused>>,
    },
    Change {
        welcome: Welcome,
        add: Vec<Order>,
        cancel: Vec<TaskId>,
        answer: Answer<Result<(), Refused>>,
    },
    Acknowledge(Vec<TaskId>),
    Suspend(Welcome),
    Here(Box<Order>, Answer<Result<TaskId, Refused>>),
    Leave(TaskId),
    Epoch(Epoch, Answer<()>),
    Ping(Answer<()>),
    Stop(Answer<()>),
}

type Answer<T> = oneshot::Sender<T>;

/// The engine, to those who talk to it.
#[derive(Clone, Debug)]
pub struct Puller {
    commands: mpsc::Sender<Command>,
    board: watch::Receiver<Board>,
    shows: watch::Sender<Board>,
}

/// What the engine stands on.
#[derive(Debug)]
pub struct Deps {
    /// Clocks.
    pub clock: Clock,
    /// The container runtime.
    pub link: watch::Receiver<Link>,
    /// Memory on disk.
    pub journal: Journal,
    /// What it remembered.
    pub state: State,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Puller {
    /// Starts the engine. It ends when the last handle is gone, or by [`Puller::stop`].
    #[must_use]
    pub fn spawn(settings: Settings, deps: Deps) -> Self {
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let (sender, board) = watch::channel(Board::default());
        let shows = sender.clone();
        tokio::spawn(engine::Engine::new(settings, deps, sender).run(inbox));
        Self {
            commands,
            board,
            shows,
        }
    }

    /// Latest states of all tasks.
    #[must_use]
    pub fn board(&self) -> watch::Receiver<Board> {
        self.board.clone()
    }

    /// Where others show tasks of other kinds, so that one reader sees them all.
    #[must_use]
    pub fn shows(&self) -> watch::Sender<Board> {
        self.shows.clone()
    }

    /// Makes the given orders the whole set.
    ///
    /// # Errors
    /// None of them was taken.
    pub async fn replace(&self, welcome: Welcome, orders: Vec<Order>) -> Result<(), Refused> {
        self.ask(|answer| Command::Replace {
            welcome,
            orders,
            answer,
        })
        .await
        .unwrap_or(Err(Refused::Stopping))
    }

    /// Changes the set.
    ///
    /// # Errors
    /// Nothing of it was taken.
    pub async fn change(
        &self,
        welcome: Welcome,
        add: Vec<Order>,
        cancel: Vec<TaskId>,
    ) -> Result<(), Refused> {
        let ask = self.ask(|answer| Command::Change {
            welcome,
            add,
            cancel,
            answer,
        });
        ask.await.unwrap_or(Err(Refused::Stopping))
    }

    /// Forgets results that are stored elsewhere now.
    pub async fn acknowledge(&self, tasks: Vec<TaskId>) {
        let _ = self.commands.send(Command::Acknowledge(tasks)).await;
    }

    /// Stops all pulls that were ordered under this welcome, or before. Their bytes stay; they go on when they are ordered again.
    pub async fn suspend(&self, welcome: Welcome) {
        let _ = self.commands.send(Command::Suspend(welcome)).await;
    }

    /// Pulls for a caller on this machine, under an id that is made here.
    ///
    /// # Errors
    /// There are too many already.
    pub async fn pull_here(&self, order: Order) -> Result<Here, Refused> {
        let taken = self.ask(|answer| Command::Here(Box::new(order), answer)).await;
        let id = taken.unwrap_or(Err(Refused::Stopping))?;
        Ok(Here::new(id, self))
    }

    /// Remembers an epoch; when this returns, it will be known after a restart.
    pub async fn remember(&self, epoch: Epoch) {
        let _ = self.ask(|answer| Command::Epoch(epoch, answer)).await;
    }

    /// Whether the engine does its work.
    pub async fn ping(&self) -> bool {
        self.ask(Command::Ping).await.is_some()
    }

    /// Stops all pulls, keeps their bytes, and remembers where they stand.
    pub async fn stop(&self) {
        let _ = self.ask(Command::Stop).await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        self.commands.send(command(sender)).await.ok()?;
        answer.await.ok()
    }
}
