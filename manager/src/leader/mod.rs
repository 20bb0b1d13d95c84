//! Who leads: the elector's driver and the guard that everything asks before it acts.
//!
//! The decisions are [`kruise_planner::lease`]; here are the requests, the timers and the clock.
//!
//! - [`Leadership`] is the guard. It answers from a deadline on the monotonic clock, so that a process that was stopped knows at
//!   its first breath that it may not act any more.
//! - [`Driver`] keeps the Lease. When it loses it, the process ends: nothing here unlearns to lead.

mod driver;
mod guard;
mod lease;

use kruise_api::ids::Epoch;

pub use driver::{Driver, Settings};
pub use guard::{Control, LeaderState, Leadership, NotLeader, Peer};

use crate::telemetry::LeaderMetrics;

/// Leads for ever without a Lease: for a single replica with `--enable-leader-election=false`. Agents may hold tasks of an earlier run,
/// and the epoch from the clock is higher than that run's.
pub fn lead_alone(control: &Control, metrics: &LeaderMetrics, wall_unix_ms: u64) {
    control.extend(std::time::Duration::MAX);
    control.set(LeaderState::Leader {
        epoch: Epoch(wall_unix_ms),
        since: tokio::time::Instant::now(),
    });
    metrics.leads(wall_unix_ms);
    tracing::warn!(
        epoch = wall_unix_ms,
        "leader election is off: this must be the only replica"
    );
}

/// Unique per process, and readable: the pod's name and a random part.
#[must_use]
pub fn holder_name(pod: &str) -> String {
    format!("{pod}_{:016x}", rand::random::<u64>())
}
