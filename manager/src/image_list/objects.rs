//! Lists and their jobs as the controller keeps them: only what decisions need.

use std::collections::BTreeMap;

use kruise_api::ids::{JobUid, ObjectKey};
use kruise_api::image_list_pull_job::{ImageListPullJob, ImageListPullJobSpec, ImageListPullJobStatus};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::names;
use kruise_planner::image_list_job::{ChildProgress, ChildView};

/// A list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListObject {
    pub(crate) uid: JobUid,
    pub(crate) key: ObjectKey,
    pub(crate) version: String,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) spec: ImageListPullJobSpec,
    pub(crate) status: Option<ImageListPullJobStatus>,
}

impl ListObject {
    pub(crate) fn has_legacy_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == names::LEGACY_FINALIZER)
    }
}

impl TryFrom<ImageListPullJob> for ListObject {
    type Error = String;

    fn try_from(list: ImageListPullJob) -> Result<Self, String> {
        let meta = list.metadata;
        let name = meta.name.unwrap_or_default();
        let lacks = |what| format!("ImageListPullJob {name:?} has no {what}");
        Ok(Self {
            uid: JobUid::new(meta.uid.ok_or_else(|| lacks("uid"))?),
            version: meta.resource_version.ok_or_else(|| lacks("resourceVersion"))?,
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            key: ObjectKey::new(meta.namespace.ok_or_else(|| lacks("namespace"))?, name),
            spec: list.spec,
            status: list.status,
        })
    }
}

/// A job that a list controls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildObject {
    /// UID of its list.
    pub(crate) list: JobUid,
    pub(crate) version: String,
    pub(crate) view: ChildView,
}

impl ChildObject {
    /// None for a job that no list controls.
    pub(crate) fn read(job: ImagePullJob) -> Result<Option<Self>, String> {
        let meta = job.metadata;
        let owner = meta.owner_references.iter().flatten().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "ImageListPullJob"
                && owner.api_version.starts_with("apps.kruise.io/")
        });
        let Some(list) = owner.map(|owner| JobUid::new(owner.uid.as_str())) else {
            return Ok(None);
        };
        let name = meta.name.unwrap_or_default();
        let lacks = |what| format!("ImagePullJob {name:?} has no {what}");
        let started = job.status.filter(|status| status.start_time.is_some());
        Ok(Some(Self {
            list,
            version: meta.resource_version.ok_or_else(|| lacks("resourceVersion"))?,
            view: ChildView {
                uid: JobUid::new(meta.uid.ok_or_else(|| lacks("uid"))?),
                deleting: meta.deletion_timestamp.is_some(),
                created: meta.creation_timestamp.map(|time| time.0).unwrap_or_default(),
                annotations: meta.annotations.unwrap_or_default(),
                spec: job.spec,
                progress: started.map(|status| ChildProgress {
                    complete: status.completion_time.is_some(),
                    desired: status.desired,
                    active: status.active,
                    succeeded: status.succeeded,
                    failed: status.failed,
                }),
                name,
            },
        }))
    }
}
