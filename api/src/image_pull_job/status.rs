//! What a job says of itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Types of conditions on a job, so that `kubectl wait --for=condition=Complete` works.
pub mod conditions {
    /// True while nodes are being served.
    pub const PROGRESSING: &str = "Progressing";
    /// True once the job is over, whether nodes failed or not.
    pub const COMPLETE: &str = "Complete";
    /// True once the job is over and at least one node failed.
    pub const FAILED: &str = "Failed";
}

/// Counters and outcome. A node is in exactly one of succeeded, failed, active, or not started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullJobStatus {
    /// When the job was first looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When the job was over. Nothing changes after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Nodes that are selected.
    pub desired: i32,
    /// Nodes that hold an order and have not ended.
    #[serde(default)]
    pub active: i32,
    /// Nodes where the image is present.
    #[serde(default)]
    pub succeeded: i32,
    /// Nodes where the pull failed for good.
    #[serde(default)]
    pub failed: i32,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Names of failed nodes, sorted; at most 500 (failed has the true number).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<String>,

    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Progressing, Complete, Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Failed nodes by reason, the most frequent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureSummary>,
    /// Share of the selected nodes that have ended, for example "66.7%".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Nodes that are passed over for now: without an agent, not Ready, cordoned, or short of a condition that the job sets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deferred: i32,
    /// Compressed bytes over all nodes whose total was known when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Which nodes have ended, in compact form, so that another leader forgets nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcomes: Option<Outcomes>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Bytes of a job on their way to its nodes. `kruisectl` shows them as they arrive; the status has them as of its last write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    /// On the nodes.
    pub done: i64,
    /// In all.
    pub total: i64,
}

/// Failed nodes of one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureSummary {
    /// For example NotFound, Denied, NoSpace, Timeout.
    pub reason: String,
    /// How many nodes.
    pub count: i32,
    /// One of them.
    pub node: String,
    /// What the runtime of that node said.
    pub message: String,
}

/// Who has ended in the present round, as base64 of sorted little-endian 64-bit hashes (FNV-1a) of node UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcomes {
    /// Grows when the image of the job changes: what ended before counts no longer.
    pub round: i32,
    /// Canonical reference that this round is about.
    pub image: String,
    /// Nodes that have the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub succeeded: String,
    /// Nodes that failed for good.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed: String,
    /// Never only: when every node is asked again, in the next round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_round: Option<Time>,
}
