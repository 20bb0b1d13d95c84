//! The gRPC server.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use super::accept::{Limits, incoming};
use super::auth::AuthLayer;
use crate::identity::Identity;
use crate::telemetry::ServeMetrics;

/// A dead peer is noticed within these two.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// What one connection can make us hold before we read it; with thousands of agents it adds up.
const WINDOW: u32 = 64 * 1024;
/// An agent needs one stream, a person a few.
const STREAMS: u32 = 32;
/// The smallest that HTTP/2 allows. Larger messages take more frames.
const FRAME: u32 = 16 * 1024;
/// A token is about a kilobyte.
const HEADERS: u32 = 16 * 1024;
/// Streams that a client opened and reset at once, before the connection is closed on it.
const RESETS: usize = 20;

/// What a server needs.
#[derive(Debug)]
pub struct Deps {
    /// TLS with `h2`, see [`crate::trust::Serving::server_config`].
    pub tls: Arc<ServerConfig>,
    /// Bounds.
    pub limits: Limits,
    /// Verifies callers of health and reflection.
    pub identity: Identity,
    /// Counters.
    pub metrics: ServeMetrics,
}

/// Serves the routes until `stop`, then closes the listener, asks clients to go, and ends when the last connection has ended. How long to
/// wait for that is the caller's business.
///
/// # Errors
/// When the server itself breaks; no single connection does that.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    deps: Deps,
    stop: CancellationToken,
) -> Result<(), tonic::transport::Error> {
    let Deps {
        tls,
        limits,
        identity,
        metrics,
    } = deps;
    let connections = incoming(listener, TlsAcceptor::from(tls), limits, metrics.clone());
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_frame_size(FRAME)
        .http2_max_header_list_size(HEADERS)
        .http2_max_pending_accept_reset_streams(Some(RESETS))
        .http2_max_local_error_reset_streams(Some(RESETS))
        .layer(AuthLayer::new(identity, metrics))
        .serve_with_incoming_shutdown(routes.prepare(), connections, stop.cancelled_owned())
        .await
}

#[cfg(test)]
mod tests;
