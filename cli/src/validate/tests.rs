use serde_json::{Value, json};

use super::*;

fn verdicts(objects: &[Value], old: &[Value], gates: &str) -> Vec<Verdict> {
    let gates = FeatureGates::parse_known(gates).unwrap();
    let around = Surroundings::new(objects, gates, Timestamp::UNIX_EPOCH);
    objects
        .iter()
        .filter_map(|object| admit::admit(object, same(old, object), &around))
        .collect()
}

fn one(object: &Value) -> Verdict {
    verdicts(std::slice::from_ref(object), &[], "").remove(0)
}

fn fields(verdict: &Verdict) -> Vec<&str> {
    verdict
        .errors
        .iter()
        .map(|problem| problem.field.as_str())
        .collect()
}

fn set(version: &str, extra: &Value) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": format!("apps.kruise.io/{version}"), "kind": "CloneSet", "metadata": {"name": "web"}, "spec": spec})
}

#[test]
fn sets_of_both_versions_are_filled_in() {
    for version in ["v1alpha1", "v1beta1"] {
        let verdict = one(&set(version, &json!({})));
        assert!(
            verdict.allowed && verdict.errors.is_empty() && verdict.warnings.is_empty(),
            "{verdict:?}"
        );
        let defaulted = verdict.defaulted.unwrap();
        assert_eq!(defaulted["apiVersion"], format!("apps.kruise.io/{version}"));
        assert_eq!(defaulted["spec"]["replicas"], 1);
        assert_eq!(
            defaulted["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"],
            "Always"
        );
        assert!(defaulted["metadata"].get("finalizers").is_none());
    }
    let left = verdicts(&[set("v1beta1", &json!({}))], &[], "TemplateNoDefaults=true").remove(0);
    let spec = &left.defaulted.unwrap()["spec"]["template"]["spec"];
    assert_eq!(spec.as_object().unwrap().len(), 1);
}

#[test]
fn schema_first_then_rules() {
    let verdict = one(&set("v1beta1", &json!({"replicas": "3", "minReadySeconds": -1})));
    assert_eq!(
        (fields(&verdict), &verdict.defaulted),
        (vec!["spec.replicas"], &None)
    );
    let verdict = one(&set(
        "v1beta1",
        &json!({"updateStrategy": {"partition": 1}, "scaleStrategy": {"podsToDelete": ["a", "a"]}}),
    ));
    assert_eq!(fields(&verdict), ["spec.scaleStrategy.podsToDelete[1]"]);
    assert_eq!(
        verdict.warnings,
        ["unknown field \"spec.updateStrategy.partition\": it is dropped"]
    );
    assert_eq!(fields(&one(&set("v1", &json!({})))), ["apiVersion"]);
    assert_eq!(
        fields(&one(
            &json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet"})
        )),
        ["kind"]
    );
    assert!(verdicts(&[json!({"apiVersion": "v1", "kind": "Pod"})], &[], "").is_empty());
}

#[test]
fn updates_ask_the_planner() {
    let only = |image: &str, command: Value| {
        let mut set = set(
            "v1beta1",
            &json!({"updateStrategy": {"rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}}}),
        );
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        set["spec"]["template"]["spec"]["containers"][0]["command"] = command;
        set
    };
    let verdict =
        |new: &Value| verdicts(std::slice::from_ref(new), &[only("app:1", json!(["a"]))], "").remove(0);
    assert!(verdict(&only("app:2", json!(["a"]))).allowed);
    let refused = verdict(&only("app:2", json!(["b"])));
    assert_eq!(fields(&refused), ["spec"]);
    assert!(
        refused.errors[0]
            .message
            .contains("spec.template.spec.containers[0].command"),
        "{refused:?}"
    );
    // The stored object may be of the other version.
    let older = set("v1alpha1", &json!({"selector": {"matchLabels": {"app": "old"}}}));
    assert_eq!(
        fields(&verdicts(&[set("v1beta1", &json!({}))], &[older], "").remove(0)),
        ["spec"]
    );
}

#[test]
fn pods_in_the_files_stand_for_the_cluster() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": "default",
        "ownerReferences": [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "web", "uid": "u", "controller": true}]}});
    let mut wanted = set(
        "v1alpha1",
        &json!({"scaleStrategy": {"podsToDelete": ["web-1", "web-2"]}}),
    );
    wanted["metadata"]["uid"] = json!("u");
    assert!(one(&wanted).allowed, "nobody knows the pods");
    let with = verdicts(&[wanted, pod], &[], "");
    assert_eq!(
        (with.len(), fields(&with[0])),
        (1, vec!["spec.scaleStrategy.podsToDelete[1]"])
    );
}

#[test]
fn jobs_lists_and_nodes() {
    let job = |kind: &str, spec: Value| json!({"apiVersion": "apps.kruise.io/v1beta1", "kind": kind, "metadata": {"name": "j"}, "spec": spec});
    let good = one(&job("ImagePullJob", json!({"image": "app:1"})));
    assert!(good.allowed);
    assert_eq!(
        good.defaulted.unwrap()["spec"]["pullPolicy"]["timeoutSeconds"],
        600
    );
    for (kind, spec, field) in [
        ("ImagePullJob", json!({"image": "App"}), "spec.image"),
        ("ImagePullJob", json!({}), "spec.image"),
        (
            "ImagePullJob",
            json!({"image": "a", "parallelism": "10%"}),
            "spec.parallelism",
        ),
        ("ImageListPullJob", json!({"images": ["a", "a"]}), "spec.images"),
        (
            "NodeImage",
            json!({"images": {"a": {"tags": [{"tag": "1", "version": -1}]}}}),
            "spec.images[a].tags[0].version",
        ),
    ] {
        let verdict = one(&job(kind, spec.clone()));
        assert!(!verdict.allowed, "{kind} {spec}");
        assert_eq!(fields(&verdict), [field], "{kind} {spec}");
    }
    let off = verdicts(
        &[job("ImagePullJob", json!({"image": "a"}))],
        &[],
        "ImagePullJobGate=false",
    )
    .remove(0);
    assert_eq!(
        off.errors[0].message,
        "feature-gate ImagePullJobGate is not enabled"
    );
}

#[test]
fn requests() {
    let request = |version: &str, containers: Value| {
        json!({"apiVersion": format!("apps.kruise.io/{version}"), "kind": "ContainerRecreateRequest",
            "metadata": {"name": "r"}, "spec": {"podName": "p", "containers": containers}})
    };
    let alone = one(&request("v1alpha1", json!([{"name": "main"}])));
    assert!(alone.allowed && alone.warnings.len() == 1, "{alone:?}");
    assert!(!one(&request("v1beta1", json!([]))).allowed);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "containerID": "containerd://1", "image": "a",
            "imageID": "a", "ready": true, "restartCount": 2}]}});
    let admitted = verdicts(
        &[request("v1beta1", json!([{"name": "main"}])), pod.clone()],
        &[],
        "",
    )
    .remove(0);
    assert!(admitted.allowed, "{admitted:?}");
    assert_eq!(
        admitted.defaulted.unwrap()["metadata"]["labels"]["crr.apps.kruise.io/node-name"],
        "n"
    );
    let wrong = verdicts(&[request("v1beta1", json!([{"name": "other"}])), pod], &[], "").remove(0);
    assert_eq!(wrong.errors[0].message, "container other not found in Pod");
}

#[test]
fn text_and_documents() {
    let verdict = one(&set(
        "v1beta1",
        &json!({"replicas": -1, "revisionHistoryLimit": -1}),
    ));
    assert_eq!(
        text(&verdict),
        "CloneSet web: refused\n  spec.replicas: is -1; the least is 0\n"
    );
    let json = show(&[verdict], VerdictFormat::Json).unwrap();
    let value: Value = serde_json::from_str(&json).unwrap();
    let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    for key in ["kind", "name", "allowed", "errors", "warnings", "defaulted"] {
        assert!(keys.contains(&key), "{key}");
    }
}
