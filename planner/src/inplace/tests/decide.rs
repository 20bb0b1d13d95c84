//! What may change in place.

use kruise_api::clone_set::names;
use serde_json::{Value, json};

use super::super::{Change, Decision, ObstacleReason, Options, decide, decide_revisions};
use crate::revision;

const ALL: Options = Options {
    env_from_metadata: true,
    vertical_scaling: true,
};
const NONE: Options = Options {
    env_from_metadata: false,
    vertical_scaling: false,
};

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [
            {"name": "main", "image": "app:1", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}},
                "env": [{"name": "V", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['conf']"}}},
                    {"name": "SIDECARSET_VERSION", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['side']"}}}]},
            {"name": "side", "image": "side:1"},
        ]},
    })
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut template = template();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let key = key.replace("~1", "/");
        match template
            .pointer_mut(parent)
            .unwrap_or_else(|| panic!("{parent} is missing"))
        {
            Value::Object(map) if value == "DELETE" => {
                map.remove(&key);
            }
            Value::Object(map) => {
                map.insert(key, value.clone());
            }
            Value::Array(items) if value == "DELETE" => {
                items.remove(key.parse().expect("an index"));
            }
            Value::Array(items) => items.insert(key.parse().expect("an index"), value.clone()),
            other => panic!("{other} has no places"),
        }
    }
    template
}

fn change(changes: &[(&str, Value)], options: Options) -> Change {
    match decide(&template(), &with(changes), options) {
        Decision::InPlace(change) => change,
        Decision::Impossible(obstacle) => panic!("{changes:?}: {obstacle}"),
    }
}

fn obstacle(old: &Value, new: &Value, options: Options) -> (ObstacleReason, String) {
    match decide(old, new, options) {
        Decision::Impossible(obstacle) => (obstacle.reason, obstacle.field),
        Decision::InPlace(change) => panic!("{change:?}"),
    }
}

#[test]
fn images() {
    let image = ("/spec/containers/0/image", json!("app:2"));
    let both = change(
        &[image.clone(), ("/spec/containers/1/image", json!("side:2"))],
        NONE,
    );
    assert_eq!(
        serde_json::to_value(&both.images).expect("writable"),
        json!({"main": "app:2", "side": "side:2"})
    );
    assert!(both.metadata_patch.is_none() && !both.is_metadata_only() && !both.updates_env_from_metadata());
    assert!(change(&[], NONE).is_empty());
}

#[test]
fn what_cannot_change() {
    use ObstacleReason::{FieldIsFixed, ResourcesNeedGate};
    for (pointer, value, field) in [
        (
            "/spec/containers/0/env/0/name",
            json!("W"),
            "spec.containers[0].env[0].name",
        ),
        (
            "/spec/containers/0/env/0",
            "DELETE".into(),
            "spec.containers[0].env[0].name",
        ),
        (
            "/spec/containers/0/command",
            json!(["x"]),
            "spec.containers[0].command",
        ),
        (
            "/spec/containers/0/image",
            "DELETE".into(),
            "spec.containers[0].image",
        ),
        ("/spec/containers/1", "DELETE".into(), "spec.containers[1]"),
        (
            "/spec/containers/2",
            json!({"name": "new", "image": "x"}),
            "spec.containers[2]",
        ),
        // A container in front moves all others.
        (
            "/spec/containers/0",
            json!({"name": "new", "image": "x"}),
            "spec.containers[0].env",
        ),
        (
            "/spec/initContainers",
            json!([{"name": "i", "image": "x"}]),
            "spec.initContainers",
        ),
        ("/spec/nodeName", json!("n"), "spec.nodeName"),
        ("/spec/dnsPolicy", json!("Default"), "spec.dnsPolicy"),
        (
            "/spec/containers/1/imagePullPolicy",
            json!("Always"),
            "spec.containers[1].imagePullPolicy",
        ),
        (
            "/spec/containers/1/fieldOfTomorrow",
            json!(1),
            "spec.containers[1].fieldOfTomorrow",
        ),
        ("/more", json!(1), "more"),
    ] {
        let new = with(&[(pointer, value)]);
        assert_eq!(
            obstacle(&template(), &new, ALL),
            (FieldIsFixed, field.to_owned()),
            "{pointer}"
        );
    }
    for pointer in [
        "/spec/containers/0/resources/limits/cpu",
        "/spec/containers/0/resources/requests/memory",
    ] {
        let (reason, _) = obstacle(&template(), &with(&[(pointer, json!("3"))]), NONE);
        assert_eq!(reason, ResourcesNeedGate, "{pointer}");
    }
}

#[test]
fn an_image_of_an_init_container_cannot_change() {
    let of = |image: &str| with(&[("/spec/initContainers", json!([{"name": "i", "image": image}]))]);
    let (_, field) = obstacle(&of("x:1"), &of("x:2"), ALL);
    assert_eq!(field, "spec.initContainers[0].image");
}

#[test]
fn defaults_that_one_side_spells_out_are_no_difference() {
    let full = with(&[
        ("/spec/dnsPolicy", json!("ClusterFirst")),
        ("/spec/restartPolicy", json!("Always")),
        ("/spec/schedulerName", json!("default-scheduler")),
        ("/spec/securityContext", json!({})),
        ("/spec/terminationGracePeriodSeconds", json!(30)),
        ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
        (
            "/spec/containers/0/terminationMessagePath",
            json!("/dev/termination-log"),
        ),
        (
            "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
        ("/metadata/creationTimestamp", json!(null)),
    ]);
    for (old, new) in [(&template(), &full), (&full, &template())] {
        assert_eq!(decide(old, new, NONE), Decision::InPlace(Change::default()));
    }
    // An explicit policy that is not the default is a difference.
    let always = with(&[("/spec/containers/0/imagePullPolicy", json!("Always"))]);
    let (_, field) = obstacle(&always, &template(), NONE);
    assert_eq!(field, "spec.containers[0].imagePullPolicy");
    // Both leave it to the API server: the image alone changes, whatever policy its tag would have given.
    assert!(
        !change(&[("/spec/containers/0/image", json!("app:latest"))], NONE)
            .images
            .is_empty()
    );
}

#[test]
fn another_spelling_of_an_amount_is_no_difference() {
    let spelled = with(&[("/spec/containers/0/resources/requests/memory", json!("1024Mi"))]);
    assert_eq!(
        decide(&template(), &spelled, NONE),
        Decision::InPlace(Change::default())
    );
}

#[test]
fn resources() {
    let cpu = "/spec/containers/0/resources/limits/cpu";
    let memory = "/spec/containers/0/resources/requests/memory";
    let both = change(&[(cpu, json!("3000m")), (memory, json!("2048Mi"))], ALL);
    assert_eq!(
        serde_json::to_value(&both.resources).expect("writable"),
        json!({"main": {"limits": {"cpu": "3"}, "requests": {"memory": "2Gi"}}})
    );
    use ObstacleReason::{FieldIsFixed, QosClassWouldChange, QuantityUnreadable};
    for (pointer, value, reason) in [
        (cpu, json!("many"), QuantityUnreadable),
        (cpu, "DELETE".into(), FieldIsFixed),
        (
            "/spec/containers/0/resources/limits/memory",
            json!("1Gi"),
            FieldIsFixed,
        ),
        (
            "/spec/containers/0/resources/requests/ephemeral-storage",
            json!("1Gi"),
            FieldIsFixed,
        ),
        (
            "/spec/containers/1/resources",
            json!({"limits": {"cpu": "1"}}),
            FieldIsFixed,
        ),
    ] {
        assert_eq!(
            obstacle(&template(), &with(&[(pointer, value.clone())]), ALL).0,
            reason,
            "{pointer} {value}"
        );
    }
    // Burstable to Guaranteed.
    let one = |request: &str| {
        json!({"spec": {"containers": [{"name": "m", "resources":
            {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": request}}}]}})
    };
    assert_eq!(obstacle(&one("500m"), &one("1000m"), ALL).0, QosClassWouldChange);
    assert!(matches!(
        decide(&one("500m"), &one("600m"), ALL),
        Decision::InPlace(_)
    ));
}

#[test]
fn metadata_that_nobody_reads_is_only_written() {
    let change = change(
        &[
            ("/metadata/labels/app", json!("b")),
            ("/metadata/annotations", json!({"side": "1", "x": "y"})),
            ("/metadata/finalizers", json!(["a/b"])),
        ],
        ALL,
    );
    assert!(change.is_metadata_only() && !change.is_empty());
    assert_eq!(
        change.metadata_patch,
        Some(
            json!({"metadata": {"labels": {"app": "b"}, "annotations": {"side": "1", "x": "y"}, "finalizers": ["a/b"]}})
        )
    );
    let (old, new) = (
        with(&[("/metadata/finalizers", json!(["a", "b"]))]),
        with(&[
            ("/metadata/finalizers", json!(["b"])),
            ("/metadata/labels/app", "DELETE".into()),
        ]),
    );
    let Decision::InPlace(change) = decide(&old, &new, ALL) else {
        panic!("possible")
    };
    assert_eq!(
        change.metadata_patch,
        Some(json!({"metadata": {"labels": {"app": null}, "$deleteFromPrimitiveList/finalizers": ["a"]}}))
    );
}

#[test]
fn metadata_that_a_container_reads_restarts_it() {
    let annotated = |conf: Value| with(&[("/metadata/annotations", conf)]);
    for (old, new, value) in [
        (template(), annotated(json!({"conf": "2"})), "2"),
        (
            annotated(json!({"conf": "1"})),
            annotated(json!({"conf": "2"})),
            "2",
        ),
        (annotated(json!({"conf": "1"})), annotated(json!({})), ""),
        (annotated(json!({"conf": "1"})), template(), ""),
    ] {
        let Decision::InPlace(change) = decide(&old, &new, ALL) else {
            panic!("possible")
        };
        assert_eq!(change.ref_metadata["main"].annotations["conf"], value);
        assert!(
            change.updates_env_from_metadata()
                && change.metadata_patch.is_none()
                && change.ref_metadata.len() == 1
        );
        let Decision::InPlace(change) = decide(&old, &new, NONE) else {
            panic!("possible")
        };
        assert!(change.is_metadata_only() && change.metadata_patch.is_some());
    }
    // A constant wins over the reference, as for the kubelet.
    let constant = with(&[
        ("/spec/containers/0/env/0/value", json!("c")),
        ("/metadata/annotations", json!({"conf": "1"})),
    ]);
    let old = with(&[("/spec/containers/0/env/0/value", json!("c"))]);
    let Decision::InPlace(change) = decide(&old, &constant, ALL) else {
        panic!("possible")
    };
    assert!(change.is_metadata_only());
}

#[test]
fn ref_metadata_has_upstreams_form() {
    let change = change(&[("/metadata/annotations", json!({"conf": "2"}))], ALL);
    assert_eq!(
        serde_json::to_string(&change.ref_metadata).expect("writable"),
        r#"{"main":{"creationTimestamp":null,"annotations":{"conf":"2"}}}"#
    );
}

#[test]
fn revisions() {
    let (old, new) = (
        revision::data(&template()),
        revision::data(&with(&[("/spec/containers/0/image", json!("app:2"))])),
    );
    assert!(matches!(decide_revisions(&old, &new, NONE), Decision::InPlace(_)));
    for broken in [
        json!(null),
        json!({}),
        json!({"spec": {"template": 5}}),
        json!("x"),
    ] {
        let Decision::Impossible(obstacle) = decide_revisions(&broken, &new, NONE) else {
            panic!("{broken}")
        };
        assert_eq!(obstacle.reason, ObstacleReason::TemplateUnreadable);
        assert_eq!(
            obstacle.to_string(),
            format!("{} is not readable", obstacle.field)
        );
    }
    assert_eq!(names::IN_PLACE_READY, "InPlaceUpdateReady");
}
