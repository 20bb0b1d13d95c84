use serde_json::Value;

use super::{image_list_pull_job, image_pull_job, node_image};

fn ours() -> Value {
    serde_json::to_value(image_pull_job()).expect("writable")
}

/// Ours and upstream's, of each kind that has to do with images.
fn pairs() -> [(Value, Value); 3] {
    let upstream = |text: &str| -> Value { serde_norway::from_str(text).expect("readable") };
    let ours = |crd| serde_json::to_value(crd).expect("writable");
    [
        (
            ours(image_pull_job()),
            upstream(include_str!("../../fixtures/upstream-imagepulljobs-crd.yaml")),
        ),
        (
            ours(image_list_pull_job()),
            upstream(include_str!("../../fixtures/upstream-imagelistpulljobs-crd.yaml")),
        ),
        (
            ours(node_image()),
            upstream(include_str!("../../fixtures/upstream-nodeimages-crd.yaml")),
        ),
    ]
}

/// Every field of `theirs` exists in `ours` with the same type.
pub(super) fn contains(path: &str, ours: &Value, theirs: &Value) {
    for key in ["type", "format"] {
        if let Some(wanted) = theirs.get(key) {
            // An int-or-string has no type of its own.
            assert_eq!(ours.get(key), Some(wanted), "{path}: {key}");
        }
    }
    if theirs.get("x-kubernetes-int-or-string").is_some() {
        assert_eq!(
            ours.get("x-kubernetes-int-or-string"),
            Some(&Value::Bool(true)),
            "{path}"
        );
    }
    for (name, property) in theirs
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let found = ours["properties"]
            .get(name)
            .unwrap_or_else(|| panic!("{path}.{name} is missing"));
        contains(&format!("{path}.{name}"), found, property);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(theirs) = theirs.get(nested) {
            contains(&format!("{path}[]"), &ours[nested], theirs);
        }
    }
}

#[test]
fn every_field_of_upstream_is_there_with_the_same_type() {
    for (ours, theirs) in pairs() {
        covers(&ours, &theirs);
    }
}

fn covers(ours: &Value, theirs: &Value) {
    assert_eq!(ours["metadata"]["name"], theirs["metadata"]["name"]);
    assert_eq!(ours["spec"]["scope"], theirs["spec"]["scope"]);
    for version in theirs["spec"]["versions"].as_array().expect("versions") {
        let same = ours["spec"]["versions"]
            .as_array()
            .expect("versions")
            .iter()
            .find(|candidate| candidate["name"] == version["name"])
            .unwrap_or_else(|| panic!("{} is missing", version["name"]));
        // apiVersion, kind and metadata belong to every object; the API server knows them without being told.
        for part in ["spec", "status"] {
            let schema = |version: &Value| version["schema"]["openAPIV3Schema"]["properties"][part].clone();
            contains(part, &schema(same), &schema(version));
        }
        assert_eq!(
            (&same["served"], &same["storage"]),
            (&version["served"], &version["storage"])
        );
        assert_eq!(same["subresources"]["status"], version["subresources"]["status"]);
    }
}

#[test]
fn default_columns_are_upstreams_in_upstreams_order() {
    let shown = |crd: &Value, version: usize| -> Vec<(String, String)> {
        crd["spec"]["versions"][version]["additionalPrinterColumns"]
            .as_array()
            .expect("columns")
            .iter()
            .filter(|column| column.get("priority").is_none())
            .map(|column| (column["name"].to_string(), column["jsonPath"].to_string()))
            .collect()
    };
    for (ours, theirs) in pairs() {
        for version in 0..2 {
            assert_eq!(shown(&ours, version), shown(&theirs, version));
        }
    }
}

#[test]
fn completion_policy_has_a_default() {
    let crd = ours();
    let spec = &crd["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(
        spec["properties"]["completionPolicy"]["default"]["type"],
        "Always"
    );
    assert_eq!(spec["required"], serde_json::json!(["image"]));
}

#[test]
fn zero_counters_are_written() {
    let status =
        serde_json::to_value(crate::image_pull_job::ImagePullJobStatus::default()).expect("writable");
    for counter in ["desired", "active", "succeeded", "failed"] {
        assert_eq!(status[counter], 0, "{counter}");
    }
}
