//! The owner of all tasks.
//!
//! Intent comes before acting: a task is in the journal before its worker exists, an attempt before the runtime is called, a result
//! before anybody is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_planner::task::{Phase, Progress, Reason};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::board::Board;
use super::gate::Gate;
use super::order::{Order, Policy, Work};
use super::record::{End, Failed, Live, Record};
use super::worker::{Envelope, Note, Shared, Spec, Worker};
use super::{Command, Deps, MAX_TASKS, Refused, Settings, Welcome};
use crate::journal::{Journal, State};
use crate::metrics::Metrics;
use crate::progress::Reading;
use crate::runtime::{LeaseId, Runtime};

/// Notes that wait for the engine; a worker with more to say waits too.
const NOTES: usize = 64;
/// Pause before leases that could not be dropped are looked for again.
const SWEEP_PAUSE: Duration = Duration::from_secs(30);

/// A task in memory.
#[derive(Debug)]
struct Task {
    record: Record,
    live: Live,
    /// The forward clock when `record.spent` was true.
    as_of: Duration,
    /// Since when the runtime works on it.
    running: Option<Duration>,
    /// What its worker reads; none without a worker.
    worker: Option<(AbortHandle, u64, watch::Sender<Spec>)>,
}

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
    last_number: u64,
    notes: (mpsc::Sender<Envelope>, mpsc::Receiver<Envelope>),
}

/// Something about leases that was done beside the tasks.
#[derive(Debug)]
enum Chore {
    /// Leases that are there.
    Found(BTreeSet<LeaseId>),
    /// A lease was let go, or could not be.
    Dropped(bool),
    /// It is time to look.
    Look,
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
        let shared = Shared {
            clock,
            link,
            gate: Gate::new(settings.slots),
            rules: settings.rules,
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
            last_number: 0,
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
                    .filter(|id| !wanted.contains(*id))
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

    /// Takes all of it or nothing: removals first, then the journal, then work.
    async fn take(&mut self, welcome: Welcome, add: Vec<Order>, cancel: Vec<TaskId>) -> Result<(), Refused> {
        if self.suspended.is_some_and(|lost| welcome <= lost) {
            return Err(Refused::ContactLost);
        }
        self.check(&add, &cancel)?;
        self.taken = self.taken.max(welcome);
        for id in cancel {
            self.forget(&id);
        }
        let wanted: Vec<(TaskId, Vec<_>)> = add.into_iter().map(|order| self.note_order(order)).collect();
        self.store().await;
        for (id, credentials) in wanted {
            self.start(&id, credentials);
            self.publish(&id);
        }
        self.count();
        Ok(())
    }

    fn check(&self, add: &[Order], cancel: &[TaskId]) -> Result<(), Refused> {
        let cancelled: BTreeSet<&TaskId> = cancel.iter().collect();
        let held = self.tasks.iter().filter(|(id, _)| !cancelled.contains(id));
        let mut images: BTreeMap<&TaskId, String> = held
            .map(|(id, task)| (id, canonical(&task.record.work.image)))
            .collect();
        for order in add {
            let image = order
                .work
                .as_ref()
                .map(|work| canonical(&work.image))
                .unwrap_or_default();
            if *images.entry(&order.id).or_insert_with(|| image.clone()) != image {
                return Err(Refused::Conflict(order.id.clone()));
            }
        }
        if images.len() > MAX_TASKS {
            return Err(Refused::TooMany(images.len()));
        }
        Ok(())
    }

    /// Writes an order into the books. One that is known may bring new limits and log-ins; the rest stays as it was taken.
    fn note_order(&mut self, order: Order) -> (TaskId, Vec<kruise_proto::dispatch::Credential>) {
        let Order {
            id,
            work,
            credentials,
        } = order;
        if let Some(task) = self.tasks.get_mut(&id) {
            if let Some(work) = work {
                task.record.work.limits = work.limits;
            }
            return (id, credentials);
        }
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        let refusal = unusable(work.as_ref());
        let record = Record::new(id.clone(), work.unwrap_or_else(unknown_work), wall);
        tracing::info!(task = %id, image = record.work.image, by = record.work.requested_by, "task taken");
        let mut task = Task::new(record, now);
        if let Some(failed) = refusal {
            tracing::info!(task = %id, reason = %failed.reason, failed.message, "task failed");
            task.record.failure = Some(failed);
            task.record.end = Some(End {
                time: wall,
                image_id: None,
                already_present: false,
                progress: Progress::default(),
            });
        }
        self.tasks.insert(id.clone(), task);
        (id, credentials)
    }

    /// Lets a task be worked on, if there is anything left to do.
    fn start(&mut self, id: &TaskId, credentials: Vec<kruise_proto::dispatch::Credential>) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.record.end.is_none()) else {
            return;
        };
        let spec = Spec {
            work: task.record.work.clone(),
            credentials,
        };
        if let Some((_, _, sender)) = &task.worker {
            sender.send_replace(spec);
            return;
        }
        let Ok(image) = ImageRef::parse(&task.record.work.image) else {
            return;
        };
        let (sender, spec) = watch::channel(spec);
        self.last_number += 1;
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            task: id.clone(),
            number: self.last_number,
            image,
            lease: task.record.lease(),
            taken: task.record.taken,
            spent: (task.record.spent, task.as_of),
            tries: task.record.tries,
            spec,
            notes: self.notes.0.clone(),
        };
        task.live.phase = Phase::Waiting;
        task.worker = Some((self.workers.spawn(worker.run()), self.last_number, sender));
    }

    /// Cancels a task, or drops its result. No failure is booked.
    fn forget(&mut self, id: &TaskId) {
        let Some(mut task) = self.tasks.remove(id) else {
            return;
        };
        if task.record.end.is_none() {
            tracing::info!(task = %id, "task cancelled");
            task.halt(self.shared.clock.now_mono());
            self.drop_lease(task.record.lease(), true);
        }
        self.board.send_modify(|board| {
            board.0.remove(id);
        });
    }

    async fn acknowledge(&mut self, tasks: &[TaskId]) {
        for id in tasks {
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
        for task in self.tasks.values_mut().filter(|task| task.record.end.is_none()) {
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

    async fn hear(&mut self, id: &TaskId, number: u64, note: Note) {
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        if task
            .worker
            .as_ref()
            .is_none_or(|(_, current, _)| *current != number)
        {
            return;
        }
        match note {
            Note::Reading(reading) => {
                let bytes = task.read(reading);
                self.metrics.pull_bytes.inc_by(bytes);
            }
            Note::Begin(answer) => {
                task.begin(wall, now);
                self.store().await;
                let _ = answer.send(());
            }
            Note::Failed { tries, failed, pause } => {
                tracing::info!(task = %id, reason = %failed.reason, failed.message, ?pause, "attempt failed");
                self.metrics.failed(failed.reason);
                task.rest(now);
                task.live = Live {
                    phase: Phase::Waiting,
                    retry_in: Some(pause),
                    ..task.live
                };
                (task.record.tries, task.record.failure) = (tries, Some(failed));
                self.store().await;
            }
            Note::Present { image_id, reading } => {
                if let Some(reading) = reading {
                    let bytes = task.read(reading);
                    self.metrics.pull_bytes.inc_by(bytes);
                }
                let progress = task.live.progress;
                let already_present = task.record.tries.begun == 0;
                let end = End {
                    time: wall,
                    image_id: Some(image_id),
                    already_present,
                    progress,
                };
                self.end(id, end, now).await;
            }
            Note::Ended { tries, failed } => {
                self.metrics.failed(failed.reason);
                tracing::info!(task = %id, reason = %failed.reason, failed.message, "task failed");
                (task.record.tries, task.record.failure) = (tries, Some(failed));
                let progress = Progress {
                    bytes_per_second: 0,
                    ..task.live.progress
                };
                self.end(
                    id,
                    End {
                        time: wall,
                        image_id: None,
                        already_present: false,
                        progress,
                    },
                    now,
                )
                .await;
            }
        }
        self.publish(id);
        self.count();
    }

    async fn end(&mut self, id: &TaskId, end: End, now: Duration) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        task.rest(now);
        task.worker = None;
        let succeeded = end.image_id.is_some();
        if succeeded {
            let record = &task.record;
            tracing::info!(task = %id, image = record.work.image, took = ?record.pull_time, end.already_present, "image present");
            if !end.already_present {
                self.metrics.pull_seconds.observe(record.pull_time.as_secs_f64());
            }
        }
        task.record.end = Some(end);
        let lease = task.record.lease();
        self.store().await;
        // A success leaves nothing behind that would have to be collected at once: the image holds it all.
        self.drop_lease(lease, !succeeded);
    }

    /// Writes all records, with the time spent as of now.
    async fn store(&mut self) {
        let (wall, now) = (self.shared.clock.now_wall(), self.shared.clock.now_mono());
        for task in self.tasks.values_mut() {
            task.record.spent = task.record.spent.saturating_add(now.saturating_sub(task.as_of));
            task.record.written = wall;
            task.as_of = now;
        }
        self.state.tasks = self.tasks.values().map(|task| task.record.clone()).collect();
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

    fn drop_lease(&mut self, lease: LeaseId, now: bool) {
        let Some(runtime) = self.shared.link.borrow().runtime().map(Arc::clone) else {
            return;
        };
        if runtime.content().is_some() {
            self.chores
                .spawn(async move { Chore::Dropped(drop_lease(&runtime, &lease, now).await) });
        }
    }

    /// Finds leases that no task needs any more: of tasks that ended while the runtime was away, or of another life of this agent.
    fn chore(&mut self, chore: Chore) {
        match chore {
            Chore::Dropped(true) => {}
            Chore::Dropped(false) => {
                self.chores.spawn(async {
                    tokio::time::sleep(SWEEP_PAUSE).await;
                    Chore::Look
                });
            }
            Chore::Look => {
                let Some(runtime) = self.shared.link.borrow().runtime().map(Arc::clone) else {
                    return;
                };
                self.chores.spawn(async move {
                    let Some(content) = runtime.content() else {
                        return Chore::Dropped(true);
                    };
                    content.leases().await.map_or(Chore::Dropped(false), Chore::Found)
                });
            }
            Chore::Found(leases) => {
                let open = self.tasks.values().filter(|task| task.record.end.is_none());
                let needed: BTreeSet<LeaseId> = open.map(|task| task.record.lease()).collect();
                for lease in leases.difference(&needed) {
                    tracing::info!(%lease, "lease of no task let go");
                    self.drop_lease(lease.clone(), false);
                }
            }
        }
    }
}

async fn drop_lease(runtime: &Arc<dyn Runtime>, lease: &LeaseId, now: bool) -> bool {
    let Some(content) = runtime.content() else {
        return true;
    };
    content
        .drop_lease(lease, now)
        .await
        .inspect_err(|error| tracing::info!(%lease, %error, "lease not dropped yet"))
        .is_ok()
}

impl Task {
    fn new(record: Record, now: Duration) -> Self {
        let live = Live {
            phase: record.phase(),
            ..Live::default()
        };
        Self {
            record,
            live,
            as_of: now,
            running: None,
            worker: None,
        }
    }

    fn begin(&mut self, wall: jiff::Timestamp, now: Duration) {
        self.record.tries.begun = self.record.tries.begun.saturating_add(1);
        self.record.started.get_or_insert(wall);
        self.running = Some(now);
        let Reading { phase, progress, .. } = Reading::begin(self.live.progress);
        self.live = Live {
            phase,
            progress,
            retry_in: None,
        };
    }

    /// Takes in a reading; how many bytes are new.
    fn read(&mut self, reading: Reading) -> u64 {
        self.live = Live {
            phase: reading.phase,
            progress: reading.progress,
            retry_in: None,
        };
        let new = reading.fetched.saturating_sub(self.record.bytes_fetched);
        self.record.bytes_fetched += new;
        new
    }

    /// The runtime no longer works on it.
    fn rest(&mut self, now: Duration) {
        if let Some(since) = self.running.take() {
            self.record.pull_time = self.record.pull_time.saturating_add(now.saturating_sub(since));
        }
        self.live.progress.bytes_per_second = 0;
    }

    /// Drops its worker, and with it the call to the runtime. Whether there was one.
    fn halt(&mut self, now: Duration) -> bool {
        let worked = self.running.is_some();
        self.rest(now);
        if let Some((worker, ..)) = self.worker.take() {
            worker.abort();
        }
        worked
    }
}

fn canonical(image: &str) -> String {
    ImageRef::parse(image).map_or_else(|_| image.to_owned(), |image| image.canonical().to_owned())
}

/// Why an order ends at once.
fn unusable(work: Option<&Work>) -> Option<Failed> {
    let Some(work) = work else {
        let message =
            "this agent does not know the kind of work that was ordered; it is older than the manager";
        return Some(Failed {
            reason: Reason::Unsupported,
            message: message.to_owned(),
        });
    };
    let error = ImageRef::parse(&work.image).err()?;
    Some(Failed {
        reason: Reason::InvalidReference,
        message: error.to_string(),
    })
}

fn unknown_work() -> Work {
    Work {
        image: String::new(),
        policy: Policy::IfNotPresent,
        limits: kruise_planner::node::attempt::Limits::new(None, 0, None),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        requested_by: String::new(),
    }
}
