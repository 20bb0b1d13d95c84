//! Jobs that never complete ask every node again once a day, in rounds.
//!
//! The time of the next round is in the status, so that it survives a change of leader. A round begins with a write that empties the set of nodes that have ended;
//! it waits until every node that can end has done so, and all results are stored.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::image_pull_job::{ImagePullJobSpec, ImagePullJobStatus, Outcomes};

use super::facts::{Facts, Stand};
use super::plan::{JobPlan, WriteReason};
use super::snapshot::JobSnapshot;
use super::status::{self, Counters, Standing};
use super::times::later;
use crate::task::fnv64;

/// Between two rounds, give or take ten minutes so that jobs made together do not stay together.
const ROUND: Duration = Duration::from_hours(24);
const SPREAD: u64 = 600;
/// Least time that a node of such a job has.
const LEAST_DEADLINE: Duration = Duration::from_secs(1_800);
/// Longest pause between two attempts.
const LONGEST_PAUSE: u64 = 30;

/// How long one node of a job that never completes may take: all of its attempts with the pauses between them, and at least half an hour. None for other jobs, which
/// have a deadline of their own or none.
#[must_use]
pub fn task_deadline(spec: &ImagePullJobSpec) -> Option<Duration> {
    spec.completion_policy.is_never().then(|| {
        let retries = u64::from(spec.pull_policy.retries());
        let attempts = retries.saturating_add(1);
        let pauses = (0..retries.min(64))
            .map(|retry| {
                1_u64
                    .checked_shl(u32::try_from(retry).unwrap_or(63))
                    .unwrap_or(LONGEST_PAUSE)
            })
            .map(|pause| pause.min(LONGEST_PAUSE))
            .fold(
                retries.saturating_sub(64).saturating_mul(LONGEST_PAUSE),
                u64::saturating_add,
            );
        let seconds = u64::from(spec.pull_policy.timeout())
            .saturating_mul(attempts)
            .saturating_add(pauses);
        Duration::from_secs(seconds).max(LEAST_DEADLINE)
    })
}

impl Facts {
    /// When the present round of a job that never completes gives way to the next.
    pub(super) fn next_round(&self, snapshot: &JobSnapshot<'_>) -> Option<Time> {
        if !snapshot.spec.completion_policy.is_never() {
            return None;
        }
        let stored = snapshot
            .status
            .and_then(|status| status.outcomes.as_ref())
            .filter(|outcomes| outcomes.image == self.image.canonical())
            .and_then(|outcomes| outcomes.next_round.clone());
        stored.or_else(|| Some(Time(round_end(snapshot, self.round))))
    }

    /// Whether it is time for the next round and nothing of this one is left to do.
    pub(super) fn round_is_over(&self, snapshot: &JobSnapshot<'_>) -> bool {
        let due = self.next_round(snapshot).is_some_and(|at| at.0 <= snapshot.now);
        let ended = self.nodes.iter().all(|(_, stand)| {
            matches!(
                stand,
                Stand::Succeeded | Stand::Failed(_) | Stand::Deferred(_) | Stand::Away
            )
        });
        due && ended && self.parallelism > 0 && snapshot.tasks.is_empty()
    }

    /// The write that begins the next round. Orders follow once it is stored.
    pub(super) fn begin_round(self, snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus) -> JobPlan {
        let counters = Counters {
            desired: self.nodes.len(),
            ..Counters::default()
        };
        let round = self.round.saturating_add(1);
        let mut status = ImagePullJobStatus {
            start_time: previous.start_time.clone(),
            message: Some(status::message(Standing::Running, &counters)),
            observed_generation: Some(snapshot.generation),
            conditions: status::job_conditions(
                &previous.conditions,
                Standing::Running,
                snapshot.generation,
                &counters,
                &[],
                snapshot.now,
            ),
            outcomes: Some(Outcomes {
                round: i32::try_from(round).unwrap_or(i32::MAX),
                image: self.image.canonical().to_owned(),
                next_round: Some(Time(round_end(snapshot, round))),
                ..Outcomes::default()
            }),
            ..ImagePullJobStatus::default()
        };
        status::counters_into(&mut status, &counters);
        JobPlan {
            round: self.round,
            image: Some(self.image),
            counters,
            status,
            write: Some(WriteReason::Round),
            strip_finalizer: snapshot.legacy_finalizer,
            deferred_since: self.deferred_since,
            ..JobPlan::default()
        }
    }
}

/// A day from now, spread by job and round.
fn round_end(snapshot: &JobSnapshot<'_>, round: u32) -> Timestamp {
    let spread = fnv64(format!("{} {round}", snapshot.uid).as_bytes()) % (2 * SPREAD);
    later(
        snapshot.now,
        ROUND - Duration::from_secs(SPREAD) + Duration::from_secs(spread),
    )
}
