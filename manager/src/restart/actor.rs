//! The controller's task: feeds events into the state and does what comes out of it.
//!
//! `told` is one bounded queue for watches, writes and reads; a watch that is ahead waits. What agents say comes from the engine's shared view, which
//! holds the latest state only.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kruise_api::ids::Epoch;
use kruise_proto::dispatch::{Order, order};
use kruise_proto::restart::order_message;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::metrics::RestartMetrics;
use super::state::{Effect, Event, Now, State};
use crate::clock::Monotonic;
use crate::engine::EngineHandle;
use crate::engine::guests::{Guest, GuestChange, Guests};
use crate::leader::LeaderState;

/// News that wait for the controller.
const TOLD: usize = 1024;
/// Most news taken before pods are planned.
const BATCH: usize = 256;
/// Shortest sleep, so that a clock that shows a little less than asked for makes no busy loop.
const SHORTEST_NAP: Duration = Duration::from_millis(2);

/// What the task needs.
pub(super) struct Actor {
    pub(super) cluster: Arc<dyn Cluster>,
    pub(super) engine: EngineHandle,
    pub(super) leadership: watch::Receiver<LeaderState>,
    pub(super) clock: Monotonic,
    pub(super) metrics: RestartMetrics,
}

impl Actor {
    /// Runs as long as the process.
    pub(super) async fn run(mut self) {
        while let Some(epoch) = self.follow().await {
            self.lead(epoch).await;
        }
    }

    /// Waits until this replica leads, and its engine with it. None when the process ends.
    async fn follow(&mut self) -> Option<Epoch> {
        let guests = self.guests().clone();
        loop {
            let epoch = self.epoch();
            if let Some(epoch) = epoch.filter(|epoch| guests.is_at(*epoch)) {
                return Some(epoch);
            }
            tokio::select! {
                changed = self.leadership.changed() => changed.ok()?,
                () = guests.changed() => {}
            }
        }
    }

    fn guests(&self) -> &Guests {
        self.engine.guests(Guest::Restarts)
    }

    fn epoch(&self) -> Option<Epoch> {
        match &*self.leadership.borrow() {
            LeaderState::Leader { epoch, .. } => Some(*epoch),
            LeaderState::Follower { .. } => None,
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.clock.now(),
            wall: self.cluster.now(),
        }
    }

    async fn lead(&mut self, epoch: Epoch) {
        let (tell, mut told) = mpsc::channel(TOLD);
        let mut leading = Leading {
            epoch,
            tell,
            tasks: JoinSet::new(),
        };
        let mut state = State::new(self.metrics.clone());
        let guests = self.guests().clone();
        leading.forward(self.cluster.requests().map(Event::Requests));
        while self.epoch() == Some(epoch) {
            let now = self.now();
            let nap = state
                .next_wake()
                .map_or(Duration::MAX, |at| at.saturating_sub(now.mono).max(SHORTEST_NAP));
            tokio::select! {
                // All are cancel-safe: a message is either taken or still there.
                changed = self.leadership.changed() => if changed.is_err() { return },
                Some(event) = told.recv() => state.apply(event, self.now()),
                () = guests.changed() => {}
                () = tokio::time::sleep(nap.min(Duration::from_secs(3600))) => {}
            }
            for _ in 0..BATCH {
                let Ok(event) = told.try_recv() else { break };
                state.apply(event, self.now());
            }
            for (name, node) in guests.changes(epoch) {
                state.apply(Event::Node(name, node), self.now());
            }
            for effect in state.settle(self.now()) {
                self.perform(effect, &mut leading).await;
            }
            while leading.tasks.try_join_next().is_some() {}
        }
    }

    async fn perform(&self, effect: Effect, leading: &mut Leading) {
        match effect {
            Effect::Ready => self.engine.guest(leading.epoch, GuestChange::Ready).await,
            Effect::WatchPods => leading.forward(self.cluster.pods().map(Event::Pods)),
            Effect::Order {
                node,
                task,
                order,
                pod,
                requested_by,
            } => {
                tracing::info!(request = requested_by, pod, %node, released = order.released, "restart ordered");
                let message = order_message(&order, pod, requested_by);
                let order = Box::new(Order {
                    task_id: task.to_string(),
                    work: Some(order::Work::RestartContainers(message)),
                });
                self.engine
                    .guest(
                        leading.epoch,
                        GuestChange::Hold {
                            node,
                            order,
                            behind: Vec::new(),
                        },
                    )
                    .await;
            }
            Effect::Forget { node, task } => {
                self.engine
                    .guest(leading.epoch, GuestChange::Forget { node, task })
                    .await;
            }
            Effect::Write {
                object,
                write,
                report,
            } => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                let doing = self.cluster.write(*object, *write, report);
                leading.spawn(async move {
                    Event::Written {
                        uid,
                        result: doing.await.map(|object| object.map(Box::new)),
                    }
                });
            }
            Effect::Fetch { uid, key } => {
                let doing = self.cluster.fetch(key);
                leading.spawn(async move {
                    Event::Fetched {
                        uid,
                        result: doing.await.map(|object| object.map(Box::new)),
                    }
                });
            }
            Effect::Record {
                object,
                pod_uid,
                node,
                note,
            } => {
                let doing = self.cluster.record(*object, pod_uid, node, note);
                leading.tasks.spawn(async move {
                    if let Err(error) = doing.await {
                        tracing::warn!(%error, "an event was not told");
                    }
                });
            }
        }
    }
}

/// What runs for one leadership, and ends with it.
struct Leading {
    epoch: Epoch,
    tell: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
}

impl Leading {
    fn forward(&mut self, events: impl Stream<Item = Event> + Send + 'static) {
        let tell = self.tell.clone();
        self.tasks.spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                if tell.send(event).await.is_err() {
                    return;
                }
            }
        });
    }

    fn spawn(&mut self, doing: impl Future<Output = Event> + Send + 'static) {
        let tell = self.tell.clone();
        self.tasks
            .spawn(async move { drop(tell.send(doing.await).await) });
    }
}
