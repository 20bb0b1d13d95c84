//! ContainerRecreateRequests: watches them and their pods, plans, lets agents work, and writes what came of it, as long as this replica leads.
//!
//! - [`state`] is all of its memory with its transitions, synchronous and without IO.
//! - [`actor`] is the task around it; one task, so that each request has one writer.
//! - [`cluster`] is the API server behind it.
//!
//! Orders travel by the engine ([`crate::engine::guests`]), whose fencing, sets and acknowledgements they share.

mod actor;
mod cluster;
mod metrics;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::clock::Monotonic;
use crate::engine::EngineHandle;
use crate::engine::guests::Guest;
use crate::kubeapi::Api;
use crate::leader::Leadership;
use crate::telemetry::Metrics;

/// What the controller is made of.
#[derive(Debug)]
pub struct Deps {
    /// The API server.
    pub api: Api,
    /// By which its orders travel.
    pub engine: EngineHandle,
    /// Who leads.
    pub leadership: Leadership,
    /// This process' monotonic clock.
    pub clock: Monotonic,
    /// Where its metrics go.
    pub metrics: Metrics,
}

/// Starts the controller, which follows the leadership as long as the process lives. Call it before the first agent can attach.
pub fn spawn(deps: Deps) {
    let Deps {
        api,
        engine,
        leadership,
        clock,
        metrics,
    } = deps;
    let own = metrics::RestartMetrics::default();
    metrics.register(|registry| own.register(registry));
    engine.guests(Guest::Restarts).expect();
    let actor = actor::Actor {
        cluster: Arc::new(cluster::KubeCluster::new(api)),
        engine,
        leadership: leadership.subscribe(),
        clock,
        metrics: own,
    };
    tokio::spawn(actor.run());
}
