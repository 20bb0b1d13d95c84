//! Objects of the API as the engine keeps them: only what decisions need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::{ImagePullJob, ImagePullJobSpec, ImagePullJobStatus};
use kruise_api::names;

/// An object that the API server could not have stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} has no {missing}")]
pub struct Incomplete {
    kind: &'static str,
    name: String,
    missing: &'static str,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobObject {
    /// Its UID.
    pub uid: JobUid,
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// What is wanted.
    pub spec: ImagePullJobSpec,
    /// As stored.
    pub status: Option<ImagePullJobStatus>,
}

impl JobObject {
    /// Whether nothing will happen to it but its deletion.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.completion_time.is_some())
    }

    /// Whether OpenKruise's finalizer is on it.
    #[must_use]
    pub fn has_legacy_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == names::LEGACY_FINALIZER)
    }

    /// Whether `self` is at least as new as `other`. Versions are numbers that grow (KEP-5504); texts that are no numbers count as new.
    #[must_use]
    pub fn is_as_new_as(&self, other: &Self) -> bool {
        match (self.version.parse::<u64>(), other.version.parse::<u64>()) {
            (Ok(mine), Ok(theirs)) => mine >= theirs,
            _ => true,
        }
    }
}

impl TryFrom<ImagePullJob> for JobObject {
    type Error = Incomplete;

    fn try_from(job: ImagePullJob) -> Result<Self, Incomplete> {
        let meta = job.metadata;
        let name = meta.name.unwrap_or_default();
        let lacks = |missing| Incomplete {
            kind: "ImagePullJob",
            name: name.clone(),
            missing,
        };
        Ok(Self {
            uid: JobUid::new(meta.uid.ok_or_else(|| lacks("uid"))?),
            version: meta.resource_version.ok_or_else(|| lacks("resourceVersion"))?,
            key: ObjectKey::new(meta.namespace.ok_or_else(|| lacks("namespace"))?, name),
            generation: meta.generation.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.unwrap_or_default(),
            spec: job.spec,
            status: job.status,
        })
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObject {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: NodeUid,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its condition Ready, when it has one.
    pub ready: Option<Ready>,
}

/// Condition Ready of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whether it is True.
    pub is_true: bool,
    /// `lastTransitionTime`.
    pub since: Timestamp,
}

impl NodeObject {
    /// From the parts that a watch delivers.
    ///
    /// # Errors
    /// Without a UID.
    pub fn from_parts(meta: ObjectMeta, ready: Option<Ready>) -> Result<Self, Incomplete> {
        let name = meta.name.unwrap_or_default();
        let Some(uid) = meta.uid else {
            return Err(Incomplete {
                kind: "Node",
                name,
                missing: "uid",
            });
        };
        Ok(Self {
            name: NodeName::new(name),
            uid: NodeUid::new(uid),
            labels: meta.labels.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            ready,
        })
    }

    /// Virtual kubelets have no container runtime to pull with.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.labels
            .get("type")
            .is_some_and(|kind| kind == "virtual-kubelet")
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Listing<T, K> {
    /// A list begins: what does not come up in it is gone.
    Begin,
    /// Part of the list.
    Listed(T),
    /// The list is complete.
    Complete,
    /// Made or changed.
    Applied(T),
    /// Gone.
    Deleted(K),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let job = |version: &str| JobObject {
            uid: "u".into(),
            key: ObjectKey::new("ns", "n"),
            version: version.to_owned(),
            generation: 1,
            deleting: false,
            finalizers: Vec::new(),
            spec: ImagePullJobSpec::default(),
            status: None,
        };
        assert!(job("10").is_as_new_as(&job("9")));
        assert!(job("9").is_as_new_as(&job("9")));
        assert!(!job("9").is_as_new_as(&job("10")));
        assert!(job("x").is_as_new_as(&job("10")));
    }

    #[test]
    fn an_object_without_uid_is_refused_with_its_name() {
        let mut job = ImagePullJob::new("a", ImagePullJobSpec::default());
        job.metadata.namespace = Some("ns".into());
        job.metadata.resource_version = Some("1".into());
        let error = JobObject::try_from(job).expect_err("no uid");
        assert_eq!(error.to_string(), "ImagePullJob \"a\" has no uid");
    }
}
