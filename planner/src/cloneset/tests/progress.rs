//! The status, and the condition Progressing.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::clone_set::CloneSetCondition;
use serde_json::json;

use super::line::{line, rolling};
use super::world::World;
use crate::cloneset::*;

/// What it shows, partition, whether paused, pods, reason of the condition before and its age in seconds, reason after, status after.
type Case = (
    &'static str,
    i32,
    bool,
    &'static str,
    Option<(&'static str, i64)>,
    &'static str,
    &'static str,
);

pub(super) fn cases() -> Vec<Case> {
    const GOING: &str = "CloneSetUpdated";
    const LATE: &str = "ProgressDeadlineExceeded";
    vec![
        ("begins", 0, false, "o o o", None, GOING, "True"),
        (
            "all there",
            0,
            false,
            "n n n",
            Some((GOING, 5)),
            "CloneSetAvailable",
            "True",
        ),
        (
            "all there after being late",
            0,
            false,
            "n n n",
            Some((LATE, 500)),
            "CloneSetAvailable",
            "True",
        ),
        (
            "paused",
            0,
            true,
            "o o o",
            Some((GOING, 5)),
            "CloneSetPaused",
            "True",
        ),
        (
            "paused after being late",
            0,
            true,
            "o o o",
            Some((LATE, 500)),
            "CloneSetPaused",
            "True",
        ),
        (
            "partition reached",
            2,
            false,
            "o o n",
            Some((GOING, 5)),
            "ProgressPartitionAvailable",
            "True",
        ),
        (
            "partition not reached",
            2,
            false,
            "o o n!",
            Some((GOING, 5)),
            GOING,
            "True",
        ),
        ("in time", 0, false, "o o o", Some((GOING, 60)), GOING, "True"),
        ("late", 0, false, "o o o", Some((GOING, 61)), LATE, "False"),
        ("still late", 0, false, "o o o", Some((LATE, 1)), LATE, "False"),
        (
            "resumed after a long pause",
            0,
            false,
            "o o o",
            Some(("CloneSetPaused", 5000)),
            GOING,
            "True",
        ),
        (
            "next partition after a long time",
            1,
            false,
            "o o n!",
            Some(("ProgressPartitionAvailable", 5000)),
            GOING,
            "True",
        ),
        (
            "a pod lost long after the rollout",
            0,
            false,
            "n n",
            Some(("CloneSetAvailable", 5000)),
            GOING,
            "True",
        ),
    ]
}

fn condition(world: &World, reason: &str, age: i64) -> CloneSetCondition {
    let then = Some(Time(world.play.now - SignedDuration::from_secs(age)));
    CloneSetCondition {
        kind: "Progressing".to_owned(),
        status: if reason == "ProgressDeadlineExceeded" {
            "False"
        } else {
            "True"
        }
        .to_owned(),
        reason: reason.to_owned(),
        last_update_time: then.clone(),
        last_transition_time: then,
        message: String::new(),
    }
}

/// A world whose status has the counters of its pods, so that nothing looks like progress.
fn world(partition: i32, paused: bool, pods: &str, before: Option<(&str, i64)>) -> World {
    let mut spec = rolling(3, json!({"partition": partition, "paused": paused}));
    spec["progressDeadlineSeconds"] = json!(60);
    let mut world = World::new(spec);
    line(&mut world, pods);
    let current = world.play.set.status.clone().unwrap().current_revision;
    let mut status = world.plan().status;
    if !pods.split_whitespace().all(|pod| pod.starts_with('n')) {
        status.current_revision = current;
    }
    status.conditions = before
        .iter()
        .map(|(reason, age)| condition(&world, reason, *age))
        .collect();
    world.play.set.status = Some(status);
    world
}

#[test]
fn progressing() {
    for (name, partition, paused, pods, before, reason, status) in cases() {
        let world = world(partition, paused, pods, before);
        let plan = world.plan();
        let found = plan
            .status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Progressing")
            .unwrap();
        assert_eq!(
            (found.reason.as_str(), found.status.as_str()),
            (reason, status),
            "{name}"
        );
    }
}

#[test]
fn progress_moves_the_deadline() {
    for late in ["CloneSetUpdated", "ProgressDeadlineExceeded"] {
        let mut world = world(0, false, "o o n", Some((late, 500)));
        world.play.set.status.as_mut().unwrap().updated_replicas = 0;
        let plan = world.plan();
        let found = &plan.status.conditions[0];
        assert_eq!(found.reason, "CloneSetUpdated");
        assert_eq!(found.last_update_time, Some(Time(world.play.now)));
        assert_eq!(plan.wake_after(world.play.now).unwrap().as_secs(), 61);
    }
}

#[test]
fn without_a_deadline_there_is_no_condition() {
    for deadline in [None, Some(i32::MAX)] {
        let mut world = world(0, false, "o o o", Some(("CloneSetUpdated", 5)));
        world.play.set.spec.progress_deadline_seconds = deadline;
        assert!(world.plan().status.conditions.is_empty());
    }
}

#[test]
fn nothing_changed_writes_nothing() {
    let mut world = World::settled(rolling(3, json!({})));
    line(&mut world, "n n n");
    assert!(world.plan().write_status);
    world.settle();
    let plan = world.plan();
    assert!(!plan.write_status && plan.actions.is_empty() && plan.waiting.is_empty() && plan.wake.is_none());
}

#[test]
fn counters() {
    let mut world = World::new(rolling(6, json!({"partition": 2})));
    line(&mut world, "o o! n n! ne nF nt");
    let status = world.plan().status;
    let counters = [
        status.replicas,
        status.ready_replicas,
        status.available_replicas,
        status.updated_replicas,
        status.updated_ready_replicas,
        status.updated_available_replicas,
        status.expected_updated_replicas,
    ];
    assert_eq!(counters, [5, 3, 2, 3, 2, 1, 4]);
    assert_eq!(status.label_selector, "app=web");
}

#[test]
fn a_pod_that_is_ready_for_too_short_wakes_the_plan() {
    let mut spec = rolling(2, json!({}));
    spec["minReadySeconds"] = json!(30);
    let mut world = World::settled(spec);
    line(&mut world, "n ny");
    let plan = world.plan();
    assert_eq!(plan.status.available_replicas, 1);
    assert_eq!(plan.wake_after(world.play.now).unwrap().as_secs(), 30);
    world.pass(30);
    assert_eq!(
        world.plan().status.available_replicas,
        1,
        "more than thirty seconds"
    );
    world.pass(1);
    assert_eq!(world.plan().status.available_replicas, 2);
}

#[test]
fn the_current_revision_follows_when_all_pods_are_there() {
    for (pods, follows) in [
        ("n n n!", true),
        ("n n", false),
        ("n n o", false),
        ("n n n n", false),
    ] {
        let mut world = World::new(rolling(3, json!({"maxUnavailable": 3})));
        line(&mut world, pods);
        let plan = world.plan();
        assert_eq!(
            plan.status.current_revision == plan.update_revision,
            follows,
            "{pods}"
        );
    }
}

#[test]
fn selectors_as_text() {
    let selector = serde_json::from_value(json!({
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "z", "operator": "Exists"},
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "NotIn", "values": ["q"]},
            {"key": "e", "operator": "DoesNotExist"},
        ],
    }));
    assert_eq!(
        selector_text(&selector.unwrap()),
        "a=1,b=2,c in (x,y),d notin (q),!e,z"
    );
}

#[test]
fn failures_are_told_as_long_as_they_last() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "n");
    world.play.writes.scale_failure = Some("exceeded quota".to_owned());
    let step = world.step();
    let condition = &step.plan.status.conditions[0];
    assert_eq!(
        (condition.kind.as_str(), condition.status.as_str()),
        ("FailedScale", "True")
    );
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("WriteFailed", "exceeded quota")
    );
    assert!(
        !world.plan().write_status,
        "the same failure again is not written again"
    );
    world.play.writes.scale_failure = None;
    assert!(world.plan().status.conditions.is_empty());
}
