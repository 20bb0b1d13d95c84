//! The older version: the same spec, and a status without snapshot and conditions, which are annotations there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ContainerRecreateRequestSpec, ContainerRecreateState, Phase};

/// A request of v1alpha1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecreateRequest {
    /// Name, labels, annotations.
    pub metadata: ObjectMeta,
    /// What is wanted.
    pub spec: ContainerRecreateRequestSpec,
    /// Where it stands; none before anybody has looked at it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::status::lenient"
    )]
    pub status: Option<ContainerRecreateRequestStatus>,
}

/// Phase, end and containers of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecreateRequestStatus {
    /// Pending, Recreating or Completed.
    pub phase: Phase,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Why it ended, unless all went as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The containers, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub container_recreate_states: Vec<ContainerRecreateState>,
}
