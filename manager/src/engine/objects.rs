//! Objects of the API as the engine keeps them: only what decisions need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_api::image_pull_job::{ImagePullJob, ImagePullJobSpec, ImagePullJobStatus};
use kruise_api::names;
use kruise_api::node_image::{NodeImage, NodeImageSpec, NodeImageStatus};
use kruise_planner::job::{NodeTrouble, Owner};

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
    /// When it was made.
    pub created: Timestamp,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// The object of group apps.kruise.io that controls it.
    pub controller: Option<Controller>,
    /// What is wanted.
    pub spec: ImagePullJobSpec,
    /// As stored.
    pub status: Option<ImagePullJobStatus>,
}

/// What controls a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

impl JobObject {
    /// Whether it stands for a request of a NodeImage, and is no object of its own.
    #[must_use]
    pub fn is_of_node_image(&self) -> bool {
        self.key.name.contains('/')
    }

    /// Secrets to log in with. Those of a job are of its own namespace, whatever their names look like.
    #[must_use]
    pub fn pull_secrets(&self) -> Vec<ObjectKey> {
        let names = self.spec.pull_secrets.iter();
        if self.is_of_node_image() {
            names
                .filter_map(|name| name.split_once('/'))
                .map(|(namespace, name)| ObjectKey::new(namespace, name))
                .collect()
        } else {
            names
                .map(|name| ObjectKey::new(self.key.namespace.as_str(), name.as_str()))
                .collect()
        }
    }

    /// Name of the list that the job is of.
    #[must_use]
    pub fn list(&self) -> Option<&str> {
        self.controller
            .as_ref()
            .filter(|owner| owner.kind == "ImageListPullJob")
            .map(|owner| owner.name.as_str())
    }

    /// The workload that the job was made for.
    #[must_use]
    pub fn workload(&self) -> Option<Owner> {
        match self.controller.as_ref()?.kind.as_str() {
            "CloneSet" | "SidecarSet" => Some(Owner::CloneSet),
            "StatefulSet" => Some(Owner::StatefulSet),
            "ImageListPullJob" | "AdvancedCronJob" => None,
            _ => Some(Owner::Other),
        }
    }

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
            created: meta.creation_timestamp.map(|time| time.0).unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            controller: controller(meta.owner_references.unwrap_or_default()),
            spec: job.spec,
            status: job.status,
        })
    }
}

fn controller(owners: Vec<OwnerReference>) -> Option<Controller> {
    owners
        .into_iter()
        .find(|owner| owner.controller == Some(true) && owner.api_version.starts_with("apps.kruise.io/"))
        .map(|owner| Controller {
            kind: owner.kind,
            name: owner.name,
        })
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
    /// Whether it is cordoned.
    pub cordoned: bool,
    /// DiskPressure or NetworkUnavailable, when one of them is True.
    pub pressure: Option<NodeTrouble>,
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
            cordoned: false,
            pressure: None,
        })
    }

    /// What speaks against a pull there.
    #[must_use]
    pub fn trouble(&self) -> Option<NodeTrouble> {
        let ready = self.ready.is_some_and(|ready| ready.is_true);
        if ready {
            self.pressure
        } else {
            Some(NodeTrouble::NotReady)
        }
    }

    /// Virtual kubelets have no container runtime to pull with.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.labels
            .get("type")
            .is_some_and(|kind| kind == "virtual-kubelet")
    }
}

/// A NodeImage.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeImageObject {
    /// Its UID.
    pub uid: NodeUid,
    /// Its name, which is that of its node.
    pub name: NodeName,
    /// `metadata.resourceVersion`.
    pub version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What is wanted.
    pub spec: NodeImageSpec,
    /// As stored.
    pub status: Option<NodeImageStatus>,
}

impl NodeImageObject {
    /// Whether `self` is at least as new as `other`.
    #[must_use]
    pub fn is_as_new_as(&self, other: &Self) -> bool {
        match (self.version.parse::<u64>(), other.version.parse::<u64>()) {
            (Ok(mine), Ok(theirs)) => mine >= theirs,
            _ => true,
        }
    }
}

impl TryFrom<NodeImage> for NodeImageObject {
    type Error = Incomplete;

    fn try_from(image: NodeImage) -> Result<Self, Incomplete> {
        let meta = image.metadata;
        let name = meta.name.unwrap_or_default();
        let lacks = |missing| Incomplete {
            kind: "NodeImage",
            name: name.clone(),
            missing,
        };
        Ok(Self {
            uid: NodeUid::new(meta.uid.ok_or_else(|| lacks("uid"))?),
            version: meta.resource_version.ok_or_else(|| lacks("resourceVersion"))?,
            labels: meta.labels.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0).unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            name: NodeName::new(name),
            spec: image.spec,
            status: image.status,
        })
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
            created: Timestamp::UNIX_EPOCH,
            annotations: BTreeMap::new(),
            controller: None,
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
