//! The agent of this machine, by its unix socket.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use kruise_proto::node::node_service_client::NodeServiceClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tower::service_fn;

use crate::args::Global;
use crate::exit::Usage;

/// Largest answer: an image list of thousands of images.
const MAX_MESSAGE: usize = 16 << 20;

/// Connects to an agent's socket.
pub(crate) async fn node(socket: &Path) -> Result<NodeServiceClient<Channel>> {
    // What hinders is clearer from the socket itself than from what is wrapped around it below.
    if let Err(error) = UnixStream::connect(socket).await {
        let advice = advice(socket, error.kind());
        return Err(anyhow::Error::new(error).context(advice));
    }
    let path = socket.to_owned();
    // The address is only for the HTTP headers; the connector below goes to the socket whatever it says.
    let channel = Endpoint::from_static("http://node")
        .connect_timeout(super::STEP)
        .connect_with_connector(service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
        .with_context(|| format!("what listens at {} does not speak gRPC", socket.display()))?;
    Ok(NodeServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE))
}

fn advice(socket: &Path, kind: io::ErrorKind) -> String {
    let socket = socket.display();
    match kind {
        io::ErrorKind::NotFound => format!(
            "no agent's socket at {socket}: on a node of a cluster it is /run/kruise/agent.sock; on any other machine start \
             `kruise-daemon --standalone` first"
        ),
        io::ErrorKind::PermissionDenied => format!("{socket} is for root only; try again with sudo"),
        io::ErrorKind::ConnectionRefused => format!("nobody listens at {socket}: the agent has ended"),
        _ => format!("no agent answers at {socket}"),
    }
}

/// The socket of a command that makes no sense without one.
pub(crate) fn only_here(global: &Global) -> Result<&PathBuf, Usage> {
    global.socket.as_ref().ok_or_else(|| {
        Usage(
            "this command is for one machine: give its agent's socket, --socket /run/kruise/agent.sock"
                .into(),
        )
    })
}

/// An answer of an agent that is an error, with what it means for the caller.
#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
pub(crate) fn refused_by_agent(status: Status) -> anyhow::Error {
    let said = if status.message().is_empty() {
        status.code().to_string()
    } else {
        status.message().to_owned()
    };
    match status.code() {
        Code::InvalidArgument => Usage(said).into(),
        Code::Unimplemented => {
            anyhow::anyhow!(said).context("the agent does not know this call: it is older than this program")
        }
        Code::Unknown | Code::Cancelled => anyhow::anyhow!(said).context("the agent broke off; did it end?"),
        _ => anyhow::anyhow!(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;

    #[tokio::test]
    async fn each_way_to_miss_a_socket_has_its_advice() {
        let missing = node(Path::new("/nonexistent/agent.sock")).await.unwrap_err();
        let text = exit::chain(&missing);
        assert!(
            text.contains("--standalone") && text.contains("No such file"),
            "{text}"
        );
        assert!(advice(Path::new("/s"), io::ErrorKind::PermissionDenied).contains("sudo"));
        let directory = std::env::temp_dir().join(format!("kruisectl-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("left-over.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let text = exit::chain(&node(&path).await.unwrap_err());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(text.contains("the agent has ended"), "{text}");
    }

    #[test]
    fn what_the_user_did_wrong_is_wrong_use() {
        let error = refused_by_agent(Status::invalid_argument("not an image reference"));
        assert!(error.is::<Usage>());
        assert!(!refused_by_agent(Status::not_found("no such container")).is::<Usage>());
    }
}
