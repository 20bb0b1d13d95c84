//! What the status of a job says.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kruise_api::ids::NodeName;
use kruise_api::image_pull_job::{FailureSummary, ImagePullJobStatus, conditions};

use crate::task::Reason;

/// Most names in `failedNodes`; `failed` has the true number.
const MAX_FAILED_NODES: usize = 500;

/// Nodes of a job by how far they are. Every selected node is in exactly one of succeeded, failed, active, or none (not started).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Selected.
    pub desired: usize,
    /// Hold an order.
    pub active: usize,
    /// Have the image.
    pub succeeded: usize,
    /// Failed for good.
    pub failed: usize,
}

impl Counters {
    /// Nodes that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.succeeded + self.failed
    }

    /// Nodes that have neither ended nor hold an order.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.desired.saturating_sub(self.ended() + self.active)
    }

    /// Share that has ended, in tenths of a percent; 1000 when nothing is selected.
    fn permille(&self) -> usize {
        (self.ended() * 1000).checked_div(self.desired).unwrap_or(1000)
    }

    /// "66.7%".
    #[must_use]
    pub fn percent(&self) -> String {
        format!("{}.{}%", self.permille() / 10, self.permille() % 10)
    }

    /// How many quarters of the nodes have ended, from 0 to 4.
    pub(super) fn quarters(&self) -> usize {
        self.permille() / 250
    }
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nodes are being served, or wait.
    Running,
    /// parallelism is 0.
    Paused,
    /// All nodes have ended.
    Completed,
    /// activeDeadlineSeconds has passed.
    DeadlineExceeded,
}

/// A node that failed in this round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// Failures that earlier writes have counted, added to those since.
pub(super) fn summarise(
    stored: &[FailureSummary],
    fresh: &BTreeMap<NodeName, Failure>,
) -> Vec<FailureSummary> {
    let mut by_reason: BTreeMap<String, FailureSummary> = stored
        .iter()
        .map(|summary| (summary.reason.clone(), summary.clone()))
        .collect();
    for (node, failure) in fresh {
        let summary = by_reason
            .entry(failure.reason.to_string())
            .or_insert_with(|| FailureSummary {
                reason: failure.reason.to_string(),
                node: node.to_string(),
                message: failure.message.clone(),
                count: 0,
            });
        summary.count = summary.count.saturating_add(1);
    }
    let mut all: Vec<_> = by_reason.into_values().collect();
    all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
    all
}

/// Names for `failedNodes`: sorted, cut at 500.
pub(super) fn failed_names<'a>(names: impl Iterator<Item = &'a NodeName>) -> Vec<String> {
    let mut names: Vec<String> = names.map(ToString::to_string).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MAX_FAILED_NODES);
    names
}

/// Upstream's texts, so that tools that look for them go on working.
pub(super) fn message(standing: Standing, counters: &Counters) -> String {
    match standing {
        Standing::Completed => "job has completed".to_owned(),
        Standing::DeadlineExceeded => "job exceeds activeDeadlineSeconds".to_owned(),
        Standing::Running | Standing::Paused if counters.desired == 0 => {
            "job is running, no progress".to_owned()
        }
        Standing::Running | Standing::Paused => format!("job is running, progress {}", counters.percent()),
    }
}

/// "2 of 3 nodes failed: NotFound 2 (node1: ...)". Empty when none failed.
pub(super) fn failure_text(counters: &Counters, failures: &[FailureSummary]) -> String {
    if counters.failed == 0 {
        return String::new();
    }
    let by_reason: Vec<String> = failures
        .iter()
        .map(|summary| {
            format!(
                "{} {} ({}: {})",
                summary.reason, summary.count, summary.node, summary.message
            )
        })
        .collect();
    let text = format!(
        "{} of {} nodes failed: {}",
        counters.failed,
        counters.desired,
        by_reason.join(", ")
    );
    // Conditions and events have limits of their own; the first reasons are the most frequent ones.
    text.chars().take(1000).collect()
}

/// The three conditions. A condition whose value stays keeps its transition time.
pub(super) fn job_conditions(
    previous: &[Condition],
    standing: Standing,
    generation: i64,
    counters: &Counters,
    failures: &[FailureSummary],
    now: Timestamp,
) -> Vec<Condition> {
    let over = matches!(standing, Standing::Completed | Standing::DeadlineExceeded);
    let failed = over && counters.failed > 0;
    let reason = match standing {
        Standing::Running => "Pulling",
        Standing::Paused => "Paused",
        Standing::Completed => "Completed",
        Standing::DeadlineExceeded => "DeadlineExceeded",
    };
    let text = failure_text(counters, failures);
    let text = if text.is_empty() {
        message(standing, counters)
    } else {
        text
    };
    let progressing = matches!(standing, Standing::Running);
    [
        (
            conditions::PROGRESSING,
            progressing,
            reason,
            message(standing, counters),
        ),
        (conditions::COMPLETE, over, reason, message(standing, counters)),
        (
            conditions::FAILED,
            failed,
            if failed { "NodesFailed" } else { reason },
            text,
        ),
    ]
    .into_iter()
    .map(|(kind, value, reason, message)| condition(previous, kind, value, reason, message, generation, now))
    .collect()
}

/// Conditions of a job that cannot be acted on, because of its spec or otherwise.
pub(super) fn standstill_conditions(
    previous: &[Condition],
    reason: &str,
    text: &str,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    [conditions::PROGRESSING, conditions::COMPLETE, conditions::FAILED]
        .into_iter()
        .map(|kind| condition(previous, kind, false, reason, text.to_owned(), generation, now))
        .collect()
}

pub(crate) fn condition(
    previous: &[Condition],
    kind: &str,
    value: bool,
    reason: &str,
    message: String,
    generation: i64,
    now: Timestamp,
) -> Condition {
    let status = if value { "True" } else { "False" };
    let since = previous
        .iter()
        .find(|old| old.type_ == kind && old.status == status)
        .map_or(Time(now), |old| old.last_transition_time.clone());
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: Some(generation),
        last_transition_time: since,
    }
}

/// Counters as the API has them.
pub(super) fn counters_into(status: &mut ImagePullJobStatus, counters: &Counters) {
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    status.desired = number(counters.desired);
    status.active = number(counters.active);
    status.succeeded = number(counters.succeeded);
    status.failed = number(counters.failed);
    status.progress = Some(counters.percent());
}
