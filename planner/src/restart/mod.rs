//! Restarts of containers in place: what the leader decides and what a node does.
//!
//! - [`plan`](plan()): for all requests of one pod, from a snapshot, who has its turn, what goes to the agent and what is written.
//! - [`node`]: what the agent does about one container, from what its runtime says.
//! - [`facts`]: the words in which the agent tells the leader.
//! - [`lock`]: the readiness lock of a pod, which several controllers hold together.
//! - [`bulk`]: whose turn is next when all pods of a workload are restarted.
//! - [`check`]: what must hold between any two stored states of a request, for tests.

pub mod bulk;
pub mod check;
pub mod facts;
pub mod lock;
pub mod node;
mod notes;
mod order;
mod outcome;
mod plan;
mod pods;
mod queue;
mod report;
mod states;
#[cfg(test)]
mod tests;
mod view;

use std::time::Duration;

use kruise_api::ids::TaskId;

pub use outcome::{EventNote, Intent, OrderPlan, PodPlan, RequestPlan, Write, texts};
pub use plan::plan;
pub use pods::strip;
pub use report::{ContainerReport, report};
pub use view::{AgentView, Memory, PodSnapshot, RequestView};

/// Without a leader's word from the node for so long, a request ends.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// First part of the ids of restart tasks.
const PREFIX: &str = "restart/";

/// Identity of the work for one request: a request is about one pod on one node, and never changes.
#[must_use]
pub fn task_id(request_uid: &str) -> TaskId {
    TaskId::new(format!("{PREFIX}{request_uid}"))
}

/// UID of the request of a restart task; none for a task of another kind.
#[must_use]
pub fn request_of(task: &TaskId) -> Option<&str> {
    task.as_str().strip_prefix(PREFIX)
}
