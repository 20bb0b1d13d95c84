//! The controller's task: feeds events into the state and does what comes out of it, as long as this replica leads.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kruise_api::ids::Epoch;
use kruise_planner::cloneset::Gates;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::carry::Carrier;
use super::event::{Effect, Event, Now, PullAsk};
use super::handle::Question;
use super::metrics::CloneSetMetrics;
use super::ports::Cluster;
use super::space::Kind;
use super::state::State;
use crate::clock::Monotonic;
use crate::engine::EngineHandle;
use crate::engine::guests::{Guest, GuestChange, Guests};
use crate::leader::LeaderState;

/// News that wait for the controller.
const TOLD: usize = 1024;
/// Most news taken before sets are planned.
const BATCH: usize = 1024;
/// Shortest sleep, so that a clock that shows a little less than asked for makes no busy loop.
const SHORTEST_NAP: Duration = Duration::from_millis(2);

/// What the task needs.
pub(super) struct Actor {
    pub(super) cluster: Arc<dyn Cluster>,
    pub(super) leadership: watch::Receiver<LeaderState>,
    pub(super) clock: Monotonic,
    pub(super) gates: Gates,
    pub(super) metrics: CloneSetMetrics,
    /// By which nodes are asked for images. None in tests of everything else.
    pub(super) nodes: Option<EngineHandle>,
    pub(super) questions: mpsc::Receiver<Question>,
}

impl Actor {
    /// Runs until the leadership's owner is gone.
    pub(super) async fn run(mut self) {
        while let Some(epoch) = self.follow().await {
            tracing::info!(%epoch, "the controller of CloneSets starts");
            Leading::new(&mut self, epoch).run().await;
            self.metrics.series.clear();
            tracing::info!(%epoch, "the controller of CloneSets stops");
        }
    }

    /// Waits until this replica leads, and its engine with it. None when the process ends.
    async fn follow(&mut self) -> Option<Epoch> {
        let guests = self.guests();
        loop {
            let epoch = match &*self.leadership.borrow_and_update() {
                LeaderState::Leader { epoch, .. } => Some(*epoch),
                LeaderState::Follower { .. } => None,
            };
            let guests = guests.as_ref();
            let is_at = |epoch: &Epoch| guests.is_none_or(|guests| guests.is_at(*epoch));
            if let Some(epoch) = epoch.filter(is_at) {
                return Some(epoch);
            }
            tokio::select! {
                changed = self.leadership.changed() => changed.ok()?,
                () = news(guests) => {}
                // Whoever asks is told that nobody here can say, by the reply that never comes.
                Some(question) = self.questions.recv() => drop(question),
            }
        }
    }

    fn guests(&self) -> Option<Guests> {
        let engine = self.nodes.as_ref()?;
        Some(engine.guests(Guest::CloneSets).clone())
    }

    fn now(&self) -> Now {
        Now {
            mono: self.clock.now(),
            wall: self.cluster.now(),
        }
    }
}

/// Returns when agents have said something.
async fn news(guests: Option<&Guests>) {
    match guests {
        Some(guests) => guests.changed().await,
        None => std::future::pending().await,
    }
}

/// One leadership.
struct Leading<'a> {
    actor: &'a mut Actor,
    epoch: Epoch,
    state: State,
    tell: mpsc::Sender<Event>,
    told: mpsc::Receiver<Event>,
    /// Watches, passes and reads; dropped, and thereby ended, with the leadership.
    tasks: JoinSet<()>,
}

impl<'a> Leading<'a> {
    fn new(actor: &'a mut Actor, epoch: Epoch) -> Self {
        let (tell, told) = mpsc::channel(TOLD);
        let mut leading = Self {
            state: State::new(actor.gates, actor.metrics.clone()),
            actor,
            epoch,
            tell,
            told,
            tasks: JoinSet::new(),
        };
        leading.forward(leading.actor.cluster.follow(Kind::Set));
        leading
    }

    /// Passes a stream on, and holds it up when the controller does not keep up.
    fn forward(&mut self, mut events: futures::stream::BoxStream<'static, Event>) {
        let tell = self.tell.clone();
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                if tell.send(event).await.is_err() {
                    return;
                }
            }
        });
    }

    async fn run(mut self) {
        while self.turn().await {}
    }

    /// Waits for something, takes whatever else is there, settles. False when this leadership is over.
    async fn turn(&mut self) -> bool {
        let now = self.actor.now();
        let nap = self
            .state
            .next_wake(now)
            .map(|at| at.saturating_sub(now.mono).max(SHORTEST_NAP));
        let wake = async {
            match nap {
                Some(nap) => tokio::time::sleep(nap).await,
                None => std::future::pending().await,
            }
        };
        let guests = self.actor.guests();
        let guests = guests.as_ref();
        tokio::select! {
            // All are cancel-safe: a message is either taken or still there.
            changed = self.actor.leadership.changed() => {
                if changed.is_err() || !self.still_leads() {
                    return false;
                }
            }
            () = news(guests) => {}
            Some(event) = self.told.recv() => self.state.apply(event, self.actor.now()),
            Some(question) = self.actor.questions.recv() => {
                let answer = self.state.explain(&question.set, self.actor.now());
                // Who asked may have gone.
                drop(question.reply.send(answer));
            }
            () = wake => {}
        }
        for _ in 0..BATCH {
            let Ok(event) = self.told.try_recv() else { break };
            self.state.apply(event, self.actor.now());
        }
        let told = guests
            .map(|guests| guests.changes(self.epoch))
            .unwrap_or_default();
        for (name, node) in told {
            self.state.apply(Event::Agent(name, node), self.actor.now());
        }
        for effect in self.state.settle(self.actor.now()) {
            self.perform(effect);
        }
        while self.tasks.try_join_next().is_some() {}
        true
    }

    /// Asks a node for an image, with what the pod would log in with.
    fn ask(&mut self, ask: PullAsk) {
        let Some(engine) = self.actor.nodes.clone() else {
            return;
        };
        let (cluster, tell, epoch) = (Arc::clone(&self.actor.cluster), self.tell.clone(), self.epoch);
        self.tasks.spawn(async move {
            let task = ask.task.clone();
            match super::ask::order(cluster.as_ref(), &ask).await {
                Ok(order) => {
                    let change = GuestChange::Hold {
                        node: ask.node,
                        order: Box::new(order),
                        behind: ask.behind,
                    };
                    engine.guest(epoch, change).await;
                }
                Err(problem) => drop(tell.send(Event::NotAsked { task, problem }).await),
            }
        });
    }

    fn still_leads(&self) -> bool {
        matches!(&*self.actor.leadership.borrow(), LeaderState::Leader { epoch, .. } if *epoch == self.epoch)
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Ask(ask) => self.ask(ask),
            Effect::Question { node, order } => {
                let Some(engine) = self.actor.nodes.clone() else {
                    return;
                };
                let behind = Vec::new();
                let change = GuestChange::Hold { node, order, behind };
                let epoch = self.epoch;
                self.tasks.spawn(async move { engine.guest(epoch, change).await });
            }
            Effect::Tell { pod, event } => {
                let told = self.actor.cluster.record_of_pod(pod, event);
                self.tasks.spawn(async move {
                    if let Err(error) = told.await {
                        tracing::debug!(%error, "an event was not told");
                    }
                });
            }
            Effect::Release { node, task } => {
                let Some(engine) = self.actor.nodes.clone() else {
                    return;
                };
                let epoch = self.epoch;
                self.tasks
                    .spawn(async move { engine.guest(epoch, GuestChange::Forget { node, task }).await });
            }
            Effect::WatchAll => {
                let gates = self.actor.gates;
                for kind in Kind::followed(&gates).filter(|kind| *kind != Kind::Set) {
                    self.forward(self.actor.cluster.follow(kind));
                }
            }
            Effect::WatchNodes => self.forward(self.actor.cluster.nodes()),
            Effect::Find {
                kind,
                namespace,
                name,
            } => {
                let find = self.actor.cluster.find(kind, namespace.clone(), name.clone());
                let tell = self.tell.clone();
                self.tasks.spawn(async move {
                    let result = find.await;
                    let found = Event::Found {
                        kind,
                        namespace,
                        name,
                        result,
                    };
                    drop(tell.send(found).await);
                });
            }
            Effect::Pass(pass) => {
                let (cluster, now) = (Arc::clone(&self.actor.cluster), self.actor.cluster.now());
                let (traces, clock) = (&self.actor.metrics.traces, &self.actor.clock);
                let cluster = super::traced::traced(cluster, traces, &pass.set, now, clock);
                let carrier = Carrier::new(cluster, pass, now);
                let tell = self.tell.clone();
                self.tasks.spawn(async move {
                    let outcome = carrier.run().await;
                    drop(tell.send(Event::Done(outcome)).await);
                });
            }
        }
    }
}
