//! What a plan asks to be done.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

/// One write. Whoever carries it out does so under the UID and resourceVersion of the snapshot, in the order of the plan; one that fails does
/// not keep those after it from being tried, but for what its variant says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all_fields = "camelCase")]
pub enum Action {
    /// Create a pod from a revision, its claims being there. A name that exists ends the pass: somebody else was faster.
    CreatePod {
        /// Name.
        pod: String,
        /// Revision whose template it is made from.
        revision: String,
        /// Instance id.
        instance_id: String,
        /// Number of the id, for its annotation.
        #[serde(skip_serializing_if = "Option::is_none")]
        instance_seq: Option<i64>,
        /// Why.
        reason: &'static str,
    },
    /// Delete a pod.
    DeletePod {
        /// Name.
        pod: String,
        /// Why.
        reason: &'static str,
    },
    /// Change a pod in place: mark it not ready where the change needs it, then write the change, or the next batch of it.
    UpdateInPlace {
        /// Name.
        pod: String,
        /// Revision that it comes to.
        revision: String,
        /// Revision that it comes from, by its label.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// State of its life that the same write sets; none for a later batch.
        #[serde(skip_serializing_if = "Option::is_none")]
        lifecycle_state: Option<&'static str>,
        /// Seconds for which the change is only written down.
        #[serde(skip_serializing_if = "is_zero")]
        grace_seconds: i32,
        /// Why.
        reason: &'static str,
    },
    /// Mark a pod for deletion, so that another takes its place.
    Recreate {
        /// Name.
        pod: String,
        /// Revision that the other one comes from.
        revision: String,
        /// Why.
        reason: &'static str,
    },
    /// Change labels, annotations, finalizers, owners or conditions of a pod.
    PatchPod {
        /// Name.
        pod: String,
        /// What to change.
        #[serde(flatten)]
        patch: PodPatch,
        /// Why.
        reason: &'static str,
    },
    /// Create a claim. It goes before its pod, and without it the pod is not made.
    CreateClaim {
        /// Name.
        claim: String,
        /// Claim template.
        template: String,
        /// Pod that it is for.
        pod: String,
        /// Instance id.
        instance_id: String,
        /// Number of the id, for its annotation.
        #[serde(skip_serializing_if = "Option::is_none")]
        instance_seq: Option<i64>,
        /// Why.
        reason: &'static str,
    },
    /// Delete a claim. Of a pod that could not be deleted it stays.
    DeleteClaim {
        /// Name.
        claim: String,
        /// Pod whose claim it is, when that is deleted with it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pod: Option<String>,
        /// Why.
        reason: &'static str,
    },
    /// Make a pod the owner of a claim in place of the set.
    PatchClaim {
        /// Name.
        claim: String,
        /// Pod that owns it from now on.
        pod: String,
        /// UID of that pod.
        pod_uid: String,
        /// Why.
        reason: &'static str,
    },
    /// Create a job that pulls an image ahead of the rollout. A name that exists is as good as created.
    CreateImagePullJob {
        /// Name.
        job: String,
        /// The object's content.
        #[serde(flatten)]
        content: Box<JobContent>,
        /// Why.
        reason: &'static str,
    },
    /// Delete a job that pulls an image ahead of the rollout.
    DeleteImagePullJob {
        /// Name.
        job: String,
        /// Why.
        reason: &'static str,
    },
    /// Create the request by which containers of a pod are restarted in place. A name that exists is looked at before the next plan.
    CreateContainerRecreateRequest {
        /// Name.
        request: String,
        /// Pod.
        pod: String,
        /// Name of the run, for its label.
        run: String,
        /// Containers; all when there are none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<String>,
        /// The next container only when the one before is ready again.
        ordered: bool,
        /// Why.
        reason: &'static str,
    },
    /// Create the revision of the template. Nothing else is done when it fails.
    CreateRevision {
        /// Name.
        revision: String,
        /// `revision`.
        number: i64,
        /// Hash in its name.
        hash: String,
        /// Hash of the claim templates, for its annotation.
        claim_template_hash: String,
        /// Why.
        reason: &'static str,
    },
    /// Change a revision. With the reason `PreDownloadCreated` only when all jobs before it are there.
    PatchRevision {
        /// Name.
        revision: String,
        /// `revision`.
        #[serde(skip_serializing_if = "Option::is_none")]
        number: Option<i64>,
        /// Labels to set.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        labels: BTreeMap<String, String>,
        /// Annotations to set.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        annotations: BTreeMap<String, String>,
        /// Why.
        reason: &'static str,
    },
    /// Delete a revision that nobody uses.
    DeleteRevision {
        /// Name.
        revision: String,
        /// Why.
        reason: &'static str,
    },
    /// Take names that are done with off `spec.scaleStrategy.podsToDelete`.
    PatchCloneSet {
        /// What is left.
        pods_to_delete: Vec<String>,
        /// Why.
        reason: &'static str,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants the reference")]
const fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// What to change about a pod: one write, since a write of the status may carry labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPatch {
    /// State of its life; the label and the annotation below say it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle_state: Option<&'static str>,
    /// Labels to set, or to take away.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set, or to take away.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, Option<String>>,
    /// Finalizers to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Conditions to set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodConditionPatch>,
    /// What to do with its owner references.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owners: Option<OwnerChange>,
}

/// What to do with a pod's owner references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum OwnerChange {
    /// Make the set its controller.
    Claim,
    /// Take the set off.
    Release,
}

/// A condition to set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodConditionPatch {
    /// Type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// True or False.
    pub status: &'static str,
    /// Reason.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// Message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Content of a pre-download job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobContent {
    /// Container whose image it is.
    pub container: String,
    /// Image.
    pub image: String,
    /// Labels of the job and of its sandbox config.
    pub labels: BTreeMap<String, String>,
    /// Annotations of its sandbox config.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Pods that have not been updated.
    pub pod_selector: LabelSelector,
    /// Nodes at a time.
    pub parallelism: i32,
    /// Seconds of one attempt.
    pub timeout_seconds: i32,
    /// Retries after the first attempt.
    pub backoff_limit: i32,
    /// Seconds after which the finished job is deleted.
    pub ttl_seconds_after_finished: i32,
    /// Secrets of the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pull_secrets: Vec<LocalObjectReference>,
}
