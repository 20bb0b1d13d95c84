//! Growing, taking back, deleting.

use serde_json::{Value, json};

use super::line::{Row, hooked, line, rolling, row, run, short};
use super::world::{World, pods_of, waits};
use crate::cloneset::*;
use kruise_api::clone_set::names;

fn exclude(mut spec: Value) -> Value {
    spec["scaleStrategy"] = json!({"excludePreparingDelete": true});
    spec
}

fn marks(mut spec: Value) -> Value {
    spec["lifecycle"]["preDelete"]["markPodNotReady"] = json!(true);
    spec
}

pub(super) fn cases() -> Vec<Row> {
    vec![
        row(
            "creates what is missing",
            rolling(2, json!({})),
            "n",
            "CreatePod n",
        ),
        row(
            "old ones first",
            rolling(3, json!({"partition": 2})),
            "",
            "CreatePod o, CreatePod o, CreatePod n",
        ),
        row(
            "growing excludes deleting",
            rolling(4, json!({})),
            "n n nm",
            "CreatePod n",
        ),
        row(
            "a failed pod is replaced",
            rolling(2, json!({})),
            "n nF",
            "CreatePod n",
        ),
        row(
            "a pod that ends is replaced",
            rolling(2, json!({})),
            "n nt",
            "CreatePod n",
        ),
        row(
            "takes back what is wanted again",
            hooked(3, json!({})),
            "n n nlD",
            "PatchPod 02 PreparingNormal",
        ),
        row(
            "takes back also what no hook holds",
            hooked(3, json!({})),
            "n n nl",
            "PatchPod 02 PreparingNormal",
        ),
        row(
            "takes back no more than wanted",
            hooked(3, json!({})),
            "n n nlD nlD",
            "PatchPod 02 PreparingNormal",
        ),
        row(
            "does not take back the marked",
            hooked(3, json!({})),
            "n n nlmD",
            "",
        ),
        row(
            "does not take back what was made not ready",
            marks(hooked(3, json!({}))),
            "n n nlD",
            "PatchPod 02",
        ),
        row(
            "deletes what no hook holds any more",
            hooked(2, json!({})),
            "n n nl",
            "DeletePod 02",
        ),
        row("leaves what a hook holds", hooked(2, json!({})), "n n nlD", ""),
        row(
            "a missing replacement does not keep a pod from going",
            exclude(hooked(2, json!({}))),
            "n n! nlm",
            "DeletePod 02",
        ),
        row(
            "deletes a marked pod",
            rolling(3, json!({})),
            "n n nm",
            "DeletePod 02",
        ),
        row(
            "deletes a marked pod whatever the value",
            rolling(3, json!({})),
            "n nm n",
            "DeletePod 01",
        ),
        row(
            "holds a marked pod for its hook",
            hooked(3, json!({})),
            "n n nmD",
            "PatchPod 02 PreparingDelete",
        ),
        row(
            "marked pods one by one",
            rolling(3, json!({})),
            "n nm nm",
            "DeletePod 01",
        ),
        row(
            "a broken marked pod costs nothing",
            rolling(3, json!({})),
            "n n nm!",
            "DeletePod 02",
        ),
        row(
            "not a broken and a ready one at once",
            rolling(3, json!({"partition": 3})),
            "nm nm! n",
            "DeletePod 01",
        ),
        row(
            "no marked pod while others are down",
            rolling(3, json!({})),
            "n n! nm",
            "",
        ),
        row(
            "surge for a marked pod first",
            rolling(3, json!({"maxUnavailable": 0, "maxSurge": 1})),
            "n n nm",
            "CreatePod n",
        ),
        row(
            "then the marked pod",
            rolling(3, json!({"maxUnavailable": 0, "maxSurge": 1})),
            "n n nm n",
            "DeletePod 02",
        ),
        row(
            "shrinks, by name at last",
            rolling(2, json!({})),
            "n n n",
            "DeletePod 00",
        ),
        row(
            "shrinks what is held by a hook",
            hooked(1, json!({})),
            "nD nD",
            "PatchPod 00 PreparingDelete",
        ),
        row(
            "one that is held does not hold up others",
            hooked(1, json!({})),
            "n nlD n",
            "DeletePod 00",
        ),
        row(
            "young surplus costs nothing",
            rolling(2, json!({})),
            "n n ny",
            "DeletePod 02",
        ),
        row(
            "an unready surplus goes first",
            rolling(2, json!({})),
            "n! n n",
            "DeletePod 00",
        ),
        row(
            "to nothing",
            rolling(0, json!({})),
            "n n",
            "DeletePod 00, DeletePod 01",
        ),
    ]
}

#[test]
fn scaling() {
    run(cases(), |_| {});
}

#[test]
fn young_pods_are_counted_when_some_are_needed() {
    let mut spec = rolling(3, json!({}));
    spec["minReadySeconds"] = json!(60);
    let mut world = World::new(spec);
    line(&mut world, "n n! n! ny");
    // Three are wanted; two of four are down. One unready pod is surplus and goes; the young one stays.
    assert_eq!(short(&world.plan()), "DeletePod 01");
}

#[test]
fn a_name_in_the_list_replaces_the_pod_and_is_taken_off() {
    let mut world = World::settled(rolling(3, json!({})));
    world.play.set.spec.scale_strategy.pods_to_delete = vec!["web-p01".to_owned(), "web-gone".to_owned()];
    line(&mut world, "n n n");
    let plan = world.plan();
    assert_eq!(pods_of(&plan, "DeletePod"), ["web-p01"]);
    assert!(
        matches!(plan.actions.last(), Some(Action::PatchCloneSet { pods_to_delete, .. }) if *pods_to_delete == ["web-p01"])
    );
    world.settle();
    assert!(world.play.set.spec.scale_strategy.pods_to_delete.is_empty());
    assert_eq!(world.play.pods.len(), 3);
    assert!(world.play.pods.iter().all(|pod| pod.name != "web-p01"));
}

#[test]
fn a_named_pod_goes_when_the_set_shrinks() {
    let mut world = World::settled(rolling(2, json!({})));
    world.play.set.spec.scale_strategy.pods_to_delete = vec!["web-p00".to_owned()];
    line(&mut world, "n n n");
    world.settle();
    let left: Vec<&str> = world.play.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(left, ["web-p01", "web-p02"]);
}

#[test]
fn creation_that_failed_waits_and_holds_nothing_else_up() {
    let mut world = World::settled(rolling(3, json!({"maxUnavailable": 2})));
    line(&mut world, "n nm");
    let until = world.play.now + jiff::SignedDuration::from_secs(30);
    world.play.writes.creation = Some(Hold {
        until,
        message: "exceeded quota".to_owned(),
    });
    let plan = world.plan();
    assert_eq!(short(&plan), "DeletePod 01");
    assert!(waits(&plan, Reason::CreationFailed).is_some());
    assert_eq!(plan.wake, Some(until));
    world.pass(31);
    assert_eq!(short(&world.plan()), "CreatePod n");
}

#[test]
fn a_limit_on_creation_is_told() {
    let mut spec = rolling(5, json!({}));
    spec["scaleStrategy"] = json!({"maxUnavailable": 1});
    let mut world = World::settled(spec);
    let plan = world.plan();
    assert_eq!(pods_of(&plan, "CreatePod").len(), 1);
    assert!(plan.events.iter().any(|event| event.reason == "ScaleUpLimited"));
    world.settle();
    assert_eq!(world.play.pods.len(), 5);
}

#[test]
fn names_are_derived_and_never_used_twice() {
    let mut world = World::settled(rolling(3, json!({})));
    let first = pods_of(&world.plan(), "CreatePod");
    assert_eq!(
        first,
        pods_of(&world.plan(), "CreatePod"),
        "two who decide alike collide"
    );
    world.settle();
    world.play.pods[0].phase = Phase::Failed;
    let again = pods_of(&world.plan(), "CreatePod");
    assert!(!first.contains(&again[0]), "the failed pod still holds its name");
    let mut world = World::settled(rolling(1, json!({})));
    let name = pods_of(&world.plan(), "CreatePod").remove(0);
    let stranger = world.pod(&name, 1);
    stranger.controller = Some("other".to_owned());
    stranger.owners = vec!["other".to_owned()];
    assert_ne!(
        pods_of(&world.plan(), "CreatePod"),
        [name],
        "somebody else's pod has the name"
    );
}

#[test]
fn the_number_of_the_last_id_outlives_all_pods() {
    let mut world = World::settled(rolling(2, json!({})));
    world.settle();
    let before: Vec<String> = world.play.pods.iter().map(|pod| pod.name.clone()).collect();
    world.play.set.spec.replicas = Some(0);
    world.settle();
    world.play.set.spec.replicas = Some(2);
    world.settle();
    assert!(world.play.pods.iter().all(|pod| !before.contains(&pod.name)));
    assert_eq!(world.play.set.status.as_ref().unwrap().instance_seq, Some(4));
}

#[test]
fn nothing_is_done_on_what_is_no_longer_so() {
    let mut world = World::new(rolling(5, json!({})));
    line(&mut world, "o o o");
    world.play.writes.unseen = vec!["web-new".to_owned()];
    let plan = world.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(
        waits(&plan, Reason::Expectations),
        Some(vec!["web-new".to_owned()])
    );
}

#[test]
fn a_set_that_is_deleted_is_left_to_the_garbage_collector() {
    let mut world = World::new(rolling(5, json!({})));
    line(&mut world, "o o o");
    let now = world.play.now;
    world.play.set.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    let plan = world.plan();
    assert!(plan.actions.is_empty() && waits(&plan, Reason::Deleting).is_some());
    assert_eq!(plan.status.replicas, 3);
}

#[test]
fn a_preparing_delete_of_a_marked_pod_keeps_its_not_ready_key() {
    let mut world = World::settled(marks(hooked(3, json!({}))));
    line(&mut world, "n n nmD");
    let plan = world.plan();
    let json = serde_json::to_value(&plan.actions[0]).unwrap();
    assert_eq!(json["labels"][names::LIFECYCLE_STATE], "PreparingDelete");
    assert_eq!(json["conditions"][0]["type"], "KruisePodReady");
    assert_eq!(json["conditions"][0]["status"], "False");
    assert_eq!(
        json["conditions"][0]["message"],
        r#"[{"userAgent":"Lifecycle","key":"preDeleteHook"}]"#
    );
    assert_eq!(json["conditions"][1]["type"], "Ready");
}
