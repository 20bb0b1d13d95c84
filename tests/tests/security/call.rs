//! One gRPC call with any headers to any method, from inside the cluster's network.

use std::time::Duration;

use anyhow::{Context, Result};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use kruise_api::names;
use kruise_proto::dispatch::{AttachRequest, Hello, attach_request};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

use crate::leader::Target;

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is called.
#[derive(Clone, Debug)]
pub(crate) enum Method {
    /// Attach with a Hello for this node.
    Attach(String),
    /// Any other method, with an empty message.
    Other(&'static str),
}

impl Method {
    pub(crate) const AGENTS: Self = Self::Other("/kruise.inspect.v1.InspectService/ListAgents");
    pub(crate) const AGENT: Self = Self::Other("/kruise.inspect.v1.InspectService/GetAgent");
    pub(crate) const TASKS: Self = Self::Other("/kruise.inspect.v1.InspectService/ListTasks");
    pub(crate) const WATCH: Self = Self::Other("/kruise.inspect.v1.InspectService/WatchTasks");
    pub(crate) const HEALTH: Self = Self::Other("/grpc.health.v1.Health/Check");
    pub(crate) const REFLECT: Self = Self::Other("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
    pub(crate) const UNKNOWN: Self = Self::Other("/no.such.Service/Method");

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Attach(_) => "Attach",
            Self::Other(path) => path.rsplit('/').next().unwrap_or(path),
        }
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: Code,
    /// Of google.rpc.ErrorInfo; empty without one.
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Answer {
    pub(crate) fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        Self {
            code: status.code(),
            reason: details
                .error_info()
                .map(|info| info.reason.clone())
                .unwrap_or_default(),
            message: status.message().to_owned(),
        }
    }
}

/// A connection of its own: a stranger's is closed.
pub(crate) async fn channel(target: &Target) -> Result<Channel> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&target.bundle))
        .domain_name(names::MANAGER_SERVER_NAME);
    let endpoint = Endpoint::from_shared(format!("https://{}", target.address))?
        .tls_config(tls)?
        .connect_timeout(Duration::from_secs(10));
    endpoint.connect().await.context("cannot connect to the leader")
}

/// Calls with these values of the header `authorization`, and answers how it ended: with the first message, or with a status.
pub(crate) async fn call(target: &Target, method: &Method, authorization: &[Vec<u8>]) -> Result<Answer> {
    let mut headers = HeaderMap::new();
    for value in authorization {
        headers.append(AUTHORIZATION, HeaderValue::from_bytes(value)?);
    }
    let channel = channel(target).await?;
    let ended = match method {
        Method::Attach(node) => {
            let hello = Hello {
                node_name: node.clone(),
                agent_version: "test".into(),
                ..Hello::default()
            };
            let hello = AttachRequest {
                message: Some(attach_request::Message::Hello(hello)),
            };
            stream(
                channel,
                "/kruise.dispatch.v1.DispatchService/Attach",
                hello,
                headers,
                true,
            )
            .await?
        }
        Method::Other(path) => stream(channel, path, (), headers, false).await?,
    };
    Ok(match ended {
        Err(status) => Answer::of(&status),
        Ok(()) => Answer {
            code: Code::Ok,
            reason: String::new(),
            message: String::new(),
        },
    })
}

/// Sends one message and waits for the first answer. All kinds of methods look the same on the wire; where the other side waits for more
/// messages, the request stays open.
async fn stream<T: prost::Message + Default + 'static>(
    channel: Channel,
    path: &'static str,
    message: T,
    headers: HeaderMap,
    open: bool,
) -> Result<Result<(), Status>> {
    let mut client = Grpc::new(channel);
    client.ready().await?;
    let mut first = Some(message);
    let messages = futures::stream::poll_fn(move |_| match first.take() {
        None if open => std::task::Poll::Pending,
        message => std::task::Poll::Ready(message),
    });
    let mut request = Request::new(messages);
    *request.metadata_mut() = MetadataMap::from_headers(headers);
    let codec = ProstCodec::<T, ()>::default();
    let answer = client.streaming(request, PathAndQuery::from_static(path), codec);
    let mut answers = match tokio::time::timeout(PATIENCE, answer).await? {
        Err(status) => return Ok(Err(status)),
        Ok(response) => response.into_inner(),
    };
    Ok(tokio::time::timeout(PATIENCE, answers.message()).await?.map(drop))
}
