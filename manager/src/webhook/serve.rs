//! HTTP/1.1 over TLS, bounded in connections, handshakes and idle time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections in all. An API server keeps a handful open.
const MAX_CONNECTIONS: usize = 512;
/// Connections of one address, so that no single pod can take all of them.
const MAX_OF_ONE: usize = 64;
/// For a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two requests of a connection. API servers keep connections for 90 s.
const IDLE: Duration = Duration::from_secs(120);
/// After the system refused a connection, usually for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// For requests under way at the end.
const GRACE: Duration = Duration::from_secs(2);

/// Serves until `stop`, and then for requests under way.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    routes: Router,
    stop: CancellationToken,
) {
    let tls = TlsAcceptor::from(tls);
    let peers = Peers::default();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let Some(place) = peers.enter(address.ip()).filter(|_| connections.len() < MAX_CONNECTIONS) else {
                        tracing::debug!(peer = %address, "too many connections to the webhooks");
                        continue;
                    };
                    connections.spawn(connection(stream, tls.clone(), routes.clone(), stop.clone(), place));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the webhooks");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        tracing::info!("some requests to webhooks were still under way");
    }
}

async fn connection(
    stream: TcpStream,
    tls: TlsAcceptor,
    routes: Router,
    stop: CancellationToken,
    _place: Place,
) {
    // A failure shows on the next read.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // With an old caBundle the API server says "bad certificate" here.
            tracing::debug!(%error, "TLS handshake with a caller of webhooks failed");
            return;
        }
        Err(_) => return,
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to the webhooks ended");
    }
}

/// Connections by address.
#[derive(Clone, Debug, Default)]
struct Peers(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

impl Peers {
    fn enter(&self, address: IpAddr) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= MAX_OF_ONE {
            return None;
        }
        *count += 1;
        Some(Place {
            peers: self.clone(),
            address,
        })
    }
}

/// The place of one connection among its address's.
#[derive(Debug)]
struct Place {
    peers: Peers,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_every_place() {
        let peers = Peers::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut places: Vec<_> = (0..MAX_OF_ONE)
            .map(|_| peers.enter(address).expect("room"))
            .collect();
        assert!(peers.enter(address).is_none());
        assert!(peers.enter(IpAddr::from([10, 0, 0, 2])).is_some());
        places.pop();
        places.push(peers.enter(address).expect("room again"));
        drop(places);
        assert!(peers.0.lock().expect("no panic").is_empty());
    }
}
