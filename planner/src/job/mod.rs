//! Decisions about ImagePullJobs: which nodes get an order now, what the status says, when to look again.
//!
//! [`plan`] is the one entry. It is called on every change (of the job, a node, an agent, a task) and at the time that the last plan asked
//! for; it never polls. Who calls it gives the orders first and writes the status afterwards, so that no API write delays a pull.

mod caps;
mod explain;
mod facts;
mod outcomes;
mod plan;
mod probing;
mod rounds;
mod selection;
mod snapshot;
pub(crate) mod status;
pub(crate) mod times;
mod update_order;
mod waiting;
mod window;
mod writes;

pub use caps::{Caps, Claim, room};
pub use explain::{NodeStanding, explain};
pub use outcomes::{NodeSet, round_of};
pub use plan::{JobEvent, JobPlan, WriteReason, plan, plan_switched_off};
pub use rounds::task_deadline;
pub use selection::{SelectError, matches_labels, select};
pub use snapshot::{
    AgentView, Clocks, JobMemory, JobSnapshot, NodeTrouble, NodeView, Owner, PodPhase, PodView, Probe,
    ProbeAnswer, Room, TaskOutcome, TaskState, TaskView,
};
pub use status::Counters;
pub use waiting::{Deferral, WaitingOn};

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
