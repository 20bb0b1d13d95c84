//! Which containers may start next.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod};
use kruise_api::clone_set::names::CONTAINER_BARRIER;

use super::{COMPLETED, config_map, key, priority_of};

/// What is to be done for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It starts its containers as it likes, or is past that.
    Nothing,
    /// Containers that may run are not ready yet.
    Wait,
    /// Those of this priority may start. With the last one nothing is left to be done.
    Add {
        /// Their priority.
        priority: i32,
        /// Whether none is lower.
        last: bool,
    },
    /// All keys are there: it is told so.
    Complete,
}

/// Containers that wait for a key of the pod's own ConfigMap, with their priorities.
#[must_use]
pub fn barriers(pod: &Pod) -> Vec<(&str, i32)> {
    let own = config_map(pod.metadata.name.as_deref().unwrap_or_default());
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .filter_map(|container| Some((container.name.as_str(), barrier(container, &own)?)))
        .collect()
}

fn barrier(container: &Container, own: &str) -> Option<i32> {
    let variables = container.env.iter().flatten();
    let mut barriers = variables.filter(|variable| variable.name == CONTAINER_BARRIER);
    let wanted = barriers
        .next()?
        .value_from
        .as_ref()?
        .config_map_key_ref
        .as_ref()?;
    (wanted.name == own).then(|| priority_of(&wanted.key))
}

/// What is to be done for a pod whose ConfigMap has these keys.
#[must_use]
pub fn step(pod: &Pod, keys: &BTreeSet<String>) -> Step {
    let meta = &pod.metadata;
    let annotations = meta.annotations.as_ref();
    let completed = annotations
        .and_then(|all| all.get(COMPLETED))
        .is_some_and(|value| value == "true");
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let over = matches!(phase, Some("Succeeded" | "Failed"));
    if completed || over || meta.deletion_timestamp.is_some() || containers_ready(pod) {
        return Step::Nothing;
    }
    let waiting = barriers(pod);
    let Some(lowest) = waiting.iter().map(|(_, priority)| *priority).min() else {
        return Step::Nothing;
    };
    if keys.contains(&key(lowest)) {
        return Step::Complete;
    }
    let statuses = status.and_then(|status| status.container_statuses.as_ref());
    let is_ready = |name: &str| {
        let mut all = statuses.into_iter().flatten();
        all.any(|status| status.name == name && status.ready)
    };
    let highest = waiting
        .iter()
        .filter(|(name, _)| !is_ready(name))
        .map(|(_, priority)| *priority)
        .max();
    match highest {
        None => Step::Complete,
        Some(priority) if keys.contains(&key(priority)) => Step::Wait,
        Some(priority) => Step::Add {
            priority,
            last: priority == lowest,
        },
    }
}

fn containers_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut all = conditions.into_iter().flatten();
    all.any(|condition| condition.type_ == "ContainersReady" && condition.status == "True")
}
