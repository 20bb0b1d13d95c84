//! The engine: watches jobs and nodes, plans, hands out orders and writes statuses, as long as this replica leads.
//!
//! - [`state`] is all of its memory with its transitions, synchronous and without IO; tests drive it event by event.
//! - [`actor`](self) is the task around it; its module says which tasks and channels there are.
//! - [`ports`] are what it needs of the world; [`cluster`](self) is the API server behind them.
//! - [`EngineHandle`] is how streams of agents and people's calls reach it.

mod actor;
pub(crate) mod cluster;
pub mod config;
mod credentials;
pub(crate) mod event;
pub(crate) mod guests;
pub(crate) mod handle;
mod logins;
pub(crate) mod merge;
pub(crate) mod metrics;
pub mod objects;
pub(crate) mod ports;
pub(crate) mod state;
mod trace;
pub(crate) mod vitals;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Monotonic;
use crate::leader::Leadership;
use crate::telemetry::Metrics;

pub use config::EngineConfig;
pub(crate) use credentials::matching;
pub use handle::{EngineGone, EngineHandle};
pub(crate) use merge::merge_patch;

/// What the engine is made of.
#[derive(Debug)]
pub struct Deps {
    /// The API server.
    pub api: crate::kubeapi::Api,
    /// Namespace of the agents' pods.
    pub namespace: String,
    /// Who leads.
    pub leadership: Leadership,
    /// This process' monotonic clock.
    pub clock: Monotonic,
    /// Where its metrics go.
    pub metrics: Metrics,
    /// Spans.
    pub config: EngineConfig,
}

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

impl Engine {
    /// Starts the engine's task, which follows the leadership until the last handle is dropped.
    #[must_use]
    pub fn spawn(deps: Deps) -> EngineHandle {
        let Deps {
            api,
            namespace,
            leadership,
            clock,
            metrics,
            config,
        } = deps;
        let own = metrics::EngineMetrics::new(metrics.traces.clone());
        metrics.register(|registry| own.register(registry));
        spawn_over(
            Arc::new(cluster::KubeCluster::new(api, namespace)),
            &leadership,
            clock,
            own,
            config,
        )
    }
}

/// An engine over any cluster.
pub(crate) fn spawn_over(
    cluster: Arc<dyn ports::Cluster>,
    leadership: &Leadership,
    clock: Monotonic,
    metrics: metrics::EngineMetrics,
    config: EngineConfig,
) -> EngineHandle {
    let (sender, inbox) = mpsc::channel(handle::INBOX);
    let closing = CancellationToken::new();
    let (open, opened) = watch::channel(false);
    let guests = guests::GuestRooms::default();
    let handle =
        EngineHandle::new(sender, config, clock.clone(), opened, closing.clone()).with_guests(guests.clone());
    let (guard, leadership) = (leadership.clone(), leadership.subscribe());
    tokio::spawn(
        actor::Actor {
            cluster,
            guard,
            leadership,
            clock,
            config,
            metrics,
            inbox,
            open,
            closing,
            guests,
        }
        .run(),
    );
    handle
}

#[cfg(test)]
pub(crate) mod tests;
