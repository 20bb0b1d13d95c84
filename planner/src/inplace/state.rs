//! What a pod's annotations say of its change in place, in OpenKruise's form.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::names;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::{Change, ObjectRefs, Resources};

/// What a change in place has done and has left to do: annotation `apps.kruise.io/inplace-update-state`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Revision that the change leads to.
    pub revision: String,
    /// When it was begun.
    #[serde(default)]
    pub update_timestamp: Option<String>,
    /// What containers ran before, by name; null before the first batch.
    #[serde(default)]
    pub last_container_statuses: Option<BTreeMap<String, ImageRecord>>,
    /// Containers read changed labels or annotations by their environment.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_env_from_metadata: bool,
    /// CPU or memory change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_resources: bool,
    /// Images change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_images: bool,
    /// Images of later batches, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_container_images: BTreeMap<String, String>,
    /// Labels and annotations of later batches, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_container_ref_metadata: BTreeMap<String, ObjectRefs>,
    /// CPU and memory of later batches, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub next_container_resources: BTreeMap<String, Resources>,
    /// What must be so before the next batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_check_before_next: Option<PreCheck>,
    /// Batches that were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_batches_record: Vec<Batch>,
}

/// What a container ran before its change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Image by digest, as the kubelet reports it.
    #[serde(rename = "imageID", default, skip_serializing_if = "String::is_empty")]
    pub image_id: String,
}

/// What must be so before the next batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreCheck {
    /// Containers that must be ready, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers_required_ready: Vec<String>,
}

/// A batch that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// When.
    #[serde(default)]
    pub timestamp: Option<String>,
    /// Its containers, sorted.
    #[serde(default)]
    pub containers: Vec<String>,
}

/// A change that waits for its grace period: annotation `apps.kruise.io/inplace-update-grace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grace {
    /// Revision that it leads to.
    pub revision: String,
    /// New images by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub container_images: BTreeMap<String, String>,
    /// Labels and annotations that containers read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub container_ref_metadata: BTreeMap<String, ObjectRefs>,
    /// CPU and memory by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub container_resources: BTreeMap<String, Resources>,
    /// Patch of labels, annotations and finalizers: base64 of JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub meta_data_patch: String,
    /// Containers read changed labels or annotations by their environment.
    #[serde(default, skip_serializing_if = "is_false")]
    pub update_env_from_metadata: bool,
    /// Length of the grace period.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_seconds: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants the reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants the reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// RFC 3339 in UTC with whole seconds.
pub(super) fn stamp(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn annotation<'a>(pod: &'a Pod, key: &str, old_key: &str) -> Option<&'a String> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(key).or_else(|| annotations.get(old_key))
}

impl State {
    /// What the pod's annotation says. None for a pod that was never changed, and for what is not readable: nobody waits for that.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let text = annotation(pod, names::IN_PLACE_STATE, names::IN_PLACE_STATE_OLD)?;
        serde_json::from_str(text).ok()
    }

    /// Whether a batch is left to be written.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.next_container_images.is_empty()
            || !self.next_container_ref_metadata.is_empty()
            || !self.next_container_resources.is_empty()
    }

    /// When the change was begun.
    #[must_use]
    pub fn began(&self) -> Option<Timestamp> {
        self.update_timestamp.as_deref()?.parse().ok()
    }
}

impl Grace {
    /// What the pod's annotation says.
    #[must_use]
    pub fn of(pod: &Pod) -> Option<Self> {
        let text = annotation(pod, names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_OLD)?;
        serde_json::from_str(text).ok()
    }

    /// The change to write down.
    pub(super) fn new(change: &Change, revision: &str, grace_seconds: i32) -> Self {
        Self {
            revision: revision.to_owned(),
            container_images: change.images.clone(),
            container_ref_metadata: change.ref_metadata.clone(),
            container_resources: change.resources.clone(),
            meta_data_patch: change
                .metadata_patch
                .as_ref()
                .map(|patch| STANDARD.encode(patch.to_string()))
                .unwrap_or_default(),
            update_env_from_metadata: change.updates_env_from_metadata(),
            grace_seconds,
        }
    }

    /// The change that was written down. A metadata patch that is not readable is left out.
    #[must_use]
    pub fn change(&self) -> Change {
        let patch = STANDARD.decode(&self.meta_data_patch).ok();
        Change {
            images: self.container_images.clone(),
            metadata_patch: patch.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()),
            ref_metadata: self.container_ref_metadata.clone(),
            resources: self.container_resources.clone(),
        }
    }

    /// When the grace period is over. Without a readable beginning it is over.
    #[must_use]
    pub fn ends(&self, state: Option<&State>) -> Option<Timestamp> {
        let began = state?.began()?;
        began
            .checked_add(SignedDuration::from_secs(self.grace_seconds.into()))
            .ok()
    }
}
