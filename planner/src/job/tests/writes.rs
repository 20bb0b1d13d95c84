//! What is written, told and deleted, and when.

use std::time::Duration;

use jiff::SignedDuration;
use kruise_api::ids::NodeUid;
use kruise_api::reference::ImageRef;

use super::world::{World, names, node};
use crate::job::*;
use crate::task::Reason;

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

#[test]
fn a_gate_that_is_off_stops_a_job_and_says_so_once_and_all_goes_on_when_it_is_on_again() {
    const GATE: &str = "ImagePullJobGate";
    let mut world = World::new(3, "{}");
    world.step();
    let off = plan_switched_off(&world.snapshot(), GATE);
    assert!(off.assign.is_empty());
    assert_eq!(off.cancel, [("node1".into(), "feature gate is off")]);
    assert_eq!(off.write, Some(WriteReason::Edited));
    assert_eq!(
        off.status.message.as_deref(),
        Some("feature-gate ImagePullJobGate is not enabled")
    );
    assert!(
        off.status
            .conditions
            .iter()
            .all(|condition| condition.status == "False" && condition.reason == "FeatureGateDisabled")
    );
    world.status = Some(off.status);
    world.tasks.clear();
    assert_eq!(plan_switched_off(&world.snapshot(), GATE).write, None);
    let on = world.step();
    assert_eq!(on.write, Some(WriteReason::Edited));
    assert_eq!(on.assign.len(), 1);
    assert_eq!(on.status.conditions[0].reason, "Pulling");
}

#[test]
fn a_gate_that_is_off_leaves_alone_what_is_over() {
    let mut world = World::new(1, r#"{"completionPolicy":{"ttlSecondsAfterFinished":1}}"#);
    world.step();
    world.succeed("node1");
    world.step();
    world.pass(100);
    assert!(world.plan().delete);
    let off = plan_switched_off(&world.snapshot(), "KruiseDaemon");
    assert!(off.complete && !off.delete && off.write.is_none());
    assert_eq!(off.status, *world.status());
}
