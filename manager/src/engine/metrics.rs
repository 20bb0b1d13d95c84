//! Metrics of hand-out and results. No label holds a name that users choose.

use std::time::Duration;

use kruise_planner::job::TaskOutcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::state::{JobPhases, Stage};

/// From 1 ms to 16 s, by factors of 4: an order crosses a data centre in the first buckets, a lost one needs a resync.
const LATENCY_BUCKETS: [f64; 8] = [0.001, 0.004, 0.016, 0.064, 0.256, 1.0, 4.0, 16.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: String,
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
        }
    }
}

impl EngineMetrics {
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
    pub(crate) fn ended(&self, stage: &Stage) {
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
        self.ended.get_or_create(&Reason { reason }).inc();
    }

    /// An order was acknowledged.
    pub(crate) fn ordered(&self, after: Duration) {
        self.latency.observe(after.as_secs_f64());
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
