//! The controller of CloneSets: snapshot, plan, carry out.
//!
//! - [`state`](self) is all of its memory with its transitions, synchronous and without IO. It keeps, per namespace, what the watches have
//!   told overlaid with our own writes (`store`, `space`), and remembers what failed (`holds`).
//! - What to do is decided by [`kruise_planner::cloneset::plan`] alone.
//! - `pulls` are the images that pods wait for before they are changed in place, which the engine asks nodes for.
//! - `downtime` is how long containers were down while their pods changed in place.
//! - `carry` does what a plan says, under the UIDs and versions that it was made from.
//! - `ports` are what it needs of the world; `cluster` is the API server behind them.
//!
//! Pods, claims, revisions, jobs and requests to restart containers are followed once there is a set: a cluster without any pays for one watch.

mod actor;
mod ask;
mod body;
mod carry;
mod cluster;
mod downtime;
mod event;
mod handle;
mod holds;
mod metrics;
mod objects;
mod ports;
mod pulls;
mod series;
mod space;
mod state;
mod store;
mod targets;
mod traced;

use std::sync::Arc;

use kruise_planner::cloneset::Gates;

use crate::clock::Monotonic;
use crate::engine::EngineHandle;
use crate::leader::Leadership;
use crate::telemetry::Metrics;

pub(crate) use handle::Answer;
pub use handle::CloneSetHandle;
#[cfg(test)]
pub(crate) use handle::{Question, channel};

/// What the controller is made of.
#[derive(Debug)]
pub struct Deps {
    /// The API server.
    pub api: crate::kubeapi::Api,
    /// Who leads.
    pub leadership: Leadership,
    /// This process' monotonic clock.
    pub clock: Monotonic,
    /// Where its metrics go.
    pub metrics: Metrics,
    /// Switches.
    pub gates: Gates,
    /// By which nodes are asked for images.
    pub engine: EngineHandle,
}

/// Starts the controller's task, which follows the leadership until the process ends.
pub fn spawn(deps: Deps) -> CloneSetHandle {
    let Deps {
        api,
        leadership,
        clock,
        metrics,
        gates,
        engine,
    } = deps;
    let own = metrics::CloneSetMetrics::new(metrics.traces.clone());
    metrics.register(|registry| own.register(registry));
    let (handle, questions) = handle::channel();
    let actor = actor::Actor {
        cluster: Arc::new(cluster::KubeCluster::new(api, gates)),
        leadership: leadership.subscribe(),
        clock,
        gates,
        metrics: own,
        nodes: Some(engine),
        questions,
    };
    tokio::spawn(actor.run());
    handle
}

#[cfg(test)]
mod tests;
