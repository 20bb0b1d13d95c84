//! Agents and their sessions: attach, acknowledge, report, fall silent, go away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{Epoch, Generation, JobUid, NodeName, NodeUid, TaskId};
use kruise_planner::job::{AgentView, TaskOutcome};
use kruise_planner::task::{Phase, Reason, job_of};
use kruise_proto::convert::{phase_from_number, reason_from_number};
use kruise_proto::dispatch::{Ack, Refusal};
use kruise_proto::task::TaskStatus;

use super::super::event::{Attach, AttachRefused, CloseReason, Effect, Now, SessionId, ToAgent};
use super::super::vitals::Vitals;
use super::EngineState;
use super::adopt::Claim;
use super::nodes::Capacity;
use super::tasks::Stage;

/// First and longest pause before a set goes out again to an agent that refused the last one.
const RESYNC_FIRST: Duration = Duration::from_millis(500);
const RESYNC_LONGEST: Duration = Duration::from_secs(30);
/// How far a replica's clock may ever have been ahead of the API server's: a day, in milliseconds.
const PLAUSIBLE_MS: u64 = 86_400_000;
/// Least time between two messages about the progress of one task.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(900);

/// An agent that has attached under this leadership.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) node_uid: NodeUid,
    pub(crate) version: String,
    pub(crate) boot_id: String,
    /// Of the last Hello, by the agent's clock; 0 if it did not say.
    stamp: u64,
    pub(crate) peer: String,
    pub(crate) attached_since: Timestamp,
    pub(crate) vitals: Arc<Vitals>,
    /// Pulls that it runs at once; 0 is no limit.
    max_workers: u32,
    answers_probes: bool,
    /// While it has a stream.
    pub(crate) session: Option<Session>,
    /// As of the last session.
    pub(crate) generation: Generation,
    pub(crate) acknowledged: Generation,
}

/// A live stream.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// No heartbeat in time.
    pub(crate) stale: bool,
    /// The whole set is to be sent; not before this moment.
    pub(crate) set_due: Option<Duration>,
    refusals: u32,
    /// Tasks that the agent knows from us on this stream.
    pub(crate) told: BTreeSet<TaskId>,
    /// Jobs whose task on this node is to be added by the next delta.
    pub(crate) add: BTreeSet<JobUid>,
    /// Tasks to be taken back by the next delta, and why.
    pub(crate) cancel: BTreeMap<TaskId, &'static str>,
    /// Other controllers' orders to be added by the next delta.
    pub(super) guests: BTreeSet<TaskId>,
    /// Results that are stored.
    pub(crate) saved: Vec<TaskId>,
    /// Images to ask about.
    pub(super) questions: BTreeSet<String>,
    /// Ended tasks that the agent did not name when it attached: it has lost their results, and would begin anew if a set named them.
    pub(super) lacks: BTreeSet<TaskId>,
    pub(super) unacknowledged: VecDeque<Sent>,
}

/// What a set or delta that is not acknowledged yet was about.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) generation: Generation,
    /// Tasks that the agent has dropped once it acknowledges.
    pub(super) dropped: Vec<(JobUid, TaskId)>,
    /// When the orders in it were handed out.
    pub(super) ordered: Vec<Duration>,
}

impl Session {
    fn new(id: SessionId, now: Now) -> Self {
        Self {
            id,
            stale: false,
            set_due: Some(now.mono),
            refusals: 0,
            told: BTreeSet::new(),
            add: BTreeSet::new(),
            cancel: BTreeMap::new(),
            guests: BTreeSet::new(),
            saved: Vec::new(),
            questions: BTreeSet::new(),
            lacks: BTreeSet::new(),
            unacknowledged: VecDeque::new(),
        }
    }

    /// When the set is to be sent, if that lies ahead.
    pub(crate) fn resync_at(&self, now: Now) -> Option<Duration> {
        self.set_due.filter(|at| *at > now.mono)
    }
}

impl EngineState {
    /// Lets an agent in: settles what it claims to hold, and lets its whole set follow.
    pub(crate) fn attach(&mut self, attach: Attach, now: Now) -> Result<(), AttachRefused> {
        if !self.is_ready() {
            return Err(AttachRefused::NotReady);
        }
        if self.is_ahead(&attach) {
            return Err(AttachRefused::OldEpoch);
        }
        if self.nodes.uid(&attach.node) != Some(&attach.node_uid) {
            return Err(AttachRefused::UnknownNode);
        }
        if self.is_overtaken(&attach) {
            return Err(AttachRefused::Overtaken);
        }
        let Attach {
            session,
            node,
            node_uid,
            peer,
            hello,
            vitals,
        } = attach;
        self.ahead.remove(&node);
        let replaced = self.agents.get_mut(&node).and_then(|agent| agent.session.take());
        if let Some(old) = replaced {
            self.sessions.remove(&old.id);
            self.send(old.id, ToAgent::Close(CloseReason::Replaced));
        }
        let claim = self.claim(&node, &node_uid, now);
        let agent = Agent {
            node_uid: node_uid.clone(),
            version: hello.agent_version,
            boot_id: hello.boot_id,
            stamp: hello.stamp,
            peer,
            attached_since: now.wall,
            vitals,
            max_workers: hello.max_workers,
            answers_probes: hello.answers_probes,
            session: Some(Session::new(session, now)),
            generation: Generation(0),
            acknowledged: Generation(0),
        };
        self.agents.insert(node.clone(), agent);
        self.sessions.insert(session, node.clone());
        self.lost.remove(&(node.clone(), node_uid.clone()));
        self.guests_attached(&node, &hello.tasks);
        self.adopt(&node, &node_uid, hello.tasks, claim, now);
        self.refresh_agent(&node);
        self.touch_active_jobs();
        self.unsynced.insert(node);
        Ok(())
    }

    /// Whether the Hello of a later stream of the same agent came first. Another boot has another clock, and without a boot id nobody can tell.
    fn is_overtaken(&self, attach: &Attach) -> bool {
        let hello = &attach.hello;
        let known = self.agents.get(&attach.node);
        let same_boot = |agent: &&Agent| {
            agent.node_uid == attach.node_uid && !hello.boot_id.is_empty() && agent.boot_id == hello.boot_id
        };
        hello.stamp > 0
            && known
                .filter(same_boot)
                .is_some_and(|agent| hello.stamp <= agent.stamp)
    }

    /// What an agent's word about running tasks is worth at this moment.
    fn claim(&self, node: &NodeName, uid: &NodeUid, now: Now) -> Claim {
        let new_to_us = self.agents.get(node).is_none_or(|agent| agent.node_uid != *uid);
        if new_to_us && now.mono < self.reserve_end() {
            Claim::Honoured
        } else {
            Claim::Lapsed
        }
    }

    pub(super) fn detach(&mut self, id: SessionId) {
        let Some(node) = self.sessions.remove(&id) else {
            return;
        };
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        agent.session = None;
        let uid = agent.node_uid.clone();
        self.guests.detached(&node);
        let until = agent.vitals.last_answered() + self.config.slot_lease();
        if self.tasks.of_node(&node).any(|(_, task)| task.node_uid == uid) {
            self.lost.insert((node.clone(), uid), until);
        }
        self.unsynced.remove(&node);
        self.drop_questions(&node);
        self.refresh_agent(&node);
        self.touch_jobs_on(&node);
    }

    pub(super) fn close_session_of(&mut self, node: &NodeName, uid: &NodeUid) {
        let id = self
            .agents
            .get(node)
            .filter(|agent| agent.node_uid == *uid)
            .and_then(|agent| agent.session.as_ref())
            .map(|session| session.id);
        if let Some(id) = id {
            self.send(id, ToAgent::Close(CloseReason::NodeGone));
            self.detach(id);
        }
    }

    pub(super) fn set_stale(&mut self, id: SessionId, stale: bool) {
        let Some(node) = self.sessions.get(&id).cloned() else {
            return;
        };
        if let Some(session) = self
            .agents
            .get_mut(&node)
            .and_then(|agent| agent.session.as_mut())
        {
            session.stale = stale;
        }
        self.refresh_agent(&node);
    }

    /// Brings the planner's view of a node's agent up to date.
    pub(super) fn refresh_agent(&mut self, node: &NodeName) {
        let uid = self.nodes.uid(node);
        let agent = self.agents.get(node).filter(|agent| Some(&agent.node_uid) == uid);
        let view = match agent.map(|agent| agent.session.as_ref()) {
            Some(Some(session)) if !session.stale => AgentView::Attached,
            None if self.may_hold(node) => AgentView::MayHold,
            _ => AgentView::Away,
        };
        self.note_load(node);
        if self.nodes.set_agent(node, view) {
            self.touch_active_jobs();
        }
    }

    /// Whether a node's agent has obeyed a higher epoch than ours. It would not obey us, and is remembered.
    fn is_ahead(&mut self, attach: &Attach) -> bool {
        let highest = Epoch(attach.hello.highest_epoch);
        let is_ahead = highest > self.epoch && self.nodes.uid(&attach.node) == Some(&attach.node_uid);
        if is_ahead {
            self.ahead.insert(attach.node.clone(), highest);
        }
        is_ahead
    }

    /// The epoch that this leader must get above, if most agents have obeyed a higher one than its own: that was lost with a deleted Lease, and this
    /// replica's clock is behind the one that it came from. A single agent proves nothing, and neither does a number that no clock has shown yet.
    pub(crate) fn outrun(&self) -> Option<Epoch> {
        if self.in_grace || self.ahead.len() <= self.sessions.len() {
            return None;
        }
        let latest = u64::try_from(self.started_wall.as_millisecond())
            .unwrap_or(0)
            .saturating_add(PLAUSIBLE_MS);
        self.ahead
            .values()
            .copied()
            .filter(|epoch| epoch.0 <= latest)
            .max()
    }

    /// Brings the planner's view of how busy a node is up to date.
    pub(super) fn note_load(&mut self, node: &NodeName) {
        let agent = self.agents.get(node);
        let tasks = self
            .tasks
            .of_node(node)
            .filter(|(_, task)| task.holds_slot())
            .count();
        let capacity = Capacity {
            workers: agent.map_or(0, |agent| agent.max_workers),
            answers_probes: agent.is_some_and(|agent| agent.answers_probes),
            tasks,
        };
        self.nodes.set_capacity(node, capacity);
    }

    /// Whether a node that has not attached yet may hold a task of an earlier leader. An agent without a pod is no more, and with it the calls that
    /// it made to the runtime. A node that was not ready for long before this leadership began has nothing left, unless only its kubelet is gone: then
    /// its agent attaches within the grace.
    fn may_hold(&self, node: &NodeName) -> bool {
        let has_agent = self.may_hold.as_ref().is_none_or(|nodes| nodes.contains(node));
        self.reserving && has_agent && (self.in_grace || self.was_in_touch(node))
    }

    fn was_in_touch(&self, node: &NodeName) -> bool {
        let Some(since) = self.nodes.unready_since(node) else {
            return true;
        };
        let unready = Duration::try_from(self.started_wall.duration_since(since)).unwrap_or_default();
        unready < self.config.slot_lease()
    }

    pub(super) fn agent_nodes(&mut self, nodes: BTreeSet<NodeName>) {
        self.may_hold = Some(nodes);
        self.refresh_all_agents();
    }

    pub(super) fn refresh_all_agents(&mut self) {
        let names: Vec<NodeName> = self.nodes.names().cloned().collect();
        for name in names {
            self.refresh_agent(&name);
        }
    }

    fn touch_jobs_on(&mut self, node: &NodeName) {
        self.dirty
            .extend(self.tasks.of_node(node).map(|(job, _)| job.clone()));
    }

    /// The lease of a node without a stream has run out: its agent has stopped by itself.
    pub(super) fn give_up_slots(&mut self, node: &NodeName, uid: &NodeUid) {
        let jobs: Vec<JobUid> = self
            .tasks
            .of_node(node)
            .filter(|(_, task)| task.holds_slot() && task.node_uid == *uid)
            .map(|(job, _)| job.clone())
            .collect();
        for job in jobs {
            self.remove_task(&job, node);
            self.dirty.insert(job);
        }
    }

    pub(super) fn ack(&mut self, id: SessionId, ack: &Ack, now: Now) {
        let Some(node) = self.sessions.get(&id).cloned() else {
            return;
        };
        if ack.epoch != self.epoch.0 {
            return;
        }
        let generation = Generation(ack.generation);
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        let Some(session) = &mut agent.session else { return };
        let refusal = Refusal::try_from(ack.refusal).unwrap_or(Refusal::Conflict);
        let known = session
            .unacknowledged
            .iter()
            .take_while(|sent| sent.generation <= generation)
            .count();
        let answered: Vec<Sent> = session.unacknowledged.drain(..known).collect();
        if refusal != Refusal::Unspecified {
            tracing::warn!(%node, %generation, refusal = refusal.as_str_name(), message = ack.message, "agent refused orders");
            self.refused(&node, refusal, now);
            return;
        }
        if answered.is_empty() {
            return;
        }
        session.refusals = 0;
        agent.acknowledged = generation;
        for sent in answered {
            for ordered in sent.ordered {
                self.metrics.ordered(now.mono.saturating_sub(ordered));
            }
            for (job, task) in sent.dropped {
                let gone = self.tasks.get(&job, &node);
                if gone.is_some_and(|held| held.id == task && held.stage == Stage::Cancelling) {
                    self.remove_task(&job, &node);
                    self.dirty.insert(job);
                }
            }
        }
    }

    fn refused(&mut self, node: &NodeName, refusal: Refusal, now: Now) {
        let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) else {
            return;
        };
        if refusal == Refusal::OldEpoch {
            let id = session.id;
            self.send(id, ToAgent::Close(CloseReason::OldEpoch));
            self.detach(id);
            return;
        }
        let pause = (RESYNC_FIRST * 2_u32.saturating_pow(session.refusals.min(10))).min(RESYNC_LONGEST);
        session.refusals = session.refusals.saturating_add(1);
        session.set_due.get_or_insert(now.mono + pause);
        self.unsynced.insert(node.clone());
    }

    pub(super) fn report(&mut self, id: SessionId, status: TaskStatus, now: Now) {
        let Some(node) = self.sessions.get(&id).cloned() else {
            return;
        };
        let task_id = TaskId::new(status.task_id.as_str());
        if self.guest_report(&node, &status) {
            self.metrics.heard(&node, &status, now.wall);
            return;
        }
        let Some(job) = job_of(&task_id) else { return };
        let uid = self.agents.get(&node).map(|agent| agent.node_uid.clone());
        let progress_told = self.tasks.get(&job, &node).map(|task| (task.told, task.phase()));
        let Some(task) = self.tasks.get(&job, &node).filter(|task| task.id == task_id) else {
            // Nobody waits for it. If that is because it is stored already, the agent may forget it.
            if let Some(uid) = uid {
                self.acknowledge_if_saved(&node, &uid, &job, &task_id);
            }
            return;
        };
        let phase = phase_from_number(status.phase);
        match (&task.stage, phase.is_final()) {
            (Stage::Ended { .. }, _) => return,
            (Stage::Cancelling, true) => {
                // Nobody wants the result; the slot is free at once.
                self.remove_task(&job, &node);
                self.dirty.insert(job);
                return;
            }
            (Stage::InFlight, true) => {
                let stage = ended(&status, now);
                self.metrics.ended(&node, &stage, &status, now.wall);
                self.tasks.set_stage(&job, &node, stage);
                self.dirty.insert(job.clone());
            }
            (_, false) => {}
        }
        let Some(task) = self.tasks.get_mut(&job, &node) else {
            return;
        };
        task.status = status;
        let (told, old_phase) = progress_told.unwrap_or((Duration::ZERO, Phase::Waiting));
        let is_news = phase != old_phase || now.mono >= told + PROGRESS_INTERVAL;
        if is_news {
            task.told = now.mono;
            self.publish_task(&job, &node);
            self.publish_progress(&job, now);
        }
        self.note_load(&node);
        self.note_image_progress(&job);
    }

    pub(super) fn send(&mut self, session: SessionId, message: ToAgent) {
        self.effects.push(Effect::Send { session, message });
    }
}

/// How a task ended, by its final report.
pub(super) fn ended(status: &TaskStatus, now: Now) -> Stage {
    let outcome = if phase_from_number(status.phase) == Phase::Succeeded {
        TaskOutcome::Succeeded
    } else {
        TaskOutcome::Failed {
            reason: reason_from_number(status.reason).unwrap_or(Reason::Unknown),
            message: status.message.clone(),
        }
    };
    Stage::Ended {
        outcome,
        since: now.wall,
    }
}
