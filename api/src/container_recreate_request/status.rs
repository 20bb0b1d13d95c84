//! What a request says of itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Types of conditions.
pub mod conditions {
    /// True once the pod has been set not ready for `unreadyGracePeriodSeconds`; the period counts from its transition.
    pub const PRE_RECREATE_GRACE: &str = "PreRecreateGrace";
}

/// Where a request or one of its containers stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its turn has not come.
    Pending,
    /// Being stopped, or stopped and not ready again.
    Recreating,
    /// Of a container: restarted. Final.
    Succeeded,
    /// Of a container: it will not be restarted by this request. Final.
    Failed,
    /// Of a request: over. How it went is told by the containers.
    Completed,
}

impl Phase {
    /// Whether a container in this phase stays in it.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Completed)
    }
}

/// Phase, end and containers of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestStatus {
    /// Pending, Recreating or Completed. Completed does not mean success: look at the containers.
    pub phase: Phase,
    /// When it was over. Nothing changes after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Why it ended, unless all went as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The containers, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_recreate_states: Vec<ContainerRecreateState>,
    /// What the kubelet last said of the new containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_status_snapshot: Vec<ContainerSnapshot>,
    /// PreRecreateGrace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl Default for ContainerRecreateRequestStatus {
    fn default() -> Self {
        Self::new(Phase::Pending)
    }
}

impl ContainerRecreateRequestStatus {
    /// In this phase, with nothing else said.
    #[must_use]
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            completion_time: None,
            message: None,
            container_recreate_states: Vec::new(),
            container_status_snapshot: Vec::new(),
            conditions: Vec::new(),
        }
    }

    /// When the pod was set not ready, if it was.
    #[must_use]
    pub fn drained_since(&self) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.type_ == conditions::PRE_RECREATE_GRACE && condition.status == "True")
    }
}

/// Reads a status; one that has no phase, or one that nobody knows, is none.
pub(super) fn lenient<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    let value = Option::<serde_json::Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// Where one container stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateState {
    /// Name in the pod.
    pub name: String,
    /// Pending, Recreating, Succeeded or Failed.
    pub phase: Phase,
    /// Why it failed, or what it waits for. Empty for one that succeeded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether this request stopped it, or found it stopped.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub is_killed: bool,
}

/// What the kubelet says of a new container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerSnapshot {
    /// Name in the pod.
    pub name: String,
    /// Whether it is ready.
    pub ready: bool,
    /// How often it was restarted.
    pub restart_count: i32,
    /// `RUNTIME://ID`.
    #[serde(rename = "containerID", default, skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}
