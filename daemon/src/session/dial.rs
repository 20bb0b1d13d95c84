//! Dials the manager and opens one stream.

use std::fmt;
use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kruise_proto::dispatch::AttachRequest;
use kruise_proto::dispatch::dispatch_service_client::DispatchServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};
use tonic::{Request, Status};
use tonic_types::StatusExt as _;

use super::Session;
use super::trust::{self, TrustError};
use crate::errors::{chain, is_local, status_text};

/// Time for connection, TLS and HTTP/2 together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a connection without traffic is tried, and how long the answer may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
/// Largest message of the manager: thousands of orders with their log-ins.
const MAX_MESSAGE: usize = 8 << 20;
/// Windows of the connection. A large set takes a few more round trips; an idle agent holds little.
const WINDOW: u32 = 64 << 10;
/// Messages between the stream and the socket. Enough to keep it busy; what does not fit waits where the latest state wins.
const OUTGOING: usize = 8;
/// Word of a follower in its error details.
const NOT_LEADER: &str = "NOT_LEADER";

/// Why a stream, or the attempt to open one, ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Goodbye {
    /// The manager does not lead, and may know who does.
    Elsewhere {
        /// `host:port`.
        leader: Option<String>,
    },
    /// Anything else.
    Failed {
        /// Whether a leader had welcomed the agent.
        attached: bool,
        /// For people.
        error: String,
    },
}

impl Goodbye {
    pub(super) fn failed(attached: bool, error: impl fmt::Display) -> Self {
        Self::Failed {
            attached,
            error: error.to_string(),
        }
    }

    /// What the manager's status says.
    pub(super) fn from_status(attached: bool, status: &Status) -> Self {
        if let Some(info) = status.get_details_error_info()
            && info.reason == NOT_LEADER
        {
            let leader = info
                .metadata
                .get("leader_address")
                .filter(|address| !address.is_empty());
            return Self::Elsewhere {
                leader: leader.cloned(),
            };
        }
        let error = if is_local(status) {
            status_text(status)
        } else {
            format!("{:?}: {}", status.code(), status.message())
        };
        Self::Failed { attached, error }
    }

    pub(super) fn was_attached(&self) -> bool {
        matches!(self, Self::Failed { attached: true, .. })
    }
}

impl fmt::Display for Goodbye {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere { leader: Some(leader) } => {
                write!(f, "this manager does not lead, {leader} does")
            }
            Self::Elsewhere { leader: None } => f.write_str("this manager does not lead"),
            Self::Failed { error, .. } => f.write_str(error),
        }
    }
}

impl Session {
    /// Dials `target`, opens the stream and serves it to its end.
    pub(super) async fn attach(&self, target: &str) -> Result<Goodbye, TrustError> {
        let ca = trust::bundle(&self.config.ca, &self.deps.clock).await?;
        let token = match self.config.token.read().await {
            Ok(token) => token,
            Err(error) => return Ok(Goodbye::failed(false, format_args!("token not read: {error}"))),
        };
        let Ok(bearer) = bearer(&token) else {
            return Ok(Goodbye::failed(false, "the token is none"));
        };
        let channel = match tokio::time::timeout(DIAL_TIMEOUT, self.channel(target, &ca)).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Ok(Goodbye::failed(false, error)),
            Err(_) => {
                return Ok(Goodbye::failed(
                    false,
                    format_args!("no connection within {DIAL_TIMEOUT:?}"),
                ));
            }
        };
        Ok(self.open(channel, bearer, token).await)
    }

    async fn channel(&self, target: &str, ca: &str) -> Result<Channel, String> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .domain_name(self.config.server_name.clone());
        let endpoint = Endpoint::from_shared(format!("https://{target}")).map_err(|error| chain(&error))?;
        let endpoint = endpoint
            .user_agent(concat!("kruise-daemon/", env!("CARGO_PKG_VERSION")))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map_err(|error| chain(&error))?
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keep_alive_interval(KEEPALIVE.0)
            .keep_alive_timeout(KEEPALIVE.1)
            .keep_alive_while_idle(true)
            .buffer_size(OUTGOING);
        let (transport, address) = (self.deps.transport.clone(), target.to_owned());
        let connector = tower::service_fn(move |_: Uri| {
            let opened = transport.open(address.clone());
            async move { opened.await.map(TokioIo::new) as io::Result<_> }
        });
        endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| chain(&error))
    }

    async fn open(&self, channel: Channel, bearer: MetadataValue<Ascii>, token: String) -> Goodbye {
        let (sender, outgoing) = mpsc::channel::<AttachRequest>(OUTGOING);
        let opened = self.deps.clock.now_mono();
        let (hello, follower) = self.hello(opened);
        if sender.send(hello).await.is_err() {
            return Goodbye::failed(false, "the stream closed before it opened");
        }
        let mut request = Request::new(ReceiverStream::new(outgoing));
        request.metadata_mut().insert("authorization", bearer);
        let mut client = DispatchServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
        let inbound = match tokio::time::timeout(DIAL_TIMEOUT, client.attach(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Goodbye::from_status(false, &status),
            Err(_) => return Goodbye::failed(false, format_args!("no answer within {DIAL_TIMEOUT:?}")),
        };
        self.serve(inbound, sender, opened, follower, token).await
    }
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, tonic::metadata::errors::InvalidMetadataValue> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.trim()).parse()?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_follower_names_the_leader() {
        let metadata = [("leader_address".to_owned(), "10.0.0.7:9877".to_owned())];
        let details = ErrorDetails::with_error_info(NOT_LEADER, "kruise.io", metadata);
        let status = Status::with_error_details(Code::Unavailable, "not the leader", details);
        let leader = Some("10.0.0.7:9877".to_owned());
        assert_eq!(
            Goodbye::from_status(false, &status),
            Goodbye::Elsewhere { leader }
        );
        let none: [(String, String); 0] = [];
        let nobody = ErrorDetails::with_error_info(NOT_LEADER, "kruise.io", none);
        let status = Status::with_error_details(Code::Unavailable, "not the leader", nobody);
        assert_eq!(
            Goodbye::from_status(true, &status),
            Goodbye::Elsewhere { leader: None }
        );
        let other = Goodbye::from_status(false, &Status::unauthenticated("who are you"));
        assert_eq!(other, Goodbye::failed(false, "Unauthenticated: who are you"));
    }

    #[test]
    fn a_token_is_sent_without_its_newline() {
        let value = bearer("abc\n").expect("a token");
        assert_eq!(value.to_str().expect("text"), "Bearer abc");
        assert!(value.is_sensitive());
        assert!(bearer("a\nb").is_err());
    }
}
