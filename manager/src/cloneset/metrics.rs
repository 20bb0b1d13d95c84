//! What the controller tells of itself.

use kruise_planner::inplace::{Gap, Source};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::series::Series;
use crate::telemetry::Traces;

/// From an image that is there and a process that starts at once, to one that has to be pulled.
const BUCKETS: [f64; 11] = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 120.0, 600.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Known {
    source: &'static str,
}

/// From a tenth of a second, when the image is there, to an hour.
const WAIT_BUCKETS: [f64; 9] = [0.1, 0.5, 2.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// What the controller tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct CloneSetMetrics {
    plans: Counter,
    failures: Counter,
    sets: Gauge,
    images: Gauge,
    pub(super) waits: Histogram,
    pub(super) series: Series,
    /// Where spans go.
    pub(super) traces: Traces,
    downtimes: Family<Known, Histogram, fn() -> Histogram>,
}

impl Default for CloneSetMetrics {
    fn default() -> Self {
        Self {
            plans: Counter::default(),
            failures: Counter::default(),
            sets: Gauge::default(),
            images: Gauge::default(),
            waits: Histogram::new(WAIT_BUCKETS),
            series: Series::default(),
            traces: Traces::default(),
            downtimes: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
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
        registry.register(
            "kruise_predownload_wait_seconds",
            "How long a node was waited for until it had the image that pods there are to be changed to",
            self.waits.clone(),
        );
        registry.register_with_unit(
            "kruise_cloneset_in_place_downtime",
            "From the end of a container to the start of the next in a change in place; source status knows whole seconds only",
            Unit::Seconds,
            self.downtimes.clone(),
        );
    }

    pub(super) fn waits_for_images(&self, images: usize) {
        self.images.set(i64::try_from(images).unwrap_or(i64::MAX));
    }

    pub(super) fn down(&self, gaps: &[Gap]) {
        for gap in gaps {
            let source = match gap.source {
                Source::Runtime => "runtime",
                Source::Status => "status",
            };
            let histogram = self.downtimes.get_or_create(&Known { source });
            histogram.observe(gap.span.as_secs_f64());
        }
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
