use kruise_api::clone_set::names;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::*;

fn documents(text: &str) -> Vec<Value> {
    serde_norway::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("readable"))
        .collect()
}

fn sets() -> Vec<Value> {
    documents(include_str!("../../../api/fixtures/cloneset/sets-v1beta1.yaml"))
}

fn revisions() -> Vec<Value> {
    documents(include_str!("../../../api/fixtures/cloneset/revisions.yaml"))
}

#[test]
fn revisions_of_a_running_openkruise_have_the_same_bytes_hash_and_name() {
    for revision in revisions() {
        let data = data(&template_of(&revision["data"]).expect("a template"));
        assert!(equal(&data, &revision["data"]));
        let set = revision["metadata"]["ownerReferences"][0]["name"]
            .as_str()
            .expect("an owner");
        let hash = hash(&data, 0);
        assert_eq!(
            revision["metadata"]["labels"][names::REVISION_HASH],
            hash.as_str()
        );
        assert_eq!(revision["metadata"]["name"], name(set, &hash).as_str());
        assert!(pod_template_of(&data).is_some());
    }
}

#[test]
fn a_set_taken_over_is_on_the_revision_that_it_was_on() {
    for set in sets() {
        let data = data(&set["spec"]["template"]);
        let name = name(set["metadata"]["name"].as_str().expect("named"), &hash(&data, 0));
        assert_eq!(set["status"]["updateRevision"], name.as_str());
        let revision = revisions()
            .into_iter()
            .find(|revision| revision["metadata"]["name"] == name.as_str())
            .expect("it is there");
        let claims = claim_template_hash(set["spec"].get("volumeClaimTemplates"));
        assert_eq!(
            revision["metadata"]["annotations"][names::CLAIM_TEMPLATE_HASH],
            claims.as_str()
        );
    }
}

#[test]
fn known_hashes() {
    for (text, expected) in [
        ("null", 86_995_377),
        (r#"[{"name":"e2","value":"foo"}]"#, 2_053_173_458),
        (r#"{"image":"nginx:1.25","name":"main"}"#, 436_018_172),
    ] {
        assert_eq!(fnv1a_of_text(text), expected, "{text}");
    }
    assert_eq!(claim_template_hash(None), "");
    assert_eq!(claim_template_hash(Some(&json!([]))), "");
}

#[test]
fn the_collision_count_changes_the_hash() {
    let data = data(&json!({}));
    assert_ne!(hash(&data, 0), hash(&data, 1));
    assert_eq!(short_hash("a-b-c"), "c");
    assert_eq!(short_hash("c"), "c");
}

#[test]
fn long_names_are_cut() {
    assert_eq!(name(&"a".repeat(300), "h").len(), 225);
    assert_eq!(name("a", "h"), "a-h");
}

#[test]
fn text_is_gos() {
    let value = json!({"b": "<&>\u{2028}\u{1}\u{8}\"\\\n\t", "a": [1, true, null, "ü"], "$patch": "replace"});
    assert_eq!(
        canonical_text(&value),
        r#"{"$patch":"replace","a":[1,true,null,"ü"],"b":"\u003c\u0026\u003e\u2028\u0001\b\"\\\n\t"}"#
    );
}

#[test]
fn what_another_writer_leaves_out_or_spells_out_does_not_count() {
    let bare = json!({"spec": {"containers": [{"name": "a", "image": "b",
        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}]}});
    let full = json!({
        "metadata": {"creationTimestamp": null, "labels": {}, "annotations": null},
        "spec": {
            "hostNetwork": false, "volumes": [], "securityContext": null, "nodeName": "",
            "containers": [{"name": "a", "image": "b", "tty": false, "env": [], "workingDir": "",
                "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {}}}],
        },
    });
    assert!(same_template(&bare, &full));
    assert_eq!(
        canonical_text(&data(&full)),
        concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null},"#,
            r#""spec":{"containers":[{"image":"b","name":"a","resources":{"limits":{"cpu":"1","memory":"1Gi"}}}]}}}}"#
        )
    );
    for differs in [
        json!({"spec": {"containers": [{"name": "a", "image": "c"}]}}),
        json!({"spec": {"containers": [{"name": "a", "image": "b"}], "securityContext": {}}}),
        json!({"spec": {"containers": [{"name": "a", "image": "b"}], "automountServiceAccountToken": false}}),
        json!({"spec": {"containers": [{"name": "a", "image": "b", "fieldOfTomorrow": 1}]}}),
    ] {
        let plain = json!({"spec": {"containers": [{"name": "a", "image": "b"}]}});
        assert!(!same_template(&plain, &differs), "{differs}");
    }
}

#[test]
fn fields_that_go_always_writes() {
    for (given, expected) in [
        (
            json!({}),
            r#"{"metadata":{"creationTimestamp":null},"spec":{"containers":null}}"#,
        ),
        (
            json!({"spec": {"containers": [{"env": [{"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
                "livenessProbe": {"grpc": {"port": 5}, "periodSeconds": 0}}]}}),
            r#"{"metadata":{"creationTimestamp":null},"spec":{"containers":[{"env":[{"name":"","valueFrom":{"resourceFieldRef":{"divisor":"0","resource":"limits.cpu"}}}],"livenessProbe":{"grpc":{"port":5,"service":null}},"name":"","resources":{}}]}}"#,
        ),
        (
            json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2048Ki"}}]}}),
            r#"{"metadata":{"creationTimestamp":null},"spec":{"containers":[],"volumes":[{"emptyDir":{"sizeLimit":"2Mi"},"name":"v"}]}}"#,
        ),
    ] {
        assert_eq!(canonical_text(&template(&given)), expected);
    }
}

#[test]
fn malformed_templates_are_bytes_too() {
    for odd in [
        json!(5),
        json!("x"),
        json!({"spec": {"containers": 5}}),
        json!({"spec": [1]}),
        json!(null),
    ] {
        let data = data(&odd);
        assert_eq!(hash(&data, 0), hash(&data, 0), "{odd}");
    }
}

#[test]
fn the_form_is_stable() {
    for set in sets() {
        let once = template(&set["spec"]["template"]);
        assert_eq!(template(&once), once);
        assert_eq!(
            once, set["spec"]["template"],
            "an object of upstream's has the form already"
        );
    }
}
