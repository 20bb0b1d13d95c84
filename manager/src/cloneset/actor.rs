//! The controller's task: feeds events into the state and does what comes out of it, as long as this replica leads.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kruise_api::ids::Epoch;
use kruise_planner::cloneset::Gates;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::carry::Carrier;
use super::event::{Effect, Event, Now};
use super::metrics::CloneSetMetrics;
use super::ports::Cluster;
use super::space::Kind;
use super::state::State;
use crate::clock::Monotonic;
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
}

impl Actor {
    /// Runs until the leadership's owner is gone.
    pub(super) async fn run(mut self) {
        while let Some(epoch) = self.follow().await {
            tracing::info!(%epoch, "the controller of CloneSets starts");
            Leading::new(&mut self, epoch).run().await;
            tracing::info!(%epoch, "the controller of CloneSets stops");
        }
    }

    async fn follow(&mut self) -> Option<Epoch> {
        loop {
            if let LeaderState::Leader { epoch, .. } = &*self.leadership.borrow_and_update() {
                return Some(*epoch);
            }
            self.leadership.changed().await.ok()?;
        }
    }

    fn now(&self) -> Now {
        Now {
            mono: self.clock.now(),
            wall: self.cluster.now(),
        }
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
        tokio::select! {
            // All are cancel-safe: a message is either taken or still there.
            changed = self.actor.leadership.changed() => {
                if changed.is_err() || !self.still_leads() {
                    return false;
                }
            }
            Some(event) = self.told.recv() => self.state.apply(event, self.actor.now()),
            () = wake => {}
        }
        for _ in 0..BATCH {
            let Ok(event) = self.told.try_recv() else { break };
            self.state.apply(event, self.actor.now());
        }
        for effect in self.state.settle(self.actor.now()) {
            self.perform(effect);
        }
        while self.tasks.try_join_next().is_some() {}
        true
    }

    fn still_leads(&self) -> bool {
        matches!(&*self.actor.leadership.borrow(), LeaderState::Leader { epoch, .. } if *epoch == self.epoch)
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::WatchAll => {
                for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Set) {
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
                let cluster = Arc::clone(&self.actor.cluster);
                let carrier = Carrier::new(cluster, pass, self.actor.cluster.now());
                let tell = self.tell.clone();
                self.tasks.spawn(async move {
                    let outcome = carrier.run().await;
                    drop(tell.send(Event::Done(outcome)).await);
                });
            }
        }
    }
}
