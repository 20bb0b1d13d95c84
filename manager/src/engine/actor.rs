//! The engine's task: feeds events into the state and does what comes out of it.
//!
//! Tasks and channels
//! - The engine's task owns the state. It never waits for the network.
//! - `inbox`: from sessions and people, bounded; people are turned away when it is full, new agents after a while, running sessions wait.
//! - `told`: from watches, writes and reads that the engine has started, bounded; a channel of its own, so that no number of agents can hold up
//!   the news from the API server.
//! - One link per session, bounded: an agent whose stream does not keep up loses it and attaches again.
//! - One broadcast for watchers of tasks: one that does not keep up is told that it has missed something.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kruise_api::ids::{Epoch, JobUid, NodeName, NodeUid};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::config::EngineConfig;
use super::event::{
    Change, CloseReason, Effect, Event, ImageWrite, JobWrite, Now, SecretRequest, SessionId, ToAgent,
};
use super::guests::GuestRooms;
use super::handle::{Message, Watched};
use super::logins;
use super::metrics::EngineMetrics;
use super::ports::Cluster;
use super::state::{EngineState, TaskFilter};
use crate::clock::Monotonic;
use crate::leader::{LeaderState, Leadership};

/// News from the API server that wait for the engine.
const TOLD: usize = 1024;
/// Most messages taken before jobs are planned: so that a flood is planned for in bulk, and yet in time.
const BATCH: usize = 512;
/// Changes that a watcher of tasks may lag behind: a second of a thousand nodes at work.
pub(super) const CHANGES: usize = 1024;
/// Between two tries to list the agents' pods.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Shortest sleep, so that a clock that shows a little less than asked for makes no busy loop.
const SHORTEST_NAP: Duration = Duration::from_millis(2);

/// What the task needs.
pub(super) struct Actor {
    pub(super) cluster: Arc<dyn Cluster>,
    /// To be told when agents obey a higher epoch.
    pub(super) guard: Leadership,
    pub(super) leadership: watch::Receiver<LeaderState>,
    pub(super) clock: Monotonic,
    pub(super) config: EngineConfig,
    pub(super) metrics: EngineMetrics,
    pub(super) inbox: mpsc::Receiver<Message>,
    /// Whether agents can attach.
    pub(super) open: watch::Sender<bool>,
    /// Cancelled when the process is about to end.
    pub(super) closing: CancellationToken,
    /// Other controllers' view of the nodes.
    pub(super) guests: GuestRooms,
}

impl Actor {
    /// Runs until nobody holds a handle any more.
    pub(super) async fn run(mut self) {
        while let Some(epoch) = self.follow().await {
            tracing::info!(%epoch, "the engine starts");
            Leading::new(&mut self, epoch).run().await;
            tracing::info!(%epoch, "the engine stops");
        }
    }

    /// Turns everybody away until this replica leads. None when the process ends.
    async fn follow(&mut self) -> Option<Epoch> {
        loop {
            let state = self.leadership.borrow_and_update().clone();
            if let LeaderState::Leader { epoch, .. } = state
                && !self.closing.is_cancelled()
            {
                return Some(epoch);
            }
            tokio::select! {
                // Both are cancel-safe: a message is either taken or still there. Dropping one tells the asker that nobody leads here.
                message = self.inbox.recv() => drop(message?),
                changed = self.leadership.changed() => changed.ok()?,
            }
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
    state: EngineState,
    links: BTreeMap<SessionId, mpsc::Sender<Box<ToAgent>>>,
    changes: broadcast::Sender<Change>,
    tell: mpsc::Sender<Event>,
    told: mpsc::Receiver<Event>,
    /// Watches, writes and reads; dropped, and thereby ended, with the leadership.
    tasks: JoinSet<()>,
    pods: BTreeMap<u64, AbortHandle>,
}

impl<'a> Leading<'a> {
    fn new(actor: &'a mut Actor, epoch: Epoch) -> Self {
        let (tell, told) = mpsc::channel(TOLD);
        let (changes, _) = broadcast::channel(CHANGES);
        actor.guests.begin(epoch);
        let mut state = EngineState::new(actor.config, epoch, actor.now(), actor.metrics.clone());
        if actor.guests.are_expected() {
            state.await_guests();
        }
        let mut leading = Self {
            actor,
            epoch,
            state,
            links: BTreeMap::new(),
            changes,
            tell,
            told,
            tasks: JoinSet::new(),
            pods: BTreeMap::new(),
        };
        let (jobs, nodes) = (leading.actor.cluster.jobs(), leading.actor.cluster.nodes());
        leading.forward(jobs.map(Event::Jobs));
        leading.forward(nodes.map(Event::Nodes));
        let images = leading.actor.cluster.node_images();
        leading.forward(images.map(Event::NodeImages));
        leading.ask_for_agents();
        leading
    }

    /// Which nodes may hold a task of an earlier leader. Until that is known, all may.
    fn ask_for_agents(&mut self) {
        let (cluster, tell) = (Arc::clone(&self.actor.cluster), self.tell.clone());
        self.tasks.spawn(async move {
            loop {
                match cluster.agent_nodes().await {
                    Ok(nodes) => return drop(tell.send(Event::AgentNodes(nodes)).await),
                    Err(error) => tracing::warn!(%error, "the agents' pods cannot be listed"),
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        });
    }

    /// Passes a stream on to the engine, which holds it up when it does not keep up.
    fn forward(&mut self, events: impl futures::Stream<Item = Event> + Send + 'static) -> AbortHandle {
        let tell = self.tell.clone();
        self.tasks.spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                if tell.send(event).await.is_err() {
                    return;
                }
            }
        })
    }

    async fn run(mut self) {
        while self.turn().await {}
        self.actor.open.send_replace(false);
        for (_, link) in std::mem::take(&mut self.links) {
            // A link that is full belongs to a stream that ends by itself once the link is gone.
            drop(link.try_send(Box::new(ToAgent::Close(CloseReason::NotLeading))));
        }
    }

    /// Waits for something, takes whatever else is there, settles. False when this leadership is over.
    async fn turn(&mut self) -> bool {
        self.state.observe(self.changes.receiver_count() > 0);
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
            message = self.actor.inbox.recv() => match message {
                Some(message) => self.take(message),
                None => return false,
            },
            () = self.actor.closing.cancelled() => return false,
            () = wake => {}
        }
        for _ in 0..BATCH {
            let event = self.told.try_recv().ok();
            let message = self.actor.inbox.try_recv().ok();
            if event.is_none() && message.is_none() {
                break;
            }
            if let Some(event) = event {
                self.state.apply(event, self.actor.now());
            }
            if let Some(message) = message {
                self.take(message);
            }
        }
        for effect in self.state.settle(self.actor.now()) {
            self.perform(effect);
        }
        if let Some(epoch) = self.state.outrun() {
            self.actor.guard.outrun(epoch);
        }
        self.actor.guests.take(&self.state.take_guest_news());
        while self.tasks.try_join_next().is_some() {}
        let ready = self.state.is_ready();
        self.actor
            .open
            .send_if_modified(|open| std::mem::replace(open, ready) != ready);
        true
    }

    fn still_leads(&self) -> bool {
        matches!(&*self.actor.leadership.borrow(), LeaderState::Leader { epoch, .. } if *epoch == self.epoch)
    }

    fn take(&mut self, message: Message) {
        let now = self.actor.now();
        // Whoever asked may have gone away meanwhile; then nobody wants the answer.
        match message {
            Message::Event(event) => self.state.apply(*event, now),
            Message::Attach { attach, link, reply } => {
                let session = attach.session;
                let answer = self.state.attach(*attach, now).map(|()| self.state.epoch());
                if answer.is_ok() {
                    self.links.insert(session, link);
                }
                if reply.send(answer).is_err() {
                    self.state.apply(Event::Detached { session }, now);
                }
            }
            Message::Agents { after, size, reply } => {
                drop(reply.send((self.state.agent_page(&after, size, now), self.epoch)));
            }
            Message::Agent { node, reply } => drop(reply.send(self.state.agent(&node, now))),
            Message::Tasks {
                filter,
                after,
                size,
                reply,
            } => {
                drop(reply.send(self.state.task_page(&filter, &after, size)));
            }
            Message::Watch { filter, reply } => {
                let changes = self.changes.subscribe();
                self.state.observe(true);
                // What a job waits for is told with spans of time, which only a new plan brings up to date.
                self.state.touch(&filter);
                let (tasks, jobs) = (self.state.matching_tasks(&filter), self.state.summaries(&filter));
                drop(reply.send(Watched { tasks, jobs, changes }));
            }
            Message::Explain { job, node, reply } => {
                // Reasons are told with spans of time, which only a new plan brings up to date.
                self.state.touch(&TaskFilter {
                    job: Some(job.to_string()),
                    node: None,
                });
                drop(reply.send(self.state.explain(&job, node.as_ref(), now)));
            }
            Message::Knows { job, reply } => drop(reply.send(self.state.knows_job(&job))),
            Message::Fetch { job, reply } => {
                let fetch = self.actor.cluster.fetch(job);
                self.tasks.spawn(async move { drop(reply.send(fetch.await)) });
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { session, message } => self.send(session, message),
            Effect::Write { job, key, write } => self.write(job, key, write),
            Effect::WriteImage { node, uid, write } => self.write_image(node, uid, write),
            Effect::Fetch { job, key } => {
                let (fetch, tell) = (self.actor.cluster.fetch(key), self.tell.clone());
                self.tasks.spawn(async move {
                    let result = fetch.await;
                    drop(tell.send(Event::Fetched { job, result }).await);
                });
            }
            Effect::ReadSecrets(requests) => self.read_secrets(requests),
            Effect::WatchPods {
                job,
                watch,
                namespace,
                selector,
            } => {
                let pods = self.actor.cluster.pods(namespace, selector);
                let events = pods.map(move |pods| Event::Pods {
                    job: job.clone(),
                    watch,
                    pods,
                });
                let handle = self.forward(events);
                self.pods.insert(watch, handle);
            }
            Effect::UnwatchPods { watch } => {
                if let Some(handle) = self.pods.remove(&watch) {
                    handle.abort();
                }
            }
            // Without watchers there is nobody to tell.
            Effect::Publish(change) => drop(self.changes.send(change)),
        }
    }

    fn send(&mut self, session: SessionId, message: ToAgent) {
        let closes = matches!(message, ToAgent::Close(_));
        let Some(link) = self.links.get(&session) else {
            return;
        };
        if link.try_send(Box::new(message)).is_err() || closes {
            // The stream sees the end of its link, ends, and tells that it is detached.
            self.links.remove(&session);
        }
    }

    fn write(&mut self, job: JobUid, key: kruise_api::ids::ObjectKey, write: JobWrite) {
        let (cluster, tell, metrics) = (
            Arc::clone(&self.actor.cluster),
            self.tell.clone(),
            self.actor.metrics.clone(),
        );
        let (reason, event) = match &write {
            JobWrite::Status { reason, event, .. } => (Some(*reason), event.clone()),
            JobWrite::Finalizers { .. } | JobWrite::Delete => (None, None),
        };
        self.tasks.spawn(async move {
            let result = cluster.write(job.clone(), key.clone(), write).await;
            let done = result.is_ok();
            drop(
                tell.send(Event::Written {
                    job: job.clone(),
                    result,
                })
                .await,
            );
            if !done {
                return;
            }
            if let Some(reason) = reason {
                tracing::info!(job = %key, reason, "status written");
                metrics.wrote(reason);
            }
            if let Some(event) = event
                && let Err(error) = cluster.record(job, key.clone(), event).await
            {
                tracing::warn!(job = %key, %error, "an event was not told");
            }
        });
    }

    fn write_image(&mut self, node: NodeName, uid: NodeUid, write: ImageWrite) {
        let (cluster, tell) = (Arc::clone(&self.actor.cluster), self.tell.clone());
        let events = match &write {
            ImageWrite::Status { events, .. } => events.clone(),
            ImageWrite::Spec { .. } | ImageWrite::Delete => Vec::new(),
        };
        self.tasks.spawn(async move {
            let result = cluster.write_image(node.clone(), uid.clone(), write).await;
            let done = result.is_ok();
            let written = Event::ImageWritten {
                node: node.clone(),
                result,
            };
            drop(tell.send(written).await);
            for event in events.into_iter().filter(|_| done) {
                if let Err(error) = cluster.record_image(node.clone(), uid.clone(), event).await {
                    tracing::warn!(%node, %error, "an event was not told");
                }
            }
        });
    }

    fn read_secrets(&mut self, requests: Vec<SecretRequest>) {
        let (cluster, tell) = (Arc::clone(&self.actor.cluster), self.tell.clone());
        self.tasks.spawn(async move {
            let answers = logins::read(&*cluster, requests).await;
            drop(tell.send(Event::Secrets(answers)).await);
        });
    }
}
