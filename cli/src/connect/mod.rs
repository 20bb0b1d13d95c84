//! Ways to what is asked: the cluster's API, the manager's inspection service, a node's socket.

mod api;
mod node;
mod session;
mod tunnel;

pub(crate) use api::Cluster;
pub(crate) use node::{node, only_here, refused_by_agent};
pub(crate) use session::{Inspect, open, open_pod};

use std::time::Duration;

/// Longest time for one step of connecting.
const STEP: Duration = Duration::from_secs(10);
