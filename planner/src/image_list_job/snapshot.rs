//! What a plan is made from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, ObjectKey};
use kruise_api::image_list_pull_job::{ImageListPullJobSpec, ImageListPullJobStatus, ImageOutcome};
use kruise_api::image_pull_job::ImagePullJobSpec;

/// One list and the jobs of its images, at one moment.
#[derive(Clone, Debug)]
pub struct ListSnapshot<'a> {
    /// UID of the list.
    pub uid: &'a JobUid,
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether the list is being deleted.
    pub deleting: bool,
    /// Whether the list carries OpenKruise's finalizer.
    pub legacy_finalizer: bool,
    /// `metadata.annotations`; those about pulling go to the jobs.
    pub annotations: &'a BTreeMap<String, String>,
    /// What is wanted.
    pub spec: &'a ImageListPullJobSpec,
    /// As last read from, or written to, the API.
    pub status: Option<&'a ImageListPullJobStatus>,
    /// Jobs that the list controls.
    pub children: &'a [ChildView],
    /// What the caller remembers between plans.
    pub memory: &'a ListMemory,
    /// The feature gate that is off and without which no job runs.
    pub switched_off: Option<&'static str>,
    /// Time of the API server.
    pub now: Timestamp,
}

/// The job of one image.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildView {
    /// Its UID.
    pub uid: JobUid,
    /// Its name.
    pub name: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was made.
    pub created: Timestamp,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// What it wants.
    pub spec: ImagePullJobSpec,
    /// How far it is; none until somebody has looked at it.
    pub progress: Option<ChildProgress>,
}

/// How far the job of an image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildProgress {
    /// Whether it is over.
    pub complete: bool,
    /// Selected nodes.
    pub desired: i32,
    /// Nodes at work.
    pub active: i32,
    /// Nodes that have the image.
    pub succeeded: i32,
    /// Nodes that failed.
    pub failed: i32,
}

/// What the caller keeps for a list from plan to plan. Lost with the leader; nothing in it is truth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListMemory {
    /// When this leader last wrote the status, or first saw the list.
    pub last_write: Option<Timestamp>,
    /// Jobs that were over when they were deleted, and that no written status has yet.
    pub ended: Vec<ImageOutcome>,
    /// Jobs that the API server did not take, by canonical reference of the image.
    pub refused: BTreeMap<String, Refusal>,
}

/// Why the API server did not take a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Generation of the list at that time: an edit is tried at once.
    pub generation: i64,
    /// The server's words.
    pub message: String,
    /// Until when it is not asked again.
    pub until: Timestamp,
}
