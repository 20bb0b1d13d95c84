//! What a change in place consists of.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a change in place consists of. Empty when the templates do not differ in anything that a pod has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// New images by container.
    pub images: BTreeMap<String, String>,
    /// Strategic merge patch of labels, annotations and finalizers that no container reads.
    pub metadata_patch: Option<Value>,
    /// Labels and annotations that containers read by their environment, by container.
    pub ref_metadata: BTreeMap<String, ObjectRefs>,
    /// New amounts of CPU and memory by container, only those that differ.
    pub resources: BTreeMap<String, Resources>,
}

/// Labels and annotations that a container reads by its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRefs {
    /// OpenKruise writes these as object metadata, whose creation time is null.
    #[serde(rename = "creationTimestamp", default)]
    creation_timestamp: Value,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ObjectRefs {
    /// Keys, told apart by where they are.
    pub(super) fn keys(&self) -> BTreeSet<(bool, &str)> {
        let labels = self.labels.keys().map(|key| (true, key.as_str()));
        labels
            .chain(self.annotations.keys().map(|key| (false, key.as_str())))
            .collect()
    }
}

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Limits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, String>,
    /// Requests.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
}

impl Change {
    /// Whether the pod only gets the label of its new revision.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.metadata_patch.is_none() && self.is_metadata_only()
    }

    /// Whether nothing of a container changes: it does not restart and stays ready.
    #[must_use]
    pub fn is_metadata_only(&self) -> bool {
        self.images.is_empty() && self.ref_metadata.is_empty() && self.resources.is_empty()
    }

    /// Whether labels or annotations change that a container reads by its environment.
    #[must_use]
    pub fn updates_env_from_metadata(&self) -> bool {
        !self.ref_metadata.is_empty()
    }

    /// What concerns the chosen containers, and the rest. The patch that concerns no container is in neither.
    pub(super) fn split(&self, chosen: &BTreeSet<String>) -> (Self, Self) {
        let part = |inside: bool| Self {
            images: of(&self.images, chosen, inside),
            metadata_patch: None,
            ref_metadata: of(&self.ref_metadata, chosen, inside),
            resources: of(&self.resources, chosen, inside),
        };
        (part(true), part(false))
    }

    /// Containers that change.
    #[must_use]
    pub fn containers(&self) -> BTreeSet<&str> {
        let images = self.images.keys();
        images
            .chain(self.ref_metadata.keys())
            .chain(self.resources.keys())
            .map(String::as_str)
            .collect()
    }
}

/// Entries of containers that are chosen, or that are not.
fn of<T: Clone>(all: &BTreeMap<String, T>, chosen: &BTreeSet<String>, inside: bool) -> BTreeMap<String, T> {
    all.iter()
        .filter(|(name, _)| chosen.contains(*name) == inside)
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
