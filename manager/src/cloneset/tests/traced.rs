//! Writes as spans of their update.

use std::sync::Arc;

use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;
use kruise_api::names::TRACEPARENT;
use serde_json::json;

use super::super::ports::Way;
use super::super::space::Kind;
use super::super::traced::traced;
use super::server::{NAMESPACE, Server};
use crate::clock::Monotonic;
use crate::telemetry::Traces;
use crate::telemetry::traces::tests::Collector;

fn set() -> CloneSet {
    let object = json!({"metadata": {"name": "web", "namespace": NAMESPACE, "uid": "u"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}}}});
    serde_json::from_value(object).expect("a set")
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_are_spans_and_a_job_takes_the_trace_along() {
    let (collector, traces) = Collector::start().await;
    let server = Server::new();
    let requests = traced(
        Arc::new(server.clone()),
        &traces,
        &set(),
        Timestamp::UNIX_EPOCH,
        &Monotonic::tokio(),
    );
    let job = json!({"metadata": {"name": "job"}, "spec": {"image": "a:1"}});
    for expected in [true, false] {
        let made = requests
            .create(Kind::Job, NAMESPACE.to_owned(), job.clone())
            .await;
        assert_eq!(made.is_ok(), expected);
    }
    let body = json!({"metadata": {"uid": "x", "labels": {"a": "b"}}});
    let missing = requests
        .patch(
            Kind::Pod,
            NAMESPACE.to_owned(),
            "web-1".to_owned(),
            Way::Strategic,
            body,
        )
        .await;
    assert!(missing.is_err());

    let spans = collector.all(&traces).await;
    let told: Vec<(&str, bool)> = spans
        .iter()
        .map(|span| {
            (
                span.name.as_str(),
                span.status.as_ref().is_some_and(|status| status.code == 2),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("create ImagePullJob", false),
            ("create ImagePullJob", true),
            ("patch Pod", true)
        ]
    );
    let job = server.get(Kind::Job, "job").expect("made");
    let parent = job["metadata"]["annotations"][TRACEPARENT]
        .as_str()
        .expect("a trace");
    let update = traces.of_update(Some("u"), &set().spec.template).expect("on");
    assert_eq!(parent, update.to_string());
}

#[tokio::test]
async fn nobody_traces_by_default() {
    let server = Server::new();
    let requests = traced(
        Arc::new(server.clone()),
        &Traces::default(),
        &set(),
        Timestamp::UNIX_EPOCH,
        &Monotonic::tokio(),
    );
    let job = json!({"metadata": {"name": "job"}, "spec": {"image": "a:1"}});
    requests
        .create(Kind::Job, NAMESPACE.to_owned(), job)
        .await
        .expect("made");
    let job = server.get(Kind::Job, "job").expect("made");
    assert!(job["metadata"]["annotations"][TRACEPARENT].is_null());
}
