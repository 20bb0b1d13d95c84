//! Cluster DNS: answers for Services, from the API server's own lists, so that pods find Services by name.
//!
//! It knows `SERVICE.NAMESPACE.svc.cluster.local` (the cluster address, or every ready endpoint of a
//! headless Service) and `HOST.SERVICE.NAMESPACE.svc.cluster.local` (one named endpoint). Every other name
//! does not exist: nothing is ever asked outside of the cluster.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

const DOMAIN: [&str; 3] = ["svc", "cluster", "local"];
/// Clients ask again after this; short, since tests move Services about.
const TTL: u32 = 2;
/// How long a query waits for the first lists after a start.
const PATIENCE: Duration = Duration::from_secs(1);

/// Serves for good.
pub fn run(kubeconfig: &Path, listen: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(kubeconfig, listen))
}

async fn serve(kubeconfig: &Path, listen: SocketAddr) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig")?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = kube::Client::try_from(config)?;
    let zone = Arc::new(Zone {
        services: mirror(&client),
        slices: mirror(&client),
    });
    let udp = UdpSocket::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}"))?;
    let tcp = TcpListener::bind(listen)
        .await
        .with_context(|| format!("cannot listen on {listen}"))?;
    tokio::try_join!(serve_udp(udp, zone.clone()), serve_tcp(tcp, zone))?;
    Ok(())
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) -> Result<()> {
    let socket = Arc::new(socket);
    let mut buffer = [0; 4096];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await.context("cannot receive")?;
        let (query, zone, socket) = (buffer[..length].to_vec(), zone.clone(), socket.clone());
        tokio::spawn(async move {
            if let Some(answer) = zone.answer(&query).await {
                let _ = socket.send_to(&answer, from).await;
            }
        });
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept")?;
        tokio::spawn(timeout(Duration::from_secs(10), converse(stream, zone.clone())));
    }
}

/// Over TCP each message comes after its length in two bytes.
async fn converse(mut stream: TcpStream, zone: Arc<Zone>) -> Result<()> {
    loop {
        let mut query = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut query).await?;
        let Some(answer) = zone.answer(&query).await else {
            return Ok(());
        };
        stream.write_u16(u16::try_from(answer.len())?).await?;
        stream.write_all(&answer).await?;
    }
}

struct Zone {
    services: Store<Service>,
    slices: Store<EndpointSlice>,
}

impl Zone {
    /// The answer to one query, or nothing to what is not a query at all.
    async fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let query = Message::from_vec(query).ok()?;
        if query.metadata.message_type != MessageType::Query {
            return None;
        }
        let mut answer = Message::response(query.metadata.id, query.metadata.op_code);
        answer.metadata.recursion_desired = query.metadata.recursion_desired;
        answer.metadata.recursion_available = true;
        answer.metadata.authoritative = true;
        answer.add_queries(query.queries.iter().cloned());
        answer.metadata.response_code = match query.queries.first() {
            None => ResponseCode::FormErr,
            Some(_) if !self.is_filled().await => ResponseCode::ServFail,
            Some(question) => match self.addresses(question.name()) {
                None => ResponseCode::NXDomain,
                Some(found) => {
                    // A name that exists without records of the type asked for is no error.
                    if question.query_type() == RecordType::A {
                        answer.add_answers(
                            found
                                .into_iter()
                                .map(|ip| Record::from_rdata(question.name().clone(), TTL, RData::A(A(ip)))),
                        );
                    }
                    ResponseCode::NoError
                }
            },
        };
        answer.to_vec().ok()
    }

    async fn is_filled(&self) -> bool {
        let both = async {
            self.services.wait_until_ready().await.is_ok() && self.slices.wait_until_ready().await.is_ok()
        };
        timeout(PATIENCE, both).await.unwrap_or(false)
    }

    fn addresses(&self, name: &Name) -> Option<Vec<Ipv4Addr>> {
        let labels: Vec<String> = name
            .iter()
            .map(|l| String::from_utf8_lossy(l).to_ascii_lowercase())
            .collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        match labels.strip_suffix(&DOMAIN)? {
            [service, namespace] => self.of_service(service, namespace),
            [host, service, namespace] => {
                let found = self.endpoints(service, namespace, |e| e.hostname.as_deref() == Some(*host));
                (!found.is_empty()).then_some(found)
            }
            _ => None,
        }
    }

    fn of_service(&self, service: &str, namespace: &str) -> Option<Vec<Ipv4Addr>> {
        let found = self.services.get(&ObjectRef::new(service).within(namespace))?;
        match found.spec.as_ref()?.cluster_ip.as_deref() {
            Some("None") => Some(self.endpoints(service, namespace, |_| true)),
            Some(ip) => Some(vec![ip.parse().ok()?]),
            None => None,
        }
    }

    fn endpoints(&self, service: &str, namespace: &str, wanted: impl Fn(&Endpoint) -> bool) -> Vec<Ipv4Addr> {
        let slices = self.slices.state_filter(|slice| {
            let labels = slice.metadata.labels.as_ref();
            slice.metadata.namespace.as_deref() == Some(namespace)
                && labels
                    .and_then(|l| l.get("kubernetes.io/service-name"))
                    .is_some_and(|s| s == service)
        });
        let ready = |e: &&Endpoint| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
        let endpoints = slices
            .iter()
            .flat_map(|s| s.endpoints.iter().filter(ready).filter(|e| wanted(e)));
        endpoints
            .flat_map(|e| &e.addresses)
            .filter_map(|a| a.parse().ok())
            .collect()
    }
}

/// Keeps a copy of every object of a kind. While the API server is away the last copy serves on.
fn mirror<K>(client: &kube::Client) -> Store<K>
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let (store, writer) = reflector::store();
    let stream = watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff();
    let stream = reflector::reflector(writer, stream);
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            if let Err(error) = event {
                eprintln!("{error}");
            }
        }
    });
    store
}
