//! One job per rule, in the order of the rules.

use serde_json::{Value, json};

use super::*;

fn job(spec: &Value) -> ImagePullJob {
    let mut object = json!({"metadata": {"name": "a"}, "spec": {"image": "nginx:1"}});
    for (key, value) in spec.as_object().expect("fields") {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).expect("a job")
}

fn refusal(spec: &Value) -> Option<String> {
    validate(&job(spec), None, None)
        .err()
        .map(|denied| denied.message)
}

#[test]
fn what_openkruise_takes_is_taken() {
    for spec in [
        json!({}),
        json!({"parallelism": 0}),
        json!({"parallelism": "50"}),
        json!({"selector": {}}),
        json!({"selector": {"names": ["a", "b"]}}),
        json!({"selector": {"matchLabels": {"a": ""}, "names": []}}),
        json!({"podSelector": {"matchLabels": {"app": "x"}}}),
        json!({"completionPolicy": {"type": "Always", "activeDeadlineSeconds": 600}}),
        json!({"completionPolicy": {"type": "Never"}}),
        json!({"pullPolicy": {"timeoutSeconds": -1}}),
        json!({"imagePullPolicy": "Sometimes"}),
    ] {
        assert_eq!(refusal(&spec), None, "{spec}");
    }
}

#[test]
fn each_rule_names_its_field() {
    for (spec, field) in [
        (
            json!({"selector": {"names": ["a"], "matchLabels": {"a": "b"}}}),
            "spec.selector:",
        ),
        (
            json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
            "spec.selector.matchExpressions[0].operator",
        ),
        (
            json!({"selector": {"names": ["a", "a"]}}),
            "spec.selector.names: a",
        ),
        (json!({"selector": {}, "podSelector": {}}), "spec.podSelector:"),
        (
            json!({"podSelector": {"matchLabels": {"a b": "c"}}}),
            "spec.podSelector.matchLabels",
        ),
        (json!({"image": ""}), "spec.image:"),
        (json!({"image": "team/UPPER"}), "spec.image:"),
        (json!({"parallelism": -1}), "spec.parallelism:"),
        (json!({"parallelism": "10%"}), "spec.parallelism:"),
        (json!({"parallelism": "-3"}), "spec.parallelism:"),
        (json!({"parallelism": "99999999999"}), "spec.parallelism:"),
        (
            json!({"completionPolicy": {"type": "Always", "activeDeadlineSeconds": 599}}),
            "spec.completionPolicy.activeDeadlineSeconds",
        ),
        (
            json!({"completionPolicy": {"type": "Never", "activeDeadlineSeconds": 700}}),
            "spec.completionPolicy:",
        ),
        (
            json!({"completionPolicy": {"type": "Never", "ttlSecondsAfterFinished": 1}}),
            "spec.completionPolicy:",
        ),
        (
            json!({"completionPolicy": {"type": "Now"}}),
            "spec.completionPolicy.type",
        ),
    ] {
        let message = refusal(&spec).unwrap_or_default();
        assert!(message.starts_with(field), "{spec}: {message}");
    }
}

#[test]
fn gates_refuse_before_anything_else_but_no_unrelated_change() {
    let bad = job(&json!({"image": ""}));
    let denied = validate(&bad, None, Some("ImagePullJobGate")).expect_err("off");
    assert_eq!(
        (denied.code, denied.message.as_str()),
        (403, "feature-gate ImagePullJobGate is not enabled")
    );
    let mut labelled = bad.clone();
    labelled.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    assert_eq!(
        validate(&labelled, Some(&bad), Some("ImagePullJobGate")),
        Ok(Vec::new())
    );
}

#[test]
fn secrets_stay_and_an_edit_of_an_ended_job_is_told_to_be_void() {
    let old = job(&json!({"pullSecrets": ["a", "b"]}));
    let other = job(&json!({"pullSecrets": ["b", "a"]}));
    assert!(validate(&other, Some(&old), None).is_err());
    let mut ended = old;
    let status = json!({"desired": 0, "completionTime": "2026-01-01T00:00:00Z"});
    ended.status = Some(serde_json::from_value(status).expect("a status"));
    let edited = job(&json!({"pullSecrets": ["a", "b"], "parallelism": 3}));
    let warnings = validate(&edited, Some(&ended), None).expect("allowed");
    assert!(warnings[0].contains("no effect"), "{warnings:?}");
}

#[test]
fn what_is_hardly_meant_is_warned_of() {
    for (spec, words) in [
        (json!({"selector": {"names": []}}), "no node gets"),
        (
            json!({"selector": {"names": ["Node 1"]}}),
            "no node can be called",
        ),
        (json!({"pullPolicy": {"timeoutSeconds": 0}}), "acts as 600"),
        (json!({"pullPolicy": {"backoffLimit": -1}}), "acts as 3"),
        (
            json!({"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": -1}}),
            "as soon as",
        ),
        (json!({"imagePullPolicy": "Sometimes"}), "neither Always"),
    ] {
        let warnings = validate(&job(&spec), None, None).expect("allowed");
        assert!(
            warnings.len() == 1 && warnings[0].contains(words),
            "{spec}: {warnings:?}"
        );
    }
    let mut slip = job(&json!({}));
    slip.metadata.annotations = Some([("pull.kruise.io/priorty".to_owned(), "1".to_owned())].into());
    let warnings = validate(&slip, None, None).expect("allowed");
    assert!(warnings[0].contains("pull.kruise.io/priority"), "{warnings:?}");
}
