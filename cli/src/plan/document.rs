//! A plan as JSON. The names are stable: programs read them.

use jiff::Timestamp;
use kruise_api::clone_set::{CloneSet, CloneSetStatus};
use kruise_planner::cloneset::{Action, CloneSetPlan, Numbers, Step, Waiting};
use serde::Serialize;

/// One plan.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanDocument<'a> {
    clone_set: &'a str,
    namespace: &'a str,
    current_revision: &'a str,
    update_revision: &'a str,
    numbers: &'a Numbers,
    actions: &'a [Action],
    status: &'a CloneSetStatus,
    waiting: &'a [Waiting],
    wake_after_seconds: Option<u64>,
}

impl<'a> PlanDocument<'a> {
    pub(super) fn of(set: &'a CloneSet, plan: &'a CloneSetPlan, now: Timestamp) -> Self {
        Self {
            clone_set: set.metadata.name.as_deref().unwrap_or_default(),
            namespace: set.metadata.namespace.as_deref().unwrap_or("default"),
            current_revision: &plan.current_revision,
            update_revision: &plan.update_revision,
            numbers: &plan.numbers,
            actions: &plan.actions,
            status: &plan.status,
            waiting: &plan.waiting,
            wake_after_seconds: plan.wake_after(now).map(|left| left.as_secs()),
        }
    }
}

/// A set played forward.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlayDocument<'a> {
    clone_set: &'a str,
    namespace: &'a str,
    /// Whether nothing more happens after the last step.
    settled: bool,
    steps: Vec<StepDocument<'a>>,
}

/// One step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct StepDocument<'a> {
    step: usize,
    at: String,
    #[serde(flatten)]
    plan: PlanDocument<'a>,
}

impl<'a> PlayDocument<'a> {
    pub(super) fn of(set: &'a CloneSet, steps: &'a [Step]) -> Self {
        Self {
            clone_set: set.metadata.name.as_deref().unwrap_or_default(),
            namespace: set.metadata.namespace.as_deref().unwrap_or("default"),
            settled: steps.last().is_some_and(|step| step.settled),
            steps: steps
                .iter()
                .enumerate()
                .map(|(index, step)| StepDocument {
                    step: index + 1,
                    at: step.at.to_string(),
                    plan: PlanDocument::of(set, &step.plan, step.at),
                })
                .collect(),
        }
    }
}
