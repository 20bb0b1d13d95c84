//! What each request passes: tokens for the services that do not ask themselves, and a record of refusals.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response};
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, Service};

use super::PeerInfo;
use super::failures::Failures;
use crate::clock::Monotonic;
use crate::identity::{AuthError, Bucket, DOMAIN, Identity, bearer_of, claimed_node};
use crate::telemetry::ServeMetrics;

/// Services that verify tokens themselves.
const OWN: [&str; 2] = [
    kruise_proto::dispatch::dispatch_service_server::SERVICE_NAME,
    kruise_proto::inspect::inspect_service_server::SERVICE_NAME,
];

/// Reason of callers that are refused unheard.
const TOO_MANY_FAILURES: &str = "TOO_MANY_FAILURES";
/// Reason of connections that make more calls than anybody needs.
const TOO_MANY_CALLS: &str = "TOO_MANY_CALLS";

/// Lines a second about refusals; a scan of the port must not fill the log. Metrics count them all.
const LINES_PER_SECOND: u32 = 10;

/// Puts [`Guarded`] around the routes.
#[derive(Clone, Debug)]
pub(super) struct AuthLayer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    identity: Identity,
    metrics: ServeMetrics,
    clock: Monotonic,
    lines: Mutex<Bucket>,
    failures: Mutex<Failures>,
}

impl AuthLayer {
    pub(super) fn new(identity: Identity, metrics: ServeMetrics) -> Self {
        let lines = Mutex::new(Bucket::new(LINES_PER_SECOND));
        let failures = Mutex::default();
        Self {
            shared: Arc::new(Shared {
                identity,
                metrics,
                clock: Monotonic::boot(),
                lines,
                failures,
            }),
        }
    }
}

impl<S> Layer<S> for AuthLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            shared: Arc::clone(&self.shared),
        }
    }
}

/// Routes behind the guard.
#[derive(Clone, Debug)]
pub(super) struct Guarded<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that was asked whether it is ready must be the one that is called.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let peer = request.extensions().get::<PeerInfo>().cloned();
            if let Some(peer) = &peer {
                // Where tonic's own `remote_addr` looks.
                let info = TcpConnectInfo {
                    local_addr: None,
                    remote_addr: Some(peer.address()),
                };
                request.extensions_mut().insert(info);
            }
            let path = request.uri().path().to_owned();
            let headers = request.headers().get_all(http::header::AUTHORIZATION);
            let headers: Vec<HeaderValue> = headers.iter().cloned().collect();
            let response = match shared.admit(&path, peer.as_ref(), &headers).await {
                Ok(()) => inner.call(request).await?,
                Err(refusal) => refusal.into_http(),
            };
            shared.note(&path, peer.as_ref(), &headers, &response);
            Ok(response)
        })
    }
}

impl Shared {
    /// Whether a request gets to its service.
    async fn admit(
        &self,
        path: &str,
        peer: Option<&PeerInfo>,
        headers: &[HeaderValue],
    ) -> Result<(), Status> {
        if let Some(peer) = peer
            && !peer.may_call(self.clock.now())
        {
            peer.expel();
            self.metrics.refused(TOO_MANY_CALLS);
            let details = ErrorDetails::with_error_info(TOO_MANY_CALLS, DOMAIN, []);
            let words = "too many calls on this connection; one call can be a stream";
            return Err(Status::with_error_details(
                Code::ResourceExhausted,
                words,
                details,
            ));
        }
        if peer.is_some_and(|peer| self.failures().is_deaf_to(peer.address().ip(), self.clock.now())) {
            let details = ErrorDetails::with_error_info(TOO_MANY_FAILURES, DOMAIN, []);
            let words = "too many refused tokens from this address; wait a few seconds";
            return Err(Status::with_error_details(Code::Unauthenticated, words, details));
        }
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if OWN.contains(&service) {
            return Ok(());
        }
        let token = token_of(headers)?;
        Ok(self.verify(token).await?)
    }

    /// An agent, or a person who may look at agents.
    async fn verify(&self, token: &str) -> Result<(), AuthError> {
        let Err(as_agent) = self.identity.agent(token).await else {
            return Ok(());
        };
        if !matches!(
            as_agent,
            AuthError::WrongAudience { .. } | AuthError::TokenInvalid { .. }
        ) {
            return Err(as_agent);
        }
        match self.identity.person(token).await {
            Ok(person) => self.identity.allowed(&person, "agents", "get").await,
            // What is wrong with it for those whom it was meant for says more.
            Err(AuthError::WrongAudience { .. }) => Err(as_agent),
            Err(as_person) => Err(as_person),
        }
    }

    /// Judges a connection by the answer, and writes refusals down.
    fn note(&self, path: &str, peer: Option<&PeerInfo>, headers: &[HeaderValue], response: &Response<Body>) {
        let refusal = Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok);
        let Some(status) = refusal else {
            if let Some(peer) = peer {
                peer.known();
            }
            return;
        };
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                if let Some(peer) = peer
                    && status.code() == Code::Unauthenticated
                {
                    peer.refused();
                    self.failures().note(peer.address().ip(), self.clock.now());
                }
                self.log(path, peer, headers, &status);
            }
            // The token may not even have been looked at.
            Code::Unavailable | Code::ResourceExhausted => {}
            _ => {
                if let Some(peer) = peer {
                    peer.known();
                }
            }
        }
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, path: &str, peer: Option<&PeerInfo>, headers: &[HeaderValue], status: &Status) {
        let details = status.get_error_details();
        let reason = details.error_info().map_or("", |info| info.reason.as_str());
        self.metrics.refused(known_reason(reason));
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.take(self.clock.now()).is_ok() {
            let peer = peer.map(|peer| peer.address().to_string()).unwrap_or_default();
            let claimed_node = token_of(headers).ok().and_then(claimed_node).unwrap_or_default();
            tracing::warn!(
                peer,
                path,
                reason,
                claimed_node,
                detail = status.message(),
                "caller refused"
            );
        }
    }
}

fn token_of(headers: &[HeaderValue]) -> Result<&str, AuthError> {
    bearer_of(headers.iter().map(|value| value.to_str().ok()))
}

/// A label of metrics must be one of few.
pub(super) fn known_reason(reason: &str) -> &'static str {
    const REASONS: [&str; 9] = [
        TOO_MANY_FAILURES,
        "TOKEN_MISSING",
        "TOKEN_INVALID",
        "TOKEN_EXPIRED",
        "WRONG_AUDIENCE",
        "NOT_AN_AGENT",
        "NODE_MISMATCH",
        "NODE_GONE",
        "FORBIDDEN",
    ];
    REASONS
        .into_iter()
        .find(|known| *known == reason)
        .unwrap_or("OTHER")
}
