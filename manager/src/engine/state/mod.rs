//! Everything that the leader keeps in memory, with its transitions: plain synchronous code that knows no runtime and no client.
//!
//! Flow: [`EngineState::apply`] takes events one by one and notes which jobs and sessions they touch; [`EngineState::settle`] then plans each
//! touched job once, brings each touched session up to date, and returns what is to be done: messages to agents first, writes afterwards.
//!
//! Guarantees
//! - Nothing here is truth: all of it can be rebuilt from the API and from what agents say when they attach.
//! - A result is acknowledged to its agent only after a status that contains it was stored, or once nobody wants it any more.
//! - At most one API request per job is under way.
//! - A task that a lost agent holds keeps its slot until the agent has stopped by itself.

mod adopt;
mod agents;
mod explain;
mod guests;
mod images;
mod jobs;
mod nodes;
mod orders;
mod planning;
mod probes;
mod saving;
mod secrets;
mod sync;
mod tasks;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{Epoch, JobUid, NodeName, NodeUid};

use super::config::EngineConfig;
use super::event::{Change, Effect, Event, Now, SecretAnswer, SessionId};
use super::metrics::EngineMetrics;
use super::objects::Listing;
use agents::Agent;
use images::ImageTable;
use jobs::JobTable;
use nodes::NodeTable;
use tasks::TaskTable;

pub(crate) use jobs::JobPhases;
pub(crate) use tasks::Stage;
pub(crate) use view::{AgentPage, TaskFilter, TaskPage};

/// Longest time between two looks at a job that waits for a time: the floor in case that the API server's clock was set.
const LONGEST_NAP: Duration = Duration::from_secs(60);

/// State of one leadership.
#[derive(Debug)]
pub(crate) struct EngineState {
    config: EngineConfig,
    epoch: Epoch,
    /// When this leadership began, by the monotonic clock.
    started: Duration,
    /// When this leadership began, by the API server's clock.
    started_wall: Timestamp,
    /// Whether agents of an earlier leader may still hold slots.
    reserving: bool,
    /// Whether nothing is handed out as long as any agent of an earlier leader has not attached.
    in_grace: bool,
    /// Nodes whose agents have obeyed a higher epoch than ours, and which.
    ahead: BTreeMap<NodeName, Epoch>,
    /// Nodes that may hold a task of an earlier leader: those with an agent's pod. All until that is known.
    may_hold: Option<BTreeSet<NodeName>>,
    jobs: JobTable,
    images: ImageTable,
    nodes: NodeTable,
    tasks: TaskTable,
    agents: BTreeMap<NodeName, Agent>,
    sessions: BTreeMap<SessionId, NodeName>,
    /// Nodes without a stream that may still be pulling, and until when.
    lost: BTreeMap<(NodeName, NodeUid), Duration>,
    /// Jobs to plan.
    dirty: BTreeSet<JobUid>,
    /// Nodes whose session has something to be sent.
    unsynced: BTreeSet<NodeName>,
    /// Jobs whose secrets are wanted for orders that wait.
    secrets_wanted: BTreeSet<JobUid>,
    /// Whether a read of secrets is under way; there is one at a time.
    secrets_asked: bool,
    /// Secrets just read, for this settling only.
    hand: BTreeMap<JobUid, SecretAnswer>,
    /// When jobs are looked at again.
    timers: BTreeSet<(Duration, JobUid)>,
    effects: Vec<Effect>,
    /// Writes of this settling; they go after all messages to agents.
    writes: Vec<Effect>,
    /// Whether anybody watches tasks.
    observed: bool,
    pod_watches: u64,
    /// Pulls in flight as of the last settling.
    last_slots: usize,
    guests: guests::GuestOrders,
    metrics: EngineMetrics,
}

impl EngineState {
    /// A leadership that begins now.
    pub(crate) fn new(config: EngineConfig, epoch: Epoch, now: Now, metrics: EngineMetrics) -> Self {
        Self {
            nodes: NodeTable::new(config.creation_delay),
            config,
            epoch,
            started: now.mono,
            started_wall: now.wall,
            reserving: true,
            in_grace: true,
            ahead: BTreeMap::new(),
            may_hold: None,
            jobs: JobTable::default(),
            images: ImageTable::default(),
            tasks: TaskTable::default(),
            agents: BTreeMap::new(),
            sessions: BTreeMap::new(),
            lost: BTreeMap::new(),
            dirty: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            secrets_wanted: BTreeSet::new(),
            secrets_asked: false,
            hand: BTreeMap::new(),
            timers: BTreeSet::new(),
            effects: Vec::new(),
            writes: Vec::new(),
            observed: false,
            pod_watches: 0,
            last_slots: 0,
            guests: guests::GuestOrders::default(),
            metrics,
        }
    }

    /// Whether jobs and nodes have been read in full, so that agents may attach and orders go out.
    pub(crate) fn is_ready(&self) -> bool {
        self.jobs.is_complete()
            && self.nodes.is_complete()
            && self.images.is_complete()
            && self.guests_are_ready()
    }

    /// Number of this leadership.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether changes of tasks are published.
    pub(crate) fn observe(&mut self, observed: bool) {
        self.observed = observed;
    }

    /// Takes one event. What follows from it comes out of the next [`Self::settle`].
    pub(crate) fn apply(&mut self, event: Event, now: Now) {
        match event {
            Event::Jobs(listing) => self.job_listing(listing, now),
            Event::Nodes(listing) => self.node_listing(listing, now),
            Event::Pods { job, watch, pods } => self.pods(&job, watch, pods),
            Event::Probed { session, answer } => self.probed(session, &answer, now),
            Event::NodeImages(listing) => self.image_listing(listing, now),
            Event::ImageWritten { node, result } => self.image_written(&node, result, now),
            Event::AgentNodes(nodes) => self.agent_nodes(nodes),
            Event::Detached { session } => self.detach(session),
            Event::Guest { epoch, change } if epoch == self.epoch => self.guest(change),
            Event::Guest { .. } => {}
            Event::Stale { session, stale } => self.set_stale(session, stale),
            Event::Ack { session, ack } => self.ack(session, &ack, now),
            Event::Report { session, status } => self.report(session, *status, now),
            Event::Fetched { job, result } => self.fetched(&job, result, now),
            Event::Seen(object) => self.take_job(*object, now),
            Event::Written { job, result } => self.written(&job, result, now),
            Event::Secrets(answers) => self.take_secrets(answers, now),
        }
    }

    /// Plans what was touched or is due, and returns what is to be done.
    pub(crate) fn settle(&mut self, now: Now) -> Vec<Effect> {
        if self.is_ready() {
            self.pass_time(now);
            self.touch_capped_jobs();
            let mut resting = BTreeSet::new();
            // Sending may find that a secret is gone, which touches its job once more; more than that settles with the next event.
            for _ in 0..3 {
                while let Some(job) = self.dirty.pop_first() {
                    if self.rest_of(&job, now).is_some() {
                        resting.insert(job);
                    } else {
                        self.plan_job(&job, now);
                    }
                }
                for node in std::mem::take(&mut self.unsynced) {
                    self.sync(&node, now);
                }
                if self.dirty.is_empty() {
                    break;
                }
            }
            self.dirty.append(&mut resting);
            self.settle_images(now);
        }
        self.hand.clear();
        self.ask_for_secrets();
        self.count();
        self.effects.append(&mut self.writes);
        std::mem::take(&mut self.effects)
    }

    /// [`Self::apply`] and [`Self::settle`] in one.
    #[cfg(test)]
    pub(crate) fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.apply(event, now);
        self.settle(now)
    }

    /// What happens by the passing of time alone.
    fn pass_time(&mut self, now: Now) {
        if self.nodes.grow_up(now.wall) {
            self.refresh_all_agents();
            self.touch_active_jobs();
        }
        if self.in_grace && self.grace_end() <= now.mono {
            self.in_grace = false;
            self.refresh_all_agents();
        }
        if self.reserving && self.reserve_end() <= now.mono {
            self.reserving = false;
            self.refresh_all_agents();
        }
        while let Some((key, _)) = self.lost.iter().find(|(_, until)| **until <= now.mono) {
            let (node, uid) = key.clone();
            self.lost.remove(&(node.clone(), uid.clone()));
            self.give_up_slots(&node, &uid);
        }
        while let Some((at, job)) = self.timers.first().cloned() {
            if at > now.mono {
                break;
            }
            self.timers.remove(&(at, job.clone()));
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.timer = None;
                self.dirty.insert(job);
            }
        }
    }

    /// When to settle again if nothing happens before, by the monotonic clock.
    pub(crate) fn next_wake(&self, now: Now) -> Option<Duration> {
        if !self.is_ready() {
            return None;
        }
        let dirty = self
            .dirty
            .iter()
            .map(|job| self.rest_of(job, now).unwrap_or(now.mono))
            .min();
        let grace = self.in_grace.then(|| self.grace_end());
        let reserve = self.reserving.then(|| self.reserve_end());
        let lost = self.lost.values().min().copied();
        let timer = self.timers.first().map(|(at, _)| *at);
        let node = self.nodes.next_change(now.wall).map(|at| mono_of(at, now));
        let resync = self
            .unsynced
            .iter()
            .filter_map(|node| self.agents.get(node)?.session.as_ref()?.resync_at(now))
            .min();
        let image = self.images.next_wake();
        [dirty, grace, reserve, lost, timer, node, resync, image]
            .into_iter()
            .flatten()
            .min()
    }

    /// Until when a job that was planned a moment ago is not planned again. Secrets just read are good for this settling only, so they are used.
    fn rest_of(&self, job: &JobUid, now: Now) -> Option<Duration> {
        let rest = self.jobs.get(job)?.rests_until.filter(|until| *until > now.mono);
        rest.filter(|_| !self.hand.contains_key(job))
    }

    /// Until then an agent that has not attached may hold a task of an earlier leader.
    fn reserve_end(&self) -> Duration {
        self.started + self.config.slot_lease()
    }

    /// Until then a job waits for every agent that may hold a task of an earlier leader.
    fn grace_end(&self) -> Duration {
        self.started + self.config.attach_grace
    }

    /// Looks at every job again that is not over.
    fn touch_active_jobs(&mut self) {
        let active = self.jobs.iter().filter(|(_, entry)| !entry.object.is_complete());
        self.dirty.extend(active.map(|(uid, _)| uid.clone()));
    }

    fn node_listing(&mut self, listing: Listing<super::objects::NodeObject, NodeUid>, now: Now) {
        match listing {
            Listing::Begin => self.nodes.begin_list(),
            Listing::Listed(node) | Listing::Applied(node) => {
                let name = node.name.clone();
                let change = self.nodes.apply(node, now.wall);
                self.after_node_change(&name, &change);
            }
            Listing::Complete => {
                for uid in self.nodes.end_list() {
                    self.node_deleted(&uid, now);
                }
                self.touch_active_jobs();
            }
            Listing::Deleted(uid) => self.node_deleted(&uid, now),
        }
    }

    fn node_deleted(&mut self, uid: &NodeUid, now: Now) {
        let change = self.nodes.remove(uid);
        if let Some((name, _)) = &change.gone {
            self.after_node_change(name, &change);
            self.refresh_fake(name, now);
        }
    }

    fn after_node_change(&mut self, name: &NodeName, change: &nodes::NodeChange) {
        if let Some((name, uid)) = &change.gone {
            self.close_session_of(name, uid);
            if self.nodes.uid(name).is_none() && self.tasks.count_of_node(name) == 0 {
                self.agents.remove(name);
            }
        }
        self.refresh_agent(name);
        if change.relevant {
            self.touch_active_jobs();
        }
    }

    fn publish(&mut self, change: Change) {
        if self.observed {
            self.effects.push(Effect::Publish(change));
        }
    }

    fn set_timer(&mut self, job: &JobUid, at: Option<Duration>) {
        let Some(entry) = self.jobs.get_mut(job) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.timer, at) {
            self.timers.remove(&(old, job.clone()));
        }
        if let Some(at) = at {
            self.timers.insert((at, job.clone()));
        }
    }

    /// Jobs that the cluster's caps held back look again whenever the number of pulls has changed.
    fn touch_capped_jobs(&mut self) {
        if self.config.caps.is_none() || self.tasks.slots() == self.last_slots {
            return;
        }
        let capped = self.jobs.iter().filter(|(_, entry)| entry.capped > 0);
        self.dirty.extend(capped.map(|(uid, _)| uid.clone()));
    }

    fn count(&mut self) {
        self.last_slots = self.tasks.slots();
        self.metrics.agents_connected(self.sessions.len());
        self.metrics.in_flight(self.last_slots);
        self.metrics.jobs(self.jobs.phases());
        let queued = |entry: &jobs::JobEntry| {
            if entry.complete {
                0
            } else {
                entry.counters.pending()
            }
        };
        self.metrics
            .queued(self.jobs.iter().map(|(_, entry)| queued(entry)).sum());
    }
}

/// A moment of the API server's clock on the monotonic one, cut to the longest nap.
fn mono_of(at: Timestamp, now: Now) -> Duration {
    let left = Duration::try_from(at.duration_since(now.wall)).unwrap_or(Duration::ZERO);
    now.mono + left.min(LONGEST_NAP)
}

/// A moment of the monotonic clock on the API server's.
fn wall_of(at: Duration, now: Now) -> Timestamp {
    let left = at.saturating_sub(now.mono);
    let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
    now.wall.checked_add(left).unwrap_or(Timestamp::MAX)
}
