//! The agents' side: one stream per node.
//!
//! A stream is let in step by step: the token is verified, this replica leads and it is the stream's turn ([`lobby`]), the Hello comes in time and
//! is for the token's node, the engine knows that node. From then on one small task per stream passes messages between the agent and the engine, answers
//! heartbeats as long as the lease is provably ours, and ends the stream when the agent falls silent, its token ends, it does not read, or it sends
//! too much.

mod admission;
mod lobby;
mod outbound;
pub(crate) mod refuse;
mod sanitize;
mod session;

use std::sync::Arc;

use kruise_proto::dispatch::AttachRequest;
use kruise_proto::dispatch::dispatch_service_server::{DispatchService, DispatchServiceServer};
use tonic::{Request, Response, Status, Streaming};

use crate::engine::EngineHandle;
use crate::identity::{Identity, bearer};
use crate::leader::Leadership;
use crate::serve::PeerInfo;

use lobby::Lobby;
use outbound::Outbound;
use session::Session;

/// Longest message of an agent: a Hello with thousands of tasks. Everything else is a few hundred bytes.
const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// The service.
#[derive(Debug)]
pub struct Dispatch {
    shared: Arc<Shared>,
}

/// What every stream needs.
#[derive(Debug)]
struct Shared {
    engine: EngineHandle,
    identity: Identity,
    leadership: Leadership,
    lobby: Lobby,
}

/// The service as tonic takes it.
#[must_use]
pub fn service(
    engine: EngineHandle,
    identity: Identity,
    leadership: Leadership,
) -> DispatchServiceServer<Dispatch> {
    let shared = Arc::new(Shared {
        lobby: Lobby::new(engine.clone(), leadership.clone()),
        engine,
        identity,
        leadership,
    });
    DispatchServiceServer::new(Dispatch { shared }).max_decoding_message_size(MAX_MESSAGE)
}

#[tonic::async_trait]
impl DispatchService for Dispatch {
    type AttachStream = Outbound;

    async fn attach(&self, request: Request<Streaming<AttachRequest>>) -> Result<Response<Outbound>, Status> {
        let peer = Peer {
            address: peer(&request),
            connection: request.extensions().get::<PeerInfo>().cloned(),
        };
        let shared = &self.shared;
        // Refusals are written down by the layer around all services.
        let agent = shared.identity.agent(bearer(request.metadata())?).await?;
        shared.lobby.look()?;
        let (sender, stream) = outbound::channel();
        let session = Session::new(Arc::clone(shared), agent, peer);
        tokio::spawn(session.run(request.into_inner(), sender));
        Ok(Response::new(stream))
    }
}

/// Who is at the other end of a stream.
struct Peer {
    /// IP address.
    address: String,
    connection: Option<PeerInfo>,
}

impl Peer {
    /// Counts a refusal in mid-stream.
    fn refused(&self, reason: &str) {
        if let Some(connection) = &self.connection {
            connection.refused_later(reason);
        }
    }

    /// Closes the connection, after a moment for last words.
    fn expel(&self) {
        if let Some(connection) = &self.connection {
            connection.expel();
        }
    }
}

/// IP address of the caller; empty where the transport has none.
pub(crate) fn peer<T>(request: &Request<T>) -> String {
    request
        .remote_addr()
        .map(|address| address.ip().to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
