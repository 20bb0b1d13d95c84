//! Plain HTTP: health for the kubelet, metrics for Prometheus.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::RawQuery;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Metrics;

/// One thing that must hold for this replica to be ready.
#[derive(Clone)]
pub struct Check {
    name: &'static str,
    holds: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

impl Check {
    /// A named condition that is cheap to ask.
    pub fn new(name: &'static str, holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            name,
            holds: Arc::new(holds),
        }
    }
}

/// What the kubelet asks.
#[derive(Clone, Debug)]
pub struct Health {
    checks: Arc<[Check]>,
    stopping: Arc<AtomicBool>,
}

impl Health {
    /// Ready when all of these hold.
    #[must_use]
    pub fn new(checks: Vec<Check>) -> Self {
        Self {
            checks: checks.into(),
            stopping: Arc::default(),
        }
    }

    /// From now on this replica is not ready: it is about to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Paths `/healthz`, `/livez` (the process runs) and `/readyz`, each with `?verbose`.
    pub fn routes(&self) -> Router {
        let live = || async { "ok" };
        let health = self.clone();
        let ready = move |RawQuery(query): RawQuery| {
            let answer = health
                .answer(query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose"))));
            async move { answer }
        };
        Router::new()
            .route("/healthz", get(live))
            .route("/livez", get(live))
            .route("/readyz", get(ready))
    }

    fn answer(&self, verbose: bool) -> (StatusCode, String) {
        let stopping = Check::new("shutdown", {
            let stopping = Arc::clone(&self.stopping);
            move || !stopping.load(Ordering::Relaxed)
        });
        let mut text = String::new();
        let mut ready = true;
        for check in self.checks.iter().chain([&stopping]) {
            let holds = (check.holds)();
            ready &= holds;
            if verbose || !holds {
                let sign = if holds { "[+]" } else { "[-]" };
                let words = if holds { "ok" } else { "failed" };
                writeln!(text, "{sign}{} {words}", check.name).expect("a String takes any text");
            }
        }
        text.push_str(if ready { "ok" } else { "not ready" });
        (
            if ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            },
            text,
        )
    }
}

impl Metrics {
    /// Path `/metrics`.
    pub fn routes(&self) -> Router {
        let metrics = self.clone();
        let scrape = move || {
            let text = metrics.encode();
            async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response() }
        };
        Router::new().route("/metrics", get(scrape))
    }
}

/// Serves plain HTTP until `stop`.
///
/// # Errors
/// When the listener breaks.
pub async fn serve_http(
    listener: TcpListener,
    routes: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_what_fails_and_everything_when_asked() {
        let certificate = Arc::new(AtomicBool::new(false));
        let health = Health::new(vec![Check::new("certificate", {
            let certificate = Arc::clone(&certificate);
            move || certificate.load(Ordering::Relaxed)
        })]);
        assert_eq!(
            health.answer(false),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "[-]certificate failed\nnot ready".to_owned()
            )
        );
        certificate.store(true, Ordering::Relaxed);
        assert_eq!(health.answer(false), (StatusCode::OK, "ok".to_owned()));
        assert_eq!(health.answer(true).1, "[+]certificate ok\n[+]shutdown ok\nok");
        health.stop();
        assert_eq!(health.answer(false).0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
