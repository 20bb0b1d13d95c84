//! ImageListPullJob: "pull these images on these nodes", one ImagePullJob per image.
//!
//! The two served versions have equal schemas; the stored version is v1beta1.

pub mod admission;
mod status;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{FailedImageStatus, ImageListPullJobStatus, ImageOutcome};

use crate::image_pull_job::{CompletionPolicy, ImagePullJobSpec, NodeSelector, PullPolicy, SandboxConfig};

/// Most images of a list.
pub const MAX_IMAGES: usize = 255;
/// Label by which the jobs of a list are told from others; its value names the template that they were made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";

/// Which images to pull, and for each the same as in an ImagePullJob.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "ImageListPullJob",
    doc = "Pulls several images onto many nodes: one ImagePullJob for each image.",
    plural = "imagelistpulljobs",
    shortname = "ilpj",
    category = "kruise",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    status = "ImageListPullJobStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ImageListPullJobSpec {
    /// Images to pull, from 1 to 255. Two spellings of one image count once.
    pub images: Vec<String>,

    /// Names of secrets of the job's namespace to log in with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<String>,

    /// Nodes to pull on, by name or by label. Left out, it means all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<NodeSelector>,

    /// Pull on the nodes of the pods of the job's namespace that match. Not together with selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,

    /// Most nodes that pull one of the images at once. Left out, it means 1; 0 pauses all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<IntOrString>,

    /// Time-out and retries on each node.
    #[serde(default)]
    pub pull_policy: PullPolicy,

    /// When the images' jobs count as complete, and what happens then.
    #[serde(default)]
    pub completion_policy: CompletionPolicy,

    /// Labels and annotations that go into the sandbox config of the runtime's pull call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_config: Option<SandboxConfig>,

    /// IfNotPresent (when left out) leaves an image alone that is there already; Always asks the registry each time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image_pull_policy: String,
}

impl ImageListPullJobSpec {
    /// What the job of one of the images says.
    #[must_use]
    pub fn child(&self, image: &str) -> ImagePullJobSpec {
        ImagePullJobSpec {
            image: image.to_owned(),
            pull_secrets: self.pull_secrets.clone(),
            selector: self.selector.clone(),
            pod_selector: self.pod_selector.clone(),
            parallelism: self.parallelism.clone(),
            pull_policy: self.pull_policy.clone(),
            completion_policy: self.completion_policy.clone(),
            sandbox_config: self.sandbox_config.clone(),
            image_pull_policy: if self.image_pull_policy.is_empty() {
                "IfNotPresent".to_owned()
            } else {
                self.image_pull_policy.clone()
            },
        }
    }
}

#[cfg(test)]
mod tests;
