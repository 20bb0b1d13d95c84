//! Labels, annotations, conditions and values that CloneSets, their pods, claims and revisions carry.

/// Label of pods and claims: ties a pod to its claims.
pub const INSTANCE_ID: &str = "apps.kruise.io/cloneset-instance-id";
/// Annotation of pods and claims: number of the instance id, so that the next one is never an old one.
pub const INSTANCE_SEQ: &str = "apps.kruise.io/cloneset-instance-seq";
/// Label of a pod that is to be deleted. Its presence counts, whatever the value.
pub const SPECIFIED_DELETE: &str = "apps.kruise.io/specified-delete";
/// Label of a set: acts like `excludePreparingDelete` when it is exactly `true`.
pub const EXCLUDE_PREPARING_DELETE: &str = "apps.kruise.io/cloneset-scaling-exclude-preparing-delete";
/// Label of a pod: its revision, by name or by hash alone.
pub const REVISION: &str = "controller-revision-hash";
/// Label of a pod: the hash of its revision.
pub const TEMPLATE_HASH: &str = "pod-template-hash";
/// Label of a ControllerRevision and of pre-download jobs: hash of the revision.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";
/// Annotation of a ControllerRevision: hash of the claim templates.
pub const CLAIM_TEMPLATE_HASH: &str = "kruise.io/cloneset-volumeclaimtemplate-hash";

/// Label of a pod: state of its life, one of [`state`].
pub const LIFECYCLE_STATE: &str = "lifecycle.apps.kruise.io/state";
/// Annotation of a pod: when its state last changed.
pub const LIFECYCLE_TIMESTAMP: &str = "lifecycle.apps.kruise.io/timestamp";

/// Annotation of a pod: what its change in place has done and has left to do.
pub const IN_PLACE_STATE: &str = "apps.kruise.io/inplace-update-state";
/// Older key of [`IN_PLACE_STATE`]: read, and removed on write.
pub const IN_PLACE_STATE_OLD: &str = "inplace-update-state";
/// Annotation of a pod: a change in place that waits for its grace period.
pub const IN_PLACE_GRACE: &str = "apps.kruise.io/inplace-update-grace";
/// Older key of [`IN_PLACE_GRACE`]: read, and removed on write.
pub const IN_PLACE_GRACE_OLD: &str = "inplace-update-grace";
/// Annotation of a pod, written for its node: what each container was started from.
pub const RUNTIME_CONTAINERS: &str = "apps.kruise.io/runtime-containers-meta";
/// Annotation of a pod: pods of lower cost are taken away first.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Variable of a container: its place in the order of starts.
pub const CONTAINER_PRIORITY: &str = "KRUISE_CONTAINER_PRIORITY";
/// Variable of a container that waits for those of higher priority.
pub const CONTAINER_BARRIER: &str = "KRUISE_CONTAINER_BARRIER";

/// Readiness gate and condition of a pod: False while it is being changed in place.
pub const IN_PLACE_READY: &str = "InPlaceUpdateReady";
/// Readiness gate and condition of a pod: False while somebody holds it not ready.
pub const KRUISE_POD_READY: &str = "KruisePodReady";

/// Label of a set: protection against deletion, `Always` or `Cascading`.
pub const DELETE_PROTECTION: &str = "policy.kruise.io/delete-protection";

/// Annotation of a set: most nodes that pre-download at once.
pub const PREDOWNLOAD_PARALLELISM: &str = "apps.kruise.io/image-predownload-parallelism";
/// Annotation of a set: seconds of one attempt of a pre-download on one node.
pub const PREDOWNLOAD_TIMEOUT: &str = "apps.kruise.io/image-predownload-timeout-seconds";
/// Annotation of a set: pods that must be updated and ready before pre-download begins.
pub const PREDOWNLOAD_MIN_UPDATED_READY: &str = "apps.kruise.io/image-predownload-min-updated-ready-pods";
/// Label of a ControllerRevision whose pre-download jobs have been made. The doubled "pre" is upstream's spelling.
pub const PREDOWNLOAD_CREATED: &str = "apps.kruise.io/pre-predownload-created";
/// Label that upstream puts on a ControllerRevision that it decided not to pre-download. Not written here.
pub const PREDOWNLOAD_IGNORED: &str = "apps.kruise.io/image-predownload-ignored";

/// Annotation of a set: any new value has the containers of all its pods restarted in place, once.
pub const RESTART: &str = "apps.kruise.io/restart";
/// Annotation of a set: most pods that may be unavailable while they are restarted, a number or a percentage of replicas. Left out, it means 1.
pub const RESTART_MAX_UNAVAILABLE: &str = "apps.kruise.io/restart-max-unavailable";
/// Annotation of a set: containers to restart, with commas between. Left out, all of them.
pub const RESTART_CONTAINERS: &str = "apps.kruise.io/restart-containers";
/// Annotation of a set: `true` stops the next container of a pod only when the one before is ready again.
pub const RESTART_ORDERED: &str = "apps.kruise.io/restart-ordered";

/// Annotation of a set: what the version that it was converted to has no place for. Read when it is converted back.
pub const CONVERSION_PARKED: &str = "apps.kruise.io/cloneset-conversion";

/// Values of [`LIFECYCLE_STATE`].
pub mod state {
    /// Made, but not yet normal.
    pub const PREPARING_NORMAL: &str = "PreparingNormal";
    /// In service.
    pub const NORMAL: &str = "Normal";
    /// Held by a hook before a change in place.
    pub const PREPARING_UPDATE: &str = "PreparingUpdate";
    /// Being changed in place.
    pub const UPDATING: &str = "Updating";
    /// Changed in place, waiting for its hook to be put back.
    pub const UPDATED: &str = "Updated";
    /// Held by a hook before its deletion.
    pub const PREPARING_DELETE: &str = "PreparingDelete";
}
