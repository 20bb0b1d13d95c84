//! Restarts containers on order: runs their hooks, stops them, and tells how they come back. The kubelet starts them.
//!
//! One task per request, one worker per task; what a worker does next is decided by [`kruise_planner::restart::node`]. A hook or a stop is
//! in the file of restarts before it begins, so that an agent that ends in the middle goes on where it was, with no hook run twice and no
//! instance stopped but the one that was bound first. What has begun is carried through whoever leads, and whether anybody leads.

mod book;
mod hook;
mod record;
#[cfg(test)]
mod tests;
mod tls;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kruise_api::ids::TaskId;
use kruise_proto::dispatch::RestartContainers;
use tokio::sync::watch;

use self::book::{Book, Control, Task};
use self::record::{Record, Work};
use crate::clock::Clock;
use crate::puller::board::Board;
use crate::puller::{Refused, Welcome};
use crate::runtime::Link;

/// Most tasks that are held: far more than a node has pods.
const MAX_TASKS: usize = 2_000;

/// One order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Of the task.
    pub id: TaskId,
    /// What to do.
    pub message: RestartContainers,
}

/// What a restarter stands on.
#[derive(Debug)]
pub struct Deps {
    /// Clocks.
    pub clock: Clock,
    /// The container runtime.
    pub link: watch::Receiver<Link>,
    /// Where tasks are shown.
    pub board: watch::Sender<Board>,
}

/// The restarter, to those who talk to it.
#[derive(Clone, Debug)]
pub struct Restarter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    link: watch::Receiver<Link>,
    board: watch::Sender<Board>,
    book: tokio::sync::Mutex<Book>,
    contact: Mutex<Contact>,
    /// One per pod with a task: hooks and stops of a pod's containers come one after the other.
    pods: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// Of the last orders that were taken, and of the last loss of contact.
#[derive(Debug, Default)]
struct Contact {
    taken: Welcome,
    suspended: Option<Welcome>,
}

impl Restarter {
    /// With what is remembered in `directory`. What had begun is carried through at once.
    #[must_use]
    pub fn spawn(directory: Option<&Path>, deps: Deps) -> Self {
        let Deps { clock, link, board } = deps;
        let mut book = Book::open(directory);
        let mut underway = Vec::new();
        for task in book.tasks.values_mut() {
            // Until a leader has said that it wants it, nothing new of it is begun.
            if task.record.is_underway() {
                task.working = true;
                underway.push((task.record.id.clone(), task.control.subscribe()));
            }
            let status = Arc::new(task.record.status());
            board.send_modify(|board| {
                board.0.insert(task.record.id.clone(), status);
            });
        }
        let shared = Arc::new(Shared {
            clock,
            link,
            board,
            book: tokio::sync::Mutex::new(book),
            contact: Mutex::default(),
            pods: Mutex::default(),
        });
        for (id, control) in underway {
            tokio::spawn(worker::run(Arc::clone(&shared), id, control));
        }
        Self { shared }
    }

    /// Makes the given orders the whole set.
    ///
    /// # Errors
    /// None of them was taken.
    pub async fn replace(&self, welcome: Welcome, orders: Vec<Order>) -> Result<(), Refused> {
        let wanted: BTreeSet<TaskId> = orders.iter().map(|order| order.id.clone()).collect();
        self.take(welcome, orders, |id| !wanted.contains(id)).await
    }

    /// Changes the set.
    ///
    /// # Errors
    /// Nothing of it was taken.
    pub async fn change(&self, welcome: Welcome, add: Vec<Order>, cancel: &[TaskId]) -> Result<(), Refused> {
        self.take(welcome, add, |id| cancel.contains(id)).await
    }

    async fn take(
        &self,
        welcome: Welcome,
        orders: Vec<Order>,
        unwanted: impl Fn(&TaskId) -> bool,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        let mut book = shared.book.lock().await;
        {
            let mut contact = shared.contact.lock().unwrap_or_else(PoisonError::into_inner);
            if contact.suspended.is_some_and(|lost| welcome <= lost) {
                return Err(Refused::ContactLost);
            }
            if book.tasks.len() + orders.len() > MAX_TASKS {
                return Err(Refused::TooMany(book.tasks.len() + orders.len()));
            }
            contact.taken = contact.taken.max(welcome);
        }
        let now = shared.clock.now_wall();
        let mut changed = false;
        for (id, task) in &mut book.tasks {
            if unwanted(id) && (task.control.borrow().wanted || task.record.dropped.is_none()) {
                task.record.dropped = Some(now);
                task.control.send_modify(|control| control.wanted = false);
                changed = true;
            }
        }
        let mut idle = Vec::new();
        for Order { id, message } in orders {
            let released = usize::try_from(message.released).unwrap_or(usize::MAX);
            let task = book.tasks.entry(id.clone()).or_insert_with(|| {
                changed = true;
                Task::new(Record::new(id.clone(), Work::from(message)))
            });
            changed |= task.record.dropped.take().is_some();
            task.control.send_if_modified(|control| {
                let new = Control {
                    wanted: true,
                    released,
                };
                std::mem::replace(control, new) != new
            });
            if !std::mem::replace(&mut task.working, true) {
                idle.push((id, task.control.subscribe()));
            }
        }
        self.sweep(&mut book);
        if changed {
            book.store().await;
        }
        for (id, control) in idle {
            shared.publish(&book, &id);
            tokio::spawn(worker::run(Arc::clone(shared), id, control));
        }
        Ok(())
    }

    fn sweep(&self, book: &mut Book) -> bool {
        let gone = book.sweep(self.shared.clock.now_wall());
        for id in &gone {
            self.shared.unpublish(id);
        }
        !gone.is_empty()
    }

    /// Forgets results that are stored elsewhere now.
    pub async fn acknowledge(&self, tasks: &[TaskId]) {
        let mut book = self.shared.book.lock().await;
        for id in tasks {
            if let Some(task) = book.tasks.get_mut(id) {
                task.saved = true;
                task.control.send_modify(|control| control.wanted = false);
            }
        }
        if self.sweep(&mut book) {
            book.store().await;
        }
    }

    /// Begins nothing more that was ordered under this welcome, or before. What has begun goes on.
    pub async fn suspend(&self, welcome: Welcome) {
        let mut book = self.shared.book.lock().await;
        let mut contact = self.shared.contact.lock().unwrap_or_else(PoisonError::into_inner);
        contact.suspended = contact.suspended.max(Some(welcome));
        if welcome < contact.taken {
            return;
        }
        for task in book.tasks.values_mut() {
            task.control.send_modify(|control| control.released = 0);
        }
    }
}

impl Shared {
    fn publish(&self, book: &Book, id: &TaskId) {
        let Some(task) = book.tasks.get(id) else { return };
        let status = Arc::new(task.record.status());
        self.board
            .send_if_modified(|board| board.0.insert(id.clone(), Arc::clone(&status)) != Some(status));
    }

    fn unpublish(&self, id: &TaskId) {
        self.board.send_modify(|board| {
            board.0.remove(id);
        });
    }

    /// The turn of a pod.
    fn pod(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(pods.entry(uid.to_owned()).or_default())
    }
}
