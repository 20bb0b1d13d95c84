//! What the agent counts.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use kruise_planner::task::Reason;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    result: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabel {
    size: &'static str,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The image was fetched.
    Succeeded,
    /// It was there.
    Present,
    /// It will not be there.
    Failed(Reason),
    /// Nobody wants it any more.
    Cancelled,
}

/// Counters and gauges of one agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pulls: Family<OutcomeLabels, Counter>,
    pull_seconds: Family<SizeLabel, Histogram, fn() -> Histogram>,
    pub(crate) pull_bytes: Counter<u64, AtomicU64>,
    failures: Family<ReasonLabel, Counter>,
    pub(crate) in_flight: Gauge<i64, AtomicI64>,
    pub(crate) queue_depth: Gauge<i64, AtomicI64>,
    pub(crate) connected: Gauge<i64, AtomicI64>,
    pub(crate) last_contact: Gauge<f64, AtomicU64>,
}

/// From a small layer in the next rack to an image of tens of gigabytes.
const PULL_BUCKETS: [f64; 12] = [
    0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0,
];

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            pulls: Family::default(),
            pull_seconds: Family::new_with_constructor(|| Histogram::new(PULL_BUCKETS)),
            pull_bytes: Counter::default(),
            failures: Family::default(),
            in_flight: Gauge::default(),
            queue_depth: Gauge::default(),
            connected: Gauge::default(),
            last_contact: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let build = prometheus_client::metrics::info::Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let registry = &mut self.registry;
        registry.register("kruise_build", "The running program", build);
        registry.register(
            "kruise_image_pulls",
            "Tasks that ended, by result and, where they failed, by reason",
            self.pulls.clone(),
        );
        registry.register_with_unit(
            "kruise_image_pull_duration",
            "Time in calls to the runtime of pulls that succeeded, all attempts together, by compressed size of the image",
            Unit::Seconds,
            self.pull_seconds.clone(),
        );
        registry.register(
            "kruise_image_pull_bytes",
            "Compressed bytes that pulls brought to the node",
            self.pull_bytes.clone(),
        );
        registry.register(
            "kruise_image_pull_failures",
            "Attempts that failed",
            self.failures.clone(),
        );
        registry.register(
            "kruise_image_pull_in_flight",
            "Pulls that run",
            self.in_flight.clone(),
        );
        registry.register(
            "kruise_image_pull_queue_depth",
            "Pulls that wait",
            self.queue_depth.clone(),
        );
        registry.register(
            "kruise_agent_connected",
            "1 while attached to a leader",
            self.connected.clone(),
        );
        registry.register_with_unit(
            "kruise_agent_last_contact",
            "Time since the last answered heartbeat, or since the start",
            Unit::Seconds,
            self.last_contact.clone(),
        );
    }

    /// Counts a failed attempt.
    pub(crate) fn failed(&self, reason: Reason) {
        self.failures
            .get_or_create(&ReasonLabel {
                reason: reason_label(reason),
            })
            .inc();
    }

    /// Counts a task that has ended.
    pub(crate) fn ended(&self, outcome: Outcome) {
        let (result, reason) = match outcome {
            Outcome::Succeeded => ("succeeded", ""),
            Outcome::Present => ("present", ""),
            Outcome::Failed(reason) => ("failed", reason_label(reason)),
            Outcome::Cancelled => ("cancelled", ""),
        };
        self.pulls.get_or_create(&OutcomeLabels { result, reason }).inc();
    }

    /// Notes how long a pull took, for an image of so many compressed bytes; 0 where that is not known.
    pub(crate) fn pulled(&self, time: Duration, bytes: u64) {
        let size = match bytes {
            0 => "unknown",
            1..10_000_000 => "under 10 MB",
            10_000_000..100_000_000 => "under 100 MB",
            100_000_000..1_000_000_000 => "under 1 GB",
            _ => "1 GB and more",
        };
        self.pull_seconds
            .get_or_create(&SizeLabel { size })
            .observe(time.as_secs_f64());
    }

    /// All of it in OpenMetrics form.
    ///
    /// # Errors
    /// A label that cannot be written, which none of ours is.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

/// Words that never change, because alerts use them.
fn reason_label(reason: Reason) -> &'static str {
    match reason {
        Reason::NotFound => "NotFound",
        Reason::Denied => "Denied",
        Reason::InvalidReference => "InvalidReference",
        Reason::Unreachable => "Unreachable",
        Reason::Throttled => "Throttled",
        Reason::RegistryError => "RegistryError",
        Reason::Corrupt => "Corrupt",
        Reason::NoSpace => "NoSpace",
        Reason::Timeout => "Timeout",
        Reason::Stalled => "Stalled",
        Reason::DeadlineExceeded => "DeadlineExceeded",
        Reason::RuntimeUnavailable => "RuntimeUnavailable",
        Reason::Unsupported => "Unsupported",
        Reason::NodeUnreachable => "NodeUnreachable",
        Reason::TooLarge => "TooLarge",
        Reason::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_metrics() {
        let metrics = Metrics::default();
        metrics.failed(Reason::NotFound);
        metrics.pulled(Duration::from_secs(2), 50_000_000);
        metrics.pulled(Duration::from_secs(2), 0);
        metrics.ended(Outcome::Succeeded);
        metrics.ended(Outcome::Failed(Reason::Denied));
        let page = metrics.encode().expect("encodes");
        for line in [
            "kruise_build_info{version=",
            "kruise_image_pulls_total{result=\"succeeded\",reason=\"\"} 1",
            "kruise_image_pulls_total{result=\"failed\",reason=\"Denied\"} 1",
            "kruise_image_pull_duration_seconds_count{size=\"under 100 MB\"} 1",
            "kruise_image_pull_duration_seconds_count{size=\"unknown\"} 1",
            "kruise_image_pull_bytes_total 0",
            "kruise_image_pull_failures_total{reason=\"NotFound\"} 1",
            "kruise_image_pull_in_flight 0",
            "kruise_image_pull_queue_depth 0",
            "kruise_agent_connected 0",
            "kruise_agent_last_contact_seconds 0",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }
}
