//! Writes on jobs, one at a time per job, and what is acknowledged to agents afterwards.

use std::time::Duration;

use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_api::image_pull_job::ImagePullJobStatus;
use kruise_api::names;
use kruise_planner::job::{JobPlan, NodeSet, WriteReason};
use serde_json::Value;

use super::super::event::{Effect, JobWrite, Now};
use super::super::merge::merge_patch;
use super::super::objects::JobObject;
use super::super::ports::ApiFailure;
use super::EngineState;
use super::jobs::Busy;
use super::tasks::Stage;

/// Pause after a write that the server will not take however often it is asked.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

impl EngineState {
    /// Does what a plan wants of the API server, unless a request is under way or has just failed; the plan is made again after that.
    pub(super) fn save(&mut self, uid: &JobUid, plan: &JobPlan, now: Now) {
        let Some(entry) = self.jobs.get(uid) else { return };
        if entry.object.is_of_node_image() {
            return self.note_request(uid, plan);
        }
        if entry.busy.is_some() || entry.retry.pause(now).is_some() {
            return;
        }
        let version = entry.object.version.clone();
        if plan.strip_finalizer {
            let finalizers = entry
                .object
                .finalizers
                .iter()
                .filter(|name| *name != names::LEGACY_FINALIZER);
            let finalizers = finalizers.cloned().collect();
            self.write(
                uid,
                JobWrite::Finalizers { version, finalizers },
                Busy::Finalizers,
            );
        } else if plan.delete {
            self.write(uid, JobWrite::Delete, Busy::Deletion);
        } else if let Some(reason) = plan.write {
            let Some(patch) = status_patch(&entry.object, &plan.status) else {
                // The server has exactly this already.
                let results = self.results(uid);
                self.stored(uid, results, now);
                return;
            };
            let results = self.results(uid);
            let event = plan.event.clone();
            let write = JobWrite::Status {
                version,
                patch,
                reason: reason_name(reason),
                event,
            };
            self.write(uid, write, Busy::Status { results });
        }
    }

    fn write(&mut self, uid: &JobUid, write: JobWrite, busy: Busy) {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return;
        };
        entry.busy = Some(busy);
        let key = entry.object.key.clone();
        self.writes.push(Effect::Write {
            job: uid.clone(),
            key,
            write,
        });
    }

    /// Results that a write of this moment contains, or leaves out because nobody counts them.
    fn results(&self, uid: &JobUid) -> Vec<(NodeName, TaskId)> {
        self.tasks
            .of_job(uid)
            .filter(|(_, task)| matches!(task.stage, Stage::Ended { .. }))
            .map(|(node, task)| (node.clone(), task.id.clone()))
            .collect()
    }

    pub(super) fn written(&mut self, uid: &JobUid, result: Result<Option<JobObject>, ApiFailure>, now: Now) {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return;
        };
        let busy = entry.busy.take();
        self.dirty.insert(uid.clone());
        match result {
            Ok(object) => {
                entry.retry.succeeded();
                if let Some(object) = object.filter(|object| object.is_as_new_as(&entry.object)) {
                    entry.ahead_since = Some(now.mono);
                    self.store_job(object, now);
                }
                match busy {
                    Some(Busy::Status { results }) => self.stored(uid, results, now),
                    Some(Busy::Deletion) => self.rest(uid, now),
                    _ => {}
                }
            }
            Err(ApiFailure::Conflict | ApiFailure::Gone) => self.fetch(uid),
            Err(ApiFailure::NotLeading) => entry.retry.failed(now, Duration::ZERO),
            Err(ApiFailure::Refused(detail)) => {
                tracing::error!(job = %entry.object.key, detail, "the API server refuses a write");
                entry.retry.failed(now, REFUSED_PAUSE);
            }
            Err(ApiFailure::Unsure { detail, retry_after }) => {
                tracing::warn!(job = %entry.object.key, detail, "a write may or may not have been done");
                entry.retry.failed(now, retry_after.unwrap_or(Duration::ZERO));
            }
        }
    }

    /// A deletion shows in the watch before long; it is not asked for again until then.
    fn rest(&mut self, uid: &JobUid, now: Now) {
        if let Some(entry) = self.jobs.get_mut(uid) {
            entry.retry.rest(now, REFUSED_PAUSE);
        }
    }

    /// A status with these results is stored.
    fn stored(&mut self, uid: &JobUid, results: Vec<(NodeName, TaskId)>, now: Now) {
        if let Some(entry) = self.jobs.get_mut(uid) {
            entry.memory.last_write = Some(now.wall);
        }
        for (node, id) in results {
            if self.tasks.get(uid, &node).is_some_and(|task| task.id == id) {
                self.saved(uid, &node);
            }
        }
    }

    /// Lets go of results that the newest object contains: that of a write whose answer never came, or of an earlier leader.
    pub(super) fn drop_saved(&mut self, uid: &JobUid) {
        self.drop_stored_answers(uid);
        let results = self.results(uid);
        let Some(entry) = self.jobs.get(uid).filter(|_| !results.is_empty()) else {
            return;
        };
        let over = entry.object.is_complete();
        let outcomes = entry
            .object
            .status
            .as_ref()
            .and_then(|status| status.outcomes.clone())
            .unwrap_or_default();
        let sets = [
            NodeSet::decode(&outcomes.succeeded),
            NodeSet::decode(&outcomes.failed),
        ];
        for (node, _) in results {
            let Some(task) = self.tasks.get(uid, &node) else {
                continue;
            };
            let of_this_round = task.status.image == outcomes.image;
            if over || (of_this_round && sets.iter().any(|set| set.contains(&task.node_uid))) {
                self.saved(uid, &node);
            }
        }
    }

    fn saved(&mut self, uid: &JobUid, node: &NodeName) {
        let Some(task) = self.remove_task(uid, node) else {
            return;
        };
        let same_node = self
            .agents
            .get(node)
            .is_some_and(|agent| agent.node_uid == task.node_uid);
        if same_node {
            self.queue_saved(node, task.id);
        }
    }

    /// Lets the agent of a node forget a result.
    pub(super) fn queue_saved(&mut self, node: &NodeName, id: TaskId) {
        if let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) {
            session.told.remove(&id);
            session.saved.push(id);
            self.unsynced.insert(node.clone());
        }
    }
}

/// The merge patch from the stored status to the wanted one; none when they are equal.
fn status_patch(object: &JobObject, wanted: &ImagePullJobStatus) -> Option<Value> {
    let json =
        |status: &ImagePullJobStatus| serde_json::to_value(status).expect("a status has only text keys");
    let stored = object.status.as_ref().map_or(Value::Null, json);
    merge_patch(&stored, &json(wanted))
}

fn reason_name(reason: WriteReason) -> &'static str {
    match reason {
        WriteReason::Start => "start",
        WriteReason::Edited => "edited",
        WriteReason::FirstFailure => "first_failure",
        WriteReason::Step => "step",
        WriteReason::Unsaved => "unsaved",
        WriteReason::Selection => "selection",
        WriteReason::Round => "round",
        WriteReason::Completed => "completed",
    }
}
