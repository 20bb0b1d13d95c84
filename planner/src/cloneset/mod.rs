//! Decisions about CloneSets: which pods to create, to delete and to update, what the status says, and why nothing more is done.
//!
//! [`plan`] is the one entry. It looks at everything anew each time, so a plan that was carried out in part, or twice, or by somebody else
//! does no harm: the next one starts from what is there. [`play`] carries plans out in memory, with a kubelet that does all at once.

mod action;
mod candidates;
mod compare;
mod create;
mod draft;
mod facts;
mod gate;
mod ids;
mod labels;
mod lifecycle;
mod limits;
mod numbers;
mod ownership;
mod plan;
mod play;
mod pod;
mod predownload;
mod progress;
mod pulls;
mod reason;
mod refresh;
mod restart;
mod revisions;
mod scale;
mod scatter;
mod shrink;
mod sizing;
mod snapshot;
mod status;
mod told;
mod update;
mod view;
mod way;

pub use action::{Action, JobContent, OwnerChange, PodConditionPatch, PodPatch};
pub use ids::instance_id;
pub use labels::Labels;
pub use limits::{Limits, Unreadable};
pub use numbers::{Counts, Differences, Numbers};
pub use plan::{CloneSetPlan, PlanEvent, PullWish, plan};
pub use play::{Play, Step};
pub use pod::{
    GraceView, InPlaceView, LifecycleState, NextBatch, NotReadyKey, Phase, PodView, Readiness, RevisionKey,
};
pub use predownload::{DEFAULT_GATE_TIMEOUT, ROLLOUT, gate_timeout};
pub use pulls::{
    GateFacts, TaskSeen, cannot_be_had, gate_state, gate_task_id, gate_wake, is_gate_task, of_all, retry_at,
};
pub use reason::{Reason, Waiting};
pub use restart::run_options;
pub use snapshot::{
    ClaimView, CloneSetSnapshot, Gates, Hold, JobView, PreDownload, PullReport, PullState, RecreateView,
    RevisionView, Writes,
};
pub use status::selector_text;
pub use told::Told;

#[cfg(test)]
mod check;
#[cfg(test)]
mod tests;
