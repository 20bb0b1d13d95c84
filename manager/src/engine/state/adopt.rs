//! What an agent brings along when it attaches: tasks of earlier leaders and of earlier streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::{JobUid, NodeName, NodeUid, TaskId};
use kruise_api::reference::ImageRef;
use kruise_planner::job::{NodeSet, round_of};
use kruise_planner::task::{Phase, job_of, pull_task_id};
use kruise_proto::convert::phase_from_number;
use kruise_proto::task::TaskStatus;

use super::super::event::Now;
use super::EngineState;
use super::agents::ended;
use super::orders::PullOrder;
use super::tasks::{Stage, Task};

/// What the word of an agent about running tasks is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// It attaches for the first time while slots are kept for agents of an earlier leader: what runs has its slot.
    Honoured,
    /// Its slots have been given up, unless the table still has them.
    Lapsed,
}

/// What an agent's task is to this leader.
#[derive(Clone, Debug, PartialEq)]
enum Verdict {
    /// Of an active job's present round, and not stored yet.
    Wanted(ImageRef),
    /// Stored, or of a job that is over: the agent may forget it.
    Saved,
    /// Nobody's. It is not in the set that follows, so that the agent drops it.
    Unknown,
}

impl EngineState {
    fn verdict(&self, uid: &NodeUid, job: &JobUid, task: &TaskId) -> Verdict {
        let Some(entry) = self.jobs.get(job) else {
            return Verdict::Unknown;
        };
        let object = &entry.object;
        if object.is_complete() || object.deleting {
            return Verdict::Saved;
        }
        let Ok(image) = ImageRef::parse(&object.spec.image) else {
            return Verdict::Unknown;
        };
        let round = round_of(&image, object.status.as_ref());
        if pull_task_id(job, uid, &image, round) != *task {
            return Verdict::Unknown;
        }
        let stored = object.status.as_ref().and_then(|status| status.outcomes.as_ref());
        let saved = stored.is_some_and(|outcomes| {
            outcomes.image == image.canonical()
                && [&outcomes.succeeded, &outcomes.failed]
                    .iter()
                    .any(|set| NodeSet::decode(set).contains(uid))
        });
        if saved {
            Verdict::Saved
        } else {
            Verdict::Wanted(image)
        }
    }

    /// Settles everything that a node's agent says it holds, and what the table says it should hold.
    pub(super) fn adopt(
        &mut self,
        node: &NodeName,
        uid: &NodeUid,
        held: Vec<TaskStatus>,
        claim: Claim,
        now: Now,
    ) {
        let mut named = BTreeMap::new();
        for status in held {
            let id = TaskId::new(status.task_id.as_str());
            if let Some(job) = job_of(&id) {
                named.insert((job, id), status);
            }
        }
        self.drop_unheld(node, uid, &named);
        self.note_lost_results(node, uid, &named);
        for ((job, id), status) in named {
            match self.verdict(uid, &job, &id) {
                Verdict::Saved if phase_from_number(status.phase).is_final() => self.queue_saved(node, id),
                Verdict::Saved => {}
                Verdict::Unknown => self.hold_unwanted(node, uid, &job, id, status),
                Verdict::Wanted(image) => self.adopt_one(node, uid, &job, id, status, &image, claim, now),
            }
        }
    }

    /// Orders that are being taken back and that the agent does not hold: it never will.
    fn drop_unheld(
        &mut self,
        node: &NodeName,
        uid: &NodeUid,
        named: &BTreeMap<(JobUid, TaskId), TaskStatus>,
    ) {
        let unheld: Vec<JobUid> = self
            .tasks
            .of_node(node)
            .filter(|(_, task)| task.node_uid == *uid && task.stage == Stage::Cancelling)
            .filter(|(job, task)| !named.contains_key(&((*job).clone(), task.id.clone())))
            .map(|(job, _)| job.clone())
            .collect();
        for job in unheld {
            self.remove_task(&job, node);
            self.dirty.insert(job);
        }
    }

    /// Results that the leader has and the agent has not any more: they count, and their slots are somebody else's by now.
    fn note_lost_results(
        &mut self,
        node: &NodeName,
        uid: &NodeUid,
        named: &BTreeMap<(JobUid, TaskId), TaskStatus>,
    ) {
        let lacks = self
            .tasks
            .of_node(node)
            .filter(|(_, task)| task.node_uid == *uid && matches!(task.stage, Stage::Ended { .. }))
            .filter(|(job, task)| !named.contains_key(&((*job).clone(), task.id.clone())))
            .map(|(_, task)| task.id.clone())
            .collect();
        if let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) {
            session.lacks = lacks;
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one row of the agent's list, with where it comes from"
    )]
    fn adopt_one(
        &mut self,
        node: &NodeName,
        uid: &NodeUid,
        job: &JobUid,
        id: TaskId,
        status: TaskStatus,
        image: &ImageRef,
        claim: Claim,
        now: Now,
    ) {
        self.dirty.insert(job.clone());
        let phase = phase_from_number(status.phase);
        if let Some(task) = self.tasks.get_mut(job, node) {
            // Another id here means an older round or an older node of that name, which keeps the slot until it is settled. A result is welcome also
            // when the pull was to be stopped for want of a slot: it needs none any more.
            let settled = match task.stage {
                Stage::InFlight => false,
                Stage::Cancelling => !phase.is_final(),
                Stage::Ended { .. } => true,
            };
            if task.id != id || settled {
                return;
            }
            let stage = phase.is_final().then(|| ended(&status, now));
            if let Some(stage) = &stage {
                self.metrics.ended(node, stage, &status, now.wall);
            }
            task.status = status;
            if let Some(stage) = stage {
                self.tasks.set_stage(job, node, stage);
            }
            self.publish_task(job, node);
            return;
        }
        let has_slot = claim == Claim::Honoured && is_running(phase);
        if !phase.is_final() && !has_slot {
            // It has no slot. If it is suspended and the plan that follows gives it one, the set names it again and its bytes are of use.
            self.hold_unwanted(node, uid, job, id, status);
            return;
        }
        let Some(entry) = self.jobs.get(job) else { return };
        let stage = if phase.is_final() {
            ended(&status, now)
        } else {
            Stage::InFlight
        };
        self.metrics.ended(node, &stage, &status, now.wall);
        let task = Task {
            id,
            node_uid: uid.clone(),
            stage,
            order: Arc::new(PullOrder::new(&entry.object, image)),
            status,
            ordered: None,
            told: Duration::ZERO,
        };
        self.tasks.insert(job, node, task);
        self.note_load(node);
        self.publish_task(job, node);
    }

    /// A pull that runs and is not wanted takes a slot of its job until the agent has acknowledged a set without it.
    fn hold_unwanted(
        &mut self,
        node: &NodeName,
        uid: &NodeUid,
        job: &JobUid,
        id: TaskId,
        status: TaskStatus,
    ) {
        let Some(entry) = self.jobs.get(job) else { return };
        if !is_running(phase_from_number(status.phase)) || self.tasks.get(job, node).is_some() {
            return;
        }
        let Ok(image) = ImageRef::parse(&entry.object.spec.image) else {
            return;
        };
        let task = Task {
            id,
            node_uid: uid.clone(),
            stage: Stage::Cancelling,
            order: Arc::new(PullOrder::new(&entry.object, &image)),
            status,
            ordered: None,
            told: Duration::ZERO,
        };
        self.tasks.insert(job, node, task);
        self.note_load(node);
    }

    /// Lets the agent forget a result that is stored.
    pub(super) fn acknowledge_if_saved(&mut self, node: &NodeName, uid: &NodeUid, job: &JobUid, id: &TaskId) {
        if self.verdict(uid, job, id) == Verdict::Saved {
            self.queue_saved(node, id.clone());
        }
    }
}

/// Whether the agent may be fetching at this moment.
fn is_running(phase: Phase) -> bool {
    !phase.is_final() && phase != Phase::Suspended
}
