//! How the images of a node stand.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Phases of a tag.
pub mod phases {
    /// Nothing runs yet.
    pub const WAITING: &str = "Waiting";
    /// The runtime fetches or unpacks.
    pub const PULLING: &str = "Pulling";
    /// Present and whole.
    pub const SUCCEEDED: &str = "Succeeded";
    /// Failed for good.
    pub const FAILED: &str = "Failed";
}

/// Counters, and each tag by the image's name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeImageStatus {
    /// Tags in the spec.
    pub desired: i32,
    /// Tags that are present.
    #[serde(default)]
    pub succeeded: i32,
    /// Tags that failed for good.
    #[serde(default)]
    pub failed: i32,
    /// Tags that are being pulled.
    #[serde(default)]
    pub pulling: i32,
    /// Tags that wait for their turn.
    #[serde(default)]
    pub waiting: i32,
    /// By name of the image, as in the spec.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub image_statuses: BTreeMap<String, ImageStatus>,
    /// Kept as found; nobody writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_sync_status: Option<FirstSyncStatus>,
    /// Progressing, False, while the object is of a shape that cannot be read: the message names the field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Tags of one image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageStatus {
    /// Sorted by tag.
    pub tags: Vec<TagStatus>,
}

/// One tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagStatus {
    /// As in the spec.
    pub tag: String,
    /// Waiting, Pulling, Succeeded or Failed.
    pub phase: String,
    /// Share of the bytes that are on the node, in percent; 100 only on success.
    #[serde(default)]
    pub progress: i32,
    /// When the pull began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Number of the request that this answers.
    #[serde(default)]
    pub version: i64,
    /// Name and digest of the image on the node.
    #[serde(default, rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl TagStatus {
    /// Whether nothing more will happen to this request.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.phase.as_str(), phases::SUCCEEDED | phases::FAILED)
    }
}

/// What OpenKruise declares and never writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirstSyncStatus {
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_at: Option<Time>,
    /// Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
