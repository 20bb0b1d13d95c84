use super::ImageListPullJobSpec;

#[test]
fn a_child_says_what_the_list_says() {
    let text = r#"{"images":["a:1","b:2"],"parallelism":5,"pullSecrets":["s"],"selector":{"names":["n"]},
        "completionPolicy":{"ttlSecondsAfterFinished":9},"sandboxConfig":{"labels":{"k":"v"}}}"#;
    let list: ImageListPullJobSpec = serde_json::from_str(text).expect("readable");
    let child = serde_json::to_value(list.child("b:2")).expect("writable");
    let mut wanted = serde_json::to_value(&list).expect("writable");
    let fields = wanted.as_object_mut().expect("an object");
    fields.remove("images");
    fields.insert("image".into(), "b:2".into());
    fields.insert("imagePullPolicy".into(), "IfNotPresent".into());
    assert_eq!(child, wanted);
}

#[test]
fn what_is_left_out_gets_the_documented_defaults() {
    let list: ImageListPullJobSpec = serde_json::from_str(r#"{"images":["a"]}"#).expect("readable");
    assert_eq!(list.image_pull_policy, "");
    assert_eq!((list.pull_policy.timeout(), list.pull_policy.retries()), (600, 3));
    assert_eq!(list.completion_policy.kind.as_deref(), Some("Always"));
    assert_eq!(list.child("a").image_pull_policy, "IfNotPresent");
}

#[test]
fn zero_counters_are_written() {
    let status = serde_json::to_value(super::ImageListPullJobStatus::default()).expect("writable");
    for counter in ["desired", "active", "completed", "succeeded"] {
        assert_eq!(status[counter], 0, "{counter}");
    }
}
