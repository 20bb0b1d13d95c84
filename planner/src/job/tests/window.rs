//! Who gets a slot and when.

use jiff::SignedDuration;
use kruise_api::ids::NodeName;

use super::world::{World, names, pod};
use crate::job::*;

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
        .iter()
        .enumerate()
        .map(|(i, node)| pod(&format!("pod{i}"), node))
        .collect();
    assert_eq!(names(&world.step()), ["node2", "node1"]);
}

#[test]
fn a_bad_operator_in_a_pod_selector_is_named() {
    let spec = r#"{"podSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}"#;
    let plan = World::new(3, spec).step();
    let text = plan.waiting[0].to_string();
    assert!(
        text.starts_with("spec.podSelector: ") && text.contains("\"Near\""),
        "{text}"
    );
}

#[test]
fn empty_names_mean_no_node_and_the_job_completes() {
    let mut world = World::new(3, r#"{"selector":{"names":[]}}"#);
    let plan = world.step();
    assert_eq!(plan.write, Some(WriteReason::Completed));
    assert!(plan.event.expect("told").message.contains("no node is selected"));
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
fn deleting_takes_everything_back() {
    let mut world = World::new(3, r#"{"parallelism":2}"#);
    world.step();
    world.deleting = true;
    assert_eq!(world.step().cancel.len(), 2);
}
