//! What a request must be, and what is filled in when it is made.
//!
//! The checks come in OpenKruise's order and the first that fails is told, in its words.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

use super::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, DEFAULT_GRACE_SECONDS,
    MIN_ACTIVE_DEADLINE_SECONDS, PreStop, StatusContext, failure_policies, keys,
};

/// Longest value of a label.
const LABEL_LENGTH: usize = 63;
/// Characters of a long node name that stay in its label, before a dash and 16 hex digits.
const KEPT: usize = LABEL_LENGTH - 17;

/// Why a request is not taken: a status code of HTTP and a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denied {
    /// 400 for a request that cannot be, 403 for one that may not be, 500 for one that could not be looked at.
    pub code: u16,
    /// For people.
    pub message: String,
}

fn bad(message: impl Into<String>) -> Denied {
    Denied {
        code: 400,
        message: message.into(),
    }
}

fn forbidden(message: impl Into<String>) -> Denied {
    Denied {
        code: 403,
        message: message.into(),
    }
}

/// An instance by the name of its container; what [`keys::ADMITTED`] holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admitted {
    /// Name in the pod.
    pub name: String,
    /// The instance.
    #[serde(flatten)]
    pub context: StatusContext,
}

/// What the request is about, as far as the API server knows.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The pod of that name; none if there is none.
    pub pod: Option<&'a Pod>,
    /// Whether the pod's node exists.
    pub node_exists: bool,
    /// Whether the pod's node is a virtual one.
    pub virtual_node: bool,
}

/// Checks of the spec alone, in order.
///
/// # Errors
/// The first one that fails.
pub fn check_spec(spec: &ContainerRecreateRequestSpec) -> Result<(), Denied> {
    if spec.pod_name.is_empty() {
        return Err(bad("podName can not be empty"));
    }
    if spec.containers.is_empty() {
        return Err(bad("containers list can not be null"));
    }
    if spec
        .active_deadline_seconds
        .is_some_and(|seconds| seconds < MIN_ACTIVE_DEADLINE_SECONDS)
    {
        return Err(bad("activeDeadlineSeconds can not be less than 3s"));
    }
    let strategy = spec.strategy();
    for (field, seconds) in [
        (
            "terminationGracePeriodSeconds",
            strategy.termination_grace_period_seconds,
        ),
        ("unreadyGracePeriodSeconds", strategy.unready_grace_period_seconds),
    ] {
        if seconds.is_some_and(|seconds| seconds < 0) {
            return Err(bad(format!("{field} must be non-negative integer")));
        }
    }
    match strategy.failure_policy.as_deref().unwrap_or_default() {
        "" | failure_policies::FAIL | failure_policies::IGNORE => Ok(()),
        other => Err(bad(format!("unknown failurePolicy {other}"))),
    }
}

/// Checks a new request and fills in what the system owns.
///
/// # Errors
/// The first check that fails.
pub fn create(
    request: &ContainerRecreateRequest,
    subject: &Subject<'_>,
) -> Result<ContainerRecreateRequest, Denied> {
    let spec = &request.spec;
    check_spec(spec)?;
    let Some(pod) = subject.pod else {
        return Err(bad(format!("no found Pod named {}", spec.pod_name)));
    };
    let node = check_pod(pod, subject.node_exists)?;
    let mut admitted = request.clone();
    let mut seen = BTreeSet::new();
    for container in &mut admitted.spec.containers {
        let name = &container.name;
        if !seen.insert(name.clone()) {
            return Err(bad(format!("can not recreate {name} multi times")));
        }
        if container.pre_stop.is_some() || !container.ports.is_empty() || container.status_context.is_some() {
            return Err(bad(
                "preStop, ports and statusContext in containers are read-only: leave them empty",
            ));
        }
        let declared =
            declared(pod, name).ok_or_else(|| bad(format!("container {name} not found in Pod")))?;
        container.status_context = Some(instance(pod, name)?);
        fill_hook(container, declared);
    }
    let strategy = admitted.spec.strategy.get_or_insert_default();
    if strategy.failure_policy.as_deref().unwrap_or_default().is_empty() {
        strategy.failure_policy = Some(failure_policies::FAIL.to_owned());
    }
    if strategy.termination_grace_period_seconds.is_none() {
        strategy.termination_grace_period_seconds = Some(own_grace(pod));
    }
    label(&mut admitted, pod, node, subject.virtual_node);
    Ok(admitted)
}

/// Checks a change: the spec and the labels that say what it is about stay.
///
/// # Errors
/// What may not be changed.
pub fn update(old: &ContainerRecreateRequest, new: &ContainerRecreateRequest) -> Result<(), Denied> {
    if old.spec != new.spec {
        return Err(forbidden("spec of ContainerRecreateRequest is immutable"));
    }
    let label = |request: &ContainerRecreateRequest, key: &str| {
        let labels = request.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(key).cloned())
    };
    for key in [keys::POD_UID, keys::NODE_NAME] {
        if label(old, key) != label(new, key) {
            return Err(forbidden(format!("label {key} is immutable")));
        }
    }
    Ok(())
}

/// Grace of the pod itself.
#[must_use]
pub fn own_grace(pod: &Pod) -> i64 {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(DEFAULT_GRACE_SECONDS)
}

/// A label's value for a node: its name, with a hash at its end where it is too long.
#[must_use]
pub fn node_label(name: &str) -> String {
    if name.len() <= LABEL_LENGTH {
        return name.to_owned();
    }
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let kept: String = name.chars().take(KEPT).collect();
    format!("{kept}-{hash:016x}")
}

/// The pod's node, if the pod can be restarted in place at all.
fn check_pod(pod: &Pod, node_exists: bool) -> Result<&str, Denied> {
    let status = pod.status.as_ref();
    let ended = matches!(
        status.and_then(|status| status.phase.as_deref()),
        Some("Succeeded" | "Failed")
    );
    let inactive = ended || pod.metadata.deletion_timestamp.is_some();
    let mut conditions = status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten();
    if inactive && !conditions.any(|condition| condition.type_ == keys::SIDECAR_TERMINATED) {
        return Err(bad("not allowed to recreate containers in an inactive Pod"));
    }
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let Some(node) = node.filter(|name| !name.is_empty()) else {
        return Err(bad("not allowed to recreate containers in a pending Pod"));
    };
    if !node_exists {
        return Err(bad(format!("failed to get Node {node}: not found")));
    }
    Ok(node)
}

/// The container of that name: a regular one, or an init container that goes on running beside them.
fn declared<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .find(|container| container.name == name)
}

/// Whether a container is one that goes on running beside the regular ones though it is listed with the init containers.
#[must_use]
pub fn is_native_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn instance(pod: &Pod, name: &str) -> Result<StatusContext, Denied> {
    let status = pod.status.as_ref();
    let regular = status.and_then(|status| status.container_statuses.as_ref());
    let init = status.and_then(|status| status.init_container_statuses.as_ref());
    // Init containers that have ended are history: there is nothing to restart.
    let sidecar = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_ref())
        .is_some_and(|init| {
            init.iter()
                .any(|container| container.name == name && is_native_sidecar(container))
        });
    let statuses = regular
        .into_iter()
        .flatten()
        .chain(init.into_iter().flatten().filter(|_| sidecar));
    let found = statuses
        .into_iter()
        .find(|status| status.name == name)
        .ok_or_else(|| bad(format!("not found {name} containerStatus in Pod Status")))?;
    let id = found.container_id.clone().unwrap_or_default();
    if id.is_empty() {
        return Err(bad(format!(
            "no containerID in {name} containerStatus, maybe the container has not been initialized"
        )));
    }
    Ok(StatusContext {
        container_id: id,
        restart_count: found.restart_count,
    })
}

fn fill_hook(container: &mut super::RecreateContainer, declared: &Container) {
    let hook = declared
        .lifecycle
        .as_ref()
        .and_then(|lifecycle| lifecycle.pre_stop.as_ref());
    let Some(hook) = hook else { return };
    if hook.http_get.is_some() {
        container.ports = declared.ports.clone().unwrap_or_default();
    }
    container.pre_stop = Some(PreStop {
        exec: hook.exec.clone(),
        http_get: hook.http_get.clone(),
        tcp_socket: hook.tcp_socket.clone(),
    });
}

fn label(request: &mut ContainerRecreateRequest, pod: &Pod, node: &str, virtual_node: bool) {
    let labels = request.metadata.labels.get_or_insert_default();
    labels.insert(keys::ACTIVE.to_owned(), "true".to_owned());
    labels.insert(keys::NODE_NAME.to_owned(), node_label(node));
    labels.insert(
        keys::POD_UID.to_owned(),
        pod.metadata.uid.clone().unwrap_or_default(),
    );
    if virtual_node {
        labels.insert(keys::TYPE.to_owned(), keys::VIRTUAL_KUBELET.to_owned());
    }
    if node.len() > LABEL_LENGTH {
        let annotations = request.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::FULL_NODE_NAME.to_owned(), node.to_owned());
    }
}
