//! Bytes to the manager: straight to an address, or through the API server to the leader's pod.

use std::io;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::names;
use kube::Api;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::Cluster;

/// Makes a connection whenever one is needed, and looks up the leader each time.
#[derive(Clone)]
pub(super) struct Connector {
    cluster: Cluster,
    /// A pod other than the leader's, wherever that is.
    pod: Option<String>,
}

/// Either kind of connection.
pub(super) type Pipe = Box<dyn Duplex>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

#[derive(Debug, thiserror::Error)]
pub(super) enum TunnelError {
    #[error("cannot connect to {address}")]
    Dial {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot read Lease {namespace}/{}", names::LEASE)]
    Lease {
        namespace: String,
        #[source]
        source: kube::Error,
    },
    #[error(
        "no manager leads yet (Lease {namespace}/{} names nobody); try again in a few seconds",
        names::LEASE
    )]
    NoLeader { namespace: String },
    #[error("cannot forward a port to pod {namespace}/{pod}, which {role}")]
    Forward {
        namespace: String,
        pod: String,
        role: &'static str,
        #[source]
        source: kube::Error,
    },
    #[error("pod {namespace}/{pod} {role}, but no byte went through to its port {port}")]
    Silent {
        namespace: String,
        pod: String,
        role: &'static str,
        port: u16,
    },
    #[error("no answer within {} s", super::STEP.as_secs())]
    Slow,
}

impl Connector {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self {
            cluster: cluster.clone(),
            pod: None,
        }
    }

    pub(super) fn to_pod(cluster: &Cluster, pod: &str) -> Self {
        Self {
            cluster: cluster.clone(),
            pod: Some(pod.to_owned()),
        }
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Pipe>;
    type Error = TunnelError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (cluster, pod) = (self.cluster.clone(), self.pod.clone());
        Box::pin(async move {
            let pipe = tokio::time::timeout(super::STEP, connect(&cluster, pod))
                .await
                .map_err(|_| TunnelError::Slow)?;
            pipe.map(TokioIo::new)
        })
    }
}

async fn connect(cluster: &Cluster, wanted: Option<String>) -> Result<Pipe, TunnelError> {
    if let Some(address) = &cluster.server {
        let dialled = TcpStream::connect(address).await;
        let stream = dialled.map_err(|source| TunnelError::Dial {
            address: address.clone(),
            source,
        })?;
        return Ok(Box::new(stream));
    }
    let namespace = cluster.system.clone();
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), &namespace);
    let lease = leases.get_opt(names::LEASE).await;
    let lease = lease.map_err(|source| TunnelError::Lease {
        namespace: namespace.clone(),
        source,
    })?;
    let Some(Leader { pod, port }) = lease.as_ref().and_then(leader) else {
        return Err(TunnelError::NoLeader { namespace });
    };
    // All replicas listen on the same port.
    let (pod, role) = match wanted {
        Some(wanted) if wanted != pod => (wanted, "does not lead"),
        _ => (pod, "leads"),
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let forwarded = pods.portforward(&pod, &[port]).await;
    let mut forwarder = forwarded.map_err(|source| TunnelError::Forward {
        namespace: namespace.clone(),
        pod: pod.clone(),
        role,
        source,
    })?;
    // The forwarder itself may go: its task lives as long as the stream.
    let stream = forwarder.take_stream(port).ok_or(TunnelError::Silent {
        namespace,
        pod,
        role,
        port,
    })?;
    Ok(Box::new(stream))
}

#[derive(Debug, PartialEq, Eq)]
struct Leader {
    pod: String,
    port: u16,
}

/// The holder is the pod's name and a random part; the port is the address's own, so that a chart value may change it.
fn leader(lease: &Lease) -> Option<Leader> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let pod = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
    let address = lease
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(names::LEASE_ADDRESS));
    let port = address.and_then(|address| address.rsplit_once(':')?.1.parse().ok());
    (!pod.is_empty()).then(|| Leader {
        pod: pod.to_owned(),
        port: port.unwrap_or(names::MANAGER_GRPC_PORT),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::*;

    fn lease(holder: Option<&str>, address: Option<&str>) -> Lease {
        let mut lease = Lease {
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                ..Default::default()
            }),
            ..Default::default()
        };
        lease.metadata.annotations =
            address.map(|address| [(names::LEASE_ADDRESS.to_owned(), address.to_owned())].into());
        lease
    }

    #[test]
    fn the_leader_is_the_holder_without_its_random_part() {
        let found = |holder, address| leader(&lease(holder, address)).map(|leader| (leader.pod, leader.port));
        let pod = |name: &str, port| Some((name.to_owned(), port));
        assert_eq!(
            found(Some("manager-5c_d_e0f1"), Some("10.1.2.3:1234")),
            pod("manager-5c_d", 1234)
        );
        assert_eq!(
            found(Some("manager-5c_e0f1"), Some("[fd00::1]:1234")),
            pod("manager-5c", 1234)
        );
        assert_eq!(
            found(Some("manager-5c"), None),
            pod("manager-5c", names::MANAGER_GRPC_PORT)
        );
        assert_eq!(found(Some(""), None), None);
        assert_eq!(found(None, None), None);
    }
}
