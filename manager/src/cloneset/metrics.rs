//! What the controller tells of itself.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::series::Series;
use crate::telemetry::Traces;

/// What the controller tells of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloneSetMetrics {
    plans: Counter,
    failures: Counter,
    sets: Gauge,
    images: Gauge,
    pub(super) series: Series,
    /// Where spans go.
    pub(super) traces: Traces,
}

impl CloneSetMetrics {
    pub(crate) fn new(traces: Traces) -> Self {
        Self {
            traces,
            ..Self::default()
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        self.series.register(registry);
        registry.register(
            "kruise_cloneset_plans",
            "Plans made for CloneSets",
            self.plans.clone(),
        );
        registry.register(
            "kruise_cloneset_write_failures",
            "Writes for CloneSets that failed, conflicts included",
            self.failures.clone(),
        );
        registry.register(
            "kruise_clonesets",
            "CloneSets that are followed",
            self.sets.clone(),
        );
        registry.register(
            "kruise_cloneset_images_awaited",
            "Images on nodes that pods wait for before they are changed in place",
            self.images.clone(),
        );
    }

    pub(super) fn waits_for_images(&self, images: usize) {
        self.images.set(i64::try_from(images).unwrap_or(i64::MAX));
    }

    pub(super) fn planned(&self) {
        self.plans.inc();
    }

    pub(super) fn failed(&self, writes: usize) {
        self.failures.inc_by(u64::try_from(writes).unwrap_or(u64::MAX));
    }

    pub(super) fn follows(&self, sets: usize) {
        self.sets.set(i64::try_from(sets).unwrap_or(i64::MAX));
    }
}
