//! NodeImage: what is to be pulled on one node, and how it stands; one per node, of the node's name.
//!
//! Here it is an input, for people and tools that write tags by hand, and not the way by which jobs reach nodes.

pub mod admission;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use status::{FirstSyncStatus, ImageStatus, NodeImageStatus, TagStatus, phases};

use crate::image_pull_job::{DEFAULT_BACKOFF_LIMIT, DEFAULT_TIMEOUT_SECONDS, SandboxConfig};

/// Most names in a spec.
pub const MAX_NAMES: usize = 256;
/// A NodeImage with this label, whatever its value, stands for a node that does not exist: it is selected like one, and nobody answers.
pub const FAKE_LABEL: &str = "apps.kruise.io/fake-nodeimage";

/// Images by name, without their tags.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.kruise.io",
    version = "v1beta1",
    kind = "NodeImage",
    doc = "What is to be pulled on the node of the same name, and how it stands.",
    plural = "nodeimages",
    shortname = "ni",
    category = "kruise",
    derive = "Default",
    derive = "PartialEq",
    status = "NodeImageStatus"
)]
pub struct NodeImageSpec {
    /// By name of the image without its tag: `nginx`, `registry.example.com/team/app`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<String, ImageSpec>,
}

/// One image with its tags.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSpec {
    /// Secrets to log in with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<SecretReference>,
    /// Tags or digests to pull; sorted by tag where we write them.
    pub tags: Vec<ImageTag>,
    /// Labels and annotations that go into the sandbox config of the runtime's pull call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_config: Option<SandboxConfig>,
}

/// A secret of any namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SecretReference {
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kept as written; means nothing here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// One tag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageTag {
    /// Tag, or digest such as `sha256:…`.
    pub tag: String,
    /// When the request was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Time>,
    /// Time-out, retries and time to live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<TagPullPolicy>,
    /// Who wants it. A tag whose owners are ImagePullJobs is those jobs' business; one without owners is acted on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<ObjectReference>,
    /// Number of the request, from 0 on. Another number is another request, answered by a status of the same number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub version: i64,
    /// IfNotPresent (when left out) leaves an image alone that is there already; Always asks the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// How a tag is pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagPullPolicy {
    /// Time for one attempt, in seconds. Default 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
    /// Retries after the first attempt. Default 3; negative acts as 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    /// Seconds after its end when the tag is taken out of the spec. Left out, it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Seconds after which the pull fails whatever is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,
}

impl TagPullPolicy {
    /// The same in the words of a job.
    #[must_use]
    pub fn of_job(&self) -> crate::image_pull_job::PullPolicy {
        crate::image_pull_job::PullPolicy {
            timeout_seconds: self.timeout_seconds.or(Some(DEFAULT_TIMEOUT_SECONDS)),
            backoff_limit: self.backoff_limit.or(Some(DEFAULT_BACKOFF_LIMIT)),
        }
    }
}

/// Whether the only owners of a tag are ImagePullJobs: then it mirrors what those jobs do, and is no request of its own.
#[must_use]
pub fn belongs_to_jobs(tag: &ImageTag) -> bool {
    let of_job = |owner: &ObjectReference| {
        owner.kind.as_deref() == Some("ImagePullJob")
            && owner
                .api_version
                .as_deref()
                .is_some_and(|version| version.starts_with("apps.kruise.io/"))
    };
    !tag.owner_references.is_empty() && tag.owner_references.iter().all(of_job)
}

/// The reference that a name and a tag come to: a digest is joined by `@`.
#[must_use]
pub fn reference(name: &str, tag: &str) -> String {
    if tag.contains(':') {
        format!("{name}@{tag}")
    } else {
        format!("{name}:{tag}")
    }
}

#[cfg(test)]
mod tests;
