//! From the environment to clients.

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;

use super::READ_TIMEOUT;
use super::instrument::{self, Lane, Shared};

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account was found, or it is broken.
    #[error("no way to the API server: neither a kubeconfig nor a service account is usable")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// The configuration makes no client.
    #[error("the configuration for the API server cannot be used")]
    Client(#[source] Box<kube::Error>),
}

/// What the audit log of the API server shows.
#[must_use]
pub fn user_agent() -> String {
    format!("kruise-manager/{}", env!("CARGO_PKG_VERSION"))
}

impl super::Api {
    /// Configuration from `KUBECONFIG` or `~/.kube/config`, else of the pod's service account.
    ///
    /// # Errors
    /// When neither is there.
    pub async fn infer() -> Result<kube::Config, ConnectError> {
        kube::Config::infer()
            .await
            .map_err(|error| ConnectError::Infer(Box::new(error)))
    }
}

/// A client of one lane with its own connections, so that a stuck read never delays a write.
pub(super) fn client(
    config: &kube::Config,
    lane: Lane,
    shared: &Shared,
) -> Result<kube::Client, ConnectError> {
    let mut config = config.clone();
    config.default_retry = lane == Lane::Read;
    let agent = HeaderValue::from_str(&user_agent()).expect("a version is a header value");
    config.headers.push((USER_AGENT, agent));
    if lane == Lane::Read {
        config.connect_timeout = Some(READ_TIMEOUT / 4);
    } else {
        // Watches are silent for minutes, so that only the other lanes bound the time between bytes of an answer.
        config.connect_timeout = Some(shared.limit);
        config.read_timeout = Some(shared.limit);
        config.reset_reader_on_write = true;
        config.write_timeout = Some(shared.limit);
    }
    let service = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
    Ok(service
        .with_layer(&instrument::Layer {
            lane,
            shared: shared.clone(),
        })
        .build())
}
