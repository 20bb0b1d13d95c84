//! Metrics of hand-out and results. No label holds a name that users choose.

use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::NodeName;
use kruise_planner::job::TaskOutcome;
use kruise_proto::convert::from_duration;
use kruise_proto::task::TaskStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::state::{JobPhases, Stage};
use super::trace;
use crate::telemetry::Traces;

/// From 1 ms to 16 s, by factors of 4: an order crosses a data centre in the first buckets, a lost one needs a resync.
const LATENCY_BUCKETS: [f64; 8] = [0.001, 0.004, 0.016, 0.064, 0.256, 1.0, 4.0, 16.0];

/// From half a second to half an hour.
const PULL_BUCKETS: [f64; 9] = [0.5, 2.0, 5.0, 15.0, 30.0, 60.0, 180.0, 600.0, 1800.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Size {
    size: &'static str,
}

/// Families of the engine. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EngineMetrics {
    connected: Gauge,
    in_flight: Gauge,
    jobs: Family<Phase, Gauge>,
    writes: Family<Reason, Counter>,
    ended: Family<Reason, Counter>,
    latency: Histogram,
    failures: Family<Reason, Counter>,
    bytes: Counter,
    durations: Family<Size, Histogram, fn() -> Histogram>,
    queue: Gauge,
    probes: Family<Reason, Counter>,
    traces: Traces,
}

impl Default for EngineMetrics {
    fn default() -> Self {
        Self {
            connected: Gauge::default(),
            in_flight: Gauge::default(),
            jobs: Family::default(),
            writes: Family::default(),
            ended: Family::default(),
            latency: Histogram::new(LATENCY_BUCKETS),
            failures: Family::default(),
            bytes: Counter::default(),
            durations: Family::new_with_constructor(|| Histogram::new(PULL_BUCKETS)),
            queue: Gauge::default(),
            probes: Family::default(),
            traces: Traces::default(),
        }
    }
}

impl EngineMetrics {
    pub(super) fn new(traces: Traces) -> Self {
        Self {
            traces,
            ..Self::default()
        }
    }

    /// A report of an agent, which may end something that somebody traces.
    pub(super) fn heard(&self, node: &NodeName, status: &TaskStatus, now: Timestamp) {
        if !status.traceparent.is_empty()
            && self.traces.is_on()
            && let Some(span) = trace::of_pull(node, status, now)
        {
            self.traces.tell(span);
        }
    }

    /// Puts the families into the registry of the process.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "kruise_agent_connected",
            "Agents with a live stream",
            self.connected.clone(),
        );
        registry.register(
            "kruise_image_pull_in_flight",
            "Pulls that hold a slot",
            self.in_flight.clone(),
        );
        registry.register(
            "kruise_image_pull_jobs",
            "ImagePullJobs by phase",
            self.jobs.clone(),
        );
        registry.register(
            "kruise_image_pull_status_writes",
            "Writes of ImagePullJob status, by why",
            self.writes.clone(),
        );
        registry.register(
            "kruise_image_pull_tasks_ended",
            "Pulls that ended, by how",
            self.ended.clone(),
        );
        registry.register(
            "kruise_order_latency_seconds",
            "From the decision to an agent's acknowledgement of the order",
            self.latency.clone(),
        );
        self.register_pulls(registry);
    }

    fn register_pulls(&self, registry: &mut Registry) {
        registry.register(
            "kruise_image_pull_failures",
            "Pulls that failed for good, by reason",
            self.failures.clone(),
        );
        registry.register(
            "kruise_image_pull_bytes",
            "Compressed bytes that ended pulls have fetched over the network",
            self.bytes.clone(),
        );
        registry.register(
            "kruise_image_pull_duration_seconds",
            "Time in runtime calls of pulls that fetched something and succeeded, by size of the image",
            self.durations.clone(),
        );
        registry.register(
            "kruise_image_pull_queue_depth",
            "Nodes of all jobs that wait for their order",
            self.queue.clone(),
        );
        registry.register(
            "kruise_image_pull_probes",
            "Answers of nodes that were asked whether an image is there",
            self.probes.clone(),
        );
    }

    /// Nodes that wait for their order.
    pub(crate) fn queued(&self, count: usize) {
        self.queue.set(signed(count));
    }

    /// A node has answered a question.
    pub(crate) fn probed(&self, answer: &'static str) {
        self.probes
            .get_or_create(&Reason {
                reason: answer.to_owned(),
            })
            .inc();
    }

    pub(crate) fn agents_connected(&self, count: usize) {
        self.connected.set(signed(count));
    }

    pub(crate) fn in_flight(&self, count: usize) {
        self.in_flight.set(signed(count));
    }

    pub(crate) fn jobs(&self, phases: JobPhases) {
        let JobPhases {
            pulling,
            waiting,
            complete,
        } = phases;
        for (phase, count) in [("pulling", pulling), ("waiting", waiting), ("complete", complete)] {
            self.jobs.get_or_create(&Phase { phase }).set(signed(count));
        }
    }

    /// A status was written.
    pub(crate) fn wrote(&self, reason: &str) {
        self.writes
            .get_or_create(&Reason {
                reason: reason.to_owned(),
            })
            .inc();
    }

    /// A task ended. Other stages do not count.
    pub(crate) fn ended(&self, node: &NodeName, stage: &Stage, status: &TaskStatus, heard: Timestamp) {
        let reason = match stage {
            Stage::Ended {
                outcome: TaskOutcome::Succeeded,
                ..
            } => "Succeeded".to_owned(),
            Stage::Ended {
                outcome: TaskOutcome::Failed { reason, .. },
                ..
            } => reason.to_string(),
            Stage::InFlight | Stage::Cancelling => return,
        };
        self.heard(node, status, heard);
        self.bytes.inc_by(status.bytes_fetched);
        if let Stage::Ended { outcome, .. } = stage {
            self.ended_well_or_not(outcome, status);
        }
        self.ended.get_or_create(&Reason { reason }).inc();
    }

    fn ended_well_or_not(&self, outcome: &TaskOutcome, status: &TaskStatus) {
        match outcome {
            TaskOutcome::Failed { reason, .. } => {
                let reason = reason.to_string();
                self.failures.get_or_create(&Reason { reason }).inc();
            }
            TaskOutcome::Succeeded if !status.already_present => {
                let total = status.progress.map_or(0, |progress| progress.bytes_total);
                let took = status.pull_time.as_ref().and_then(from_duration);
                if let Some(took) = took {
                    let size = Size {
                        size: size_class(total),
                    };
                    self.durations.get_or_create(&size).observe(took.as_secs_f64());
                }
            }
            TaskOutcome::Succeeded => {}
        }
    }

    /// An order was acknowledged.
    pub(crate) fn ordered(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
    }
}

fn size_class(bytes: u64) -> &'static str {
    match bytes {
        0 => "unknown",
        1..100_000_000 => "below 100 MB",
        100_000_000..1_000_000_000 => "below 1 GB",
        _ => "1 GB and more",
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
