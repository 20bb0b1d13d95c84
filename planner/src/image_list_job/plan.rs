//! The plan: jobs to be made, changed and deleted, and the status.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::JobUid;
use kruise_api::image_list_pull_job::ImageListPullJobStatus;

use super::children::{self, ChildPatch, Image, NewChild};
use super::snapshot::{ChildView, ListSnapshot, Refusal};
use super::status::{self, Standing, Tally};
use crate::job::times::{earliest, later};

/// Least time between two writes that only tell of progress.
const STEP_INTERVAL: Duration = Duration::from_secs(10);

/// What to do for a list now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListPlan {
    /// Jobs to be made, in this order. One that fails stops those behind it.
    pub create: Vec<NewChild>,
    /// Jobs to be changed.
    pub patch: Vec<ChildPatch>,
    /// Jobs to be deleted, by UID and name.
    pub delete: Vec<(JobUid, String)>,
    /// What a write would say.
    pub status: ImageListPullJobStatus,
    /// Whether to write it now, and why.
    pub write: Option<ListWrite>,
    /// OpenKruise's finalizer is to be taken off.
    pub strip_finalizer: bool,
    /// The list is to be deleted: its time to live after completion has run out.
    pub expire: bool,
    /// When to plan again if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Why nothing more happens, for people.
    pub waiting: Vec<String>,
}

/// Why a status is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListWrite {
    /// First look at the list.
    Start,
    /// The spec was edited.
    Edited,
    /// First image that failed.
    FirstFailure,
    /// The counters have changed.
    Progress,
    /// How the list stands has changed.
    Standing,
    /// The list is over.
    Completed,
}

/// An event on a list. The caller tells it once what it is about has been done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEvent {
    /// Warning rather than Normal.
    pub warning: bool,
    /// SuccessfulCreate, SuccessfulDelete or FailedCreate.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl ListEvent {
    /// Jobs were made.
    #[must_use]
    pub fn created(count: usize) -> Self {
        Self {
            warning: false,
            reason: "SuccessfulCreate",
            message: format!("Create {count} ImagePullJob"),
        }
    }

    /// Jobs were deleted.
    #[must_use]
    pub fn deleted(count: usize) -> Self {
        Self {
            warning: false,
            reason: "SuccessfulDelete",
            message: format!("Delete {count} ImagePullJob"),
        }
    }

    /// A job could not be made.
    #[must_use]
    pub fn failed(image: &str, why: &str) -> Self {
        Self {
            warning: true,
            reason: "FailedCreate",
            message: format!("ImagePullJob for {image} was not created: {why}"),
        }
    }
}

/// Decides what to do for a list now. Pure: the same snapshot gives the same plan.
///
/// Promises: at most one job per image that is not being deleted, whatever the spellings; an image that is done gets no job again under the same template;
/// a list that is over is never touched again but to delete it; a status equal to the stored one is not written.
#[must_use]
pub fn plan(snapshot: &ListSnapshot<'_>) -> ListPlan {
    let previous = snapshot.status.cloned().unwrap_or_default();
    let nothing = ListPlan {
        strip_finalizer: snapshot.legacy_finalizer,
        status: previous.clone(),
        ..ListPlan::default()
    };
    if snapshot.deleting {
        // The jobs go with their owner.
        return nothing;
    }
    if let Some(done) = &previous.completion_time {
        let ttl = snapshot.spec.completion_policy.ttl_seconds_after_finished;
        let expires =
            ttl.map(|seconds| later(done.0, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))));
        return ListPlan {
            expire: expires.is_some_and(|at| at <= snapshot.now),
            wake: expires.filter(|at| *at > snapshot.now),
            ..nothing
        };
    }
    if let Some(gate) = snapshot.switched_off {
        let text = format!("feature-gate {gate} is not enabled");
        return standstill(snapshot, &previous, "FeatureGateDisabled", text, nothing);
    }
    let revision = children::revision(snapshot.spec);
    match children::match_up(snapshot, &revision) {
        Ok((images, strays)) => act(snapshot, &previous, &revision, &images, &strays, nothing),
        Err(error) => standstill(
            snapshot,
            &previous,
            "InvalidSpec",
            format!("spec.images: {error}"),
            nothing,
        ),
    }
}

/// Nothing can be done; the conditions say why.
fn standstill(
    snapshot: &ListSnapshot<'_>,
    previous: &ImageListPullJobStatus,
    reason: &'static str,
    text: String,
    nothing: ListPlan,
) -> ListPlan {
    let mut status = previous.clone();
    status.observed_generation = Some(snapshot.generation);
    status.start_time.get_or_insert(Time(snapshot.now));
    status.conditions = status::conditions(
        &previous.conditions,
        &Standing::Standstill { reason, text: &text },
        snapshot.generation,
        snapshot.now,
    );
    ListPlan {
        write: (status != *previous).then_some(ListWrite::Standing),
        waiting: vec![text],
        status,
        ..nothing
    }
}

fn act(
    snapshot: &ListSnapshot<'_>,
    previous: &ImageListPullJobStatus,
    revision: &str,
    images: &[Image<'_>],
    strays: &[&ChildView],
    nothing: ListPlan,
) -> ListPlan {
    let gone = |child: &ChildView| (child.uid.clone(), child.name.clone());
    let mut plan = ListPlan {
        delete: strays.iter().map(|child| gone(child)).collect(),
        ..nothing
    };
    let mut refusals: Vec<&Refusal> = Vec::new();
    for image in images {
        let refusal = refused(snapshot, &image.canonical);
        let wanted = match image.child {
            Some(child) if !children::differs(snapshot, child) => false,
            Some(child) => match children::patch(snapshot, child, revision) {
                Some(patch) => {
                    plan.patch.push(patch);
                    false
                }
                None => {
                    plan.delete.push(gone(child));
                    true
                }
            },
            None => image.outcome.is_none(),
        };
        match refusal {
            Some(refusal) if wanted => refusals.push(refusal),
            _ if wanted => plan.create.push(children::new_child(snapshot, image, revision)),
            _ => {}
        }
    }
    let tally = Tally::of(snapshot, images);
    let never = snapshot.spec.completion_policy.is_never();
    let over = tally.completed == tally.desired && plan.create.is_empty() && refusals.is_empty() && !never;
    let standing = match refusals.first() {
        _ if over => Standing::Over {
            failed: !tally.failed.is_empty(),
        },
        Some(refusal) => Standing::Standstill {
            reason: "ChildRefused",
            text: &refusal.message,
        },
        None => Standing::Running,
    };
    plan.waiting = refusals.iter().map(|refusal| refusal.message.clone()).collect();
    plan.status = tally.status(snapshot, previous, revision, &standing);
    let retry = refusals.iter().map(|refusal| refusal.until).min();
    decide_write(snapshot, previous, over, retry, &mut plan);
    plan
}

/// What keeps an image's job from being made now.
fn refused<'a>(snapshot: &ListSnapshot<'a>, canonical: &str) -> Option<&'a Refusal> {
    snapshot
        .memory
        .refused
        .get(canonical)
        .filter(|refusal| refusal.generation == snapshot.generation && refusal.until > snapshot.now)
}

fn decide_write(
    snapshot: &ListSnapshot<'_>,
    previous: &ImageListPullJobStatus,
    over: bool,
    retry: Option<Timestamp>,
    plan: &mut ListPlan,
) {
    plan.wake = retry;
    if plan.status == *previous {
        return;
    }
    let reasons = |status: &ImageListPullJobStatus| -> Vec<String> {
        let reasons = status.conditions.iter();
        reasons.map(|condition| condition.reason.clone()).collect()
    };
    let step = snapshot
        .memory
        .last_write
        .map(|last| later(last, STEP_INTERVAL))
        .filter(|at| *at > snapshot.now);
    let first_failure =
        previous.failed_image_statuses.is_empty() && !plan.status.failed_image_statuses.is_empty();
    plan.write = match () {
        () if over => Some(ListWrite::Completed),
        () if previous.start_time.is_none() => Some(ListWrite::Start),
        () if previous.observed_generation != Some(snapshot.generation) => Some(ListWrite::Edited),
        () if reasons(previous) != reasons(&plan.status) => Some(ListWrite::Standing),
        () if first_failure => Some(ListWrite::FirstFailure),
        () if step.is_none() => Some(ListWrite::Progress),
        () => None,
    };
    if plan.write.is_none() {
        plan.wake = earliest([plan.wake, step]);
    }
}
