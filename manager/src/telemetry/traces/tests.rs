//! With a collector that is a gRPC server as any other.

use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span as Sent;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::*;

/// A collector, and what it has got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector {
    spans: Arc<Mutex<Vec<Sent>>>,
}

impl Collector {
    /// Starts one, and what sends to it. Needs a runtime with several threads.
    pub(crate) async fn start() -> (Self, Traces) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (collector, Traces::to(&endpoint, "manager-0").unwrap())
    }

    /// What has come once all is sent.
    pub(crate) async fn all(&self, traces: &Traces) -> Vec<Sent> {
        let traces = traces.clone();
        tokio::task::spawn_blocking(move || traces.close()).await.unwrap();
        self.spans.lock().unwrap().clone()
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let mut spans = self.spans.lock().unwrap();
        spans.extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn span(parent: Parent, place: Place, error: Option<&str>) -> Span {
    Span {
        parent,
        place,
        name: "pull image".into(),
        start: Timestamp::from_second(100).unwrap(),
        end: Timestamp::from_second(103).unwrap(),
        about: vec![("k8s.node.name", "node1".to_owned())],
        error: error.map(str::to_owned),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_a_collector_as_one_trace() {
    let (collector, traces) = Collector::start().await;
    let parent = traces.of_update(Some("u"), &json!({"spec": {}})).unwrap();
    traces.tell(span(parent, Place::Root, None));
    traces.tell(span(parent, Place::Below("task".to_owned()), Some("NotFound")));

    let spans = collector.all(&traces).await;
    let [root, pull] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    assert_eq!(root.trace_id, pull.trace_id);
    assert_eq!(root.trace_id, parent.trace);
    assert!(root.parent_span_id.is_empty());
    assert_eq!(pull.parent_span_id, root.span_id);
    assert_eq!(pull.end_time_unix_nano - pull.start_time_unix_nano, 3_000_000_000);
    assert_eq!(pull.status.as_ref().unwrap().message, "NotFound");
    assert_eq!(pull.attributes[0].key, "k8s.node.name");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_nobody_up() {
    let traces = Traces::to("http://127.0.0.1:9", "manager-0").unwrap();
    let parent = traces.of_update(Some("u"), &json!({})).unwrap();
    let clock = crate::clock::Monotonic::boot();
    let began = clock.now();
    for number in 0..10_000 {
        traces.tell(span(parent, Place::Below(number.to_string()), None));
    }
    let took = clock.now() - began;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn without_an_endpoint_nothing_is_worked_out() {
    let traces = Traces::default();
    assert_eq!(traces.of_update(Some("u"), &json!({})), None);
    traces.close();
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused() {
    assert!(Traces::to("not a url", "manager-0").is_err());
}
