//! Decisions about ImageListPullJobs: which jobs of images there should be, and what the list's status says.
//!
//! [`plan`] is the one entry. A list is a thin thing: one ImagePullJob for each image does the work and decides about nodes.

mod children;
mod plan;
mod snapshot;
mod status;

pub use children::{ChildPatch, NewChild, child_name, outcome_of, revision};
pub use plan::{ListEvent, ListPlan, ListWrite, plan};
pub use snapshot::{ChildProgress, ChildView, ListMemory, ListSnapshot, Refusal};

#[cfg(test)]
mod tests;
