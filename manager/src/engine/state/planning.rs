//! From a job and everything around it to a plan, and what becomes of the plan.

use kruise_api::ids::{JobUid, NodeName};
use kruise_api::reference::ImageRef;
use kruise_planner::job::{self, Clocks, JobPlan, JobSnapshot, round_of};
use kruise_planner::task::{Phase, pull_task_id};
use kruise_proto::convert::to_timestamp;
use kruise_proto::task::{self, TaskStatus};

use super::super::event::{Change, Effect, Now};
use super::jobs::{JobEntry, Pods};
use super::orders::PullOrder;
use super::secrets::Gate;
use super::tasks::{Stage, Task};
use super::{EngineState, mono_of, wall_of};

impl EngineState {
    pub(super) fn plan_job(&mut self, uid: &JobUid, now: Now) {
        self.drop_superseded(uid);
        if !self.pods_are_known(uid) {
            return;
        }
        let Some(mut plan) = self.make_plan(uid, now) else {
            return;
        };
        match self.gate(uid, &plan, now) {
            Gate::Open => {}
            Gate::Reading => {
                // The same plan is made again as soon as the secrets have been read; until then nothing is told that assumes these orders.
                plan.assign.clear();
                plan.write = None;
            }
            Gate::Shut => self.hold_back(uid, &mut plan, now),
        }
        self.take_back(uid, &plan);
        self.hand_out(uid, &plan, now);
        self.remember(uid, &plan, now);
        self.save(uid, &plan, now);
        self.let_go(uid);
        self.publish_job(uid);
    }

    fn make_plan(&mut self, uid: &JobUid, now: Now) -> Option<JobPlan> {
        let tasks = self.tasks.views(uid);
        let clocks = self.clocks(now);
        let young_nodes = self.nodes.has_young(now.wall);
        let entry = self.jobs.get_mut(uid)?;
        entry.memory.unsaved_since = self.tasks.unsaved_since(uid);
        let pods = match &entry.pods {
            Pods::Watched {
                nodes: Some(pods), ..
            } => pods.as_slice(),
            _ => &[],
        };
        let object = &entry.object;
        let snapshot = JobSnapshot {
            uid,
            key: &object.key,
            generation: object.generation,
            deleting: object.deleting,
            legacy_finalizer: object.has_legacy_finalizer(),
            spec: &object.spec,
            status: object.status.as_ref(),
            nodes: self.nodes.views(),
            young_nodes,
            pods,
            tasks: &tasks,
            memory: &entry.memory,
            clocks,
            now: now.wall,
        };
        Some(match self.config.switched_off {
            Some(gate) => job::plan_switched_off(&snapshot, gate),
            None => job::plan(&snapshot),
        })
    }

    fn clocks(&self, now: Now) -> Clocks {
        Clocks {
            reserve_until: self.reserving.then(|| wall_of(self.reserve_end(), now)),
            grace_until: self.in_grace.then(|| wall_of(self.grace_end(), now)),
            silent_node: Clocks::SILENT_NODE,
        }
    }

    /// Results of a round that is over count for nothing.
    fn drop_superseded(&mut self, uid: &JobUid) {
        if self.tasks.unsaved_since(uid).is_none() {
            return;
        }
        let Some(entry) = self.jobs.get(uid) else { return };
        let Ok(image) = ImageRef::parse(&entry.object.spec.image) else {
            return;
        };
        let round = round_of(&image, entry.object.status.as_ref());
        let key = entry.object.key.to_string();
        let superseded: Vec<NodeName> = self
            .tasks
            .of_job(uid)
            .filter(|(_, task)| matches!(task.stage, Stage::Ended { .. }))
            .filter(|(_, task)| task.id != pull_task_id(uid, &task.node_uid, &image, round))
            .map(|(node, _)| node.clone())
            .collect();
        for node in superseded {
            self.drop_task(uid, &node, key.clone(), "superseded");
        }
    }

    /// Watches the pods of a job that selects by pods, while it is active. A watch costs one list per job and then only the changes, where
    /// lists at each plan would cost one per result.
    fn pods_are_known(&mut self, uid: &JobUid) -> bool {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return false;
        };
        let object = &entry.object;
        let Some(selector) = object
            .spec
            .pod_selector
            .clone()
            .filter(|_| !object.is_complete() && !object.deleting)
        else {
            return true;
        };
        let wanted = match kube::core::Selector::try_from(selector) {
            Ok(selector) => selector.to_string(),
            Err(error) => {
                entry.waiting = vec![format!("spec.podSelector: {error}")];
                return false;
            }
        };
        if let Pods::Watched { selector, nodes, .. } = &entry.pods
            && *selector == wanted
        {
            return nodes.is_some();
        }
        self.pod_watches += 1;
        let (watch, namespace) = (self.pod_watches, entry.object.key.namespace.clone());
        entry.pods = Pods::Watched {
            watch,
            selector: wanted.clone(),
            nodes: None,
        };
        self.effects.push(Effect::WatchPods {
            job: uid.clone(),
            watch,
            namespace,
            selector: wanted,
        });
        false
    }

    fn take_back(&mut self, uid: &JobUid, plan: &JobPlan) {
        for (node, why) in &plan.cancel {
            let Some(task) = self.tasks.get_mut(uid, node) else {
                continue;
            };
            let node_uid = task.node_uid.clone();
            let id = task.id.clone();
            task.stage = Stage::Cancelling;
            let agent = self
                .agents
                .get_mut(node)
                .filter(|agent| agent.node_uid == node_uid);
            let Some(session) = agent.and_then(|agent| agent.session.as_mut()) else {
                continue;
            };
            session.add.remove(uid);
            if session.told.contains(&id) {
                session.cancel.insert(id, why);
                self.unsynced.insert(node.clone());
            } else if session.set_due.is_none() {
                // Never sent on this stream, which began with a full account of what the agent holds.
                self.remove_task(uid, node);
            }
        }
    }

    fn hand_out(&mut self, uid: &JobUid, plan: &JobPlan, now: Now) {
        let (Some(image), Some(entry)) = (&plan.image, self.jobs.get(uid)) else {
            return;
        };
        if plan.assign.is_empty() {
            return;
        }
        let order = PullOrder::new(&entry.object.spec, &entry.object.key, image);
        let job = entry.object.key.to_string();
        for node in &plan.assign {
            let Some(node_uid) = self.nodes.uid(node).cloned() else {
                continue;
            };
            let id = pull_task_id(uid, &node_uid, image, plan.round);
            let status = TaskStatus {
                task_id: id.to_string(),
                phase: task::Phase::from(Phase::Waiting).into(),
                image: image.canonical().to_owned(),
                start_time: Some(to_timestamp(now.wall)),
                ..TaskStatus::default()
            };
            let task = Task {
                id,
                node_uid,
                stage: Stage::InFlight,
                order: order.clone(),
                status,
                ordered: Some(now.mono),
                told: now.mono,
            };
            tracing::debug!(%job, %node, task = %task.id, "order");
            self.tasks.insert(uid, node, task);
            if let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) {
                session.add.insert(uid.clone());
                self.unsynced.insert(node.clone());
            }
            self.publish_task(uid, node);
        }
    }

    fn remember(&mut self, uid: &JobUid, plan: &JobPlan, now: Now) {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return;
        };
        entry.memory.deferred_since.clone_from(&plan.deferred_since);
        entry.counters = plan.counters;
        entry.complete = plan.complete;
        entry.deadline = plan.deadline_left.map(|left| now.mono + left);
        let mut waiting: Vec<String> = plan.waiting.iter().map(ToString::to_string).collect();
        let block = entry.secrets.as_ref().filter(|block| block.is_shut(now));
        waiting.splice(0..0, block.map(|block| block.text().to_owned()));
        entry.waiting = waiting;
        let wake = plan.wake.map(|at| mono_of(at, now));
        let secrets = entry
            .secrets
            .as_ref()
            .map(|block| block.until())
            .filter(|until| *until > now.mono);
        let timer = [wake, entry.retry.pause(now), secrets]
            .into_iter()
            .flatten()
            .min();
        self.set_timer(uid, timer);
    }

    /// A job that is over for good needs no pods and no secrets.
    fn let_go(&mut self, uid: &JobUid) {
        let over = |entry: &&mut JobEntry| entry.object.is_complete() || entry.object.deleting;
        let Some(entry) = self.jobs.get_mut(uid).filter(over) else {
            return;
        };
        if matches!(std::mem::take(&mut entry.pods), Pods::Watched { .. }) {
            self.effects.push(Effect::UnwatchPods { job: uid.clone() });
        }
        self.secrets_wanted.remove(uid);
    }

    /// Takes a task out of the table, its slot with it.
    pub(super) fn remove_task(&mut self, uid: &JobUid, node: &NodeName) -> Option<Task> {
        let task = self.tasks.remove(uid, node)?;
        if let Some(entry) = self.jobs.get_mut(uid) {
            if matches!(task.stage, Stage::Ended { .. })
                && let Some(progress) = task.status.progress.filter(|progress| progress.bytes_total > 0)
            {
                entry.ended_bytes.0 += progress.bytes_done;
                entry.ended_bytes.1 += progress.bytes_total;
            }
            let job = entry.object.key.to_string();
            self.publish(Change::Gone {
                job,
                node: node.clone(),
                id: task.id.to_string(),
            });
        }
        Some(task)
    }

    /// Takes a task out of the table and tells its agent, whatever stage it is in.
    pub(super) fn drop_task(&mut self, uid: &JobUid, node: &NodeName, job: String, why: &'static str) {
        let Some(task) = self.tasks.remove(uid, node) else {
            return;
        };
        let agent = self
            .agents
            .get_mut(node)
            .filter(|agent| agent.node_uid == task.node_uid);
        if let Some(session) = agent.and_then(|agent| agent.session.as_mut()) {
            session.add.remove(uid);
            if session.told.contains(&task.id) {
                session.cancel.insert(task.id.clone(), why);
            }
            self.unsynced.insert(node.clone());
        }
        self.publish(Change::Gone {
            job,
            node: node.clone(),
            id: task.id.to_string(),
        });
    }
}
