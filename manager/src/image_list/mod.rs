//! The controller of ImageListPullJobs: one ImagePullJob per image, and a summary of them.
//!
//! - [`state`] is all of its memory, synchronous and without IO; the decisions are the planner's.
//! - [`actor`](self) follows the leadership, feeds the state with what the watches tell and carries plans out.
//! - [`ports`] are what it needs of the world; [`cluster`](self) is the API server behind them.
//!
//! Its watch of ImagePullJobs takes only those with the label that jobs of a list carry.

mod actor;
mod cluster;
mod objects;
mod ports;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::kubeapi::Api;
use crate::leader::Leadership;
use crate::telemetry::Metrics;

/// What the controller is made of.
#[derive(Debug)]
pub struct Deps {
    /// The API server.
    pub api: Api,
    /// Who leads.
    pub leadership: Leadership,
    /// Where its metrics go.
    pub metrics: Metrics,
    /// The feature gate that is off and without which no job runs.
    pub switched_off: Option<&'static str>,
}

/// Starts the controller, which follows the leadership until the process ends.
pub fn spawn(deps: Deps) {
    let own = actor::ListMetrics::default();
    deps.metrics.register(|registry| own.register(registry));
    let actor = actor::Actor {
        lists: Arc::new(cluster::KubeLists::new(deps.api)),
        leadership: deps.leadership.subscribe(),
        metrics: own,
        switched_off: deps.switched_off,
    };
    tokio::spawn(actor.run());
}
