use serde_json::{Value, json};

use super::*;

fn decided(from: &Value, to: &Value, gates: &str) -> Decision {
    let gates = FeatureGates::parse_known(gates).unwrap();
    decision(template_of(from), template_of(to), &gates)
}

fn bare(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": image}]}})
}

#[test]
fn templates_are_found_in_any_object() {
    let template = bare("a:1");
    for object in [
        template.clone(),
        json!({"kind": "CloneSet", "spec": {"replicas": 1, "template": template}}),
        json!({"kind": "PodTemplate", "template": template}),
        json!({"kind": "ControllerRevision", "data": {"spec": {"template": {"$patch": "replace",
            "metadata": template["metadata"], "spec": template["spec"]}}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"], "status": {}}),
    ] {
        assert_eq!(template_of(&object), template);
    }
}

#[test]
fn the_document_has_every_key_either_way() {
    let possible = document(&decided(&bare("a:1"), &bare("a:2"), ""));
    assert_eq!(possible["inPlace"], true);
    assert_eq!(possible["images"], json!({"main": "a:2"}));
    let mut more = bare("a:1");
    more["spec"]["containers"][0]["command"] = json!(["x"]);
    let impossible = document(&decided(&bare("a:1"), &more, ""));
    assert_eq!(
        (&impossible["inPlace"], &impossible["reason"]),
        (&json!(false), &json!("FieldIsFixed"))
    );
    assert_eq!(impossible["field"], "spec.containers[0].command");
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&possible), keys(&impossible));
}

#[test]
fn text_says_what_happens_to_whom() {
    let mut to = bare("a:2");
    to["metadata"]["labels"]["tier"] = json!("x");
    let told = text(&decided(&bare("a:1"), &to, ""));
    assert_eq!(
        told,
        "in place:\n  container main restarts with image a:2\n  metadata: {\"labels\":{\"tier\":\"x\"}}\n"
    );
    assert_eq!(
        text(&decided(&bare("a:1"), &bare("a:1"), "")),
        "in place: nothing of a pod changes but the label of its revision\n"
    );
    let of = |cpu: &str| {
        let mut template = bare("a:1");
        template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        template
    };
    assert_eq!(
        text(&decided(&of("1"), &of("2"), "")),
        "not in place: spec.containers[0].resources.requests.cpu changes in place only with the feature gate InPlaceWorkloadVerticalScaling\n"
    );
    assert_eq!(
        text(&decided(
            &of("1"),
            &of("2"),
            "InPlaceWorkloadVerticalScaling=true"
        )),
        "in place:\n  container main gets request cpu 2\n"
    );
}

#[test]
fn a_template_as_stored_is_held_against_one_as_written() {
    let mut stored = bare("a:1");
    stored["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    stored["spec"]["dnsPolicy"] = json!("ClusterFirst");
    assert!(text(&decided(&stored, &bare("a:1"), "")).starts_with("in place: nothing"));
    let told = text(&decided(&stored, &bare("a:1"), "TemplateNoDefaults=true"));
    assert_eq!(
        told,
        "not in place: spec.containers[0].imagePullPolicy cannot change in place; pods have to be made anew\n"
    );
}
