//! Labels, annotations and finalizers of requests, and of the pods that they are about.

/// Label: UID of the pod.
pub const POD_UID: &str = "crr.apps.kruise.io/pod-uid";
/// Label: name of the pod's node, with a hash at its end where it is longer than a label may be.
pub const NODE_NAME: &str = "crr.apps.kruise.io/node-name";
/// Annotation: name of the pod's node, where the label had to be shortened.
pub const FULL_NODE_NAME: &str = "crr.apps.kruise.io/full-node-name";
/// Label: "true" until the request has ended.
pub const ACTIVE: &str = "crr.apps.kruise.io/active";
/// Finalizer that guards the readiness lock; in v1alpha1 also an annotation with the time when the lock was taken.
pub const UNREADY_ACQUIRED: &str = "crr.apps.kruise.io/unready-acquired";
/// Annotation of v1alpha1: what v1beta1 has in `status.containerStatusSnapshot`.
pub const SYNC_CONTAINER_STATUSES: &str = "crr.apps.kruise.io/sync-container-statuses";
/// Annotation: the instances that the request is about, as JSON, for a request that no webhook has completed.
pub const ADMITTED: &str = "crr.apps.kruise.io/admitted";
/// Annotation: what the restart of each container took, as JSON, once the request has ended.
pub const RESTART_REPORT: &str = "crr.apps.kruise.io/restart-report";
/// Label: name of the run that the request belongs to, for requests that restart a workload pod by pod.
pub const RESTART_RUN: &str = "crr.apps.kruise.io/restart-run";
/// Label of virtual nodes and of what belongs to them.
pub const TYPE: &str = "type";
/// Value of [`TYPE`].
pub const VIRTUAL_KUBELET: &str = "virtual-kubelet";
/// Readiness gate and condition of pods that can be taken out of service.
pub const POD_READY: &str = "KruisePodReady";
/// Name under which requests hold the readiness lock of a pod.
pub const LOCK_AGENT: &str = "ContainerRecreateRequest";
/// Condition of a pod whose sidecars are being ended after its main containers.
pub const SIDECAR_TERMINATED: &str = "SidecarTerminated";
