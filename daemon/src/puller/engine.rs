//! The owner of all tasks.
//!
//! Intent comes before acting: a task is in the journal before its worker exists, an attempt before the runtime is called, a result
//! before anybody is told.

mod here;
mod leases;
mod notes;
mod orders;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_planner::node::queue::Limits;
use kruise_planner::task::Phase;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use self::leases::Chore;
use self::task::Task;
use super::board::Board;
use super::calls::Calls;
use super::gate::Gate;
use super::here::is_here;
use super::record::Record;
use super::shared::{Books, Promises, Shared};
use super::worker::Envelope;
use super::{Command, Deps, Settings, Welcome};
use crate::journal::{Journal, State};
use crate::metrics::Metrics;

/// Notes that wait for the engine; a worker with more to say waits too.
const NOTES: usize = 64;
/// See the module.
#[derive(Debug)]
pub(super) struct Engine {
    shared: Arc<Shared>,
    journal: Journal,
    state: State,
    metrics: Arc<Metrics>,
    board: watch::Sender<Board>,
    tasks: BTreeMap<TaskId, Task>,
    /// Of the last orders that were taken, and of the last loss of contact.
    taken: Welcome,
    suspended: Option<Welcome>,
    workers: JoinSet<()>,
    chores: JoinSet<Chore>,
    /// Waits for the end of the next pin.
    unpin: Option<AbortHandle>,
    last_number: u64,
    /// Number of the last task of a caller on this machine.
    last_here: u64,
    notes: (mpsc::Sender<Envelope>, mpsc::Receiver<Envelope>),
}

impl Engine {
    pub(super) fn new(settings: Settings, deps: Deps, board: watch::Sender<Board>) -> Self {
        let Deps {
            clock,
            link,
            journal,
            mut state,
            metrics,
        } = deps;
        let records = std::mem::take(&mut state.tasks);
        let limits = Limits {
            slots: settings.slots,
            per_registry: settings.per_registry,
        };
        let shared = Shared {
            gate: Gate::new(clock.clone(), limits),
            clock,
            link,
            calls: Calls::default(),
            rules: settings.rules,
            keychain: settings.keychain,
            promises: Promises::default(),
            books: Books::new(Arc::clone(&metrics)),
        };
        let mut engine = Self {
            shared: Arc::new(shared),
            journal,
            state,
            metrics,
            board,
            tasks: BTreeMap::new(),
            taken: Welcome::default(),
            suspended: None,
            workers: JoinSet::new(),
            chores: JoinSet::new(),
            unpin: None,
            last_number: 0,
            last_here: 0,
            notes: mpsc::channel(NOTES),
        };
        engine.load(records);
        engine
    }

    /// Tasks of before the restart. They wait until a leader says that it still wants them, and how to log in.
    fn load(&mut self, records: Vec<Record>) {
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        for mut record in records {
            record.resume(wall);
            self.tasks.insert(record.id.clone(), Task::new(record, now));
        }
        self.publish_all();
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut link = self.shared.link.clone();
        let mut up = false;
        loop {
            // Whatever happened while the runtime was away, leases may be left over.
            let is_up = link.borrow_and_update().runtime().is_some();
            if is_up && !up {
                self.chores.spawn(async { Chore::Look });
                self.unpin_in(Duration::ZERO);
            }
            up = is_up;
            tokio::select! {
                command = inbox.recv() => match command {
                    Some(Command::Stop(answer)) => {
                        self.stop().await;
                        let _ = answer.send(());
                        return;
                    }
                    Some(command) => self.obey(command).await,
                    None => return self.stop().await,
                },
                Some((task, number, note)) = self.notes.1.recv() => self.hear(&task, number, note).await,
                changed = link.changed() => if changed.is_err() {
                    return self.stop().await;
                },
                Some(done) = self.chores.join_next() => if let Ok(chore) = done { self.chore(chore) },
                Some(_) = self.workers.join_next() => {}
            }
        }
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Replace {
                welcome,
                orders,
                answer,
            } => {
                let wanted: BTreeSet<TaskId> = orders.iter().map(|order| order.id.clone()).collect();
                let rest = self
                    .tasks
                    .keys()
                    .filter(|id| !wanted.contains(*id) && !is_here(id))
                    .cloned()
                    .collect();
                let _ = answer.send(self.take(welcome, orders, rest).await);
            }
            Command::Change {
                welcome,
                add,
                cancel,
                answer,
            } => {
                let _ = answer.send(self.take(welcome, add, cancel).await);
            }
            Command::Acknowledge(tasks) => self.acknowledge(&tasks).await,
            Command::Suspend(welcome) => self.suspend(welcome).await,
            Command::Here(order, answer) => {
                // A caller that has gone meanwhile lets go of it.
                if let Err(Ok(id)) = answer.send(self.take_here(*order)) {
                    self.leave(&id);
                }
            }
            Command::Leave(id) => self.leave(&id),
            Command::Epoch(epoch, answer) => {
                self.state.highest_epoch = self.state.highest_epoch.max(epoch);
                self.store().await;
                let _ = answer.send(());
            }
            Command::Ping(answer) | Command::Stop(answer) => {
                let _ = answer.send(());
            }
        }
    }

    async fn acknowledge(&mut self, tasks: &[TaskId]) {
        for id in tasks.iter().filter(|id| !is_here(id)) {
            if self.tasks.get(id).is_some_and(|task| task.record.end.is_some()) {
                self.forget(id);
            }
        }
        self.store().await;
    }

    async fn suspend(&mut self, welcome: Welcome) {
        self.suspended = self.suspended.max(Some(welcome));
        if welcome < self.taken {
            return;
        }
        let now = self.shared.clock.now_mono();
        let ordered = |task: &&mut Task| task.record.end.is_none() && !is_here(&task.record.id);
        for task in self.tasks.values_mut().filter(ordered) {
            if task.halt(now) {
                tracing::warn!(task = %task.record.id, "pull stopped for want of a leader; its bytes are kept");
                task.live.phase = Phase::Suspended;
            }
        }
        self.store().await;
        self.publish_all();
    }

    async fn stop(&mut self) {
        let now = self.shared.clock.now_mono();
        for task in self.tasks.values_mut() {
            task.halt(now);
        }
        self.workers.shutdown().await;
        self.store().await;
    }

    /// Writes all records, with the time spent as of now.
    async fn store(&mut self) {
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        for task in self.tasks.values_mut() {
            task.record.spent = task.record.spent.saturating_add(now.saturating_sub(task.as_of));
            task.record.written = wall;
            task.as_of = now;
        }
        let ordered = self.tasks.values().filter(|task| !is_here(&task.record.id));
        self.state.tasks = ordered.map(|task| task.record.clone()).collect();
        self.journal.store(&self.state).await;
        self.state.tasks = Vec::new();
    }

    fn publish(&self, id: &TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let status = Arc::new(task.record.status(&task.live));
        self.board
            .send_if_modified(|board| board.0.insert(id.clone(), Arc::clone(&status)) != Some(status));
    }

    fn publish_all(&self) {
        for id in self.tasks.keys() {
            self.publish(id);
        }
        self.count();
    }

    fn count(&self) {
        let in_phase = |wanted: fn(&Task) -> bool| {
            let tasks = self
                .tasks
                .values()
                .filter(|task| task.record.end.is_none() && wanted(task));
            i64::try_from(tasks.count()).unwrap_or(i64::MAX)
        };
        self.metrics
            .in_flight
            .set(in_phase(|task| task.running.is_some()));
        self.metrics
            .queue_depth
            .set(in_phase(|task| task.running.is_none()));
    }
}
