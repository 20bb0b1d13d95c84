use serde_json::Value;

use super::image_pull_job;

fn ours() -> Value {
    serde_json::to_value(image_pull_job()).expect("writable")
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
