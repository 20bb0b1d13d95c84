//! ImagePullJob: "pull this one image on these nodes".
//!
//! The two served versions have equal schemas, so one Rust type reads and writes both; the stored version is v1beta1.

pub mod admission;
pub mod options;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{Bytes, FailureSummary, ImagePullJobStatus, Outcomes, conditions};

/// Time for one attempt on one node, when the job does not say.
pub const DEFAULT_TIMEOUT_SECONDS: i32 = 600;
/// Retries after the first attempt, when the job does not say.
pub const DEFAULT_BACKOFF_LIMIT: i32 = 3;

/// What to pull, where, how and until when.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "ImagePullJob",
    doc = "Pulls one image onto many nodes, a bounded number at a time.",
    plural = "imagepulljobs",
    shortname = "ipj",
    category = "kruise",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    status = "ImagePullJobStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ImagePullJobSpec {
    /// Image to pull: a name with a tag or a digest.
    pub image: String,

    /// Names of secrets of the job's namespace to log in with. Fixed once the job exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,

    /// Nodes to pull on, by name or by label. Left out, it means all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<NodeSelector>,

    /// Pull on the nodes of the pods of the job's namespace that match. Not together with selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,

    /// Most nodes that pull at once. Left out, it means 1; 0 pauses the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<IntOrString>,

    /// Time-out and retries on each node.
    #[serde(default)]
    pub pull_policy: PullPolicy,

    /// When the job counts as complete, and what happens then.
    #[serde(default)]
    pub completion_policy: CompletionPolicy,

    /// Labels and annotations that go into the sandbox config of the runtime's pull call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_config: Option<SandboxConfig>,

    /// IfNotPresent (default) leaves an image alone that is there already; Always asks the registry each time.
    #[serde(default = "if_not_present", skip_serializing_if = "String::is_empty")]
    pub image_pull_policy: String,
}

impl ImagePullJobSpec {
    /// Whether the registry is asked although the image is there. A policy that does not exist acts as Always, as in OpenKruise.
    #[must_use]
    pub fn always_pulls(&self) -> bool {
        !matches!(self.image_pull_policy.as_str(), "" | "IfNotPresent")
    }
}

fn if_not_present() -> String {
    "IfNotPresent".to_owned()
}

/// Nodes by name or by label, not both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Names of nodes, in the order in which they get their turn. An empty list means no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,

    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,

    /// Expressions over labels that must all be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// One expression over a label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelSelectorRequirement {
    /// Label key.
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    pub operator: String,
    /// For In and NotIn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Vec<String>>,
}

/// Time-out and retries on each node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullPolicy {
    /// Time for one attempt on one node, in seconds. Default 600.
    #[serde(default = "default_timeout")]
    pub timeout_seconds: Option<i32>,
    /// Retries after the first attempt. Default 3; negative acts as 3.
    #[serde(default = "default_backoff")]
    pub backoff_limit: Option<i32>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn default_timeout() -> Option<i32> {
    Some(DEFAULT_TIMEOUT_SECONDS)
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn default_backoff() -> Option<i32> {
    Some(DEFAULT_BACKOFF_LIMIT)
}

impl Default for PullPolicy {
    fn default() -> Self {
        Self {
            timeout_seconds: default_timeout(),
            backoff_limit: default_backoff(),
        }
    }
}

impl PullPolicy {
    /// Seconds of one attempt: 600 unless a positive number is given.
    #[must_use]
    pub fn timeout(&self) -> u32 {
        positive(
            self.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS),
            DEFAULT_TIMEOUT_SECONDS,
        )
    }

    /// Retries after the first attempt; negative numbers act as 3.
    #[must_use]
    pub fn retries(&self) -> u32 {
        u32::try_from(self.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT))
            .unwrap_or(DEFAULT_BACKOFF_LIMIT.unsigned_abs())
    }
}

fn positive(value: i32, otherwise: i32) -> u32 {
    if value > 0 {
        value.unsigned_abs()
    } else {
        otherwise.unsigned_abs()
    }
}

/// When the job counts as complete, and what happens then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletionPolicy {
    /// Always: complete when every node has succeeded or failed. Never: goes on, new nodes get the image too.
    #[serde(rename = "type", default = "always")]
    pub kind: Option<String>,
    /// Always only: seconds since startTime after which the job ends whatever is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
    /// Always only: seconds after completion when the job is deleted. 0 means at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

#[expect(clippy::unnecessary_wraps, reason = "serde wants the type of the field")]
fn always() -> Option<String> {
    Some("Always".to_owned())
}

impl Default for CompletionPolicy {
    fn default() -> Self {
        Self {
            kind: always(),
            active_deadline_seconds: None,
            ttl_seconds_after_finished: None,
        }
    }
}

impl CompletionPolicy {
    /// Whether the job never completes.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.kind.as_deref() == Some("Never")
    }
}

/// Goes into the sandbox config of the runtime's pull call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxConfig {
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

#[cfg(test)]
mod tests;
