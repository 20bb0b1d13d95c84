//! What the engine is told by flags.

use std::time::Duration;

use kruise_planner::job::Caps;

/// Oldest stamp, by the agent's own clock, with which it takes an order.
pub const MAX_ORDER_AGE: Duration = Duration::from_secs(15);

/// Spans that the engine, and through it the agents, go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// How long an agent works on without an answered heartbeat.
    pub contact_lease: Duration,
    /// How often an agent sends a heartbeat.
    pub heartbeat_interval: Duration,
    /// How long a new leader waits for agents of an earlier one before it hands out anything.
    pub attach_grace: Duration,
    /// How long a new node must have been Ready before it is selected.
    pub creation_delay: Duration,
    /// Most agents that may attach in one second.
    pub attach_per_second: u32,
    /// Most pulls in flight at once.
    pub caps: Caps,
    /// The feature gate that is off and without which no job runs.
    pub switched_off: Option<&'static str>,
}

impl EngineConfig {
    /// How long after the last answered heartbeat a node may still be pulling: the contact lease, and a quarter of it for clocks. The agent's may run
    /// a tenth too slow while ours runs a tenth too fast, which takes 1.1 / 0.9 = 1.22 contact leases; the rest is for stopping a pull.
    #[must_use]
    pub fn slot_lease(&self) -> Duration {
        self.contact_lease + self.contact_lease / 4
    }

    /// Silence after which a session gets no new work.
    #[must_use]
    pub fn stale_after(&self) -> Duration {
        self.heartbeat_interval * 3
    }

    /// Silence after which a session is closed.
    #[must_use]
    pub fn lost_after(&self) -> Duration {
        (self.heartbeat_interval * 6).max(Duration::from_secs(30))
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            contact_lease: Duration::from_secs(90),
            heartbeat_interval: Duration::from_secs(5),
            attach_grace: Duration::from_secs(10),
            creation_delay: Duration::from_secs(30),
            attach_per_second: 2_000,
            caps: Caps::default(),
            switched_off: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_outlives_the_contact_lease_with_clocks_that_are_a_tenth_wrong_each_way() {
        for seconds in [15, 30, 90, 600] {
            let config = EngineConfig {
                contact_lease: Duration::from_secs(seconds),
                ..EngineConfig::default()
            };
            // By a clock that is right: the agent's is slow, ours is fast.
            let agent_stops = config.contact_lease.mul_f64(1.0 / 0.9);
            let slot_is_free = config.slot_lease().mul_f64(1.0 / 1.1);
            assert!(
                agent_stops + agent_stops / 50 < slot_is_free,
                "{agent_stops:?} {slot_is_free:?}"
            );
        }
    }
}
