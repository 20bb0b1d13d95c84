//! The agent of this machine, by its unix socket.

use std::path::Path;

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use kruise_proto::node::node_service_client::NodeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// Connects to an agent's socket.
pub(crate) async fn node(socket: &Path) -> Result<NodeServiceClient<Channel>> {
    let path = socket.to_owned();
    // The address is only for the HTTP headers; the connector below goes to the socket whatever it says.
    let channel = Endpoint::from_static("http://node")
        .connect_timeout(super::STEP)
        .connect_with_connector(service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .with_context(|| {
            format!(
                "no agent answers at {}: is this the node, are you root, and does the agent's pod run there?",
                socket.display()
            )
        })?;
    Ok(NodeServiceClient::new(channel))
}
