//! The patches of a pod.

use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::names;
use serde_json::{Value, json};

use super::super::{
    Change, Decision, Grace, ImageRecord, Options, State, Target, begin, decide, end_grace, next_batch,
    not_ready,
};
use super::{now, pod, pods};

const SCALING: Options = Options {
    env_from_metadata: true,
    vertical_scaling: true,
};

fn target(grace_seconds: i32) -> Target<'static> {
    Target {
        revision: "set-new",
        label: "set-new",
        lifecycle_state: "Updating",
        grace_seconds,
        resize: true,
    }
}

fn change(value: &Value) -> Change {
    Change {
        images: serde_json::from_value(value["images"].clone()).unwrap_or_default(),
        metadata_patch: value.get("patch").cloned(),
        ref_metadata: serde_json::from_value(value["refs"].clone()).unwrap_or_default(),
        resources: serde_json::from_value(value["resources"].clone()).unwrap_or_default(),
    }
}

/// A running pod with two containers, the second of which waits for the first.
fn running(barriers: &[(&str, Option<i32>)]) -> Pod {
    let containers: Vec<Value> = barriers
        .iter()
        .map(|(name, priority)| {
            let env = priority.map(|priority| {
                json!([{"name": names::CONTAINER_BARRIER, "valueFrom": {"configMapKeyRef": {"name": "b", "key": format!("p_{priority}")}}}])
            });
            json!({"name": name, "image": format!("{name}:1"), "env": env,
                "resources": {"limits": {"cpu": "1"}}, "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]})
        })
        .collect();
    let statuses: Vec<Value> = barriers
        .iter()
        .map(|(name, _)| json!({"name": name, "image": "x", "imageID": format!("{name}@sha256:1"), "ready": true, "restartCount": 0}))
        .collect();
    pod(json!({
        "metadata": {"name": "p", "labels": {}, "annotations": {}},
        "spec": {"containers": containers, "readinessGates": [{"conditionType": "InPlaceUpdateReady"}]},
        "status": {"containerStatuses": statuses, "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]},
    }))
}

/// What the API server makes of a strategic merge patch, as far as these patches go.
pub(super) fn apply(pod: &Pod, patch: &Value) -> Pod {
    let mut value = serde_json::to_value(pod).expect("writable");
    for part in ["labels", "annotations"] {
        for (key, new) in patch["metadata"][part].as_object().into_iter().flatten() {
            let map = value["metadata"][part].as_object_mut().expect("a map");
            match new {
                Value::Null => map.remove(key),
                new => map.insert(key.clone(), new.clone()),
            };
        }
    }
    for fields in patch["spec"]["containers"].as_array().into_iter().flatten() {
        let containers = value["spec"]["containers"].as_array_mut().expect("a list");
        let container = containers
            .iter_mut()
            .find(|container| container["name"] == fields["name"])
            .expect("there");
        for (key, new) in fields.as_object().expect("a map") {
            container[key] = new.clone();
        }
    }
    super::pod(value)
}

fn annotation(patch: &Value, key: &str) -> Value {
    let text = patch["metadata"]["annotations"][key]
        .as_str()
        .expect("an annotation");
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_state_of_pods_of_a_running_openkruise_survives_byte_for_byte() {
    let mut seen = 0;
    for pod in ["preparing", "updating", "updated"].into_iter().flat_map(pods) {
        let Some(state) = State::of(&pod) else { continue };
        let text = &pod.metadata.annotations.as_ref().expect("some")[names::IN_PLACE_STATE];
        assert_eq!(&serde_json::to_string(&state).expect("writable"), text);
        assert!(!state.has_next() && state.began().is_some());
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn a_change_writes_what_openkruise_wrote() {
    // The pod before the change, taken from the same pod after it was held by its hook.
    let mut before = pods("preparing").remove(0);
    // Whose controller took the hook off, which let the change begin.
    before
        .metadata
        .labels
        .as_mut()
        .expect("some")
        .remove("example.io/block");
    let after = pods("updating").remove(0);
    let written = begin(
        &before,
        &change(&json!({"images": {"main": "nginx:1.15.1"}})),
        &Target {
            revision: "alpha-c45fbdb7c",
            label: "c45fbdb7c",
            lifecycle_state: "Updating",
            grace_seconds: 0,
            resize: true,
        },
        Options::default(),
        "2026-11-30T16:58:05Z".parse().expect("a time"),
    );
    let made = apply(&before, &written.pod);
    assert_eq!(made.metadata.labels, after.metadata.labels);
    assert_eq!(made.spec, after.spec);
    let key = names::IN_PLACE_STATE;
    let of = |pod: &Pod| pod.metadata.annotations.as_ref().expect("some")[key].clone();
    assert_eq!(of(&made), of(&after));
    let condition = &written.status.expect("gated")["status"]["conditions"][0];
    assert_eq!(condition["reason"], "StartInPlaceUpdate");
}

#[test]
fn batches_follow_priorities() {
    let pod = running(&[("a", Some(10)), ("b", Some(0)), ("c", None)]);
    let all = change(
        &json!({"images": {"a": "a:2", "b": "b:2", "c": "c:2"}, "patch": {"metadata": {"labels": {"x": "y"}}}}),
    );
    let first = begin(&pod, &all, &target(0), Options::default(), now());
    assert_eq!(
        first.pod["spec"]["containers"],
        json!([{"name": "a", "image": "a:2"}, {"name": "c", "image": "c:2"}])
    );
    assert_eq!(first.pod["metadata"]["labels"]["x"], "y");
    assert_eq!(
        annotation(&first.pod, names::IN_PLACE_STATE),
        json!({
            "revision": "set-new", "updateTimestamp": "2026-11-30T17:00:00Z", "updateImages": true,
            "lastContainerStatuses": {"a": {"imageID": "a@sha256:1"}, "c": {"imageID": "c@sha256:1"}},
            "nextContainerImages": {"b": "b:2"},
            "preCheckBeforeNext": {"containersRequiredReady": ["a", "c"]},
            "containerBatchesRecord": [{"timestamp": "2026-11-30T17:00:00Z", "containers": ["a", "c"]}],
        })
    );
    let pod = apply(&pod, &first.pod);
    let second = next_batch(&pod, true, now()).expect("one is left");
    assert_eq!(
        second.pod["spec"]["containers"],
        json!([{"name": "b", "image": "b:2"}])
    );
    assert!(second.pod["metadata"].get("labels").is_none() && second.status.is_none());
    let state: State =
        serde_json::from_value(annotation(&second.pod, names::IN_PLACE_STATE)).expect("a state");
    assert!(!state.has_next() && state.pre_check_before_next.is_none());
    assert_eq!(
        (
            state.container_batches_record.len(),
            state.last_container_statuses.map(|records| records.len())
        ),
        (2, Some(3))
    );
    assert_eq!(next_batch(&apply(&pod, &second.pod), true, now()), None);
}

#[test]
fn containers_that_share_a_key_change_together() {
    let pod = running(&[("a", Some(10)), ("b", Some(5)), ("c", Some(0)), ("d", Some(0))]);
    let shared = change(&json!({
        "images": {"a": "a:2", "d": "d:2"},
        "refs": {"a": {"labels": {"k": "1"}}, "b": {"labels": {"k": "1"}, "annotations": {"m": "1"}}, "c": {"annotations": {"m": "1"}},
            "d": {"annotations": {"k": "1"}}},
    }));
    let first = begin(&pod, &shared, &target(0), Options::default(), now());
    let state = annotation(&first.pod, names::IN_PLACE_STATE);
    assert_eq!(
        state["containerBatchesRecord"][0]["containers"],
        json!(["a", "b", "c"])
    );
    assert_eq!(
        state["nextContainerRefMetadata"],
        json!({"d": {"creationTimestamp": null, "annotations": {"k": "1"}}})
    );
    assert_eq!(
        (
            &first.pod["metadata"]["labels"]["k"],
            &first.pod["metadata"]["annotations"]["m"]
        ),
        (&json!("1"), &json!("1"))
    );
    assert_eq!(state["updateEnvFromMetadata"], true);
}

#[test]
fn resources_go_through_resize_where_there_is_one() {
    let pod = running(&[("a", None)]);
    let more = change(&json!({"resources": {"a": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}}}));
    let written = begin(&pod, &more, &target(0), SCALING, now());
    assert_eq!(
        written.resize,
        Some(
            json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}}]}})
        )
    );
    assert!(written.pod.get("spec").is_none());
    let inside = begin(
        &pod,
        &more,
        &Target {
            resize: false,
            ..target(0)
        },
        SCALING,
        now(),
    );
    assert!(inside.resize.is_none());
    assert_eq!(
        inside.pod["spec"]["containers"][0]["resources"]["limits"]["cpu"],
        "2"
    );
    // What the container has already is not written again.
    let same = change(&json!({"resources": {"a": {"limits": {"cpu": "1000m"}}}}));
    assert_eq!(begin(&pod, &same, &target(0), SCALING, now()).resize, None);
}

#[test]
fn a_batch_of_resources_alone_is_written_too() {
    let pod = running(&[("a", Some(10)), ("b", Some(0))]);
    let both = change(&json!({"images": {"a": "a:2"}, "resources": {"b": {"limits": {"cpu": "2"}}}}));
    let first = begin(&pod, &both, &target(0), SCALING, now());
    assert_eq!(first.resize, None);
    let second = next_batch(&apply(&pod, &first.pod), true, now()).expect("one is left");
    assert_eq!(
        second.resize.expect("resources")["spec"]["containers"][0]["name"],
        "b"
    );
}

#[test]
fn when_a_pod_is_made_not_ready() {
    let image = json!({"images": {"a": "a:2"}});
    let labels = json!({"patch": {"metadata": {"labels": {"x": "y"}}}});
    let cpu = json!({"resources": {"a": {"limits": {"cpu": "2"}}}});
    let memory = json!({"resources": {"a": {"limits": {"memory": "1Gi"}}}});
    let env = json!({"refs": {"a": {"labels": {"x": "y"}}}});
    for (what, options, expected) in [
        (&image, SCALING, true),
        (&labels, SCALING, false),
        (&json!({}), SCALING, false),
        (&env, SCALING, true),
        (&cpu, SCALING, false),
        (&cpu, Options::default(), true),
        (&memory, SCALING, true),
    ] {
        let pod = running(&[("a", None)]);
        assert_eq!(
            not_ready(&pod, &change(what), options, now()).is_some(),
            expected,
            "{what}"
        );
        let mut ungated = pod;
        ungated.spec.as_mut().expect("a spec").readiness_gates = None;
        assert_eq!(not_ready(&ungated, &change(what), options, now()), None);
    }
    let pod = running(&[("a", None)]);
    let patch = not_ready(&pod, &change(&image), SCALING, now()).expect("gated");
    assert_eq!(
        patch["status"]["conditions"][1],
        json!({"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady", "lastTransitionTime": "2026-11-30T17:00:00Z"})
    );
    let mut down = pod;
    down.status
        .as_mut()
        .expect("a status")
        .conditions
        .as_mut()
        .expect("some")[1]
        .status = "False".to_owned();
    let patch = not_ready(&down, &change(&image), SCALING, now()).expect("gated");
    assert_eq!(patch["status"]["conditions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn grace_writes_the_change_down_and_makes_it_later() {
    let mut pod = running(&[("a", None)]);
    let old = pod.metadata.annotations.as_mut().expect("some");
    old.insert(names::IN_PLACE_STATE_OLD.to_owned(), "{}".to_owned());
    let all = change(&json!({"images": {"a": "a:2"}, "patch": {"metadata": {"labels": {"x": "y"}}}}));
    let first = begin(&pod, &all, &target(30), Options::default(), now());
    assert!(
        first.pod.get("spec").is_none()
            && first.pod["metadata"]["labels"].get("x").is_none()
            && first.status.is_some()
    );
    assert_eq!(
        annotation(&first.pod, names::IN_PLACE_GRACE),
        json!({"revision": "set-new", "containerImages": {"a": "a:2"}, "graceSeconds": 30,
            "metaDataPatch": "eyJtZXRhZGF0YSI6eyJsYWJlbHMiOnsieCI6InkifX19"})
    );
    assert_eq!(
        annotation(&first.pod, names::IN_PLACE_STATE)["lastContainerStatuses"],
        Value::Null
    );
    assert_eq!(
        first.pod["metadata"]["annotations"][names::IN_PLACE_STATE_OLD],
        Value::Null
    );
    let pod = apply(&pod, &first.pod);
    let grace = Grace::of(&pod).expect("one");
    assert_eq!(
        grace.ends(State::of(&pod).as_ref()),
        Some("2026-11-30T17:00:30Z".parse().expect("a time"))
    );
    let second = end_grace(&pod, true, now()).expect("one");
    assert_eq!(
        second.pod["spec"]["containers"],
        json!([{"name": "a", "image": "a:2"}])
    );
    assert_eq!(second.pod["metadata"]["labels"]["x"], "y");
    let pod = apply(&pod, &second.pod);
    assert!(Grace::of(&pod).is_none() && end_grace(&pod, true, now()).is_none());
    let records = State::of(&pod)
        .expect("one")
        .last_container_statuses
        .expect("some");
    assert_eq!(
        records["a"],
        ImageRecord {
            image_id: "a@sha256:1".to_owned()
        }
    );
    // Metadata that nobody reads has nothing to wait for.
    let labels = change(&json!({"patch": {"metadata": {"labels": {"x": "z"}}}}));
    let written = begin(&pod, &labels, &target(30), Options::default(), now());
    assert_eq!(written.pod["metadata"]["labels"]["x"], "z");
}

#[test]
fn batches_that_an_earlier_change_left_are_not_lost() {
    let pod = running(&[("a", Some(10)), ("b", Some(0))]);
    let both = change(&json!({"images": {"a": "a:2", "b": "b:2"}}));
    let pod = apply(
        &pod,
        &begin(&pod, &both, &target(0), Options::default(), now()).pod,
    );
    // The next revision changes the first container again and leaves the second as the last one wanted it.
    let again = change(&json!({"images": {"a": "a:3"}}));
    let written = begin(&pod, &again, &target(0), Options::default(), now());
    let state = annotation(&written.pod, names::IN_PLACE_STATE);
    assert_eq!(state["nextContainerImages"], json!({"b": "b:2"}));
    // Back to the first revision: the second container has its image, and nothing is recorded that could not change.
    let back = change(&json!({"images": {"a": "a:1", "b": "b:1"}}));
    let mut there = apply(
        &pod,
        &begin(&pod, &back, &target(0), Options::default(), now()).pod,
    );
    there = apply(&there, &next_batch(&there, true, now()).expect("one").pod);
    let spec = there.spec.as_ref().expect("a spec");
    assert_eq!(
        spec.containers
            .iter()
            .map(|c| c.image.as_deref())
            .collect::<Vec<_>>(),
        [Some("a:1"), Some("b:1")]
    );
    let records = State::of(&there)
        .expect("one")
        .last_container_statuses
        .expect("some");
    assert_eq!(records.keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_removed_key_that_feeds_a_variable_becomes_empty_on_the_pod() {
    let env = json!([{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['k']"}}}]);
    let of = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "env": env}]}});
    let Decision::InPlace(change) = decide(&of(json!({"k": "1"})), &of(json!({})), Options::default()) else {
        panic!("possible")
    };
    let written = begin(
        &running(&[("a", None)]),
        &change,
        &target(0),
        Options::default(),
        now(),
    );
    assert_eq!(written.pod["metadata"]["labels"]["k"], "");
}
