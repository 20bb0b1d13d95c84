//! A server that speaks the agents' protocol and does nothing else: no token is looked at, nothing is planned, nothing is stored. What it costs
//! is what TCP, TLS, HTTP/2 and the messages cost.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::Stream;
use kruise_api::names::MANAGER_SERVER_NAME;
use kruise_proto::convert::{phase_from_number, to_duration};
use kruise_proto::dispatch::dispatch_service_server::{DispatchService, DispatchServiceServer};
use kruise_proto::dispatch::{
    AttachRequest, AttachResponse, DesiredDelta, DesiredSet, HeartbeatReply, Order, PullImage, ResultAck,
    Welcome, attach_request, attach_response, order,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use super::control::{self, Answer, stamp};

/// As the manager has it, so that the same buffers are compared.
const WINDOW: u32 = 64 * 1024;
const QUEUE: usize = 8;

/// A certificate that stands for itself, and its key, in PEM.
#[derive(Clone)]
pub struct SelfSigned {
    certificate: String,
    key: String,
}

impl fmt::Debug for SelfSigned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SelfSigned")
    }
}

impl SelfSigned {
    /// From a file and the key beside it; makes both where they are missing, so that a floor that is started again is the same to agents.
    pub fn at(file: &Path) -> Result<Self> {
        let beside = file.with_extension("key");
        if let (Ok(certificate), Ok(key)) = (fs::read_to_string(file), fs::read_to_string(&beside)) {
            return Ok(Self { certificate, key });
        }
        let made = rcgen::generate_simple_self_signed([MANAGER_SERVER_NAME.to_owned()])
            .context("cannot make a certificate")?;
        let new = Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        };
        fs::write(&beside, &new.key).context("cannot write the key")?;
        fs::write(file, &new.certificate).context("cannot write the certificate")?;
        Ok(new)
    }
}

/// The server, and its end of every stream.
#[derive(Clone, Default)]
pub struct Floor {
    epoch: u64,
    streams: Arc<Mutex<BTreeMap<String, Agent>>>,
}

struct Agent {
    sender: mpsc::Sender<Result<AttachResponse, Status>>,
    stamp: u64,
    generation: u64,
}

impl fmt::Debug for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Floor")
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Floor {
    /// Serves until the listener breaks.
    pub async fn serve(
        self,
        address: &str,
        identity: &SelfSigned,
    ) -> Result<impl Future<Output = Result<()>>> {
        let identity = Identity::from_pem(&identity.certificate, &identity.key);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .context("cannot use the certificate")?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .add_service(DispatchServiceServer::new(self))
            .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
        Ok(async move { server.await.context("the server ended") })
    }

    /// A floor whose leadership has this number.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            epoch,
            ..Self::default()
        }
    }

    /// Answers one question.
    pub async fn answer(&self, request: control::Request) -> Answer {
        let begun = stamp();
        let attached = self.streams().len();
        let problem = match request {
            control::Request::Broadcast { image, count } => self.broadcast(&image, count).await.err(),
            control::Request::State => None,
            _ => Some("only agents know".to_owned()),
        };
        Answer {
            stamps: vec![begun, stamp()],
            attached,
            problem,
            ..Answer::default()
        }
    }

    async fn broadcast(&self, image: &str, count: usize) -> Result<(), String> {
        let mut messages = Vec::with_capacity(count);
        for (node, agent) in self.streams().iter_mut().take(count) {
            agent.generation += 1;
            let delta = DesiredDelta {
                epoch: self.epoch,
                generation: agent.generation,
                stamp: agent.stamp,
                add: vec![pull(node, image)],
                cancel: Vec::new(),
            };
            messages.push((
                agent.sender.clone(),
                attach_response::Message::DesiredDelta(delta),
            ));
        }
        if messages.len() < count {
            return Err(format!("only {} agents are attached", messages.len()));
        }
        for (sender, message) in messages {
            // An agent that is gone gets nothing.
            let _ = send(&sender, message).await;
        }
        Ok(())
    }

    async fn converse(
        self,
        mut inbound: Streaming<AttachRequest>,
        sender: mpsc::Sender<Result<AttachResponse, Status>>,
    ) {
        let mut node = String::new();
        while let Ok(Some(AttachRequest {
            message: Some(message),
        })) = inbound.message().await
        {
            let answers = self.hear(message, &mut node, &sender);
            for answer in answers {
                if send(&sender, answer).await.is_err() {
                    break;
                }
            }
        }
        self.streams().remove(&node);
    }

    fn hear(
        &self,
        message: attach_request::Message,
        node: &mut String,
        sender: &mpsc::Sender<Result<AttachResponse, Status>>,
    ) -> Vec<attach_response::Message> {
        match message {
            attach_request::Message::Hello(hello) => {
                node.clone_from(&hello.node_name);
                let agent = Agent {
                    sender: sender.clone(),
                    stamp: 0,
                    generation: 1,
                };
                self.streams().insert(hello.node_name, agent);
                vec![
                    attach_response::Message::Welcome(self.welcome()),
                    attach_response::Message::DesiredSet(DesiredSet {
                        epoch: self.epoch,
                        generation: 1,
                        stamp: 0,
                        orders: Vec::new(),
                    }),
                ]
            }
            attach_request::Message::Heartbeat(heartbeat) => {
                if let Some(agent) = self.streams().get_mut(node) {
                    agent.stamp = heartbeat.stamp;
                }
                vec![attach_response::Message::HeartbeatReply(HeartbeatReply {
                    stamp: heartbeat.stamp,
                    epoch: self.epoch,
                })]
            }
            attach_request::Message::TaskReport(report) => {
                let ended = report
                    .task
                    .filter(|task| phase_from_number(task.phase).is_final());
                ended
                    .map(|task| {
                        attach_response::Message::ResultAck(ResultAck {
                            task_ids: vec![task.task_id],
                        })
                    })
                    .into_iter()
                    .collect()
            }
            attach_request::Message::Ack(_)
            | attach_request::Message::TokenRenewal(_)
            | attach_request::Message::ProbeAnswer(_) => Vec::new(),
        }
    }

    fn welcome(&self) -> Welcome {
        Welcome {
            epoch: self.epoch,
            contact_lease: Some(to_duration(Duration::from_secs(90))),
            heartbeat_interval: Some(to_duration(Duration::from_secs(5))),
            max_order_age: Some(to_duration(Duration::from_secs(15))),
            manager_version: "floor".into(),
        }
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<String, Agent>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn send(
    sender: &mpsc::Sender<Result<AttachResponse, Status>>,
    message: attach_response::Message,
) -> Result<(), ()> {
    let message = AttachResponse {
        message: Some(message),
    };
    sender.send(Ok(message)).await.map_err(drop)
}

fn pull(node: &str, image: &str) -> Order {
    let pull = PullImage {
        image: image.to_owned(),
        attempt_timeout: Some(to_duration(Duration::from_mins(10))),
        backoff_limit: 3,
        requested_by: "default/floor".into(),
        ..PullImage::default()
    };
    Order {
        task_id: format!("pull/00000000-0000-0000-0000-000000000000/{node}/{image}/1"),
        work: Some(order::Work::PullImage(pull)),
    }
}

#[tonic::async_trait]
impl DispatchService for Floor {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<AttachResponse, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(self.clone().converse(request.into_inner(), sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
