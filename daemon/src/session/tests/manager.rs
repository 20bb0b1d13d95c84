//! A manager that does what a test says.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kruise_proto::dispatch::dispatch_service_server::{DispatchService, DispatchServiceServer};
use kruise_proto::dispatch::{
    Ack, AttachRequest, AttachResponse, DesiredDelta, DesiredSet, HeartbeatReply, Hello, Order, TaskReport,
    attach_request, attach_response,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::*;
use crate::session::transport::Bytes;

/// A network of pipes.
#[derive(Debug, Default)]
pub(super) struct Pipes(Mutex<BTreeMap<String, mpsc::UnboundedSender<io::Result<DuplexStream>>>>);

impl Pipes {
    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, BTreeMap<String, mpsc::UnboundedSender<io::Result<DuplexStream>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody listens there any more.
    pub(super) fn close(&self, address: &str) {
        self.lock().remove(address);
    }
}

impl Transport for Pipes {
    fn open(&self, address: String) -> BoxFuture<'static, io::Result<Box<dyn Bytes>>> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let sent = self
            .lock()
            .get(&address)
            .is_some_and(|listener| listener.send(Ok(far)).is_ok());
        async move {
            if sent {
                Ok(Box::new(near) as Box<dyn Bytes>)
            } else {
                Err(io::ErrorKind::ConnectionRefused.into())
            }
        }
        .boxed()
    }
}

/// A certificate authority with a certificate of the manager.
#[derive(Clone)]
pub(super) struct Authority {
    pub(super) ca: String,
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().expect("a key");
        let ca = params.self_signed(&ca_key).expect("a certificate");
        let key = KeyPair::generate().expect("a key");
        let names = vec![kruise_api::names::MANAGER_SERVER_NAME.to_owned()];
        let leaf = CertificateParams::new(names).expect("parameters");
        let leaf = leaf
            .signed_by(&key, &Issuer::new(params, ca_key))
            .expect("a certificate");
        Self {
            ca: ca.pem(),
            certificate: leaf.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// One replica.
pub(super) struct Manager {
    conns: mpsc::UnboundedReceiver<Conn>,
    refusals: Arc<Mutex<Vec<Status>>>,
}

struct Service {
    conns: mpsc::UnboundedSender<Conn>,
    refusals: Arc<Mutex<Vec<Status>>>,
}

#[tonic::async_trait]
impl DispatchService for Service {
    type AttachStream = ReceiverStream<Result<AttachResponse, Status>>;

    async fn attach(
        &self,
        request: Request<Streaming<AttachRequest>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let refusal = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        let bearer = request
            .metadata()
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let bearer = bearer.unwrap_or_default().to_owned();
        let (sender, outbound) = mpsc::channel(64);
        let conn = Conn {
            bearer,
            inbound: request.into_inner(),
            sender,
            epoch: 0,
            stamp: 0,
            answers: true,
        };
        let _ = self.conns.send(conn);
        Ok(Response::new(ReceiverStream::new(outbound)))
    }
}

impl Manager {
    pub(super) fn listen(pipes: &Arc<Pipes>, authority: &Authority, address: &str) -> Self {
        let (listener, incoming) = mpsc::unbounded_channel();
        pipes.lock().insert(address.to_owned(), listener);
        let (sender, conns) = mpsc::unbounded_channel();
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let service = Service {
            conns: sender,
            refusals: Arc::clone(&refusals),
        };
        let identity = Identity::from_pem(&authority.certificate, &authority.key);
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .expect("a certificate and its key")
            .add_service(DispatchServiceServer::new(service));
        tokio::spawn(server.serve_with_incoming(UnboundedReceiverStream::new(incoming)));
        Self { conns, refusals }
    }

    /// Answers the next attach with this.
    pub(super) fn refuse(&self, status: Status) {
        self.refusals
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(0, status);
    }

    /// The next stream, for at most an hour of played time.
    pub(super) async fn accept(&mut self) -> Conn {
        let next = tokio::time::timeout(Duration::from_secs(3600), self.conns.recv()).await;
        next.expect("it dials").expect("listening")
    }

    /// The next stream, welcomed, with the Hello that it began with.
    pub(super) async fn attach(&mut self, epoch: u64) -> (Conn, Hello) {
        let mut conn = self.accept().await;
        let hello = conn.hello().await;
        conn.welcome(epoch).await;
        (conn, hello)
    }

    pub(super) fn nobody_dials(&mut self) -> bool {
        self.conns.try_recv().is_err()
    }
}

pub(super) fn not_leader(leader: Option<&str>) -> Status {
    let metadata = [("leader_address".to_owned(), leader.unwrap_or_default().to_owned())];
    let details = ErrorDetails::with_error_info("NOT_LEADER", "kruise.io", metadata);
    Status::with_error_details(tonic::Code::Unavailable, "not the leader", details)
}

/// One stream, as the manager has it.
pub(super) struct Conn {
    pub(super) bearer: String,
    inbound: Streaming<AttachRequest>,
    sender: mpsc::Sender<Result<AttachResponse, Status>>,
    epoch: u64,
    /// Latest stamp of the agent.
    pub(super) stamp: u64,
    /// Whether heartbeats are answered.
    pub(super) answers: bool,
}

impl Conn {
    pub(super) async fn send(&self, message: attach_response::Message) {
        let _ = self
            .sender
            .send(Ok(AttachResponse {
                message: Some(message),
            }))
            .await;
    }

    pub(super) async fn end(self, status: Status) {
        let _ = self.sender.send(Err(status)).await;
    }

    /// The next message; none when the agent closed the stream. Heartbeats are noted, and answered if they shall be.
    async fn next(&mut self) -> Option<attach_request::Message> {
        loop {
            match self.inbound.message().await.ok()??.message? {
                attach_request::Message::Heartbeat(heartbeat) => {
                    self.stamp = heartbeat.stamp;
                    if self.answers {
                        let reply = HeartbeatReply {
                            stamp: heartbeat.stamp,
                            epoch: self.epoch,
                        };
                        self.send(attach_response::Message::HeartbeatReply(reply)).await;
                    }
                }
                message => return Some(message),
            }
        }
    }

    /// The first message that is wanted, within an hour of played time; others are skipped.
    pub(super) async fn find<T>(&mut self, wanted: impl Fn(attach_request::Message) -> Option<T>) -> T {
        let search = async {
            while let Some(message) = self.next().await {
                if let Some(found) = wanted(message) {
                    return Some(found);
                }
            }
            None
        };
        let found = tokio::time::timeout(Duration::from_secs(3600), search).await;
        found.expect("it came in time").expect("the stream is open")
    }

    pub(super) async fn hello(&mut self) -> Hello {
        self.find(|message| match message {
            attach_request::Message::Hello(hello) => Some(hello),
            _ => None,
        })
        .await
    }

    pub(super) async fn ack(&mut self) -> Ack {
        self.find(|message| match message {
            attach_request::Message::Ack(ack) => Some(ack),
            _ => None,
        })
        .await
    }

    pub(super) async fn report(
        &mut self,
        wanted: impl Fn(&kruise_proto::task::TaskStatus) -> bool,
    ) -> kruise_proto::task::TaskStatus {
        self.find(|message| match message {
            attach_request::Message::TaskReport(TaskReport { task: Some(task) }) if wanted(&task) => {
                Some(task)
            }
            _ => None,
        })
        .await
    }

    pub(super) async fn welcome(&mut self, epoch: u64) {
        self.epoch = epoch;
        let duration = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
        let welcome = dispatch::Welcome {
            epoch,
            contact_lease: duration(90),
            heartbeat_interval: duration(5),
            max_order_age: duration(15),
            manager_version: "test".into(),
        };
        self.send(attach_response::Message::Welcome(welcome)).await;
    }

    /// Sends a whole set with the latest stamp; what the agent says to it.
    pub(super) async fn set(&mut self, generation: u64, orders: &[Order]) -> Ack {
        let set = DesiredSet {
            epoch: self.epoch,
            generation,
            stamp: self.stamp,
            orders: orders.to_vec(),
        };
        self.send(attach_response::Message::DesiredSet(set)).await;
        self.ack().await
    }

    pub(super) async fn delta(&mut self, generation: u64, add: &[Order], cancel: &[&str]) -> Ack {
        let cancel = cancel.iter().map(|id| dispatch::Cancel {
            task_id: (*id).into(),
            reason: "test".into(),
        });
        let (epoch, stamp) = (self.epoch, self.stamp);
        let delta = DesiredDelta {
            epoch,
            generation,
            stamp,
            add: add.to_vec(),
            cancel: cancel.collect(),
        };
        self.send(attach_response::Message::DesiredDelta(delta)).await;
        self.ack().await
    }

    /// Reads on for a time. Whether the stream is still open then.
    pub(super) async fn idle(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, async { while self.next().await.is_some() {} })
            .await
            .is_err()
    }

    /// Waits for the first heartbeat, so that there is a stamp.
    pub(super) async fn stamped(&mut self) {
        while self.stamp == 0 {
            self.idle(Duration::from_millis(100)).await;
        }
    }
}
