//! What a CloneSet says of itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Types of conditions on a CloneSet.
pub mod conditions {
    /// The last pass could not add or take away pods.
    pub const FAILED_SCALE: &str = "FailedScale";
    /// The last pass could not update pods.
    pub const FAILED_UPDATE: &str = "FailedUpdate";
    /// Whether the rollout gets on. Only with progressDeadlineSeconds.
    pub const PROGRESSING: &str = "Progressing";
}

/// Reasons of the condition [`conditions::PROGRESSING`].
pub mod reasons {
    /// Everything is updated and available.
    pub const AVAILABLE: &str = "CloneSetAvailable";
    /// Updates are held back by `paused`.
    pub const PAUSED: &str = "CloneSetPaused";
    /// All that the partition allows is updated and available.
    pub const PARTITION_AVAILABLE: &str = "ProgressPartitionAvailable";
    /// No progress within progressDeadlineSeconds.
    pub const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
    /// The rollout gets on.
    pub const UPDATED: &str = "CloneSetUpdated";
}

/// Counters of pods, revisions and conditions. Counters are written even when they are 0: tools take a missing one for something else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pods.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that have been ready for minReadySeconds.
    #[serde(default)]
    pub available_replicas: i32,
    /// Pods on the update revision.
    #[serde(default)]
    pub updated_replicas: i32,
    /// Pods on the update revision that are ready.
    #[serde(default)]
    pub updated_ready_replicas: i32,
    /// Pods on the update revision that have been ready for minReadySeconds.
    #[serde(default)]
    pub updated_available_replicas: i32,
    /// Pods that will be on the update revision when the rollout is done: replicas without the partition.
    #[serde(default)]
    pub expected_updated_replicas: i32,
    /// Revision that the pods come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// Revision of the template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// Goes into the hash of a revision's name when two revisions would get the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    /// FailedScale, FailedUpdate, Progressing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<CloneSetCondition>,
    /// The selector as text, for autoscalers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label_selector: String,
    /// Number of the last instance id that was given out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_seq: Option<i64>,
    /// The last restart that annotation apps.kruise.io/restart asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartStatus>,
}

/// How far a restart of all pods is. It stays when it is over, so that none is done twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartStatus {
    /// Value of the annotation.
    #[serde(default)]
    pub run: String,
    /// When it began. Pods that were made later need no restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Pods that were there when it began, and still are.
    #[serde(default)]
    pub total: i32,
    /// Of those, restarted and available again.
    #[serde(default)]
    pub done: i32,
    /// Of those, not restarted. From the first one on no other pod is restarted.
    #[serde(default)]
    pub failed: i32,
    /// When all pods were done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// Why it was stopped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl RestartStatus {
    /// Whether nothing more is done for it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.completed_at.is_some() || !self.message.is_empty()
    }
}

/// One condition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetCondition {
    /// For example Progressing.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// True, False or Unknown.
    #[serde(default)]
    pub status: String,
    /// When progress was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// For programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
