//! Changes of a pod in place: whether a change of the template allows it, what to write to the pod, and whether it is done.
//!
//! [`decide()`] compares two templates. [`begin`], [`next_batch`] and [`end_grace`] make the patches for one pod, batch by batch in the
//! order of the containers' priorities. [`progress`] reads from a pod how far its change is, [`swaps`] how long its containers were down. The annotations have OpenKruise's form in
//! both directions, so a pod that one of the two left in the middle is finished by the other.

mod batch;
mod change;
mod decide;
mod diff;
mod downtime;
mod finished;
mod metadata;
mod options;
mod qos;
mod state;
mod write;

pub use change::{Change, ObjectRefs, Resources};
pub use decide::{Decision, Obstacle, ObstacleReason, decide, decide_revisions};
pub use downtime::{
    Downtime, Gap, Run, Source, Swap, Swaps, by_runtime, is_answered, is_swap_task, percentile, question,
    runs, swap_task_id, swaps,
};
pub use finished::{Progress, progress, unfinished};
pub use options::Options;
pub use state::{Batch, Grace, ImageRecord, PreCheck, State};
pub use write::{Target, Written, begin, end_grace, next_batch, not_ready};

#[cfg(test)]
mod tests;
