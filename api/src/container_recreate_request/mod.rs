//! ContainerRecreateRequest: "restart these containers of this pod in place".
//!
//! - this module: spec and status of v1beta1, which is stored; spec and status of [`v1alpha1`] differ in where two facts are kept.
//! - [`admission`]: what a request must be, and what is filled in, as a pure function.
//! - [`conversion`]: between the versions.
//! - [`run`]: requests that belong together, as they restart a workload pod by pod.

pub mod admission;
pub mod conversion;
pub mod keys;
pub mod run;
mod status;
pub mod v1alpha1;

use k8s_openapi::api::core::v1::{ContainerPort, ExecAction, HTTPGetAction, TCPSocketAction};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{
    ContainerRecreateRequestStatus, ContainerRecreateState, ContainerSnapshot, Phase, conditions,
};

/// Shortest `activeDeadlineSeconds`.
pub const MIN_ACTIVE_DEADLINE_SECONDS: i64 = 3;
/// Grace of a stop when neither the request nor the pod says.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Which containers of which pod, and how. Fixed once the request exists.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "ContainerRecreateRequest",
    doc = "Restarts containers of one pod in place.",
    plural = "containerrecreaterequests",
    shortname = "crr",
    category = "kruise",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    status = "ContainerRecreateRequestStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestSpec {
    /// Pod of the request's namespace.
    pub pod_name: String,

    /// Containers to restart, in this order.
    pub containers: Vec<RecreateContainer>,

    /// How to go about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<RecreateStrategy>,

    /// Seconds since its creation after which the request ends, whatever is left. At least 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,

    /// Seconds after its end when the request is deleted. Left out, it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
}

impl ContainerRecreateRequestSpec {
    /// The strategy, with nothing set if it is left out.
    #[must_use]
    pub fn strategy(&self) -> RecreateStrategy {
        self.strategy.clone().unwrap_or_default()
    }
}

/// One container of the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateContainer {
    /// Name in the pod.
    pub name: String,

    /// Filled in by the system: the container's preStop hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_stop: Option<PreStop>,

    /// Filled in by the system: the container's ports, where its hook needs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ContainerPort>,

    /// Filled in by the system: the instance that the request is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_context: Option<StatusContext>,
}

/// A preStop hook as far as the request carries it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreStop {
    /// A command in the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecAction>,
    /// A request to the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HTTPGetAction>,
    /// A connection to the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TCPSocketAction>,
}

/// The instance of a container that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusContext {
    /// `RUNTIME://ID`.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// How often the kubelet had restarted it.
    pub restart_count: i32,
}

impl StatusContext {
    /// Id without the runtime's name.
    #[must_use]
    pub fn bare_id(&self) -> Option<&str> {
        split_id(&self.container_id).map(|(_, id)| id)
    }
}

/// Runtime and id of `RUNTIME://ID`.
#[must_use]
pub fn split_id(container_id: &str) -> Option<(&str, &str)> {
    container_id
        .split_once("://")
        .filter(|(runtime, id)| !runtime.is_empty() && !id.is_empty())
}

/// How to go about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecreateStrategy {
    /// Fail (default) ends the request when a container cannot be stopped, Ignore goes on with the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_policy: Option<String>,

    /// Stop the next container only when the one before runs and is ready again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ordered_recreate: bool,

    /// Restart a container also if it has been restarted since the request was made.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force_recreate: bool,

    /// Time for hook and stop of each container. Left out, it is the pod's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,

    /// Set the pod not ready first, and wait for so long. Needs the readiness gate KruisePodReady in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unready_grace_period_seconds: Option<i64>,

    /// A container counts as restarted when it has run for longer than this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_started_seconds: i32,
}

impl RecreateStrategy {
    /// Whether a container that cannot be stopped ends the request.
    #[must_use]
    pub fn fails_fast(&self) -> bool {
        self.failure_policy.as_deref() != Some(failure_policies::IGNORE)
    }
}

/// Values of [`RecreateStrategy::failure_policy`].
pub mod failure_policies {
    /// A container that cannot be stopped ends the request.
    pub const FAIL: &str = "Fail";
    /// It is passed over.
    pub const IGNORE: &str = "Ignore";
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field by reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes the field by reference"
)]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests;
