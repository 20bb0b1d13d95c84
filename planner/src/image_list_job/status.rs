//! What the status of a list says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kruise_api::image_list_pull_job::{FailedImageStatus, ImageListPullJobStatus, ImageOutcome};
use kruise_api::image_pull_job::conditions as kinds;

use super::children::{self, Image};
use super::snapshot::{ChildProgress, ChildView, ListSnapshot};
use crate::job::status::condition;

/// How a list stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing<'a> {
    Running,
    Over { failed: bool },
    Standstill { reason: &'static str, text: &'a str },
}

/// Images by how far they are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) desired: usize,
    active: usize,
    pub(super) completed: usize,
    succeeded: usize,
    pub(super) failed: Vec<FailedImageStatus>,
    ended: Vec<ImageOutcome>,
}

impl Tally {
    pub(super) fn of(snapshot: &ListSnapshot<'_>, images: &[Image<'_>]) -> Self {
        let mut tally = Self {
            desired: images.len(),
            ..Self::default()
        };
        for image in images {
            match (image.child, image.outcome) {
                // One that is about to be replaced says nothing about what is wanted now.
                (Some(child), _) if is_replaced(snapshot, child) => {}
                (Some(child), _) => tally.count_child(snapshot, image, child),
                (None, Some(outcome)) => {
                    // In the spelling of today.
                    let image_now = image.raw.to_owned();
                    tally.count_ended(
                        image,
                        ImageOutcome {
                            image: image_now,
                            ..outcome.clone()
                        },
                    );
                }
                (None, None) => {}
            }
        }
        tally
    }

    fn count_child(&mut self, snapshot: &ListSnapshot<'_>, image: &Image<'_>, child: &ChildView) {
        let Some(progress) = child.progress else { return };
        let ChildProgress {
            complete,
            desired,
            active,
            succeeded,
            failed,
        } = progress;
        self.active += usize::from(active > 0 && !complete);
        let outcome = ImageOutcome {
            image: image.raw.to_owned(),
            image_pull_job: child.name.clone(),
            desired,
            succeeded,
            failed,
        };
        let never = snapshot.spec.completion_policy.is_never();
        if complete {
            self.count_ended(image, outcome);
        } else if never && desired > 0 && succeeded + failed >= desired {
            self.completed += 1;
            self.succeeded += usize::from(succeeded >= desired);
            self.note_failure(image, &outcome);
        } else {
            self.note_failure(image, &outcome);
        }
    }

    fn count_ended(&mut self, image: &Image<'_>, outcome: ImageOutcome) {
        self.completed += 1;
        self.succeeded += usize::from(outcome.succeeded >= outcome.desired);
        self.note_failure(image, &outcome);
        self.ended.push(outcome);
    }

    fn note_failure(&mut self, image: &Image<'_>, outcome: &ImageOutcome) {
        if outcome.failed > 0 {
            let job = &outcome.image_pull_job;
            self.failed.push(FailedImageStatus {
                image_pull_job: job.clone(),
                name: image.raw.to_owned(),
                message: format!(
                    "{} of {} nodes failed; see: kubectl get ImagePullJob {job} -o yaml",
                    outcome.failed, outcome.desired
                ),
            });
        }
    }

    pub(super) fn status(
        self,
        snapshot: &ListSnapshot<'_>,
        previous: &ImageListPullJobStatus,
        revision: &str,
        standing: &Standing<'_>,
    ) -> ImageListPullJobStatus {
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let over = matches!(standing, Standing::Over { .. });
        ImageListPullJobStatus {
            start_time: Some(previous.start_time.clone().unwrap_or(Time(snapshot.now))),
            completion_time: over.then_some(Time(snapshot.now)),
            desired: number(self.desired),
            active: number(self.active),
            completed: number(self.completed),
            succeeded: number(self.succeeded),
            failed_image_statuses: self.failed,
            observed_generation: Some(snapshot.generation),
            conditions: conditions(&previous.conditions, standing, snapshot.generation, snapshot.now),
            revision: Some(revision.to_owned()),
            image_outcomes: self.ended,
        }
    }
}

/// Whether a job will be deleted and made anew.
fn is_replaced(snapshot: &ListSnapshot<'_>, child: &ChildView) -> bool {
    children::differs(snapshot, child) && children::patch(snapshot, child, "").is_none()
}

/// The three conditions. A condition whose value stays keeps its transition time.
pub(super) fn conditions(
    previous: &[Condition],
    standing: &Standing<'_>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let (progressing, complete, failed, reason, text) = match standing {
        Standing::Running => (true, false, false, "Pulling", "images are being pulled"),
        Standing::Over { failed: false } => (false, true, false, "Completed", "all images are present"),
        Standing::Over { failed: true } => (
            false,
            true,
            true,
            "ImagesFailed",
            "some images failed on some nodes; failedImageStatuses names them",
        ),
        Standing::Standstill { reason, text } => (false, false, false, *reason, *text),
    };
    [
        (kinds::PROGRESSING, progressing),
        (kinds::COMPLETE, complete),
        (kinds::FAILED, failed),
    ]
    .into_iter()
    .map(|(kind, value)| condition(previous, kind, value, reason, text.to_owned(), generation, now))
    .collect()
}
