//! When a change in place is done.

use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::names;
use serde_json::{Value, json};

use super::super::{Options, Progress, State, progress, unfinished};
use super::{pod, pods};
use crate::revision::fnv1a_of_text;

const SCALING: Options = Options {
    env_from_metadata: true,
    vertical_scaling: true,
};

#[test]
fn pods_of_a_running_openkruise() {
    let of = |stage: &str, index: usize| progress(&pods(stage)[index], Options::default());
    // The hooked one was changed at this very moment; the other one is done.
    assert_eq!(of("updating", 0).unfinished, ["main"]);
    assert!(of("updating", 1).is_finished());
    for pod in pods("updated") {
        assert_eq!(
            progress(&pod, Options::default()),
            Progress::default(),
            "{:?}",
            pod.metadata.name
        );
    }
    for pod in pods("preparing") {
        assert!(progress(&pod, Options::default()).is_finished());
    }
}

/// A pod whose container is to run `wanted` and reports `image` by `id`, having run `sha256:1`.
fn changed(wanted: &str, image: &str, id: &str) -> Pod {
    pod(json!({
        "metadata": {"annotations": {names::IN_PLACE_STATE: json!({"revision": "r", "updateTimestamp": null, "updateImages": true,
            "lastContainerStatuses": {"main": {"imageID": "docker.io/library/a@sha256:1"}}}).to_string()}},
        "spec": {"containers": [{"name": "main", "image": wanted}]},
        "status": {"containerStatuses": [{"name": "main", "image": image, "imageID": id, "ready": true, "restartCount": 0,
            "containerID": "c://1"}]},
    }))
}

#[test]
fn images() {
    let same = "docker.io/library/a@sha256:1";
    for (wanted, image, id, finished) in [
        ("a:2", "docker.io/library/a:1", same, false),
        (
            "a:2",
            "docker.io/library/a:2",
            "docker.io/library/a@sha256:2",
            true,
        ),
        // The same content under a new tag: the names tell, however they are written.
        ("a:2", "docker.io/library/a:2", same, true),
        ("a", "docker.io/library/a:latest", same, true),
        ("host:5000/a", "host:5000/a:latest", same, true),
        ("host:5000/a:2", "host:5000/a:1", same, false),
        // The same content under another name is no change.
        ("mirror/a:2", "a:1", "mirror.example/a@sha256:1", false),
        // A reference by digest that the kubelet reports as it runs.
        (
            "a@sha256:0000000000000000000000000000000000000000000000000000000000000001",
            "sha256:ffff",
            "docker.io/library/a@sha256:0000000000000000000000000000000000000000000000000000000000000001",
            true,
        ),
    ] {
        let pod = changed(wanted, image, id);
        assert_eq!(
            progress(&pod, Options::default()).is_finished(),
            finished,
            "{wanted} {image} {id}"
        );
    }
    let mut gone = changed("a:2", "a:2", "x");
    gone.status = None;
    assert_eq!(progress(&gone, Options::default()).unfinished, ["main"]);
}

fn runtime(pod: &mut Pod, id: &str, plain: u32, env: u32) {
    let text = json!({"containers": [{"name": "main", "containerID": id, "restartCount": 0,
        "hashes": {"plainHash": plain, "extractedEnvFromMetadataHash": env}}]});
    let annotations = pod.metadata.annotations.as_mut().expect("some");
    annotations.insert(names::RUNTIME_CONTAINERS.to_owned(), text.to_string());
}

#[test]
fn the_agents_word_about_the_running_container_is_enough() {
    let mut pod = changed("a:2", "docker.io/library/a:1", "docker.io/library/a@sha256:1");
    let hash = fnv1a_of_text(r#"{"image":"a:2","name":"main"}"#);
    runtime(&mut pod, "c://1", hash, 0);
    assert!(progress(&pod, Options::default()).is_finished());
    runtime(&mut pod, "c://0", hash, 0);
    assert!(
        !progress(&pod, Options::default()).is_finished(),
        "an earlier container"
    );
    runtime(&mut pod, "c://1", hash + 1, 0);
    assert!(
        !progress(&pod, Options::default()).is_finished(),
        "an earlier image"
    );
}

#[test]
fn variables_are_current_when_the_agent_says_so() {
    let mut pod = pod(json!({
        "metadata": {"labels": {"k": "foo"}, "annotations": {names::IN_PLACE_STATE: r#"{"revision":"r","updateEnvFromMetadata":true}"#}},
        "spec": {"containers": [{"name": "main", "env": [
            {"name": "e2", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['k']"}}},
            {"name": "ip", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}]},
        "status": {"containerStatuses": [{"name": "main", "image": "a", "imageID": "a", "ready": true, "restartCount": 0,
            "containerID": "c://1"}]},
    }));
    assert_eq!(
        progress(&pod, Options::default()).unfinished,
        ["main"],
        "nobody has said anything"
    );
    runtime(&mut pod, "c://1", 0, 2_053_173_458);
    assert!(progress(&pod, Options::default()).is_finished());
    runtime(&mut pod, "c://0", 0, 2_053_173_458);
    assert!(!progress(&pod, Options::default()).is_finished());
    runtime(&mut pod, "c://1", 0, 1);
    assert!(!progress(&pod, Options::default()).is_finished());
}

#[test]
fn resources_are_current_when_the_kubelet_reports_them() {
    let of = |reported: Value| {
        pod(json!({
            "metadata": {"annotations": {names::IN_PLACE_STATE: r#"{"revision":"r","updateResources":true}"#}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1000m"}}}]},
            "status": {"containerStatuses": [{"name": "main", "image": "a", "imageID": "a", "ready": true, "restartCount": 0,
                "resources": reported}]},
        }))
    };
    assert!(progress(&of(json!({"limits": {"cpu": "1"}})), SCALING).is_finished());
    assert!(!progress(&of(json!({"limits": {"cpu": "2"}})), SCALING).is_finished());
    assert!(!progress(&of(json!(null)), SCALING).is_finished());
    assert!(
        progress(&of(json!(null)), Options::default()).is_finished(),
        "without the gate nobody asks"
    );
}

#[test]
fn the_next_batch_waits_for_the_present_one() {
    let of = |ready: bool| {
        pod(json!({
            "metadata": {"annotations": {names::IN_PLACE_STATE: json!({"revision": "r", "nextContainerImages": {"b": "b:2"},
                "preCheckBeforeNext": {"containersRequiredReady": ["a"]}}).to_string()}},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"containerStatuses": [{"name": "a", "image": "a", "imageID": "a", "ready": ready, "restartCount": 0}]},
        }))
    };
    assert_eq!(
        progress(&of(false), Options::default()).next,
        Some(vec!["a".to_owned()])
    );
    assert_eq!(progress(&of(true), Options::default()).next, Some(Vec::new()));
}

#[test]
fn unreadable_annotations_hold_nobody_up() {
    let broken =
        pod(json!({"metadata": {"annotations": {names::IN_PLACE_STATE: "{", names::IN_PLACE_GRACE: "[]"}}}));
    assert!(progress(&broken, Options::default()).is_finished());
    assert_eq!(
        unfinished(&broken, &State::default(), Options::default()),
        Vec::<String>::new()
    );
    // A grace period without a readable beginning is over.
    let grace = pod(
        json!({"metadata": {"annotations": {names::IN_PLACE_GRACE_OLD: r#"{"revision":"r","graceSeconds":5}"#}}}),
    );
    assert_eq!(
        progress(&grace, Options::default()).grace,
        Some(("r".to_owned(), None))
    );
}
