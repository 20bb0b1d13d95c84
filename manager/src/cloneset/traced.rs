//! Requests that are told as spans of the update that they are for.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use kruise_api::names::TRACEPARENT;
use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;
use serde_json::{Value, json};

use super::event::Seen;
use super::objects::Object;
use super::ports::{CreateFailure, PodName, Requests, Told, Way};
use super::space::Kind;
use crate::clock::Monotonic;
use crate::kubeapi::ApiFailure;
use crate::telemetry::{Parent, Place, Span, Traces};

/// The same requests, unless nobody traces.
pub(super) fn traced(
    requests: Arc<dyn Requests>,
    traces: &Traces,
    set: &CloneSet,
    now: Timestamp,
    clock: &Monotonic,
) -> Arc<dyn Requests> {
    match traces.of_update(set.metadata.uid.as_deref(), &set.spec.template) {
        Some(parent) => Arc::new(Traced {
            requests,
            teller: Teller {
                traces: traces.clone(),
                parent,
                base: (now, clock.now()),
                clock: clock.clone(),
            },
        }),
        None => requests,
    }
}

struct Traced {
    requests: Arc<dyn Requests>,
    teller: Teller,
}

/// Tells spans of one trace.
#[derive(Clone)]
struct Teller {
    traces: Traces,
    parent: Parent,
    /// A moment by the API server's clock and by ours.
    base: (Timestamp, Duration),
    clock: Monotonic,
}

impl Teller {
    fn now(&self) -> Timestamp {
        let since =
            SignedDuration::try_from(self.clock.now().saturating_sub(self.base.1)).unwrap_or_default();
        self.base.0.saturating_add(since).unwrap_or(self.base.0)
    }

    fn tell<T, E: ToString>(
        &self,
        what: (&'static str, Kind, &str, &str),
        start: Timestamp,
        result: &Result<T, E>,
    ) {
        let (verb, kind, namespace, name) = what;
        self.traces.tell(Span {
            parent: self.parent,
            place: Place::Below(format!("{verb} {kind:?} {namespace}/{name} {start}")),
            name: format!("{verb} {}", kind.title()).into(),
            start,
            end: self.now(),
            about: vec![
                ("k8s.namespace.name", namespace.to_owned()),
                ("k8s.object.name", name.to_owned()),
            ],
            error: result.as_ref().err().map(ToString::to_string),
        });
    }
}

impl Requests for Traced {
    fn create(
        &self,
        kind: Kind,
        namespace: String,
        mut body: Value,
    ) -> BoxFuture<'static, Result<Object, CreateFailure>> {
        let (teller, start) = (self.teller.clone(), self.teller.now());
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if kind == Kind::Job {
            body["metadata"]["annotations"][TRACEPARENT] = json!(teller.parent.to_string());
        }
        let create = self.requests.create(kind, namespace.clone(), body);
        async move {
            let result = create.await;
            let told = match &result {
                Ok(_) => Ok(()),
                Err(CreateFailure::Exists) => Err("it is there already".to_owned()),
                Err(CreateFailure::Other(failure)) => Err(failure.to_string()),
            };
            teller.tell(("create", kind, &namespace, &name), start, &told);
            result
        }
        .boxed()
    }

    fn patch(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        way: Way,
        body: Value,
    ) -> BoxFuture<'static, Result<Object, ApiFailure>> {
        let (teller, start) = (self.teller.clone(), self.teller.now());
        let patch = self
            .requests
            .patch(kind, namespace.clone(), name.clone(), way, body);
        let verb = match way {
            Way::Merge | Way::Strategic => "patch",
            Way::MergeStatus | Way::StrategicStatus => "patch status of",
            Way::Resize => "resize",
        };
        async move {
            let result = patch.await;
            teller.tell((verb, kind, &namespace, &name), start, &result);
            result
        }
        .boxed()
    }

    fn delete(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
        seen: Seen,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        let (teller, start) = (self.teller.clone(), self.teller.now());
        let delete = self.requests.delete(kind, namespace.clone(), name.clone(), seen);
        async move {
            let result = delete.await;
            teller.tell(("delete", kind, &namespace, &name), start, &result);
            result
        }
        .boxed()
    }

    fn find(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Object>, ApiFailure>> {
        self.requests.find(kind, namespace, name)
    }

    fn pod(&self, namespace: String, name: String) -> BoxFuture<'static, Result<Option<Pod>, ApiFailure>> {
        self.requests.pod(namespace, name)
    }

    fn log_ins(
        &self,
        namespace: String,
        pod: String,
        image: ImageRef,
    ) -> BoxFuture<'static, Result<Vec<Credential>, String>> {
        self.requests.log_ins(namespace, pod, image)
    }

    fn record(&self, set: &CloneSet, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.requests.record(set, event)
    }

    fn record_of_pod(&self, pod: PodName, event: Told) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.requests.record_of_pod(pod, event)
    }
}
