//! Argo CD's view of our kinds: its health scripts and actions, run by the Lua that it speaks (5.1).

#![allow(clippy::panic, clippy::needless_pass_by_value, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

use mlua::serde::SerializeOptions;
use mlua::{Lua, LuaSerdeExt};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    root.join("deploy/argocd")
}

fn script(path: &str) -> String {
    fs::read_to_string(folder().join("apps.kruise.io").join(path)).expect("readable")
}

fn run(path: &str, object: &Value) -> Value {
    let lua = Lua::new();
    let options = SerializeOptions::new()
        .serialize_none_to_null(false)
        .serialize_unit_to_null(false);
    let object = lua.to_value_with(object, options).expect("a table");
    lua.globals().set("obj", object).expect("set");
    let answer: mlua::Value = lua
        .load(script(path))
        .eval()
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    lua.from_value(answer).expect("JSON")
}

fn health(kind: &str, object: &Value, status: &str, words: &str) {
    let health = run(&format!("{kind}/health.lua"), object);
    let message = health["message"].as_str().unwrap_or_default();
    assert!(
        health["status"] == status && message.contains(words),
        "{kind} {object}: {health}, wanted {status} with {words:?}"
    );
}

#[test]
fn image_pull_jobs() {
    let job = |spec: Value, status: Value| json!({"metadata": {"name": "a"}, "spec": spec, "status": status});
    let ended = "2026-01-01T00:00:00Z";
    for (spec, status, wanted, words) in [
        (json!({}), json!(null), "Progressing", "no manager"),
        (
            json!({}),
            json!({"desired": 5, "succeeded": 2}),
            "Progressing",
            "2 of 5",
        ),
        (
            json!({}),
            json!({"desired": 5, "succeeded": 5, "completionTime": ended}),
            "Healthy",
            "5 of 5",
        ),
        (
            json!({}),
            json!({"desired": 5, "succeeded": 4, "failed": 1, "message": "disk full", "completionTime": ended}),
            "Degraded",
            "1 failed: disk full",
        ),
        (
            json!({}),
            json!({"desired": 5, "completionTime": ended, "conditions": [{"type": "Failed", "status": "True"}]}),
            "Degraded",
            "0 of 5",
        ),
        (
            json!({"parallelism": 0}),
            json!({"desired": 5}),
            "Suspended",
            "paused",
        ),
        (
            json!({"completionPolicy": {"type": "Never"}}),
            json!({"desired": 3, "succeeded": 3}),
            "Healthy",
            "3 of 3",
        ),
        (
            json!({"completionPolicy": {"type": "Never"}}),
            json!({"desired": 3, "succeeded": 2, "failed": 1}),
            "Degraded",
            "1 failed",
        ),
        (
            json!({}),
            json!({"desired": 3, "conditions": [{"type": "Progressing", "status": "False", "reason": "FeatureGateDisabled", "message": "gate is off"}]}),
            "Suspended",
            "gate is off",
        ),
    ] {
        health("ImagePullJob", &job(spec, status), wanted, words);
    }
}

#[test]
fn image_lists() {
    let ended = "2026-01-01T00:00:00Z";
    for (status, wanted, words) in [
        (json!(null), "Progressing", "no manager"),
        (json!({"desired": 2, "completed": 1}), "Progressing", "1 of 2"),
        (
            json!({"desired": 2, "completed": 2, "succeeded": 2, "completionTime": ended}),
            "Healthy",
            "2 of 2",
        ),
        (
            json!({"desired": 2, "completed": 2, "completionTime": ended, "failedImageStatuses": [{"name": "nginx", "message": "denied"}]}),
            "Degraded",
            "nginx: denied",
        ),
    ] {
        health(
            "ImageListPullJob",
            &json!({"spec": {}, "status": status}),
            wanted,
            words,
        );
    }
}

#[test]
fn restarts() {
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let states = |one: &str, other: &str| json!([{"name": "a", "phase": one}, {"name": "b", "phase": other, "message": "no such"}]);
    for (status, wanted, words) in [
        (json!(null), "Progressing", "no agent"),
        (
            json!({"phase": "Recreating", "containerRecreateStates": states("Succeeded", "Pending")}),
            "Progressing",
            "1 of 2",
        ),
        (
            json!({"phase": "Completed", "containerRecreateStates": states("Succeeded", "Succeeded")}),
            "Healthy",
            "2 of 2",
        ),
        (
            json!({"phase": "Completed", "containerRecreateStates": states("Succeeded", "Failed")}),
            "Degraded",
            "b: no such",
        ),
        (
            json!({"phase": "Completed", "message": "pod has gone"}),
            "Degraded",
            "pod has gone",
        ),
    ] {
        health(
            "ContainerRecreateRequest",
            &json!({"spec": spec, "status": status}),
            wanted,
            words,
        );
    }
}

fn set(strategy: Value, status: Value) -> Value {
    let mut whole = json!({"observedGeneration": 7, "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4,
        "updatedReadyReplicas": 4, "updatedAvailableReplicas": 4, "currentRevision": "old", "updateRevision": "new"});
    for (key, value) in status.as_object().expect("fields") {
        whole[key] = value.clone();
    }
    json!({"metadata": {"generation": 7}, "spec": {"replicas": 4, "updateStrategy": strategy}, "status": whole})
}

#[test]
fn clone_sets_of_both_versions() {
    let newer = |rolling: Value| json!({"type": "RollingUpdate", "rollingUpdate": rolling});
    for (strategy, status, wanted, words) in [
        // A finished rollout of a later generation, in both versions, is healthy and not suspended for ever.
        (
            json!({"type": "InPlaceIfPossible"}),
            json!({}),
            "Healthy",
            "4 of 4",
        ),
        (newer(json!({})), json!({}), "Healthy", "4 of 4"),
        (newer(json!({"partition": "0%"})), json!({}), "Healthy", "4 of 4"),
        (json!({"partition": "0%"}), json!({}), "Healthy", "4 of 4"),
        (json!(null), json!({}), "Healthy", "4 of 4"),
        // In flight is progress, not a failure.
        (
            json!({}),
            json!({"updatedReplicas": 1, "updatedAvailableReplicas": 1}),
            "Progressing",
            "1 of 4",
        ),
        // A number that is left out is zero, and no pause.
        (
            newer(json!({})),
            json!({"updatedAvailableReplicas": null}),
            "Progressing",
            "0 of 4",
        ),
        (
            newer(json!({})),
            json!({"observedGeneration": 6}),
            "Progressing",
            "last change",
        ),
        (newer(json!({})), json!({"replicas": 3}), "Progressing", "3 of 4"),
        (
            newer(json!({})),
            json!({"readyReplicas": 2}),
            "Progressing",
            "2 of 4",
        ),
        (
            newer(json!({"paused": true})),
            json!({"updatedReplicas": 1}),
            "Suspended",
            "paused",
        ),
        (
            json!({"paused": true}),
            json!({"updatedReplicas": 1}),
            "Suspended",
            "paused",
        ),
        (
            newer(json!({"partition": 3})),
            json!({"updatedReplicas": 1}),
            "Suspended",
            "3 stay behind",
        ),
        (
            newer(json!({"partition": "99%"})),
            json!({"updatedReplicas": 1}),
            "Suspended",
            "3 stay behind",
        ),
        (
            newer(json!({"partition": "50%"})),
            json!({"updatedReplicas": 1}),
            "Progressing",
            "1 of 2",
        ),
        (
            json!({"type": "OnDelete"}),
            json!({"updatedReplicas": 1}),
            "Suspended",
            "when they are deleted",
        ),
        (
            newer(json!({})),
            json!({"conditions": [{"type": "FailedScale", "status": "True", "message": "quota"}]}),
            "Degraded",
            "quota",
        ),
        (
            newer(json!({})),
            json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]}),
            "Degraded",
            "ProgressDeadlineExceeded",
        ),
    ] {
        health("CloneSet", &set(strategy, status), wanted, words);
    }
    health(
        "CloneSet",
        &json!({"metadata": {"generation": 1}, "spec": {}}),
        "Progressing",
        "last change",
    );
    let none =
        json!({"metadata": {"generation": 1}, "spec": {"replicas": 0}, "status": {"observedGeneration": 1}});
    health("CloneSet", &none, "Healthy", "0 of 0");
}

#[test]
fn actions_change_what_the_version_has() {
    for (version, field) in [
        ("v1alpha1", "/spec/updateStrategy/paused"),
        ("v1beta1", "/spec/updateStrategy/rollingUpdate/paused"),
    ] {
        let object = json!({"apiVersion": format!("apps.kruise.io/{version}"), "spec": {"template": {"spec": {"x": 1}}}});
        let paused = run("CloneSet/actions/pause.lua", &object);
        assert_eq!(paused.pointer(field), Some(&json!(true)), "{paused}");
        let offered = run("CloneSet/actions/discovery.lua", &paused);
        assert_eq!(
            (&offered["pause"]["disabled"], &offered["resume"]["disabled"]),
            (&json!(true), &json!(false))
        );
        let resumed = run("CloneSet/actions/resume.lua", &paused);
        assert_eq!(resumed.pointer(field), Some(&json!(false)));
        let restarted = run("CloneSet/actions/restart.lua", &object);
        let at =
            &restarted["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"];
        assert!(at.as_str().is_some_and(|at| at.ends_with('Z')), "{restarted}");
    }
}

#[test]
fn the_patch_for_argo_cd_holds_the_same_scripts() {
    let text = fs::read_to_string(folder().join("argocd-cm-patch.yaml")).expect("readable");
    let patch: Value = serde_norway::from_str(&text).expect("YAML");
    for kind in [
        "CloneSet",
        "ContainerRecreateRequest",
        "ImageListPullJob",
        "ImagePullJob",
    ] {
        let key = format!("resource.customizations.health.apps.kruise.io_{kind}");
        assert_eq!(
            patch["data"][key],
            script(&format!("{kind}/health.lua")),
            "{kind}"
        );
    }
    let actions = patch["data"]["resource.customizations.actions.apps.kruise.io_CloneSet"].as_str();
    let actions: Value = serde_norway::from_str(actions.expect("text")).expect("YAML");
    assert_eq!(actions["discovery.lua"], script("CloneSet/actions/discovery.lua"));
    let definitions = actions["definitions"].as_array().expect("a list");
    assert_eq!(definitions.len(), 3);
    for definition in definitions {
        let name = definition["name"].as_str().expect("a name");
        assert_eq!(
            definition["action.lua"],
            script(&format!("CloneSet/actions/{name}.lua")),
            "{name}"
        );
    }
}
