//! CloneSet as v1alpha1: the same set, with the fields of `rollingUpdate` directly under `updateStrategy`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::{Lifecycle, any_object, any_objects, is_false, is_zero};
use super::status::CloneSetStatus;
use super::strategy::{InPlaceUpdateStrategy, PriorityStrategy, ScatterTerm};

/// How many pods of which template, and how they are scaled and updated.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1alpha1",
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

    /// Delete the claims of pods that vanished, instead of keeping them for the pods that replace them.
    #[serde(rename = "disablePVCReuse", default, skip_serializing_if = "is_false")]
    pub disable_pvc_reuse: bool,
}

/// How pods come to a new template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// ReCreate (default), InPlaceIfPossible, InPlaceOnly or OnDelete.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Pods to leave on older revisions: a number or a percentage of replicas. Left out, it means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrString>,
    /// Most pods that may be unavailable: a number or a percentage of replicas. Left out, it means 20%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Most pods above replicas: a number or a percentage of replicas. Left out, it means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// No pod is updated; scaling goes on.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Which pods are updated first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_strategy: Option<PriorityStrategy>,
    /// Pods with these labels are spread over the whole rollout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scatter_strategy: Vec<ScatterTerm>,
    /// Details of changes in place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_strategy: Option<InPlaceUpdateStrategy>,
}
