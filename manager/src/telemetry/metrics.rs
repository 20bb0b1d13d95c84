//! What Prometheus scrapes. Labels never hold names of images, pods or people.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::traces::Traces;

/// The registry of this process, with the shell's own families in it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// Requests to the API server.
    pub api: ApiMetrics,
    /// Leadership.
    pub leader: LeaderMetrics,
    /// Listeners and callers.
    pub serve: ServeMetrics,
    /// Where spans go; nowhere unless it is said.
    pub traces: Traces,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::default(),
            api: ApiMetrics::default(),
            leader: LeaderMetrics::default(),
            serve: ServeMetrics::default(),
            traces: Traces::default(),
        };
        metrics.register(|registry| {
            let build = Family::<BuildLabels, Gauge>::default();
            build
                .get_or_create(&BuildLabels {
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                })
                .set(1);
            registry.register("kruise_build_info", "Version of the manager", build);
            metrics.api.register(registry);
            metrics.leader.register(registry);
            metrics.serve.register(registry);
        });
        metrics
    }
}

impl Metrics {
    /// The same, with spans that go somewhere.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Lets a part of the program add its families.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Everything in Prometheus' text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_client::encoding::prometheus_text::encode(&mut text, &registry)
            .expect("a String takes any text");
        text
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: String,
}

/// One kind of request.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct RequestLabels {
    /// As in RBAC.
    pub verb: &'static str,
    /// Plural name of the kind.
    pub resource: String,
    /// HTTP status, or `none` without an answer.
    pub code: String,
}

/// Requests to the API server.
#[derive(Clone, Debug, Default)]
pub struct ApiMetrics {
    requests: Family<RequestLabels, Counter>,
}

impl ApiMetrics {
    /// Counts one request.
    pub fn count(&self, labels: &RequestLabels) {
        self.requests.get_or_create(labels).inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "kruise_api_requests",
            "Requests to the API server",
            self.requests.clone(),
        );
    }
}

/// Leadership.
#[derive(Clone, Debug, Default)]
pub struct LeaderMetrics {
    is_leader: Gauge,
    epoch: Gauge,
}

impl LeaderMetrics {
    /// This replica leads.
    pub fn leads(&self, epoch: u64) {
        self.is_leader.set(1);
        self.epoch.set(i64::try_from(epoch).unwrap_or(i64::MAX));
    }

    /// This replica does not.
    pub fn follows(&self) {
        self.is_leader.set(0);
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "kruise_manager_is_leader",
            "1 on the replica that leads",
            self.is_leader.clone(),
        );
        registry.register(
            "kruise_leader_epoch",
            "Epoch of this replica's leadership, 0 before",
            self.epoch.clone(),
        );
    }
}

/// Why something was refused or failed.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Listeners, callers and certificates.
#[derive(Clone, Debug, Default)]
pub struct ServeMetrics {
    /// Open gRPC connections.
    pub connections: Gauge,
    closed_early: Family<ReasonLabels, Counter>,
    refusals: Family<ReasonLabels, Counter>,
    /// When the serving certificate ends, unix seconds.
    pub certificate_end: Gauge,
}

impl ServeMetrics {
    /// A connection ended before it was of use: `handshake_timeout`, `handshake_failed`, `overload`, `unauthenticated`, `expelled`.
    pub fn closed_early(&self, reason: &'static str) {
        self.closed_early.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// A caller was refused, by reason of `google.rpc.ErrorInfo`.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabels { reason }).inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "kruise_grpc_connections",
            "Open gRPC connections",
            self.connections.clone(),
        );
        registry.register(
            "kruise_grpc_connections_closed_early",
            "Connections that ended before authentication, by reason",
            self.closed_early.clone(),
        );
        registry.register(
            "kruise_auth_refusals",
            "Callers that were refused, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "kruise_serving_certificate_end_timestamp_seconds",
            "When the serving certificate ends",
            self.certificate_end.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_our_families_and_those_of_others() {
        let metrics = Metrics::default();
        metrics.leader.leads(42);
        metrics.api.count(&RequestLabels {
            verb: "update",
            resource: "leases".into(),
            code: "200".into(),
        });
        let extra = Counter::<u64>::default();
        metrics.register(|registry| registry.register("kruise_extra", "Of another part", extra.clone()));
        extra.inc();
        let text = metrics.encode();
        for line in [
            "kruise_manager_is_leader 1",
            "kruise_leader_epoch 42",
            "kruise_api_requests_total{verb=\"update\",resource=\"leases\",code=\"200\"} 1",
            "kruise_extra_total 1",
            &format!("kruise_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        ] {
            assert!(text.contains(line), "{line} in:\n{text}");
        }
    }
}
