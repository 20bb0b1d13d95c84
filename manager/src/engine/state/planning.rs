//! From a job and everything around it to a plan, and what becomes of the plan.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kruise_api::ids::{JobUid, NodeName};
use kruise_api::image_pull_job::Bytes;
use kruise_api::image_pull_job::options::{self, PullOptions};
use kruise_api::reference::ImageRef;
use kruise_planner::job::{self, Claim, Clocks, JobPlan, JobSnapshot, Room, WaitingOn, round_of};
use kruise_planner::task::{Phase, pull_task_id};
use kruise_proto::convert::to_timestamp;
use kruise_proto::task::{self, TaskStatus};

use super::super::event::{Change, Effect, Now};
use super::jobs::{JobEntry, Pods, Waiting};
use super::orders::{PullOrder, priority_of};
use super::secrets::Gate;
use super::tasks::{Stage, Task};
use super::{EngineState, mono_of, wall_of};

/// Jobs of fewer nodes are planned whenever something happens.
const MANY_NODES: u32 = 100;
const REST_PER_NODE: Duration = Duration::from_micros(20);
const LONGEST_REST: Duration = Duration::from_millis(100);

impl EngineState {
    pub(super) fn plan_job(&mut self, uid: &JobUid, now: Now) {
        self.drop_superseded(uid);
        self.mark_urgent(uid);
        if !self.pods_are_known(uid) {
            let is_stuck =
                |entry: &JobEntry| entry.waiting.iter().any(|waiting| waiting.word == "InvalidSpec");
            if self.jobs.get(uid).is_some_and(is_stuck) {
                self.release_guests(uid, &[]);
            }
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
        self.renew_orders(uid, &plan, now);
        self.hand_out(uid, &plan, now);
        self.ask(uid, &plan);
        self.remember(uid, &plan, now);
        self.save(uid, &plan, now);
        self.let_go(uid);
        self.release_guests(uid, &plan.urgent_pending);
        self.publish_job(uid);
    }

    fn make_plan(&mut self, uid: &JobUid, now: Now) -> Option<JobPlan> {
        let unsaved = [self.tasks.unsaved_since(uid), self.unsaved_answer(uid)];
        let entry = self.jobs.get_mut(uid)?;
        entry.memory.unsaved_since = unsaved.into_iter().flatten().min();
        let switched_off = self.config.switched_off;
        self.with_snapshot(uid, now, |snapshot| match switched_off {
            Some(gate) => job::plan_switched_off(snapshot, gate),
            None => job::plan(snapshot),
        })
    }

    /// Shows a job and all that bears on it to the planner.
    pub(super) fn with_snapshot<T>(
        &self,
        uid: &JobUid,
        now: Now,
        show: impl FnOnce(&JobSnapshot<'_>) -> T,
    ) -> Option<T> {
        let tasks = self.tasks.views(uid);
        let entry = self.jobs.get(uid)?;
        let object = &entry.object;
        let ready_pods: Option<BTreeSet<NodeName>> = entry.awaited.known().map(|pods| {
            let ready = pods.iter().filter(|pod| pod.ready);
            ready.map(|pod| pod.node.clone()).collect()
        });
        let bytes = self.bytes(uid, entry);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(show(&JobSnapshot {
            uid,
            key: &object.key,
            generation: object.generation,
            deleting: object.deleting,
            legacy_finalizer: object.has_legacy_finalizer(),
            annotations: &object.annotations,
            owner: object.workload(),
            spec: &object.spec,
            status: object.status.as_ref(),
            nodes: self.nodes.views(),
            young_nodes: self.nodes.has_young(now.wall),
            pods: entry.pods.known().unwrap_or_default(),
            ready_pods: ready_pods.as_ref(),
            room: self.room(uid),
            bytes: Some(Bytes {
                done: signed(bytes.bytes_done),
                total: signed(bytes.bytes_total),
            }),
            tasks: &tasks,
            memory: &entry.memory,
            clocks: self.clocks(now),
            now: now.wall,
        }))
    }

    /// What the caps of the cluster leave for a job.
    fn room(&self, uid: &JobUid) -> Option<Room> {
        if self.config.caps.is_none() {
            return None;
        }
        let active: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, entry)| !entry.object.is_complete())
            .filter_map(|(uid, entry)| Some((uid, entry, ImageRef::parse(&entry.object.spec.image).ok()?)))
            .collect();
        let claims: Vec<Claim<'_>> = active
            .iter()
            .map(|(other, entry, image)| Claim {
                host: image.host(),
                priority: priority_of(
                    &entry.object,
                    &PullOptions::parse(&entry.object.annotations).unwrap_or_default(),
                ),
                began: entry.object.created.as_millisecond(),
                in_flight: self
                    .tasks
                    .of_job(other)
                    .filter(|(_, task)| task.holds_slot())
                    .count(),
                wants: if *other == uid {
                    self.nodes.views().len()
                } else {
                    entry.capped
                },
            })
            .collect();
        let index = active.iter().position(|(other, ..)| *other == uid)?;
        job::room(&self.config.caps, &claims, index)
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

    /// Watches the pods that a job selects nodes by, and those that its nodes wait for, while it is active. A watch costs one list per job and then only the
    /// changes, where lists at each plan would cost one per result.
    fn pods_are_known(&mut self, uid: &JobUid) -> bool {
        let Some(entry) = self.jobs.get(uid) else {
            return false;
        };
        let object = &entry.object;
        if object.is_complete() || object.deleting {
            return true;
        }
        let awaited = PullOptions::parse(&object.annotations).ok();
        let awaited = awaited.and_then(|options| options.when_pods_ready);
        let selectors = [
            ("spec.podSelector", object.spec.pod_selector.clone()),
            (options::WHEN_PODS_READY, awaited),
        ];
        let mut known = true;
        for (number, (field, selector)) in selectors.into_iter().enumerate() {
            known &= self.follow_pods(uid, number == 0, field, selector);
        }
        known
    }

    /// Whether the pods of one selector are known. Begins to watch them, or ends that, as needed.
    fn follow_pods(
        &mut self,
        uid: &JobUid,
        selects: bool,
        field: &'static str,
        selector: Option<LabelSelector>,
    ) -> bool {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return false;
        };
        let held = if selects {
            &mut entry.pods
        } else {
            &mut entry.awaited
        };
        let Some(selector) = selector else {
            self.effects.extend(held.end());
            return true;
        };
        let wanted = match kube::core::Selector::try_from(selector) {
            Ok(selector) => selector.to_string(),
            Err(error) => {
                entry.waiting = vec![Waiting {
                    word: "InvalidSpec",
                    text: format!("{field}: {error}"),
                    nodes: 0,
                }];
                return false;
            }
        };
        if let Pods::Watched { selector, pods, .. } = held
            && *selector == wanted
        {
            return pods.is_some();
        }
        self.effects.extend(held.end());
        self.pod_watches += 1;
        let (watch, namespace) = (self.pod_watches, entry.object.key.namespace.clone());
        *held = Pods::Watched {
            watch,
            selector: wanted.clone(),
            pods: None,
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
            let Some(task) = self.tasks.get(uid, node) else {
                continue;
            };
            let node_uid = task.node_uid.clone();
            let id = task.id.clone();
            self.tasks.set_stage(uid, node, Stage::Cancelling);
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

    /// An edit of the job reaches tasks that are under way: their agents get the same tasks with other limits.
    fn renew_orders(&mut self, uid: &JobUid, plan: &JobPlan, now: Now) {
        let (Some(image), Some(entry)) = (&plan.image, self.jobs.get_mut(uid)) else {
            return;
        };
        let wanted = PullOrder::new(&entry.object, image);
        if entry.order.as_deref() == Some(&wanted) {
            return;
        }
        let wanted = Arc::new(wanted);
        if entry.order.replace(Arc::clone(&wanted)).is_none() {
            // First plan of this leader: whatever is under way came with a whole set of its own.
            return;
        }
        let nodes: Vec<NodeName> = self
            .tasks
            .of_job(uid)
            .filter(|(_, task)| task.stage == Stage::InFlight)
            .filter(|(_, task)| task.id == pull_task_id(uid, &task.node_uid, image, plan.round))
            .map(|(node, _)| node.clone())
            .collect();
        for node in nodes {
            let Some(task) = self.tasks.get_mut(uid, &node) else {
                continue;
            };
            let edited = task.order.edited(&wanted);
            if *task.order == edited {
                continue;
            }
            task.order = Arc::new(edited);
            // As a whole set, which waits for pull secrets where it needs them.
            if let Some(session) = self
                .agents
                .get_mut(&node)
                .and_then(|agent| agent.session.as_mut())
            {
                session.set_due.get_or_insert(now.mono);
                self.unsynced.insert(node);
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
        let Some(order) = entry.order.clone() else { return };
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
            self.note_load(node);
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
        entry.rests_until = rest_after(plan).map(|rest| now.mono + rest);
        entry.deadline = plan.deadline_left.map(|left| now.mono + left);
        let mut waiting: Vec<Waiting> = plan.waiting.iter().map(Waiting::from).collect();
        let block = entry.secrets.as_ref().filter(|block| block.is_shut(now));
        let held = entry.counters.pending();
        waiting.splice(0..0, block.map(|block| Waiting::secret(block.text(), held)));
        entry.waiting = waiting;
        entry.capped = plan.capped;
        entry.wake = plan.wake;
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
        self.effects
            .extend([entry.pods.end(), entry.awaited.end()].into_iter().flatten());
        self.secrets_wanted.remove(uid);
    }

    /// Takes a task out of the table, its slot with it.
    pub(super) fn remove_task(&mut self, uid: &JobUid, node: &NodeName) -> Option<Task> {
        let task = self.tasks.remove(uid, node)?;
        self.note_load(node);
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
        self.note_load(node);
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

impl From<&WaitingOn> for Waiting {
    fn from(reason: &WaitingOn) -> Self {
        Self {
            word: reason.word(),
            text: reason.to_string(),
            nodes: reason.nodes(),
        }
    }
}

impl Waiting {
    fn secret(text: &str, nodes: usize) -> Self {
        Self {
            word: "SecretMissing",
            text: text.to_owned(),
            nodes,
        }
    }
}

/// How long a job of many nodes rests after a plan. Planning takes a microsecond or two per node, and results of thousands of nodes come one by one: planned
/// one by one they would cost the square of their number. A freed slot waits for as long at most.
fn rest_after(plan: &JobPlan) -> Option<Duration> {
    let nodes = u32::try_from(plan.counters.desired).unwrap_or(u32::MAX);
    let rest = REST_PER_NODE.saturating_mul(nodes).min(LONGEST_REST);
    (nodes >= MANY_NODES && !plan.complete).then_some(rest)
}
