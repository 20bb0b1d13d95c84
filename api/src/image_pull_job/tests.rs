use super::{ImagePullJob, ImagePullJobSpec};

#[test]
fn a_job_as_openkruise_wrote_it_can_be_read() {
    let text = include_str!("../../fixtures/imagepulljob-v1beta1.yaml");
    let job: ImagePullJob = serde_norway::from_str(text).expect("readable");
    assert_eq!(job.spec.image, "nginx:1.9.1");
    assert_eq!(job.spec.pull_policy.timeout(), 600);
    let status = job.status.expect("has one");
    assert_eq!((status.desired, status.succeeded, status.failed), (3, 3, 0));
    assert!(status.completion_time.is_some());
}

#[test]
fn what_is_left_out_gets_the_documented_defaults() {
    let spec: ImagePullJobSpec = serde_json::from_str(r#"{"image":"nginx"}"#).expect("readable");
    assert_eq!(spec.image_pull_policy, "IfNotPresent");
    assert_eq!((spec.pull_policy.timeout(), spec.pull_policy.retries()), (600, 3));
    assert_eq!(spec.completion_policy.kind.as_deref(), Some("Always"));
    assert!(!spec.completion_policy.is_never());
}

#[test]
fn odd_numbers_act_as_documented() {
    let spec: ImagePullJobSpec =
        serde_json::from_str(r#"{"image":"a","pullPolicy":{"timeoutSeconds":-1,"backoffLimit":-7}}"#)
            .expect("readable");
    assert_eq!((spec.pull_policy.timeout(), spec.pull_policy.retries()), (600, 3));
}

#[test]
fn an_empty_list_of_names_survives_a_round_trip() {
    let text = r#"{"image":"a","selector":{"names":[]}}"#;
    let spec: ImagePullJobSpec = serde_json::from_str(text).expect("readable");
    let again = serde_json::to_value(&spec).expect("writable");
    assert_eq!(again["selector"]["names"], serde_json::json!([]));
}
