use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::{ImagePullJobSpec, ImagePullJobStatus};
use kruise_api::reference::ImageRef;
use proptest::prelude::*;

use super::check::check;
use super::*;
use crate::task::{Phase, Progress, Reason, pull_task_id};

/// A job with everything around it, that tests change step by step.
#[derive(Clone)]
struct World {
    uid: JobUid,
    key: ObjectKey,
    generation: i64,
    deleting: bool,
    spec: ImagePullJobSpec,
    status: Option<ImagePullJobStatus>,
    nodes: BTreeMap<NodeName, NodeView>,
    pods: Vec<PodView>,
    young: bool,
    tasks: BTreeMap<NodeName, TaskView>,
    memory: JobMemory,
    clocks: Clocks,
    now: Timestamp,
}

impl World {
    fn new(nodes: usize, spec: &str) -> Self {
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
    fn step(&mut self) -> JobPlan {
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
        if plan.write.is_some() {
            self.status = Some(plan.status.clone());
            self.memory.last_write = Some(self.now);
            self.memory.unsaved_since = None;
            self.tasks
                .retain(|_, task| !matches!(task.state, TaskState::Ended(_)));
        }
        plan
    }

    fn plan(&self) -> JobPlan {
        let snapshot = JobSnapshot {
            uid: &self.uid,
            key: &self.key,
            generation: self.generation,
            deleting: self.deleting,
            legacy_finalizer: false,
            spec: &self.spec,
            status: self.status.as_ref(),
            nodes: &self.nodes,
            young_nodes: self.young,
            pods: &self.pods,
            tasks: &self.tasks,
            memory: &self.memory,
            clocks: self.clocks,
            now: self.now,
        };
        let made = plan(&snapshot);
        check(&snapshot, &made);
        assert_eq!(plan(&snapshot), made, "the same snapshot gives the same plan");
        made
    }

    fn end(&mut self, node: &str, outcome: TaskOutcome) {
        self.tasks.get_mut(&NodeName::from(node)).expect("task").state = TaskState::Ended(outcome);
        self.memory.unsaved_since.get_or_insert(self.now);
    }

    fn succeed(&mut self, node: &str) {
        self.end(node, TaskOutcome::Succeeded);
    }

    fn fail(&mut self, node: &str, reason: Reason) {
        self.end(
            node,
            TaskOutcome::Failed {
                reason,
                message: "manifest unknown".into(),
            },
        );
    }

    fn agent(&mut self, node: &str, agent: AgentView) {
        self.nodes.get_mut(&NodeName::from(node)).expect("node").agent = agent;
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn status(&self) -> &ImagePullJobStatus {
        self.status.as_ref().expect("written")
    }
}

fn node(i: usize) -> NodeView {
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), format!("node{i}"))]);
    NodeView {
        uid: NodeUid::new(format!("uid{i}")),
        labels,
        agent: AgentView::Attached,
    }
}

fn in_flight() -> TaskState {
    TaskState::InFlight {
        phase: Phase::Pulling,
        progress: Progress::default(),
    }
}

fn names(plan: &JobPlan) -> Vec<&str> {
    plan.assign.iter().map(NodeName::as_str).collect()
}

#[test]
fn three_nodes_one_after_the_other() {
    let mut world = World::new(3, "{}");
    let first = world.step();
    assert_eq!(names(&first), ["node1"]);
    assert_eq!(first.write, Some(WriteReason::Start));
    assert_eq!(
        first.waiting[0].to_string(),
        "window full (1 of 1 pulling), 2 waiting for their turn"
    );
    world.succeed("node1");
    let second = world.step();
    assert_eq!(names(&second), ["node2"]);
    assert_eq!(
        second.write, None,
        "a step within ten seconds of the last write waits"
    );
    assert_eq!(second.wake, Some(world.now + SignedDuration::from_secs(10)));
    world.succeed("node2");
    assert_eq!(names(&world.step()), ["node3"]);
    world.succeed("node3");
    let last = world.step();
    assert_eq!(last.write, Some(WriteReason::Completed));
    let event = last.event.expect("told");
    assert_eq!((event.warning, event.reason), (false, "PullImageSucceed"));
    let status = world.status();
    assert_eq!(
        (status.desired, status.active, status.succeeded, status.failed),
        (3, 0, 3, 0)
    );
    assert_eq!(status.message.as_deref(), Some("job has completed"));
    assert_eq!(world.step().write, None);
}

#[test]
fn names_give_the_order_and_unknown_ones_are_left_out() {
    let mut world = World::new(
        3,
        r#"{"parallelism":5,"selector":{"names":["node3","node9","node1","node3"]}}"#,
    );
    let plan = world.step();
    assert_eq!(names(&plan), ["node3", "node1"]);
    assert_eq!(plan.counters.desired, 2);
}

#[test]
fn labels_select() {
    let spec = r#"{"parallelism":9,"selector":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"NotIn","values":["node2"]}]}}"#;
    assert_eq!(names(&World::new(3, spec).step()), ["node1", "node3"]);
    let spec = r#"{"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}"#;
    let plan = World::new(3, spec).step();
    assert!(
        plan.waiting[0].to_string().contains("accepted are In, NotIn"),
        "{:?}",
        plan.waiting
    );
    assert_eq!(plan.status.conditions[0].reason, "InvalidSpec");
}

#[test]
fn pods_select_in_their_order() {
    let mut world = World::new(
        3,
        r#"{"parallelism":9,"podSelector":{"matchLabels":{"app":"x"}}}"#,
    );
    world.pods = ["node2", "node1", "node2", "gone"]
        .map(|node| PodView { node: node.into() })
        .into();
    assert_eq!(names(&world.step()), ["node2", "node1"]);
}

#[test]
fn empty_names_mean_no_node_and_the_job_completes() {
    let mut world = World::new(3, r#"{"selector":{"names":[]}}"#);
    assert_eq!(world.step().write, Some(WriteReason::Completed));
    let mut world = World::new(0, "{}");
    world.young = true;
    let plan = world.step();
    assert!(
        !plan.complete && plan.waiting == [WaitingOn::YoungNodes],
        "{plan:?}"
    );
}

#[test]
fn parallelism_zero_pauses_and_raising_it_goes_on() {
    let mut world = World::new(3, r#"{"parallelism":0}"#);
    let plan = world.step();
    assert!(plan.assign.is_empty() && plan.waiting == [WaitingOn::Paused]);
    world.spec = World::new(0, r#"{"parallelism":"2"}"#).spec;
    world.generation = 2;
    let plan = world.step();
    assert_eq!((names(&plan).len(), plan.write), (2, Some(WriteReason::Edited)));
}

#[test]
fn lowering_parallelism_cancels_nothing() {
    let mut world = World::new(3, r#"{"parallelism":3}"#);
    world.step();
    world.spec = World::new(0, r#"{"parallelism":1}"#).spec;
    let plan = world.step();
    assert!(plan.cancel.is_empty());
    assert_eq!(plan.counters.active, 3);
}

#[test]
fn failures_are_told_once_early_and_once_at_the_end() {
    let mut world = World::new(3, r#"{"parallelism":3}"#);
    world.step();
    world.fail("node2", Reason::NotFound);
    let plan = world.step();
    assert_eq!(plan.write, Some(WriteReason::FirstFailure));
    assert!(
        plan.event
            .expect("told")
            .message
            .contains("NotFound 1 (node2: manifest unknown)")
    );
    world.fail("node1", Reason::NotFound);
    assert_eq!(world.step().event, None);
    world.succeed("node3");
    let plan = world.step();
    assert_eq!(plan.event.expect("told").reason, "PullImageFailed");
    let status = world.status();
    assert_eq!(status.failed_nodes, ["node1", "node2"]);
    assert_eq!(
        (status.failures[0].reason.as_str(), status.failures[0].count),
        ("NotFound", 2)
    );
    let failed = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Failed")
        .expect("there");
    assert_eq!(failed.status, "True");
}

#[test]
fn a_node_without_an_agent_is_passed_over_then_failed() {
    let mut world = World::new(3, "{}");
    world.agent("node1", AgentView::Away);
    let plan = world.step();
    assert_eq!(names(&plan), ["node2"], "it holds no slot");
    assert_eq!(plan.wake, Some(world.now + SignedDuration::from_mins(10)));
    world.pass(599);
    assert_eq!(world.step().counters.failed, 0);
    world.pass(1);
    let plan = world.step();
    assert_eq!(plan.counters.failed, 1);
    assert_eq!(
        plan.status.failures[0].message,
        "node has not responded for a long time"
    );
}

#[test]
fn a_node_that_comes_back_gets_its_turn() {
    let mut world = World::new(1, "{}");
    world.agent("node1", AgentView::Away);
    assert!(world.step().assign.is_empty());
    world.agent("node1", AgentView::Attached);
    let plan = world.step();
    assert_eq!(names(&plan), ["node1"]);
    assert!(plan.deferred_since.is_empty());
}

#[test]
fn a_new_leader_keeps_slots_for_agents_it_has_not_heard() {
    let mut world = World::new(3, r#"{"parallelism":2}"#);
    world.clocks.reserve_until = Some(world.now + SignedDuration::from_secs(99));
    for i in 1..=3 {
        world.agent(&format!("node{i}"), AgentView::MayHold);
    }
    assert!(world.step().assign.is_empty());
    world.agent("node1", AgentView::Attached);
    let plan = world.step();
    assert!(plan.assign.is_empty(), "two others may hold both slots");
    assert!(matches!(plan.waiting[0], WaitingOn::Reserved { agents: 2, .. }));
    world.agent("node2", AgentView::Attached);
    assert_eq!(names(&world.step()), ["node1"], "one slot is proven free");
    world.pass(99);
    assert_eq!(names(&world.step()), ["node2"], "the reservation has run out");
}

#[test]
fn the_grace_gives_late_agents_their_place_in_the_order() {
    let mut world = World::new(3, r#"{"parallelism":3}"#);
    world.clocks.reserve_until = Some(world.now + SignedDuration::from_secs(99));
    world.clocks.grace_until = Some(world.now + SignedDuration::from_secs(10));
    world.agent("node1", AgentView::MayHold);
    let plan = world.step();
    assert!(plan.assign.is_empty());
    assert_eq!(plan.wake, world.clocks.grace_until);
    world.pass(10);
    assert_eq!(names(&world.step()), ["node2", "node3"]);
}

#[test]
fn another_image_starts_another_round() {
    let mut world = World::new(2, "{}");
    world.step();
    world.succeed("node1");
    world.step();
    world.spec.image = "nginx:2".into();
    world.generation = 2;
    let plan = world.step();
    assert_eq!(plan.round, 2);
    assert_eq!(plan.cancel, [(NodeName::from("node2"), "superseded")]);
    assert!(
        plan.assign.is_empty(),
        "the slot is busy until the agent has let go"
    );
    assert_eq!(
        plan.counters.succeeded, 0,
        "what ended for the old image does not count"
    );
    world.tasks.clear();
    assert_eq!(names(&world.step()), ["node1"]);
}

#[test]
fn results_are_saved_at_last_after_thirty_seconds() {
    let mut world = World::new(100, "{}");
    world.step();
    world.succeed("node1");
    world.step();
    world.pass(29);
    assert_eq!(world.step().write, None);
    world.pass(1);
    assert_eq!(world.step().write, Some(WriteReason::Unsaved));
}

#[test]
fn quarters_are_written_at_least_ten_seconds_apart() {
    let mut world = World::new(8, r#"{"parallelism":8}"#);
    world.step();
    let mut writes = 0;
    for i in 1..=7 {
        world.pass(4);
        world.succeed(&format!("node{i}"));
        writes += usize::from(world.step().write.is_some());
    }
    assert!(writes <= 3, "{writes}");
}

#[test]
fn the_deadline_fails_and_cancels_what_is_left() {
    let mut world = World::new(
        3,
        r#"{"completionPolicy":{"type":"Always","activeDeadlineSeconds":600}}"#,
    );
    let plan = world.step();
    assert_eq!(plan.deadline_left, Some(Duration::from_secs(600)));
    world.pass(600);
    let plan = world.step();
    assert_eq!(plan.cancel.len(), 1);
    assert_eq!(plan.write, Some(WriteReason::Completed));
    assert_eq!((plan.counters.failed, plan.counters.desired), (3, 3));
    assert_eq!(
        plan.status.message.as_deref(),
        Some("job exceeds activeDeadlineSeconds")
    );
}

#[test]
fn a_finished_job_is_deleted_when_its_time_has_come() {
    let mut world = World::new(0, r#"{"completionPolicy":{"ttlSecondsAfterFinished":30}}"#);
    world.step();
    let plan = world.step();
    assert!(plan.complete && !plan.delete);
    assert_eq!(plan.wake, Some(world.now + SignedDuration::from_secs(30)));
    world.pass(30);
    assert!(world.step().delete);
}

#[test]
fn never_goes_on_and_serves_new_nodes() {
    let mut world = World::new(1, r#"{"completionPolicy":{"type":"Never"}}"#);
    world.step();
    world.succeed("node1");
    let plan = world.step();
    assert!(!plan.complete);
    assert_eq!(
        plan.status.message.as_deref(),
        Some("job is running, progress 100.0%")
    );
    world.nodes.insert("node2".into(), node(2));
    assert_eq!(names(&world.step()), ["node2"]);
}

#[test]
fn deleting_takes_everything_back() {
    let mut world = World::new(3, r#"{"parallelism":2}"#);
    world.step();
    world.deleting = true;
    assert_eq!(world.step().cancel.len(), 2);
}

#[test]
fn a_bad_image_says_so_and_an_edit_cures_it() {
    let mut world = World::new(1, r#"{"image":"Upper"}"#);
    let plan = world.step();
    assert!(
        plan.waiting[0].to_string().starts_with("spec.image: "),
        "{:?}",
        plan.waiting
    );
    assert_eq!(world.step().write, None, "equal writes are skipped");
    world.spec.image = "lower/case".into();
    world.generation = 2;
    assert_eq!(names(&world.step()), ["node1"]);
}

#[test]
fn a_set_of_nodes_survives_the_status() {
    let mut set = NodeSet::default();
    for i in 0..1000 {
        set.insert(&NodeUid::new(format!("uid{i}")));
    }
    let text = set.encode();
    assert!(text.len() < 11_000);
    let read = NodeSet::decode(&text);
    assert_eq!(read, set);
    assert!(read.contains(&"uid7".into()) && !read.contains(&"uid1000".into()));
    assert_eq!(NodeSet::decode("not base64!"), NodeSet::default());
}

#[test]
fn rounds_follow_the_image() {
    let (one, two) = (
        ImageRef::parse("a:1").expect("valid"),
        ImageRef::parse("a:2").expect("valid"),
    );
    assert_eq!(round_of(&one, None), 1);
    let mut world = World::new(1, r#"{"image":"a:1"}"#);
    world.step();
    assert_eq!(round_of(&one, world.status.as_ref()), 1);
    assert_eq!(round_of(&two, world.status.as_ref()), 2);
}

/// Something that happens to a job.
#[derive(Clone, Debug)]
enum Happening {
    Succeed(usize),
    Fail(usize),
    Away(usize),
    Back(usize),
    Released(usize),
    Image(u8),
    Parallelism(i32),
    Pass(i64),
    Failover,
}

fn happening() -> impl Strategy<Value = Happening> {
    let node = 1..=6_usize;
    prop_oneof![
        5 => node.clone().prop_map(Happening::Succeed),
        2 => node.clone().prop_map(Happening::Fail),
        1 => node.clone().prop_map(Happening::Away),
        2 => node.clone().prop_map(Happening::Back),
        3 => node.prop_map(Happening::Released),
        1 => (0..2_u8).prop_map(Happening::Image),
        1 => (-1..5_i32).prop_map(Happening::Parallelism),
        3 => (1..40_i64).prop_map(Happening::Pass),
        1 => Just(Happening::Failover),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    let held = |world: &World, i: usize| {
        let name = NodeName::new(format!("node{i}"));
        world
            .tasks
            .get(&name)
            .is_some_and(|task| matches!(task.state, TaskState::InFlight { .. }))
    };
    match what {
        Happening::Succeed(i) if held(world, *i) => world.succeed(&format!("node{i}")),
        Happening::Fail(i) if held(world, *i) => world.fail(&format!("node{i}"), Reason::NotFound),
        Happening::Succeed(_) | Happening::Fail(_) => {}
        Happening::Away(i) => world.agent(&format!("node{i}"), AgentView::Away),
        Happening::Back(i) => world.agent(&format!("node{i}"), AgentView::Attached),
        Happening::Released(i) => {
            let name = NodeName::new(format!("node{i}"));
            if world
                .tasks
                .get(&name)
                .is_some_and(|task| task.state == TaskState::Cancelling)
            {
                world.tasks.remove(&name);
            }
        }
        Happening::Image(i) => {
            world.spec.image = format!("nginx:{i}");
            world.generation += 1;
        }
        Happening::Parallelism(n) => {
            world.spec.parallelism = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(*n));
            world.generation += 1;
        }
        Happening::Pass(seconds) => world.pass(*seconds),
        Happening::Failover => {
            world.memory = JobMemory {
                last_write: Some(world.now),
                ..JobMemory::default()
            }
        }
    }
}

proptest! {
    /// The checker runs in each step: whatever happens, the promises hold and the job comes to an end.
    #[test]
    fn promises_hold_through_anything(happenings in prop::collection::vec(happening(), 0..120)) {
        let mut world = World::new(6, r#"{"parallelism":2}"#);
        world.step();
        for what in &happenings {
            happen(&mut world, what);
            world.step();
        }
        // From here on everybody is well: the job must end.
        happen(&mut world, &Happening::Parallelism(2));
        for i in 1..=6 {
            happen(&mut world, &Happening::Back(i));
        }
        for _ in 0..40 {
            for i in 1..=6 {
                happen(&mut world, &Happening::Released(i));
                happen(&mut world, &Happening::Succeed(i));
            }
            world.pass(31);
            world.step();
        }
        prop_assert!(world.status().completion_time.is_some(), "{:?}", world.plan());
    }

    /// With results in any order, a job without trouble costs few writes.
    #[test]
    fn writes_are_few(spans in prop::collection::vec(0..3_i64, 20)) {
        let mut world = World::new(20, r#"{"parallelism":4}"#);
        let mut writes = usize::from(world.step().write.is_some());
        for span in spans {
            world.pass(span);
            let next = world.tasks.iter().find(|(_, task)| matches!(task.state, TaskState::InFlight { .. }));
            let name = next.expect("one runs").0.to_string();
            world.succeed(&name);
            writes += usize::from(world.step().write.is_some());
        }
        prop_assert!(world.status().completion_time.is_some());
        prop_assert!(writes <= 6, "{} writes", writes);
    }
}
