//! Webhooks that the API server calls: admission of our kinds, conversion between their versions, and the readiness gate of pods.
//!
//! Every replica serves them, whether it leads or not, with the certificate of [`crate::trust`]. The decisions are pure functions of
//! [`kruise_api`]; here are the way to them and back, and the two reads that one of them needs.
//!
//! # What a caller can do
//! The API server shows no certificate, so anybody who reaches the port can ask. Answers tell what a caller could find out with the
//! right to read pods at most; nothing is written. Connections, bodies and times are bounded.
//!
//! # What cannot be read
//! A body that is no review gets 400 and a text that says why. An object that does not fit its type is denied with the path of the field.
//! A look-up that fails is answered by an error, and the webhook's failure policy decides.

mod convert;
mod judges;
mod lookup;
mod metrics;
mod pod;
mod review;
mod serve;
mod sets;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kruise_api::features::FeatureGates;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::kubeapi::ServerClock;
use crate::telemetry::Traces;
use crate::trust::Serving;

use judges::Hook;
pub use lookup::{KubeLookup, Lookup};
pub use metrics::WebhookMetrics;

/// Largest body. A review holds an object twice, which the API server limits to a bit more than 3 MiB each.
const MAX_BODY: usize = 8 << 20;
/// For one request, reads included. Shorter than the time-out of any webhook in the chart but that of pods, which needs no reads.
const MAX_TIME: Duration = Duration::from_secs(4);

/// What the webhooks need.
pub struct Deps {
    /// Certificate to serve with.
    pub serving: Serving,
    /// Reads.
    pub lookup: Arc<dyn Lookup>,
    /// Feature gate that keeps image jobs from running, if one does.
    pub switched_off: Option<&'static str>,
    /// Feature gates.
    pub gates: FeatureGates,
    /// Time for what is filled in.
    pub time: ServerClock,
    /// Counters.
    pub metrics: WebhookMetrics,
    /// Where spans go.
    pub traces: Traces,
}

impl std::fmt::Debug for Deps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deps")
    }
}

/// Serves until `stop`.
pub async fn serve(listener: TcpListener, deps: Deps, stop: CancellationToken) {
    let tls = deps.serving.server_config(&["http/1.1"]);
    serve::serve(listener, tls, routes(Arc::new(deps)), stop).await;
}

/// All paths.
fn routes(deps: Arc<Deps>) -> Router {
    let mut router = Router::new();
    for hook in Hook::ALL {
        let deps = Arc::clone(&deps);
        let answer = move |body: Body| {
            let deps = Arc::clone(&deps);
            async move {
                let respond = admit(&deps, hook, body);
                timed(&deps.metrics, hook.path(), respond).await
            }
        };
        router = router.route(hook.path(), post(answer));
    }
    let answer = move |body: Body| {
        let deps = Arc::clone(&deps);
        async move { timed(&deps.metrics, convert::PATH, conversion(body)).await }
    };
    router.route(convert::PATH, post(answer))
}

async fn timed(
    metrics: &WebhookMetrics,
    path: &'static str,
    respond: impl Future<Output = Response>,
) -> Response {
    let began = tokio::time::Instant::now();
    let _running = metrics.begin(path);
    let response = tokio::time::timeout(MAX_TIME, respond).await.unwrap_or_else(|_| {
        tracing::warn!(path, "a webhook took too long");
        (StatusCode::GATEWAY_TIMEOUT, "took too long").into_response()
    });
    metrics.end(path, response.status(), began.elapsed());
    response
}

async fn admit(deps: &Deps, hook: Hook, body: Body) -> Response {
    let body = match read(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let review = match review::Review::parse(&body) {
        Ok(review) => review,
        Err(words) => return refused(hook.path(), words),
    };
    let judged = judges::judge(hook, deps, &review.request).await;
    if let Err(denied) = &judged {
        deps.metrics.denied(hook.path());
        tracing::info!(
            webhook = hook.path(),
            namespace = review.request.namespace,
            operation = review.request.operation,
            code = denied.code,
            reason = denied.message,
            "denied"
        );
    }
    json(&review.answer(judged))
}

async fn conversion(body: Body) -> Response {
    let body = match read(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match convert::answer(&body) {
        Ok(answer) => json(&answer),
        Err(words) => refused(convert::PATH, words),
    }
}

async fn read(body: Body) -> Result<axum::body::Bytes, Response> {
    to_bytes(body, MAX_BODY).await.map_err(|error| {
        let words = format!("the body could not be read, or is longer than {MAX_BODY} bytes: {error}\n");
        (StatusCode::PAYLOAD_TOO_LARGE, words).into_response()
    })
}

fn refused(path: &str, words: String) -> Response {
    tracing::info!(webhook = path, reason = words, "not a review");
    (StatusCode::BAD_REQUEST, words + "\n").into_response()
}

fn json(value: &Value) -> Response {
    let kind = [(axum::http::header::CONTENT_TYPE, "application/json")];
    (kind, value.to_string()).into_response()
}

#[cfg(test)]
mod tests;
