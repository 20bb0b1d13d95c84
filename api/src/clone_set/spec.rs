//! What people want of a CloneSet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::CloneSetStatus;
use super::strategy::UpdateStrategy;

/// Pods, when the set does not say.
pub const DEFAULT_REPLICAS: i32 = 1;
/// Revisions that are kept besides the live ones, when the set does not say.
pub const DEFAULT_REVISION_HISTORY_LIMIT: i32 = 10;
/// Value of progressDeadlineSeconds that means "none".
pub const NO_PROGRESS_DEADLINE: i32 = i32::MAX;

/// How many pods of which template, and how they are scaled and updated.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "CloneSet",
    doc = "Keeps a number of equal pods and can update them in place.",
    plural = "clonesets",
    shortname = "clone",
    category = "kruise",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    status = "CloneSetStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CloneSetSpec {
    /// Pods that are wanted. Left out, it means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,

    /// Pods that belong to the set. Must match the labels of the template; fixed once the set exists.
    #[serde(default)]
    pub selector: LabelSelector,

    /// Template of the pods. Unknown fields are kept, so that a template of a newer Kubernetes survives.
    #[serde(default)]
    #[schemars(schema_with = "any_object")]
    pub template: Value,

    /// Templates of PersistentVolumeClaims: each pod gets one claim, and one volume, for each of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_objects")]
    pub volume_claim_templates: Option<Value>,

    /// How pods are added and taken away.
    #[serde(default)]
    pub scale_strategy: ScaleStrategy,

    /// How pods come to a new template.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,

    /// Revisions that are kept besides the live ones. Left out, it means 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision_history_limit: Option<i32>,

    /// Seconds for which a pod must be ready to count as available.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub min_ready_seconds: i32,

    /// Hooks that hold a pod before it is deleted, updated in place or called normal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,

    /// Seconds without progress after which the condition Progressing turns False. 2147483647 means never, as if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants the reference")]
pub(super) fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants the reference")]
pub(super) fn is_false(value: &bool) -> bool {
    !*value
}

pub(super) fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

pub(super) fn any_objects(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// How pods are added and taken away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of pods to delete before others. With unchanged replicas each is replaced. The controller empties the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_to_delete: Vec<String>,

    /// Most pods that may be unavailable while pods are being added: a number or a percentage of replicas. Left out, there is no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,

    /// Keep the claims of pods that vanished for the pods that replace them.
    #[serde(rename = "enablePVCReuse", default)]
    pub enable_pvc_reuse: bool,

    /// Pods that are held before their deletion do not count as pods of the set.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exclude_preparing_delete: bool,
}

/// Hooks that hold a pod at a moment of its life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Holds a pod that is about to be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_delete: Option<LifecycleHook>,
    /// Holds a pod that is about to be updated in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update: Option<LifecycleHook>,
    /// A new pod is Normal, and counts as available, once it carries all of this hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_normal: Option<LifecycleHook>,
}

/// Labels and finalizers that hold a pod while it carries one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHook {
    /// Labels with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_handler: BTreeMap<String, String>,
    /// Finalizers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers_handler: Vec<String>,
    /// A pod that is held is also made not ready.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mark_pod_not_ready: bool,
}

/// A part of the spec that Kubernetes' own types do not understand.
#[derive(Debug, thiserror::Error)]
#[error("{field} is not readable")]
pub struct TemplateError {
    /// Path of the field.
    pub field: &'static str,
    /// What does not fit.
    #[source]
    pub source: serde_json::Error,
}

impl CloneSetSpec {
    /// Pods that are wanted, never negative.
    #[must_use]
    pub fn wanted(&self) -> i32 {
        self.replicas.unwrap_or(DEFAULT_REPLICAS).max(0)
    }

    /// Revisions to keep besides the live ones.
    #[must_use]
    pub fn history_limit(&self) -> usize {
        let limit = self
            .revision_history_limit
            .unwrap_or(DEFAULT_REVISION_HISTORY_LIMIT);
        usize::try_from(limit).unwrap_or(0)
    }

    /// The template as Kubernetes' own type, without fields that this version of it does not know.
    ///
    /// # Errors
    /// A field of another type than Kubernetes wants.
    pub fn pod_template(&self) -> Result<PodTemplateSpec, TemplateError> {
        PodTemplateSpec::deserialize(&self.template).map_err(|source| TemplateError {
            field: "spec.template",
            source,
        })
    }

    /// The claim templates as Kubernetes' own type.
    ///
    /// # Errors
    /// A field of another type than Kubernetes wants.
    pub fn claim_templates(&self) -> Result<Vec<PersistentVolumeClaim>, TemplateError> {
        match &self.volume_claim_templates {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(claims) => Vec::deserialize(claims).map_err(|source| TemplateError {
                field: "spec.volumeClaimTemplates",
                source,
            }),
        }
    }
}
