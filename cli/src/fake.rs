//! For tests: an API server and an inspection service in this process, joined by real TLS on loopback.

use std::pin::Pin;
use std::sync::Arc;

use anyhow::Result;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use kruise_proto::inspect::inspect_service_server::{InspectService, InspectServiceServer};
use kruise_proto::inspect::{self as api, WatchTasksResponse, watch_tasks_response::Event};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Status;
use tonic::transport::{Identity, Server, ServerTlsConfig};

use crate::connect::Cluster;

const TOKEN: &str = "viewer-token";

/// What the fake answers.
#[derive(Clone, Default)]
pub(crate) struct Script {
    /// Sent to each watcher, then the stream ends.
    pub(crate) events: Vec<Event>,
    pub(crate) agents: Vec<api::Agent>,
    /// The job as the API server has it.
    pub(crate) job: Value,
    /// All jobs; null where the user may not list them.
    pub(crate) jobs: Value,
    /// Without it, nothing listens.
    pub(crate) serving: bool,
}

/// A cluster in which the script is played.
pub(crate) async fn cluster(script: Script) -> Result<Cluster> {
    let key = rcgen::generate_simple_self_signed(vec!["kruise-manager.kruise-system.svc".to_owned()])?;
    let (certificate, private) = (key.cert.pem(), key.signing_key.serialize_pem());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    if script.serving {
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, private));
        let service = InspectServiceServer::new(script.clone());
        let server = Server::builder().tls_config(tls)?.add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    }
    let script = Arc::new((script, certificate));
    let service = tower::service_fn(move |request: Request<Body>| {
        let script = Arc::clone(&script);
        async move { Ok::<_, tower::BoxError>(answer(&request, &script)) }
    });
    Ok(Cluster {
        client: kube::Client::new(service, "default"),
        namespace: "default".to_owned(),
        system: "kruise-system".to_owned(),
        server: Some(address),
    })
}

fn answer(request: &Request<Body>, (script, certificate): &(Script, String)) -> Response<Body> {
    let path = request.uri().path();
    let body = match path.rsplit('/').next().unwrap_or_default() {
        "kruise-manager-ca" => json!({"data": {"ca.crt": certificate}}),
        "token" => json!({
            "spec": {"audiences": ["kruise-inspect"]},
            "status": {"token": TOKEN, "expirationTimestamp": "2030-01-01T00:00:00Z"},
        }),
        "imagepulljobs" if !script.jobs.is_null() => json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJobList", "metadata": {}, "items": script.jobs,
        }),
        "imagepulljobs" => Value::Null,
        _ if path.contains("imagepulljobs") => script.job.clone(),
        _ => Value::Null,
    };
    if body.is_null() {
        let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404});
        return response(404, &status);
    }
    response(200, &body)
}

fn response(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string().into_bytes()));
    *response.status_mut() = http::StatusCode::from_u16(code).expect("a constant of this file");
    response
}

fn authorised<T>(request: &tonic::Request<T>) -> Result<(), Status> {
    let given = request
        .metadata()
        .get("authorization")
        .and_then(|value| value.to_str().ok());
    if given == Some(format!("Bearer {TOKEN}").as_str()) {
        Ok(())
    } else {
        Err(Status::unauthenticated("no"))
    }
}

#[tonic::async_trait]
impl InspectService for Script {
    type WatchTasksStream = Pin<Box<dyn Stream<Item = Result<WatchTasksResponse, Status>> + Send>>;

    async fn list_agents(
        &self,
        request: tonic::Request<api::ListAgentsRequest>,
    ) -> Result<tonic::Response<api::ListAgentsResponse>, Status> {
        authorised(&request)?;
        Ok(tonic::Response::new(api::ListAgentsResponse {
            agents: self.agents.clone(),
            ..Default::default()
        }))
    }

    async fn get_agent(
        &self,
        _: tonic::Request<api::GetAgentRequest>,
    ) -> Result<tonic::Response<api::GetAgentResponse>, Status> {
        Err(Status::not_found("no node node9"))
    }

    async fn list_tasks(
        &self,
        _: tonic::Request<api::ListTasksRequest>,
    ) -> Result<tonic::Response<api::ListTasksResponse>, Status> {
        Ok(tonic::Response::new(api::ListTasksResponse::default()))
    }

    async fn explain_job(
        &self,
        _: tonic::Request<api::ExplainJobRequest>,
    ) -> Result<tonic::Response<api::ExplainJobResponse>, Status> {
        Err(Status::not_found("no job x"))
    }

    async fn explain_clone_set(
        &self,
        request: tonic::Request<api::ExplainCloneSetRequest>,
    ) -> Result<tonic::Response<api::ExplainCloneSetResponse>, Status> {
        authorised(&request)?;
        let clone_set = request.into_inner().clone_set;
        Ok(tonic::Response::new(api::ExplainCloneSetResponse {
            clone_set,
            ..Default::default()
        }))
    }

    async fn watch_tasks(
        &self,
        request: tonic::Request<api::WatchTasksRequest>,
    ) -> Result<tonic::Response<Self::WatchTasksStream>, Status> {
        authorised(&request)?;
        let events = self
            .events
            .clone()
            .into_iter()
            .map(|event| Ok(WatchTasksResponse { event: Some(event) }));
        Ok(tonic::Response::new(stream::iter(events).boxed()))
    }
}
