//! How long restarts take. No label holds a name that users choose.

use kruise_planner::restart::ContainerReport;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From an order on its way to a container that takes minutes to be ready.
const BUCKETS: [f64; 11] = [0.01, 0.05, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Step {
    step: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// Families of the controller. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct RestartMetrics {
    durations: Family<Step, Histogram, fn() -> Histogram>,
    containers: Family<Result, Counter>,
    writes: Counter,
}

impl Default for RestartMetrics {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            containers: Family::default(),
            writes: Counter::default(),
        }
    }
}

impl RestartMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "kruise_container_restart_duration",
            "Steps of restarts in place: stop (hook included), down (no instance runs), not_ready",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "kruise_container_restarts",
            "Containers of finished requests by how they ended",
            self.containers.clone(),
        );
        registry.register(
            "kruise_container_restart_writes",
            "Writes on ContainerRecreateRequests and their pods",
            self.writes.clone(),
        );
    }

    pub(super) fn reported(&self, reports: &[ContainerReport]) {
        for report in reports {
            for (step, seconds) in [
                ("stop", report.stop_seconds),
                ("down", report.down_seconds),
                ("not_ready", report.not_ready_seconds),
            ] {
                if let Some(seconds) = seconds {
                    self.durations.get_or_create(&Step { step }).observe(seconds);
                }
            }
        }
    }

    pub(super) fn ended(&self, succeeded: bool) {
        let result = if succeeded { "succeeded" } else { "failed" };
        self.containers.get_or_create(&Result { result }).inc();
    }

    pub(super) fn wrote(&self) {
        self.writes.inc();
    }
}
