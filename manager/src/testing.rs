//! For tests of services: a server and a channel in one process, without sockets.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint, Server};

/// Serves the routes for as long as the channel lives.
pub(crate) async fn serve_in_process(routes: Routes) -> Channel {
    let (connections, incoming) = mpsc::unbounded_channel::<DuplexStream>();
    let incoming = UnboundedReceiverStream::new(incoming).map(Ok::<_, io::Error>);
    tokio::spawn(Server::builder().serve_with_incoming(routes.prepare(), incoming));
    let connector = tower::service_fn(move |_: http::Uri| {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let sent = connections
            .send(theirs)
            .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
        std::future::ready(sent.map(|()| TokioIo::new(ours)))
    });
    Endpoint::from_static("http://in.process")
        .connect_with_connector(connector)
        .await
        .expect("in this process")
}
