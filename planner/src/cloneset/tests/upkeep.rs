//! States of a pod's life, and what is kept up besides.

use serde_json::{Value, json};

use super::line::{Row, hooked, line, rolling, row, run, short};
use super::world::{World, waits};
use crate::cloneset::*;
use kruise_api::clone_set::names;

fn normal_hook(replicas: i32) -> Value {
    let mut spec = rolling(replicas, json!({}));
    spec["lifecycle"] = json!({"preNormal": {"labelsHandler": {"hook/normal": "on"}}});
    spec
}

/// A spec with `lifecycle` and without a hook for updates.
fn no_update_hook() -> Value {
    normal_hook(1)
}

pub(super) fn cases() -> Vec<Row> {
    let plain = || rolling(1, json!({}));
    let hooks = || hooked(1, json!({}));
    vec![
        row("a node makes it normal", plain(), "nc", "PatchPod 00 Normal"),
        row("without a node it waits", plain(), "ncx", ""),
        row(
            "its hook makes it normal",
            normal_hook(1),
            "ncN",
            "PatchPod 00 Normal",
        ),
        row("node or not", normal_hook(1), "ncxN", "PatchPod 00 Normal"),
        row("without its hook it waits", normal_hook(1), "nc", ""),
        row("changed", plain(), "nf", "PatchPod 00 Normal"),
        row("not yet changed", plain(), "nu", ""),
        row("changed, hook gone", hooks(), "nf", "PatchPod 00 Updated"),
        row("changed, hook there", hooks(), "nfU", "PatchPod 00 Normal"),
        row(
            "changed, other hooks only",
            no_update_hook(),
            "nf",
            "PatchPod 00 Updated",
        ),
        row("updated, hook back", hooks(), "neU", "PatchPod 00 Normal"),
        row("updated, hook not back", hooks(), "ne", ""),
        row("updated, no hook at all", plain(), "ne", "PatchPod 00 Normal"),
        row(
            "updated on an older revision, hook back",
            hooked(2, json!({"partition": 2})),
            "oeU o",
            "PatchPod 00 Normal",
        ),
        row(
            "prepared, and there already",
            hooks(),
            "npU",
            "PatchPod 00 Normal",
        ),
        row(
            "prepared, there already, hook gone",
            hooks(),
            "np",
            "PatchPod 00 Updated",
        ),
        row(
            "prepared, and not wanted any more",
            hooked(1, json!({"partition": 1})),
            "opU",
            "PatchPod 00 Normal",
        ),
        row(
            "prepared while paused",
            hooked(1, json!({"paused": true})),
            "opU",
            "",
        ),
        row(
            "paused: upkeep goes on",
            rolling(2, json!({"paused": true})),
            "o nf",
            "PatchPod 01 Normal",
        ),
        row(
            "a label ends the pass",
            rolling(2, json!({"maxUnavailable": 2})),
            "o nc",
            "PatchPod 01 Normal",
        ),
    ]
}

#[test]
fn states() {
    run(cases(), |_| {});
}

#[test]
fn a_condition_does_not_end_the_pass() {
    let mut world = World::new(rolling(2, json!({"maxUnavailable": 2})));
    line(&mut world, "o n");
    world.get("web-p01").in_place_ready = None;
    assert_eq!(short(&world.plan()), "PatchPod 01, UpdateInPlace 00 Updating");
}

#[test]
fn a_pod_is_written_once_in_a_pass() {
    let mut world = World::new(rolling(1, json!({})));
    line(&mut world, "o");
    world.get("web-p00").in_place_ready = None;
    assert_eq!(short(&world.plan()), "UpdateInPlace 00 Updating");
}

#[test]
fn the_hash_label_is_patched_in() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "n");
    world.get("web-p00").set_label(names::TEMPLATE_HASH, None);
    let json = serde_json::to_value(&world.plan().actions[0]).unwrap();
    let hash = world.revision(1).rsplit('-').next().unwrap().to_owned();
    assert_eq!(json["labels"], json!({names::TEMPLATE_HASH: hash}));
}

#[test]
fn done_is_one_write() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "nf");
    let plan = world.plan();
    assert_eq!(plan.actions.len(), 1);
    let json = serde_json::to_value(&plan.actions[0]).unwrap();
    assert_eq!(
        json["conditions"],
        json!([{"type": "InPlaceUpdateReady", "status": "True"}])
    );
    assert_eq!(json["lifecycleState"], "Normal");
    assert_eq!(json["labels"][names::LIFECYCLE_STATE], "Normal");
}

#[test]
fn a_set_that_is_taken_over_is_left_as_it_is() {
    // OpenKruise's short label and our long one mean the same revision.
    for short_label in [false, true] {
        let mut world = World::settled(rolling(3, json!({})));
        line(&mut world, "n n n");
        if short_label {
            let hash = world.revision(1).rsplit('-').next().unwrap().to_owned();
            for pod in &mut world.play.pods {
                pod.set_label(names::REVISION, Some(&hash));
            }
        }
        assert!(world.plan().actions.is_empty());
    }
}

#[test]
fn hooks_that_hold_are_told() {
    let mut world = World::new(hooked(3, json!({"maxUnavailable": 2})));
    line(&mut world, "opU oU ne");
    let plan = world.plan();
    assert_eq!(
        waits(&plan, Reason::InPlaceUpdateHook),
        Some(vec!["web-p00".to_owned()])
    );
    assert_eq!(
        waits(&plan, Reason::InPlaceUpdateHookReturn),
        Some(vec!["web-p02".to_owned()])
    );
    let mut world = World::new(normal_hook(1));
    line(&mut world, "nc");
    assert_eq!(
        waits(&world.plan(), Reason::PreNormalHook),
        Some(vec!["web-p00".to_owned()])
    );
}

#[test]
fn a_new_pod_gets_the_conditions_of_both_its_gates_in_one_write() {
    let mut world = World::settled(rolling(3, json!({})));
    line(&mut world, "n n n");
    world.play.pods[1].in_place_ready = None;
    world.play.pods[1].kruise_ready = None;
    let json = serde_json::to_value(&world.plan().actions).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(1), "{json}");
    let told: Vec<_> = json[0]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| (condition["type"].clone(), condition["status"].clone()))
        .collect();
    let all = [
        (json!("InPlaceUpdateReady"), json!("True")),
        (json!("KruisePodReady"), json!("True")),
    ];
    assert_eq!(told, all);
}
