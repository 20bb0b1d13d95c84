//! Health and metrics over plain HTTP, for the kubelet and for scrapers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::puller::Puller;
use crate::runtime::Link;
use crate::session::View;

/// An engine that does not answer for so long does not live. Its own waits are far shorter.
const PING_TIMEOUT: Duration = Duration::from_secs(8);

/// What the pages look at.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Clocks.
    pub clock: Clock,
    /// Whether it lives.
    pub puller: Puller,
    /// Whether it can do anything.
    pub link: watch::Receiver<Link>,
    /// Contact with the manager.
    pub view: watch::Receiver<View>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Reading of the forward clock at the start.
    pub started: Duration,
}

/// All pages.
pub fn router(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(live))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(sources))
}

/// Listens on a Go-style address: `:10221` means every address of the machine.
///
/// # Errors
/// It is taken, or no address.
pub async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        Ok(listener) => Ok(listener),
        // A machine without IPv6.
        Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
    }
}

async fn live(State(sources): State<Arc<Sources>>) -> (StatusCode, &'static str) {
    match tokio::time::timeout(PING_TIMEOUT, sources.puller.ping()).await {
        Ok(true) => (StatusCode::OK, "ok\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n"),
    }
}

/// Ready means that the runtime is reachable. Attached or not is a metric: else an installation would wait for itself.
async fn ready(State(sources): State<Arc<Sources>>) -> (StatusCode, String) {
    match &*sources.link.borrow() {
        Link::Up { .. } => (StatusCode::OK, "ok\n".to_owned()),
        Link::Down { tried } => {
            let mut page = "no container runtime answers; tried:\n".to_owned();
            for tried in tried {
                page.push_str(&format!("{}: {}\n", tried.socket, tried.error));
            }
            (StatusCode::SERVICE_UNAVAILABLE, page)
        }
    }
}

async fn metrics(State(sources): State<Arc<Sources>>) -> impl IntoResponse {
    let last = sources.view.borrow().last_contact.unwrap_or(sources.started);
    let ago = sources.clock.now_mono().saturating_sub(last);
    sources.metrics.last_contact.set(ago.as_secs_f64());
    match sources.metrics.encode() {
        Ok(page) => {
            let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, form)], page).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{self, Body};
    use axum::http::Request;
    use kruise_planner::node::stall::Rules;
    use tower::ServiceExt as _;

    use super::*;
    use crate::journal::{Journal, State as Remembered};
    use crate::puller::{Deps, Settings};
    use crate::runtime::Tried;
    use crate::runtime::fake::Fake;

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let answer = router.clone().oneshot(request).await.expect("an answer");
        let (parts, content) = answer.into_parts();
        let page = body::to_bytes(content, 1 << 20).await.expect("a page");
        (parts.status, String::from_utf8(page.to_vec()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn pages_tell_the_truth() {
        let clock = Clock::tokio();
        let tried = vec![Tried {
            socket: "/run/x.sock".into(),
            error: "not there".into(),
        }];
        let link = watch::Sender::new(Link::Down { tried });
        let metrics = Arc::new(Metrics::default());
        let rules = Rules {
            min_rate: 1,
            timeout: Duration::from_secs(1),
        };
        let deps = Deps {
            clock: clock.clone(),
            link: link.subscribe(),
            journal: Journal::none(),
            state: Remembered::default(),
            metrics: Arc::clone(&metrics),
        };
        let puller = Puller::spawn(
            Settings {
                slots: None,
                rules,
                ..Settings::default()
            },
            deps,
        );
        let router = router(Sources {
            clock: clock.clone(),
            puller: puller.clone(),
            link: link.subscribe(),
            view: watch::Sender::new(View::default()).subscribe(),
            metrics,
            started: clock.now_mono(),
        });
        assert_eq!(
            get(&router, "/healthz").await,
            (StatusCode::OK, "ok\n".to_owned())
        );
        let (status, page) = get(&router, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(page.contains("/run/x.sock: not there"), "{page}");
        link.send_replace(Fake::new(clock).link());
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK, "attached or not");
        tokio::time::sleep(Duration::from_secs(7)).await;
        let (_, page) = get(&router, "/metrics").await;
        assert!(page.contains("kruise_agent_last_contact_seconds 7.0"), "{page}");
        puller.stop().await;
        assert_eq!(get(&router, "/livez").await.0, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(get(&router, "/elsewhere").await.0, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn go_style_addresses() {
        for address in [":0", "127.0.0.1:0"] {
            assert!(listen(address).await.is_ok(), "{address}");
        }
        assert!(listen("nowhere").await.is_err());
    }
}
