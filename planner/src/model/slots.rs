//! What a leader asks the real plan, in the model's words.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::{ImagePullJobSpec, ImagePullJobStatus, Outcomes};
use kruise_api::reference::ImageRef;

use super::world::NODES;
use crate::job::{
    AgentView, Clocks, JobMemory, JobSnapshot, NodeSet, NodeView, TaskOutcome, TaskState, TaskView, plan,
};
use crate::task::{Phase, Progress, pull_task_id};

/// A place in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Slot {
    InFlight,
    Cancelling,
    Ended,
}

/// The job as stored: which nodes have ended, and whether it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Job {
    pub(super) version: u8,
    pub(super) done: u8,
    pub(super) over: bool,
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) parallelism: u8,
    pub(super) job: Job,
    pub(super) slots: [Option<Slot>; NODES],
    pub(super) attached: [bool; NODES],
    pub(super) may_hold: [bool; NODES],
    pub(super) in_grace: bool,
    pub(super) reserving: bool,
}

/// What the plan says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) assign: [bool; NODES],
    pub(super) cancel: [bool; NODES],
    pub(super) write: Option<(u8, bool)>,
}

/// The real plan, with its answers remembered.
#[derive(Default)]
pub(super) struct Planner(BTreeMap<Question, Answer>);

fn name(node: usize) -> NodeName {
    NodeName::new(format!("node{node}"))
}

fn uid(node: usize) -> NodeUid {
    NodeUid::new(format!("uid{node}"))
}

fn second(number: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + number).expect("a time")
}

impl Planner {
    pub(super) fn ask(&mut self, question: Question) -> Answer {
        *self.0.entry(question).or_insert_with(|| ask(&question))
    }
}

fn status(job: Job, image: &ImageRef) -> ImagePullJobStatus {
    let mut done = NodeSet::default();
    let mut count = 0;
    for node in (0..NODES).filter(|node| job.done & (1 << node) != 0) {
        done.insert(&uid(node));
        count += 1;
    }
    ImagePullJobStatus {
        desired: i32::try_from(NODES).expect("small"),
        succeeded: count,
        start_time: Some(Time(second(0))),
        completion_time: job.over.then(|| Time(second(0))),
        observed_generation: Some(1),
        outcomes: Some(Outcomes {
            round: 1,
            image: image.canonical().to_owned(),
            succeeded: done.encode(),
            failed: String::new(),
            next_round: None,
        }),
        ..ImagePullJobStatus::default()
    }
}

fn task(slot: Slot, job: &JobUid, node: usize, image: &ImageRef) -> TaskView {
    let state = match slot {
        Slot::InFlight => TaskState::InFlight {
            phase: Phase::Pulling,
            progress: Progress::default(),
        },
        Slot::Cancelling => TaskState::Cancelling,
        Slot::Ended => TaskState::Ended(TaskOutcome::Succeeded),
    };
    TaskView {
        id: pull_task_id(job, &uid(node), image, 1),
        state,
    }
}

fn ask(question: &Question) -> Answer {
    let (job, image) = (JobUid::from("job"), ImageRef::parse("nginx:1").expect("an image"));
    let spec: ImagePullJobSpec = serde_json::from_value(serde_json::json!({
        "image": "nginx:1", "parallelism": question.parallelism,
    }))
    .expect("a spec");
    let agent = |node: usize| match (question.attached[node], question.may_hold[node]) {
        (true, _) => AgentView::Attached,
        (false, true) => AgentView::MayHold,
        (false, false) => AgentView::Away,
    };
    let view = |node| NodeView {
        uid: uid(node),
        labels: BTreeMap::new(),
        agent: agent(node),
        created: second(0),
        cordoned: false,
        trouble: None,
        busy: false,
        answers_probes: false,
    };
    let nodes = (0..NODES).map(|node| (name(node), view(node))).collect();
    let tasks = (0..NODES)
        .filter_map(|node| Some((name(node), task(question.slots[node]?, &job, node, &image))))
        .collect();
    let status = status(question.job, &image);
    let plan = plan(&JobSnapshot {
        uid: &job,
        key: &ObjectKey::new("ns", "job"),
        generation: 1,
        deleting: false,
        legacy_finalizer: false,
        annotations: &BTreeMap::new(),
        owner: None,
        ready_pods: None,
        room: None,
        bytes: None,
        spec: &spec,
        status: Some(&status),
        nodes: &nodes,
        young_nodes: false,
        pods: &[],
        tasks: &tasks,
        memory: &JobMemory::default(),
        clocks: Clocks {
            reserve_until: question.reserving.then(|| second(2)),
            grace_until: question.in_grace.then(|| second(2)),
            ..Clocks::default()
        },
        now: second(1),
    });
    let outcomes = plan.status.outcomes.clone().unwrap_or_default();
    let succeeded = NodeSet::decode(&outcomes.succeeded);
    let done = (0..NODES)
        .filter(|node| succeeded.contains(&uid(*node)))
        .fold(0, |mask, node| mask | (1 << node));
    Answer {
        assign: std::array::from_fn(|node| plan.assign.contains(&name(node))),
        cancel: std::array::from_fn(|node| plan.cancel.iter().any(|(who, _)| *who == name(node))),
        write: plan.write.map(|_| (done, plan.status.completion_time.is_some())),
    }
}
