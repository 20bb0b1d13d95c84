//! The plan itself: what to do, and in which order it is decided.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::NodeName;
use kruise_api::image_pull_job::ImagePullJobStatus;
use kruise_api::reference::ImageRef;

use super::facts::{Facts, Stand};
use super::snapshot::{JobSnapshot, TaskState};
use super::status::{self, Counters, Standing};
use super::times::{earliest, later, until};
use super::waiting::WaitingOn;

/// What to do for a job now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlan {
    /// Round that new orders belong to.
    pub round: u32,
    /// Image of this round; none when the spec cannot be acted on.
    pub image: Option<ImageRef>,
    /// Nodes to give an order to, first things first.
    pub assign: Vec<NodeName>,
    /// Urgent nodes whose turn is still to come.
    pub urgent_pending: Vec<NodeName>,
    /// Nodes to ask whether they have the image already.
    pub probe: Vec<NodeName>,
    /// Orders that the caps of the cluster kept back.
    pub capped: usize,
    /// Nodes to take the order back from, and why.
    pub cancel: Vec<(NodeName, &'static str)>,
    /// As the job stands now, the new orders included.
    pub counters: Counters,
    /// What a write would say.
    pub status: ImagePullJobStatus,
    /// Whether to write it now, and why.
    pub write: Option<WriteReason>,
    /// To be told together with the write.
    pub event: Option<JobEvent>,
    /// The job is to be deleted: its time to live after completion has run out.
    pub delete: bool,
    /// OpenKruise's finalizer is to be taken off.
    pub strip_finalizer: bool,
    /// What is left of the job's deadline for new orders.
    pub deadline_left: Option<Duration>,
    /// When to plan again if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Why nodes wait.
    pub waiting: Vec<WaitingOn>,
    /// For the memory of the next plan.
    pub deferred_since: BTreeMap<NodeName, Timestamp>,
    /// The job is over.
    pub complete: bool,
}

/// Why a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteReason {
    /// First look at the job.
    Start,
    /// The spec was edited.
    Edited,
    /// First node that failed.
    FirstFailure,
    /// Another quarter of the nodes has ended.
    Step,
    /// Results have waited long enough.
    Unsaved,
    /// The number of selected nodes has changed.
    Selection,
    /// A job that never completes asks all nodes again.
    Round,
    /// The job is over.
    Completed,
}

/// An event on the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// Warning rather than Normal.
    pub warning: bool,
    /// PullImageSucceed or PullImageFailed.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// Decides what to do for a job now. Pure: the same snapshot gives the same plan.
///
/// Promises: never more than `parallelism` nodes hold an order (orders that are being taken back and slots kept for agents of an earlier leader
/// included), unless the number was lowered; a node that has ended gets no order again in the round; a complete job is never touched again
/// but to delete it.
#[must_use]
pub fn plan(snapshot: &JobSnapshot<'_>) -> JobPlan {
    if snapshot.deleting {
        return take_all_back(snapshot, "job deleted");
    }
    let previous = snapshot.status.cloned().unwrap_or_default();
    if let Some(done) = &previous.completion_time {
        return after_completion(snapshot, &previous, done.0);
    }
    match Facts::gather(snapshot) {
        Ok(facts) => facts.plan(snapshot, &previous),
        Err(problem) => invalid(snapshot, &previous, problem),
    }
}

/// What to do for a job while a feature gate is off: nothing. What is in flight is taken back, the conditions name the gate, and a job that is over is
/// left as it is, so that all goes on where it was once the gate is on again.
#[must_use]
pub fn plan_switched_off(snapshot: &JobSnapshot<'_>, gate: &'static str) -> JobPlan {
    let previous = snapshot.status.cloned().unwrap_or_default();
    let nothing = JobPlan {
        counters: counters_of(&previous),
        ..take_all_back(snapshot, "feature gate is off")
    };
    if snapshot.deleting || previous.completion_time.is_some() {
        return JobPlan {
            complete: previous.completion_time.is_some(),
            ..nothing
        };
    }
    let reason = WaitingOn::SwitchedOff { gate };
    let text = reason.to_string();
    let mut status = previous.clone();
    // Nobody has acted on the spec; whoever does so first writes down that they have.
    status.observed_generation = None;
    status.conditions = status::standstill_conditions(
        &previous.conditions,
        "FeatureGateDisabled",
        &text,
        snapshot.generation,
        snapshot.now,
    );
    status.message = Some(text);
    JobPlan {
        write: (status != previous).then_some(WriteReason::Edited),
        waiting: vec![reason],
        status,
        ..nothing
    }
}

/// Everything in flight is taken back; nothing else happens.
fn take_all_back(snapshot: &JobSnapshot<'_>, why: &'static str) -> JobPlan {
    JobPlan {
        cancel: in_flight(snapshot).map(|node| (node.clone(), why)).collect(),
        strip_finalizer: snapshot.legacy_finalizer,
        status: snapshot.status.cloned().unwrap_or_default(),
        ..JobPlan::default()
    }
}

pub(super) fn in_flight<'a>(snapshot: &'a JobSnapshot<'_>) -> impl Iterator<Item = &'a NodeName> {
    snapshot
        .tasks
        .iter()
        .filter(|(_, task)| matches!(task.state, TaskState::InFlight { .. }))
        .map(|(node, _)| node)
}

fn after_completion(snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus, done: Timestamp) -> JobPlan {
    let expires = snapshot
        .spec
        .completion_policy
        .ttl_seconds_after_finished
        .map(|seconds| later(done, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))));
    JobPlan {
        complete: true,
        counters: counters_of(previous),
        delete: expires.is_some_and(|expires| expires <= snapshot.now),
        wake: expires.filter(|expires| *expires > snapshot.now),
        ..take_all_back(snapshot, "job has completed")
    }
}

pub(super) fn counters_of(status: &ImagePullJobStatus) -> Counters {
    let number = |count: i32| usize::try_from(count).unwrap_or(0);
    Counters {
        desired: number(status.desired),
        active: number(status.active),
        succeeded: number(status.succeeded),
        failed: number(status.failed),
    }
}

/// A spec that got past admission and cannot be acted on: nothing runs, the condition names the field, and an edit cures it.
fn invalid(snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus, problem: WaitingOn) -> JobPlan {
    let text = problem.to_string();
    let mut status = previous.clone();
    status.message = Some(text.clone());
    status.observed_generation = Some(snapshot.generation);
    status.conditions = status::standstill_conditions(
        &previous.conditions,
        "InvalidSpec",
        &text,
        snapshot.generation,
        snapshot.now,
    );
    status.start_time.get_or_insert(Time(snapshot.now));
    JobPlan {
        write: (status != *previous).then_some(WriteReason::Edited),
        counters: counters_of(previous),
        waiting: vec![problem],
        status,
        ..take_all_back(snapshot, "the spec is not valid")
    }
}

impl Facts {
    pub(super) fn plan(mut self, snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus) -> JobPlan {
        if self.round_is_over(snapshot) {
            return self.begin_round(snapshot, previous);
        }
        let deadline = self.deadline(snapshot);
        let expired = deadline.is_some_and(|deadline| deadline <= snapshot.now);
        let mut cancel = self.superseded(snapshot);
        let mut assign = Vec::new();
        if expired {
            cancel.extend(self.fail_the_rest());
        } else {
            assign = self.fill(snapshot);
        }
        let counters = self.count();
        let all_ended = counters.ended() == counters.desired;
        let waits_for_nodes = counters.desired == 0 && snapshot.young_nodes;
        let standing = match () {
            () if expired => Standing::DeadlineExceeded,
            () if all_ended && !waits_for_nodes && !snapshot.spec.completion_policy.is_never() => {
                Standing::Completed
            }
            () if self.parallelism == 0 => Standing::Paused,
            () => Standing::Running,
        };
        let complete = matches!(standing, Standing::Completed | Standing::DeadlineExceeded);
        let mut plan = JobPlan {
            round: self.round,
            status: self.status(snapshot, previous, standing, &counters),
            waiting: if complete {
                Vec::new()
            } else {
                self.waiting(snapshot, &counters)
            },
            deadline_left: deadline.map(|deadline| until(snapshot.now, deadline)),
            strip_finalizer: snapshot.legacy_finalizer,
            wake: deadline.filter(|_| !complete),
            urgent_pending: if complete {
                Vec::new()
            } else {
                self.urgent_pending(snapshot)
            },
            image: Some(self.image.clone()),
            probe: if complete {
                Vec::new()
            } else {
                self.probe(snapshot)
            },
            capped: self.capped,
            assign,
            cancel,
            counters,
            complete,
            ..JobPlan::default()
        };
        self.decide_write(snapshot, previous, &mut plan);
        if complete {
            plan.wake = None;
        } else {
            self.wake_for_agents(snapshot, &mut plan);
            plan.deferred_since = self.deferred_since;
        }
        plan
    }

    /// When the job ends whatever is left. Numbers that make no sense count as none.
    pub(super) fn deadline(&self, snapshot: &JobSnapshot<'_>) -> Option<Timestamp> {
        let policy = &snapshot.spec.completion_policy;
        let seconds = policy.active_deadline_seconds.filter(|_| !policy.is_never())?;
        Some(later(
            self.started,
            Duration::from_secs(u64::try_from(seconds).ok()?),
        ))
    }

    /// A node without an agent is looked at again when its patience ends, and slots kept for a failover when they become free.
    pub(super) fn wake_for_agents(&self, snapshot: &JobSnapshot<'_>, plan: &mut JobPlan) {
        let silent = self
            .deferred_since
            .values()
            .min()
            .map(|since| later(*since, snapshot.clocks.silent_node));
        let may_hold = self.nodes.iter().any(|(_, stand)| *stand == Stand::MayHold);
        let waits = may_hold || Self::awaited(snapshot) > 0;
        let future = |at: Option<Timestamp>| at.filter(|at| waits && *at > snapshot.now);
        let clocks = &snapshot.clocks;
        plan.wake = earliest([
            plan.wake,
            self.grown_up,
            self.next_round(snapshot)
                .map(|at| at.0)
                .filter(|at| *at > snapshot.now),
            silent,
            future(clocks.reserve_until),
            future(clocks.grace_until),
        ]);
    }
}
