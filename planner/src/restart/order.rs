//! What goes to an agent, and what a webhook would have filled in.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, RecreateContainer, admission, keys, split_id,
};

use super::node::{Rules, Target};
use super::outcome::{OrderPlan, Write, texts};
use super::view::RequestView;

/// A request with its pod, and as it would be if a webhook had seen it.
pub(super) struct Turn<'a> {
    pub(super) request: &'a RequestView<'a>,
    pub(super) object: &'a ContainerRecreateRequest,
    pub(super) pod: &'a Pod,
}

/// The labels and annotations that are missing.
pub(super) fn admit(old: &ContainerRecreateRequest, new: &ContainerRecreateRequest) -> Write {
    let instance = |container: &RecreateContainer| {
        Some(admission::Admitted {
            name: container.name.clone(),
            context: container.status_context.clone()?,
        })
    };
    let instances: Vec<_> = new.spec.containers.iter().filter_map(instance).collect();
    let text = serde_json::to_string(&instances).expect("instances are text and numbers");
    let mut annotations = new.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key == keys::FULL_NODE_NAME);
    annotations.insert(keys::ADMITTED.to_owned(), text);
    let mut labels = new.metadata.labels.clone().unwrap_or_default();
    let known = old.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, value| known.get(key) != Some(value));
    Write::Admit { labels, annotations }
}

/// The order for all containers.
///
/// # Errors
/// Ids that cannot be read, or of several runtimes.
pub(super) fn order(turn: &Turn<'_>) -> Result<OrderPlan, String> {
    let spec = &turn.object.spec;
    let strategy = spec.strategy();
    let mut runtimes = BTreeSet::new();
    let mut targets = Vec::new();
    for container in &spec.containers {
        let context = container.status_context.as_ref();
        let parsed = context.and_then(|context| {
            let (runtime, id) = split_id(&context.container_id)?;
            Some((runtime, id, context.restart_count))
        });
        let Some((runtime, id, restart_count)) = parsed else {
            return Err(format!(
                "{}: no containerID of {}",
                texts::NO_RUNTIME,
                container.name
            ));
        };
        runtimes.insert(runtime.to_owned());
        targets.push(Target {
            name: container.name.clone(),
            id: id.to_owned(),
            restart_count: u32::try_from(restart_count).unwrap_or(0),
            // What has been stopped already is not bound anew, whoever stopped it.
            force: strategy.force_recreate && !was_killed(turn.request, &container.name),
        });
    }
    let runtime = runtimes.pop_first().unwrap_or_default();
    if let Some(other) = runtimes.first() {
        return Err(format!("{}: both {runtime} and {other}", texts::NO_RUNTIME));
    }
    let grace = strategy
        .termination_grace_period_seconds
        .unwrap_or_else(|| admission::own_grace(turn.pod));
    let pod = turn.pod;
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_ref());
    Ok(OrderPlan {
        node: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .unwrap_or_default(),
        pod_uid: pod.metadata.uid.clone().unwrap_or_default(),
        pod_ips: ips.into_iter().flatten().map(|ip| ip.ip.clone()).collect(),
        runtime,
        released: targets.len(),
        targets,
        rules: Rules {
            fail_fast: strategy.fails_fast(),
            min_started: Duration::from_secs(u64::try_from(strategy.min_started_seconds).unwrap_or(0)),
            grace: Duration::from_secs(u64::try_from(grace).unwrap_or(0)),
        },
    })
}

fn was_killed(request: &RequestView<'_>, name: &str) -> bool {
    let states = request
        .status()
        .map(|status| status.container_recreate_states.as_slice());
    states
        .unwrap_or_default()
        .iter()
        .any(|state| state.name == name && state.is_killed)
}
