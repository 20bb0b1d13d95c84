//! What happens to every request on its way out: the fence, the time limit, the counters, and a look at the server's clock.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use kube::client::Body;
use tower::{BoxError, Service};

use super::{READ_TIMEOUT, ServerClock};
use crate::leader::Leadership;
use crate::telemetry::{ApiMetrics, RequestLabels};

/// Which of the clients a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    Write,
    Plain,
}

impl Lane {
    /// Time until an answer begins, where others than reads get `limit`.
    pub(super) fn limit(self, limit: Duration) -> Duration {
        match self {
            Self::Read => READ_TIMEOUT,
            Self::Write | Self::Plain => limit,
        }
    }
}

/// What all lanes share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) leadership: Leadership,
    pub(super) time: ServerClock,
    pub(super) metrics: ApiMetrics,
    /// Time for one request that is not a read.
    pub(super) limit: Duration,
}

/// The request was not answered in time.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {limit:?}")]
struct TimedOut {
    limit: Duration,
}

/// Puts [`Instrumented`] around a service.
pub(super) struct Layer {
    pub(super) lane: Lane,
    pub(super) shared: Shared,
}

impl<S> tower::Layer<S> for Layer {
    type Service = Instrumented<S>;

    fn layer(&self, inner: S) -> Instrumented<S> {
        Instrumented {
            inner,
            lane: self.lane,
            shared: self.shared.clone(),
        }
    }
}

/// A client over any service.
#[cfg(test)]
pub(super) fn wrap<S, B>(service: S, namespace: &str, lane: Lane, shared: Shared) -> kube::Client
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    kube::Client::new(
        Instrumented {
            inner: service,
            lane,
            shared,
        },
        namespace,
    )
}

/// A service with the fence, the limit and the counters around it.
pub(super) struct Instrumented<S> {
    inner: S,
    lane: Lane,
    shared: Shared,
}

impl<S, B> Service<Request<Body>> for Instrumented<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Here and not only where the client was handed out: the lease may have run out since then.
        if self.lane == Lane::Write
            && let Err(refusal) = self.shared.leadership.check()
        {
            return Box::pin(futures::future::ready(Err(refusal.into())));
        }
        let verb = verb(&request);
        let resource = resource(request.uri().path()).to_owned();
        let Shared {
            time, metrics, limit, ..
        } = self.shared.clone();
        let limit = self.lane.limit(limit);
        let sent = time.stamp();
        #[cfg(feature = "failpoints")]
        let number = if self.lane == Lane::Write {
            super::failpoint::before(&resource)
        } else {
            None
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = match tokio::time::timeout(limit, answer).await {
                Ok(result) => result,
                Err(_) => Err(TimedOut { limit }.into()),
            };
            #[cfg(feature = "failpoints")]
            super::failpoint::after(number);
            let code = match &result {
                Ok(response) => {
                    time.learn(response.headers().get(http::header::DATE), sent);
                    response.status().as_u16().to_string()
                }
                Err(_) => "none".to_owned(),
            };
            metrics.count(&RequestLabels { verb, resource, code });
            result
        })
    }
}

fn verb<B>(request: &Request<B>) -> &'static str {
    let watches = || {
        request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|part| part == "watch=true"))
    };
    match *request.method() {
        Method::GET if watches() => "watch",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    }
}

/// The kind of object that a path is about: `secrets` of `/api/v1/namespaces/ns/secrets/name`. Names never get into a label.
fn resource(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let rest: Vec<&str> = match parts.next() {
        Some("api") => parts.skip(1).collect(),
        Some("apis") => parts.skip(2).collect(),
        _ => return "other",
    };
    match rest.as_slice() {
        ["namespaces", _, resource, ..] | [resource, ..] => resource,
        [] => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_resource() {
        for (path, expected) in [
            ("/api/v1/namespaces/ns/secrets/name", "secrets"),
            ("/api/v1/namespaces", "namespaces"),
            ("/api/v1/namespaces/ns", "namespaces"),
            ("/api/v1/nodes/n1", "nodes"),
            ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/x", "leases"),
            ("/apis/authentication.k8s.io/v1/tokenreviews", "tokenreviews"),
            (
                "/apis/apps.kruise.io/v1beta1/namespaces/a/imagepulljobs/b/status",
                "imagepulljobs",
            ),
            ("/version", "other"),
            ("/", "other"),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn a_watch_is_no_get() {
        let request = |uri: &str| Request::get(uri).body(()).expect("a valid request");
        assert_eq!(verb(&request("/api/v1/nodes?limit=1&watch=true")), "watch");
        assert_eq!(verb(&request("/api/v1/nodes?limit=1")), "get");
    }
}
