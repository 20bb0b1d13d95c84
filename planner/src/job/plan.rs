//! The plan itself.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::NodeName;
use kruise_api::image_pull_job::{ImagePullJobStatus, Outcomes};
use kruise_api::intstr;
use kruise_api::reference::ImageRef;

use super::outcomes::{NodeSet, round_of, stored};
use super::selection::select;
use super::snapshot::{AgentView, JobSnapshot, TaskOutcome, TaskState};
use super::status::{self, Counters, Failure, Standing};
use super::waiting::WaitingOn;
use crate::task::{Reason, pull_task_id};

/// Least time between two writes that only tell of progress.
const STEP_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time that a result waits for a write, and least time between writes about a changed selection.
const SAVE_INTERVAL: Duration = Duration::from_secs(30);
/// What OpenKruise says of a node that does not answer.
const SILENT_TEXT: &str = "node has not responded for a long time";
/// Nodes without an agent that are named one by one.
const AWAY_NAMED: usize = 5;

/// What to do for a job now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlan {
    /// Round that new orders belong to.
    pub round: u32,
    /// Image of this round; none when the spec cannot be acted on.
    pub image: Option<ImageRef>,
    /// Nodes to give an order to, first things first.
    pub assign: Vec<NodeName>,
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

/// Everything in flight is taken back; nothing else happens.
fn take_all_back(snapshot: &JobSnapshot<'_>, why: &'static str) -> JobPlan {
    JobPlan {
        cancel: in_flight(snapshot).map(|node| (node.clone(), why)).collect(),
        strip_finalizer: snapshot.legacy_finalizer,
        status: snapshot.status.cloned().unwrap_or_default(),
        ..JobPlan::default()
    }
}

fn in_flight<'a>(snapshot: &'a JobSnapshot<'_>) -> impl Iterator<Item = &'a NodeName> {
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

fn counters_of(status: &ImagePullJobStatus) -> Counters {
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
    status.conditions =
        status::invalid_conditions(&previous.conditions, &text, snapshot.generation, snapshot.now);
    status.start_time.get_or_insert(Time(snapshot.now));
    JobPlan {
        write: (status != *previous).then_some(WriteReason::Edited),
        counters: counters_of(previous),
        waiting: vec![problem],
        status,
        ..take_all_back(snapshot, "the spec is not valid")
    }
}

/// Where one selected node stands.
#[derive(Clone, Debug, PartialEq)]
enum Stand {
    Succeeded,
    Failed(Option<Failure>),
    InFlight,
    Cancelling,
    Pending,
    Away,
    MayHold,
}

/// The job, read and sorted.
struct Facts {
    image: ImageRef,
    round: u32,
    parallelism: u32,
    started: Timestamp,
    nodes: Vec<(NodeName, Stand)>,
    stored: (NodeSet, NodeSet),
    deferred_since: BTreeMap<NodeName, Timestamp>,
}

impl Facts {
    fn gather(snapshot: &JobSnapshot<'_>) -> Result<Self, WaitingOn> {
        let bad = |field, message: String| WaitingOn::InvalidSpec { field, message };
        let image =
            ImageRef::parse(&snapshot.spec.image).map_err(|error| bad("spec.image", error.to_string()))?;
        let parallelism = intstr::parallelism(snapshot.spec.parallelism.as_ref())
            .map_err(|error| bad("spec.parallelism", error.to_string()))?;
        let selected = select(snapshot.spec, snapshot.nodes, snapshot.pods)
            .map_err(|error| bad("spec.selector", error.to_string()))?;
        let mut facts = Self {
            round: round_of(&image, snapshot.status),
            stored: stored(&image, snapshot.status),
            image,
            parallelism,
            started: snapshot
                .status
                .and_then(|status| status.start_time.as_ref())
                .map_or(snapshot.now, |time| time.0),
            nodes: Vec::with_capacity(selected.len()),
            deferred_since: BTreeMap::new(),
        };
        for name in selected {
            let stand = facts.stand(snapshot, &name);
            facts.nodes.push((name, stand));
        }
        Ok(facts)
    }

    fn stand(&mut self, snapshot: &JobSnapshot<'_>, name: &NodeName) -> Stand {
        let Some(node) = snapshot.nodes.get(name) else {
            return Stand::Away;
        };
        if self.stored.0.contains(&node.uid) {
            return Stand::Succeeded;
        }
        if self.stored.1.contains(&node.uid) {
            return Stand::Failed(None);
        }
        let present = pull_task_id(snapshot.uid, &node.uid, &self.image, self.round);
        match snapshot
            .tasks
            .get(name)
            .map(|task| (&task.state, task.id == present))
        {
            // Of an earlier round: the result counts for nothing, and the slot is free once the order is taken back.
            Some((TaskState::Ended(_), false)) | None => {}
            Some((TaskState::InFlight { .. } | TaskState::Cancelling, false)) => return Stand::Cancelling,
            Some((TaskState::InFlight { .. }, true)) => return Stand::InFlight,
            Some((TaskState::Cancelling, true)) => return Stand::Cancelling,
            Some((TaskState::Ended(TaskOutcome::Succeeded), true)) => return Stand::Succeeded,
            Some((TaskState::Ended(TaskOutcome::Failed { reason, message }), true)) => {
                return Stand::Failed(Some(Failure {
                    reason: *reason,
                    message: message.clone(),
                }));
            }
        }
        if node.agent == AgentView::Attached {
            return Stand::Pending;
        }
        let since = *snapshot.memory.deferred_since.get(name).unwrap_or(&snapshot.now);
        if later(since, snapshot.clocks.silent_node) <= snapshot.now {
            return Stand::Failed(Some(Failure {
                reason: Reason::NodeUnreachable,
                message: SILENT_TEXT.to_owned(),
            }));
        }
        self.deferred_since.insert(name.clone(), since);
        let reserving = snapshot
            .clocks
            .reserve_until
            .is_some_and(|until| until > snapshot.now);
        if node.agent == AgentView::MayHold && reserving {
            Stand::MayHold
        } else {
            Stand::Away
        }
    }

    fn plan(mut self, snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus) -> JobPlan {
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
            image: Some(self.image.clone()),
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
    fn deadline(&self, snapshot: &JobSnapshot<'_>) -> Option<Timestamp> {
        let policy = &snapshot.spec.completion_policy;
        let seconds = policy.active_deadline_seconds.filter(|_| !policy.is_never())?;
        Some(later(
            self.started,
            Duration::from_secs(u64::try_from(seconds).ok()?),
        ))
    }

    /// Orders of nodes that are selected no longer, and of rounds that are over.
    fn superseded(&self, snapshot: &JobSnapshot<'_>) -> Vec<(NodeName, &'static str)> {
        let present: BTreeMap<&NodeName, &Stand> =
            self.nodes.iter().map(|(name, stand)| (name, stand)).collect();
        in_flight(snapshot)
            .filter_map(|node| match present.get(node) {
                None => Some((node.clone(), "node left the selection")),
                Some(Stand::InFlight) => None,
                Some(_) => Some((node.clone(), "superseded")),
            })
            .collect()
    }

    /// The deadline has passed: whatever has not ended has failed.
    fn fail_the_rest(&mut self) -> Vec<(NodeName, &'static str)> {
        let mut cancel = Vec::new();
        for (name, stand) in &mut self.nodes {
            if matches!(stand, Stand::Succeeded | Stand::Failed(_)) {
                continue;
            }
            if *stand == Stand::InFlight {
                cancel.push((name.clone(), "job exceeds activeDeadlineSeconds"));
            }
            *stand = Stand::Failed(Some(Failure {
                reason: Reason::DeadlineExceeded,
                message: "job exceeds activeDeadlineSeconds".to_owned(),
            }));
        }
        cancel
    }

    /// Hands out the free slots in order. A slot is taken by an order in flight or being taken back, whatever node it is on, and kept for
    /// each agent that may still hold an order of an earlier leader.
    fn fill(&mut self, snapshot: &JobSnapshot<'_>) -> Vec<NodeName> {
        let may_hold = self
            .nodes
            .iter()
            .filter(|(_, stand)| *stand == Stand::MayHold)
            .count();
        let in_grace = snapshot
            .clocks
            .grace_until
            .is_some_and(|until| until > snapshot.now);
        if in_grace && may_hold > 0 {
            return Vec::new();
        }
        let held = snapshot
            .tasks
            .values()
            .filter(|task| matches!(task.state, TaskState::InFlight { .. } | TaskState::Cancelling))
            .count();
        let mut free = (self.parallelism as usize).saturating_sub(held + may_hold);
        let mut assign = Vec::new();
        for (name, stand) in &mut self.nodes {
            if free == 0 {
                break;
            }
            if *stand == Stand::Pending {
                *stand = Stand::InFlight;
                assign.push(name.clone());
                free -= 1;
            }
        }
        assign
    }

    fn count(&self) -> Counters {
        let of = |wanted: fn(&Stand) -> bool| self.nodes.iter().filter(|(_, stand)| wanted(stand)).count();
        Counters {
            desired: self.nodes.len(),
            active: of(|stand| matches!(stand, Stand::InFlight | Stand::Cancelling)),
            succeeded: of(|stand| matches!(stand, Stand::Succeeded)),
            failed: of(|stand| matches!(stand, Stand::Failed(_))),
        }
    }

    fn status(
        &self,
        snapshot: &JobSnapshot<'_>,
        previous: &ImagePullJobStatus,
        standing: Standing,
        counters: &Counters,
    ) -> ImagePullJobStatus {
        let same_round = previous
            .outcomes
            .as_ref()
            .is_some_and(|outcomes| outcomes.image == self.image.canonical());
        let (mut succeeded, mut failed) = self.stored.clone();
        let mut fresh = BTreeMap::new();
        for (name, stand) in &self.nodes {
            let Some(node) = snapshot.nodes.get(name) else {
                continue;
            };
            match stand {
                Stand::Succeeded => succeeded.insert(&node.uid),
                Stand::Failed(failure) => {
                    failed.insert(&node.uid);
                    if let Some(failure) = failure {
                        fresh.insert(name.clone(), failure.clone());
                    }
                }
                _ => {}
            }
        }
        let failures = status::summarise(if same_round { &previous.failures } else { &[] }, &fresh);
        let over = matches!(standing, Standing::Completed | Standing::DeadlineExceeded);
        let mut status = ImagePullJobStatus {
            start_time: Some(Time(self.started)),
            completion_time: over.then_some(Time(snapshot.now)),
            message: Some(status::message(standing, counters)),
            failed_nodes: status::failed_names(
                self.nodes
                    .iter()
                    .filter(|(_, stand)| matches!(stand, Stand::Failed(_)))
                    .map(|(name, _)| name),
            ),
            observed_generation: Some(snapshot.generation),
            conditions: status::job_conditions(
                &previous.conditions,
                standing,
                snapshot.generation,
                counters,
                &failures,
                snapshot.now,
            ),
            failures,
            outcomes: Some(Outcomes {
                round: i32::try_from(self.round).unwrap_or(i32::MAX),
                image: self.image.canonical().to_owned(),
                succeeded: succeeded.encode(),
                failed: failed.encode(),
            }),
            ..ImagePullJobStatus::default()
        };
        status::counters_into(&mut status, counters);
        status
    }

    fn waiting(&self, snapshot: &JobSnapshot<'_>, counters: &Counters) -> Vec<WaitingOn> {
        let mut waiting = Vec::new();
        let of = |wanted: Stand| self.nodes.iter().filter(|(_, stand)| *stand == wanted).count();
        let pending = of(Stand::Pending);
        let may_hold = of(Stand::MayHold);
        if self.parallelism == 0 {
            waiting.push(WaitingOn::Paused);
        } else if let Some(until_then) = snapshot.clocks.reserve_until.filter(|_| may_hold > 0) {
            let left = until(snapshot.now, until_then);
            waiting.push(WaitingOn::Reserved {
                agents: may_hold,
                left,
            });
        } else if pending > 0 {
            let in_flight = counters.active;
            waiting.push(WaitingOn::WindowFull {
                in_flight,
                parallelism: self.parallelism,
                pending,
            });
        }
        let away = self.nodes.iter().filter(|(_, stand)| *stand == Stand::Away);
        for (name, _) in away.clone().take(AWAY_NAMED) {
            let since = self
                .deferred_since
                .get(name)
                .map_or(Duration::ZERO, |since| until(*since, snapshot.now));
            waiting.push(WaitingOn::AgentAway {
                node: name.clone(),
                since,
            });
        }
        let more = away.count().saturating_sub(AWAY_NAMED);
        if more > 0 {
            waiting.push(WaitingOn::MoreAway { nodes: more });
        }
        if counters.desired == 0 {
            waiting.push(if snapshot.young_nodes {
                WaitingOn::YoungNodes
            } else {
                WaitingOn::NoNodes
            });
        }
        waiting
    }

    /// Writes are a budget: at the start, at the first failure, per quarter at least 10 s apart, at the end, and otherwise only so that no result
    /// waits for more than 30 s.
    fn decide_write(&self, snapshot: &JobSnapshot<'_>, previous: &ImagePullJobStatus, plan: &mut JobPlan) {
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

    fn event(&self, plan: &JobPlan, before: &Counters) -> Option<JobEvent> {
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

    /// A node without an agent is looked at again when its patience ends, and slots kept for a failover when they become free.
    fn wake_for_agents(&self, snapshot: &JobSnapshot<'_>, plan: &mut JobPlan) {
        let silent = self
            .deferred_since
            .values()
            .min()
            .map(|since| later(*since, snapshot.clocks.silent_node));
        let may_hold = self.nodes.iter().any(|(_, stand)| *stand == Stand::MayHold);
        let future = |at: Option<Timestamp>| at.filter(|at| may_hold && *at > snapshot.now);
        let clocks = &snapshot.clocks;
        plan.wake = earliest([
            plan.wake,
            silent,
            future(clocks.reserve_until),
            future(clocks.grace_until),
        ]);
    }
}

fn earliest<const N: usize>(times: [Option<Timestamp>; N]) -> Option<Timestamp> {
    times.into_iter().flatten().min()
}

/// `at` plus `span`, or the end of time.
fn later(at: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| at.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

/// From `a` to `b`; zero when `b` is earlier.
fn until(a: Timestamp, b: Timestamp) -> Duration {
    Duration::try_from(b.duration_since(a)).unwrap_or(Duration::ZERO)
}
