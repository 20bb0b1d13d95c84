//! Tables, objects of a running OpenKruise, and random templates.

mod decide;
mod downtime;
mod finished;
mod random;
mod write;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize as _;
use serde_json::Value;

fn now() -> Timestamp {
    "2026-11-30T17:00:00.5Z".parse().expect("a time")
}

/// Pods of a running OpenKruise before, during and after a change with a hook.
fn pods(stage: &str) -> Vec<Pod> {
    let text = match stage {
        "preparing" => include_str!("../../../../api/fixtures/cloneset/pods-preparing-update.yaml"),
        "updating" => include_str!("../../../../api/fixtures/cloneset/pods-updating.yaml"),
        "updated" => include_str!("../../../../api/fixtures/cloneset/pods-updated.yaml"),
        other => panic!("no stage {other}"),
    };
    serde_norway::Deserializer::from_str(text)
        .map(|document| Pod::deserialize(document).expect("readable"))
        .collect()
}

fn pod(value: Value) -> Pod {
    serde_json::from_value(value).expect("a pod")
}
