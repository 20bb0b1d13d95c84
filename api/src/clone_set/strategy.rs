//! How pods come to a new template.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::spec::{is_false, is_zero};

/// Values of `updateStrategy.type`.
pub mod types {
    /// Pods are updated, some at a time.
    pub const ROLLING_UPDATE: &str = "RollingUpdate";
    /// A pod comes to the new template when somebody deletes it.
    pub const ON_DELETE: &str = "OnDelete";
}

/// Values of `podUpdatePolicy`, and in v1alpha1 of `updateStrategy.type`.
pub mod policies {
    /// Pods are deleted and made again.
    pub const RE_CREATE: &str = "ReCreate";
    /// Pods are changed in place where the change allows it, else made again.
    pub const IN_PLACE_IF_POSSIBLE: &str = "InPlaceIfPossible";
    /// Pods are changed in place; a change that does not allow it is an error.
    pub const IN_PLACE_ONLY: &str = "InPlaceOnly";
}

/// Most pods that may be unavailable, when the set does not say.
pub const DEFAULT_MAX_UNAVAILABLE: &str = "20%";

/// How pods come to a new template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// RollingUpdate (default) or OnDelete.
    #[serde(rename = "type", default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// How many pods at a time, which ones, and in what way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_update: Option<RollingUpdate>,
}

/// How many pods are updated at a time, which ones, and in what way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Pods to leave on older revisions: a number or a percentage of replicas. Left out, it means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<IntOrString>,
    /// Most pods that may be unavailable: a number or a percentage of replicas. Left out, it means 20%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// Most pods above replicas: a number or a percentage of replicas. Left out, it means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,
    /// ReCreate (default), InPlaceIfPossible or InPlaceOnly.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod_update_policy: String,
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

/// Which pods are updated first: by weights or by the order of a label's values, not both.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriorityStrategy {
    /// The sum of the weights whose selector matches decides, higher first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weight_priority: Vec<WeightPriority>,
    /// The first of these labels that a pod has decides; of its value the number at the end, higher first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order_priority: Vec<OrderPriority>,
}

/// A weight for pods with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WeightPriority {
    /// From 1 to 100; 0 is let through and adds nothing.
    pub weight: i32,
    /// Pods that get the weight.
    pub match_selector: LabelSelector,
}

/// A label whose value ends in a number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderPriority {
    /// Key of the label.
    pub ordered_key: String,
}

/// Pods with this label are spread over the whole rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ScatterTerm {
    /// Key of the label.
    pub key: String,
    /// Value of the label.
    pub value: String,
}

/// Details of changes in place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InPlaceUpdateStrategy {
    /// Seconds between making a pod not ready and changing it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_period_seconds: i32,
    /// Pre-download of new images: most nodes that pull at once. Left out, it means 1; 0 pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_download_parallelism: Option<IntOrString>,
    /// Pre-download of new images: seconds of one attempt on one node. Left out, it means 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_download_timeout_seconds: Option<i32>,
    /// Pre-download of new images: begins once so many pods are updated and ready. Left out, it means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pre_download_min_updated_ready_pods: Option<i32>,
}

/// In what way a pod comes to a new template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdatePolicy {
    /// It is deleted and made again.
    #[default]
    ReCreate,
    /// In place where the change allows it, else made again.
    InPlaceIfPossible,
    /// In place or not at all.
    InPlaceOnly,
}

impl UpdatePolicy {
    /// Whether pods may be changed in place.
    #[must_use]
    pub const fn is_in_place(self) -> bool {
        !matches!(self, Self::ReCreate)
    }

    /// Reads a policy's name; what is not known acts as ReCreate.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            policies::IN_PLACE_IF_POSSIBLE => Self::InPlaceIfPossible,
            policies::IN_PLACE_ONLY => Self::InPlaceOnly,
            _ => Self::ReCreate,
        }
    }

    /// The policy's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReCreate => policies::RE_CREATE,
            Self::InPlaceIfPossible => policies::IN_PLACE_IF_POSSIBLE,
            Self::InPlaceOnly => policies::IN_PLACE_ONLY,
        }
    }
}

impl UpdateStrategy {
    /// Whether pods come to a new template only when somebody deletes them.
    #[must_use]
    pub fn is_on_delete(&self) -> bool {
        self.kind == types::ON_DELETE
    }

    /// Whether updates are held back. Without `rollingUpdate` they are not.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.rolling_update.as_ref().is_some_and(|rolling| rolling.paused)
    }

    /// In what way a pod comes to a new template: ReCreate without `rollingUpdate`.
    #[must_use]
    pub fn policy(&self) -> UpdatePolicy {
        self.rolling_update
            .as_ref()
            .map_or(UpdatePolicy::ReCreate, |rolling| {
                UpdatePolicy::named(&rolling.pod_update_policy)
            })
    }

    /// Seconds between making a pod not ready and changing it, never negative.
    #[must_use]
    pub fn grace_period_seconds(&self) -> i32 {
        self.rolling_update
            .as_ref()
            .and_then(|rolling| rolling.in_place_update_strategy.as_ref())
            .map_or(0, |in_place| in_place.grace_period_seconds.max(0))
    }
}
