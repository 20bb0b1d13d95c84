//! Counters under the names of controller-runtime, which dashboards know.

use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::convert;
use super::judges::Hook;

/// From 1 ms to 4 s, where a request is given up.
const BUCKETS: [f64; 7] = [0.001, 0.004, 0.016, 0.064, 0.256, 1.0, 4.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Webhook {
    webhook: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    webhook: &'static str,
    code: u16,
}

/// Families of the webhooks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    requests: Family<Outcome, Counter>,
    latency: Family<Webhook, Histogram>,
    in_flight: Family<Webhook, Gauge>,
    denied: Family<Webhook, Counter>,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let metrics = Self {
            requests: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
            denied: Family::default(),
        };
        // So that a rate is known from the first request on.
        for webhook in Hook::ALL.map(Hook::path).into_iter().chain([convert::PATH]) {
            drop(metrics.requests.get_or_create(&Outcome { webhook, code: 200 }));
            drop(metrics.denied.get_or_create(&Webhook { webhook }));
        }
        metrics
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl WebhookMetrics {
    /// Puts the families into the registry of the process.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_webhook_requests",
            "Requests to webhooks, by HTTP status",
            self.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Time to answer a webhook",
            self.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Requests to webhooks under way",
            self.in_flight.clone(),
        );
        registry.register(
            "kruise_webhook_denials",
            "Requests that admission denied",
            self.denied.clone(),
        );
    }

    pub(super) fn begin(&self, webhook: &'static str) -> Running {
        let gauge = self.in_flight.get_or_create(&Webhook { webhook }).clone();
        gauge.inc();
        Running(gauge)
    }

    pub(super) fn end(&self, webhook: &'static str, status: StatusCode, after: Duration) {
        let code = status.as_u16();
        self.requests.get_or_create(&Outcome { webhook, code }).inc();
        self.latency
            .get_or_create(&Webhook { webhook })
            .observe(after.as_secs_f64());
    }

    pub(super) fn denied(&self, webhook: &'static str) {
        self.denied.get_or_create(&Webhook { webhook }).inc();
    }
}
