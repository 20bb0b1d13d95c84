//! What a plan reads of a pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Lifecycle, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::container_recreate_request::{admission, split_id};

/// A container's status, if it has one of that name.
pub(super) fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let regular = status.container_statuses.iter().flatten();
    let init = status.init_container_statuses.iter().flatten();
    regular.chain(init).find(|status| status.name == name)
}

/// Id of a container's present instance, without the runtime's name.
pub(super) fn bare_id(status: &ContainerStatus) -> Option<&str> {
    split_id(status.container_id.as_deref()?).map(|(_, id)| id)
}

/// Whether the instance runs according to the kubelet.
pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Why a container waits, in the kubelet's words.
pub(super) fn waits_for(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone().unwrap_or_default();
    // What every container goes through says nothing.
    if reason.is_empty() || reason == "ContainerCreating" || reason == "PodInitializing" {
        return None;
    }
    let text = match waiting.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason,
    };
    Some(text.chars().take(512).collect())
}

/// Whether the pod has come to its end.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the kubelet starts a container again that ended with this code.
pub(super) fn restarts(pod: &Pod, name: &str, code: Option<i32>) -> bool {
    let spec = pod.spec.as_ref();
    let sidecar = spec
        .and_then(|spec| spec.init_containers.as_ref())
        .is_some_and(|init| {
            init.iter()
                .any(|container| container.name == name && admission::is_native_sidecar(container))
        });
    if sidecar {
        return true;
    }
    if has_ended(pod) {
        return false;
    }
    match spec.and_then(|spec| spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != Some(0),
        _ => true,
    }
}

/// A pod with only what plans and admission read, so that thousands of them are cheap to keep.
#[must_use]
pub fn strip(pod: Pod) -> Pod {
    let meta = pod.metadata;
    Pod {
        metadata: ObjectMeta {
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            resource_version: meta.resource_version,
            deletion_timestamp: meta.deletion_timestamp,
            ..ObjectMeta::default()
        },
        spec: pod.spec.map(strip_spec),
        status: pod.status.map(|status| PodStatus {
            phase: status.phase,
            conditions: status.conditions,
            pod_ip: status.pod_ip,
            pod_ips: status.pod_ips,
            container_statuses: status.container_statuses.map(strip_statuses),
            init_container_statuses: status.init_container_statuses.map(strip_statuses),
            ..PodStatus::default()
        }),
    }
}

fn strip_spec(spec: PodSpec) -> PodSpec {
    PodSpec {
        node_name: spec.node_name,
        restart_policy: spec.restart_policy,
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        readiness_gates: spec.readiness_gates,
        containers: spec.containers.into_iter().map(strip_container).collect(),
        init_containers: spec
            .init_containers
            .map(|init| init.into_iter().map(strip_container).collect()),
        ..PodSpec::default()
    }
}

fn strip_container(container: Container) -> Container {
    let pre_stop = container.lifecycle.and_then(|lifecycle| lifecycle.pre_stop);
    Container {
        name: container.name,
        restart_policy: container.restart_policy,
        ports: container.ports.filter(|_| pre_stop.is_some()),
        lifecycle: pre_stop.map(|pre_stop| Lifecycle {
            pre_stop: Some(pre_stop),
            ..Lifecycle::default()
        }),
        ..Container::default()
    }
}

fn strip_statuses(statuses: Vec<ContainerStatus>) -> Vec<ContainerStatus> {
    statuses
        .into_iter()
        .map(|status| ContainerStatus {
            name: status.name,
            ready: status.ready,
            restart_count: status.restart_count,
            container_id: status.container_id,
            state: status.state,
            ..ContainerStatus::default()
        })
        .collect()
}
