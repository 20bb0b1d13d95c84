//! Asking the leader on behalf of a caller.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kruise_api::names::MANAGER_SERVER_NAME;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::roots::Roots;
use super::status;
use crate::dispatch::refuse;
use crate::leader::Peer;

/// Marks a call that was forwarded once: two replicas that each take the other for the leader must not play ping-pong.
const FORWARDED: &str = "kruise-forwarded";
const AUTHORIZATION: &str = "authorization";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Keeps one connection to the leader.
#[derive(Debug)]
pub(super) struct Forwarder {
    roots: Arc<dyn Roots>,
    connection: Mutex<Option<(String, Channel)>>,
}

/// The leader, for one call.
#[derive(Debug)]
pub(super) struct Leader {
    pub(super) client: InspectServiceClient<Channel>,
    token: MetadataValue<tonic::metadata::Ascii>,
}

impl Leader {
    /// The same request with the caller's own token.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(AUTHORIZATION, self.token.clone());
        request
            .metadata_mut()
            .insert(FORWARDED, MetadataValue::from_static("1"));
        request
    }
}

impl Forwarder {
    pub(super) fn new(roots: Arc<dyn Roots>) -> Self {
        Self {
            roots,
            connection: Mutex::new(None),
        }
    }

    pub(super) async fn leader(
        &self,
        leader: Option<Peer>,
        metadata: &MetadataMap,
    ) -> Result<Leader, Status> {
        let (Some(peer), false) = (&leader, metadata.contains_key(FORWARDED)) else {
            return Err(refuse::not_leader(leader.as_ref()));
        };
        let token = metadata
            .get(AUTHORIZATION)
            .cloned()
            .unwrap_or_else(|| MetadataValue::from_static(""));
        let channel = match self.known(&peer.address) {
            Some(channel) => channel,
            None => self.dial(&peer.address).await?,
        };
        Ok(Leader {
            client: InspectServiceClient::new(channel),
            token,
        })
    }

    fn known(&self, address: &str) -> Option<Channel> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        connection
            .as_ref()
            .filter(|(known, _)| known == address)
            .map(|(_, channel)| channel.clone())
    }

    /// A channel that connects when it is used, and again when the connection is lost.
    async fn dial(&self, address: &str) -> Result<Channel, Status> {
        let unreachable = |detail: String| status(Code::Unavailable, "LEADER_UNREACHABLE", detail);
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| {
                unreachable(format!(
                    "the leader's address {address:?} cannot be used: {error}"
                ))
            })?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(20));
        let (address, roots) = (address.to_owned(), Arc::clone(&self.roots));
        let target = address.clone();
        let connector = tower::service_fn(move |_: http::Uri| connect(target.clone(), Arc::clone(&roots)));
        let channel = endpoint.connect_with_connector_lazy(connector);
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        *connection = Some((address, channel.clone()));
        Ok(channel)
    }
}

/// A TLS connection to the leader, whose name is the same whatever address it has. The bundle is read anew each time: it may have rotated.
async fn connect(
    address: String,
    roots: Arc<dyn Roots>,
) -> Result<TokioIo<tokio_rustls::client::TlsStream<TcpStream>>, std::io::Error> {
    let roots = roots.roots().await.map_err(std::io::Error::other)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(MANAGER_SERVER_NAME).map_err(std::io::Error::other)?;
    let stream = TcpStream::connect(&address).await?;
    Ok(TokioIo::new(
        TlsConnector::from(Arc::new(config)).connect(name, stream).await?,
    ))
}
