//! What a list says of itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the images' jobs stand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageListPullJobStatus {
    /// When the list was first looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the last image was done. Nothing changes after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Images, two spellings of one counted once.
    pub desired: i32,
    /// Images that are being pulled on some node.
    #[serde(default)]
    pub active: i32,
    /// Images whose nodes have all ended.
    #[serde(default)]
    pub completed: i32,
    /// Images that are present on all of their nodes.
    #[serde(default)]
    pub succeeded: i32,
    /// Images that failed on some node, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_image_statuses: Vec<FailedImageStatus>,

    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Progressing, Complete, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Template that the outcomes are about, as in the label controller-revision-hash of the images' jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Images that are done, so that none is pulled again when its job has been deleted by its own time to live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_outcomes: Vec<ImageOutcome>,
}

/// An image that failed on some node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedImageStatus {
    /// Name of the image's job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_pull_job: String,
    /// The image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How an image ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageOutcome {
    /// The image as in the spec.
    pub image: String,
    /// Name of its job.
    pub image_pull_job: String,
    /// Nodes.
    pub desired: i32,
    /// Nodes that have it.
    pub succeeded: i32,
    /// Nodes that failed.
    pub failed: i32,
}
