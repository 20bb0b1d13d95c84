//! When the status is written, and what event goes with it.

use std::time::Duration;

use jiff::Timestamp;

use kruise_api::image_pull_job::{ImagePullJobStatus, conditions};

use super::facts::Facts;
use super::plan::{JobEvent, JobPlan, WriteReason, counters_of};
use super::snapshot::JobSnapshot;
use super::status::{self, Counters};
use super::times::{earliest, later};

/// Least time between two writes that only tell of progress.
const STEP_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time that a result waits for a write, and least time between writes about a changed selection.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);

impl Facts {
    /// Writes are a budget: at the start, at the first failure, per quarter at least 10 s apart, at the end, and otherwise only so that no result
    /// waits for more than 30 s.
    pub(super) fn decide_write(
        &self,
        snapshot: &JobSnapshot<'_>,
        previous: &ImagePullJobStatus,
        plan: &mut JobPlan,
    ) {
        let before = counters_of(previous);
        let since_write = |interval| snapshot.memory.last_write.map(|last| later(last, interval));
        let due = |at: Option<Timestamp>| at.is_none_or(|at| at <= snapshot.now);
        let more_quarters = plan.counters.quarters() > before.quarters() && plan.counters.desired > 0;
        let unsaved = snapshot
            .memory
            .unsaved_since
            .map(|since| later(since, SAVE_INTERVAL));
        let selection_changed = plan.counters.desired != before.desired;
        plan.write = match () {
            () if plan.complete => Some(WriteReason::Completed),
            () if previous.start_time.is_none() => Some(WriteReason::Start),
            () if previous.observed_generation != Some(snapshot.generation) => Some(WriteReason::Edited),
            () if before.failed == 0 && plan.counters.failed > 0 => Some(WriteReason::FirstFailure),
            // Annotations have no generation: a job that is cured, or paused, by one of them says so all the same.
            () if progressing(previous) != progressing(&plan.status) => Some(WriteReason::Edited),
            () if more_quarters && due(since_write(STEP_INTERVAL)) => Some(WriteReason::Step),
            () if unsaved.is_some_and(|at| at <= snapshot.now) => Some(WriteReason::Unsaved),
            () if selection_changed && due(since_write(SAVE_INTERVAL)) => Some(WriteReason::Selection),
            () => None,
        };
        if plan.write.is_none() {
            let step = since_write(STEP_INTERVAL).filter(|_| more_quarters);
            let selection = since_write(SAVE_INTERVAL).filter(|_| selection_changed);
            plan.wake = earliest([plan.wake, step, unsaved, selection]);
        }
        plan.event = self.event(plan, &before);
    }

    pub(super) fn event(&self, plan: &JobPlan, before: &Counters) -> Option<JobEvent> {
        let image = self.image.familiar();
        let counters = &plan.counters;
        let failed = |message| JobEvent {
            warning: true,
            reason: "PullImageFailed",
            message,
        };
        match plan.write? {
            WriteReason::Completed if counters.failed > 0 => Some(failed(format!(
                "Image {image}: {}",
                status::failure_text(counters, &plan.status.failures)
            ))),
            WriteReason::Completed if counters.desired == 0 => Some(JobEvent {
                warning: false,
                reason: "PullImageSucceed",
                message: format!("Image {image}: no node is selected, nothing was pulled"),
            }),
            WriteReason::Completed => Some(JobEvent {
                warning: false,
                reason: "PullImageSucceed",
                message: format!("Image {image} is present on {} node(s)", counters.succeeded),
            }),
            WriteReason::FirstFailure if before.failed == 0 => Some(failed(format!(
                "Image {image}: {}",
                status::failure_text(counters, &plan.status.failures)
            ))),
            _ => None,
        }
    }
}

/// How the job stands, in one word.
fn progressing(status: &ImagePullJobStatus) -> Option<&str> {
    let mut all = status.conditions.iter();
    all.find(|condition| condition.type_ == conditions::PROGRESSING)
        .map(|condition| condition.reason.as_str())
}
