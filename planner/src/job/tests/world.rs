//! A job with everything around it, that tests change step by step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::{ImagePullJobSpec, ImagePullJobStatus};

use crate::job::check::check;
use crate::job::*;
use crate::task::{Phase, Progress, Reason, pull_task_id};

/// A job with everything around it, that tests change step by step.
#[derive(Clone)]
pub(super) struct World {
    pub(super) uid: JobUid,
    pub(super) key: ObjectKey,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) owner: Option<Owner>,
    pub(super) ready_pods: Option<BTreeSet<NodeName>>,
    pub(super) room: Option<Room>,
    pub(super) spec: ImagePullJobSpec,
    pub(super) status: Option<ImagePullJobStatus>,
    pub(super) nodes: BTreeMap<NodeName, NodeView>,
    pub(super) pods: Vec<PodView>,
    pub(super) young: bool,
    pub(super) tasks: BTreeMap<NodeName, TaskView>,
    pub(super) memory: JobMemory,
    pub(super) clocks: Clocks,
    pub(super) now: Timestamp,
}

impl World {
    pub(super) fn new(nodes: usize, spec: &str) -> Self {
        let mut spec: serde_json::Value = serde_json::from_str(spec).expect("json");
        spec.as_object_mut()
            .expect("object")
            .entry("image")
            .or_insert("nginx:1".into());
        Self {
            uid: "job".into(),
            key: ObjectKey::new("default", "job"),
            generation: 1,
            deleting: false,
            annotations: BTreeMap::new(),
            owner: None,
            ready_pods: None,
            room: None,
            spec: serde_json::from_value(spec).expect("spec"),
            status: None,
            nodes: (1..=nodes)
                .map(|i| (NodeName::new(format!("node{i}")), node(i)))
                .collect(),
            pods: Vec::new(),
            young: false,
            tasks: BTreeMap::new(),
            memory: JobMemory::default(),
            clocks: Clocks::default(),
            now: Timestamp::from_second(1_000_000).expect("time"),
        }
    }

    /// Plans, checks the promises, and does what the plan says as the manager would.
    pub(super) fn step(&mut self) -> JobPlan {
        let plan = self.plan();
        let image = plan.image.clone();
        for name in &plan.assign {
            let image = image.as_ref().expect("an order has an image");
            let id = pull_task_id(&self.uid, &self.nodes[name].uid, image, plan.round);
            self.tasks.insert(
                name.clone(),
                TaskView {
                    id,
                    state: in_flight(),
                },
            );
        }
        for (name, _) in &plan.cancel {
            self.tasks.get_mut(name).expect("task").state = TaskState::Cancelling;
        }
        self.memory.deferred_since.clone_from(&plan.deferred_since);
        let image = plan.image.as_ref().map(|image| image.canonical().to_owned());
        let probed = (plan.round, image.unwrap_or_default());
        if self.memory.probed != probed {
            self.memory.probes.clear();
            self.memory.probed = probed;
        }
        for name in &plan.probe {
            let probe = Probe {
                uid: self.nodes[name].uid.clone(),
                answer: ProbeAnswer::Asked,
            };
            self.memory.probes.insert(name.clone(), probe);
        }
        if plan.write.is_some() {
            self.status = Some(plan.status.clone());
            self.memory.last_write = Some(self.now);
            self.memory.unsaved_since = None;
            self.tasks
                .retain(|_, task| !matches!(task.state, TaskState::Ended(_)));
        }
        plan
    }

    pub(super) fn plan(&self) -> JobPlan {
        let snapshot = self.snapshot();
        let made = plan(&snapshot);
        check(&snapshot, &made);
        assert_eq!(plan(&snapshot), made, "the same snapshot gives the same plan");
        made
    }

    pub(super) fn snapshot(&self) -> JobSnapshot<'_> {
        JobSnapshot {
            uid: &self.uid,
            key: &self.key,
            generation: self.generation,
            deleting: self.deleting,
            legacy_finalizer: false,
            annotations: &self.annotations,
            owner: self.owner,
            ready_pods: self.ready_pods.as_ref(),
            room: self.room.clone(),
            bytes: None,
            spec: &self.spec,
            status: self.status.as_ref(),
            nodes: &self.nodes,
            young_nodes: self.young,
            pods: &self.pods,
            tasks: &self.tasks,
            memory: &self.memory,
            clocks: self.clocks,
            now: self.now,
        }
    }

    pub(super) fn end(&mut self, node: &str, outcome: TaskOutcome) {
        self.tasks.get_mut(&NodeName::from(node)).expect("task").state = TaskState::Ended(outcome);
        self.memory.unsaved_since.get_or_insert(self.now);
    }

    pub(super) fn succeed(&mut self, node: &str) {
        self.end(node, TaskOutcome::Succeeded);
    }

    pub(super) fn fail(&mut self, node: &str, reason: Reason) {
        self.end(
            node,
            TaskOutcome::Failed {
                reason,
                message: "manifest unknown".into(),
            },
        );
    }

    /// A node answers a probe.
    pub(super) fn answer(&mut self, node: &str, present: bool) {
        let answer = if present {
            self.memory.unsaved_since.get_or_insert(self.now);
            ProbeAnswer::Present(self.now)
        } else {
            ProbeAnswer::Absent
        };
        let probe = self.memory.probes.get_mut(&NodeName::from(node));
        probe.expect("was asked").answer = answer;
    }

    pub(super) fn node(&mut self, node: &str) -> &mut NodeView {
        self.nodes.get_mut(&NodeName::from(node)).expect("node")
    }

    pub(super) fn agent(&mut self, node: &str, agent: AgentView) {
        self.nodes.get_mut(&NodeName::from(node)).expect("node").agent = agent;
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(super) fn status(&self) -> &ImagePullJobStatus {
        self.status.as_ref().expect("written")
    }
}

pub(super) fn node(i: usize) -> NodeView {
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), format!("node{i}"))]);
    NodeView {
        uid: NodeUid::new(format!("uid{i}")),
        labels,
        agent: AgentView::Attached,
        created: Timestamp::UNIX_EPOCH,
        cordoned: false,
        trouble: None,
        busy: false,
        answers_probes: false,
    }
}

fn in_flight() -> TaskState {
    TaskState::InFlight {
        phase: Phase::Pulling,
        progress: Progress::default(),
    }
}

pub(super) fn names(plan: &JobPlan) -> Vec<&str> {
    plan.assign.iter().map(NodeName::as_str).collect()
}

pub(super) fn pod(name: &str, node: &str) -> PodView {
    PodView {
        name: name.to_owned(),
        node: node.into(),
        phase: PodPhase::Running,
        ready: true,
        ready_since: None,
        deletion_cost: 0,
        restarts: 0,
        created: Timestamp::UNIX_EPOCH,
    }
}
