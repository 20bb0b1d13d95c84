//! A plan for a CloneSet as people are told of it.

use std::collections::BTreeMap;

use kruise_planner::cloneset::{
    CloneSetPlan, CloneSetSnapshot, LifecycleState, Limits, Phase, PodView, Waiting,
};

use crate::convert::to_duration;
use crate::inspect;

/// Names of one reason that are told before the rest is counted.
pub const MOST_NAMES: usize = 20;

/// Tells a plan, and what it was made from.
#[must_use]
pub fn explanation(snapshot: &CloneSetSnapshot<'_>, plan: &CloneSetPlan) -> inspect::ExplainCloneSetResponse {
    let set = snapshot.set;
    let meta = &set.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    let name = meta.name.as_deref().unwrap_or_default();
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    inspect::ExplainCloneSetResponse {
        clone_set: format!("{namespace}/{name}"),
        generation: meta.generation.unwrap_or(0),
        observed_generation: observed.unwrap_or(0),
        current_revision: plan.current_revision.clone(),
        update_revision: plan.update_revision.clone(),
        counts: Some(counts(snapshot, plan)),
        settings: Some(settings(snapshot)),
        waiting: by_reason(&plan.waiting),
        next: next(plan),
        states: states(snapshot),
        next_look_in: plan.wake_after(snapshot.now).map(to_duration),
        writing: false,
        in_place: Vec::new(),
    }
}

fn count(number: impl TryInto<u32>) -> u32 {
    // Below zero is none; more than four thousand million pods there are not.
    number.try_into().unwrap_or(0)
}

fn counts(snapshot: &CloneSetSnapshot<'_>, plan: &CloneSetPlan) -> inspect::CloneSetCounts {
    let status = &plan.status;
    inspect::CloneSetCounts {
        wanted: count(snapshot.set.spec.wanted()),
        pods: count(status.replicas),
        ready: count(status.ready_replicas),
        available: count(status.available_replicas),
        updated: count(status.updated_replicas),
        updated_ready: count(status.updated_ready_replicas),
        updated_available: count(status.updated_available_replicas),
        expected_updated: count(status.expected_updated_replicas),
    }
}

fn settings(snapshot: &CloneSetSnapshot<'_>) -> inspect::CloneSetSettings {
    let spec = &snapshot.set.spec;
    let limits = Limits::of(spec);
    let policy = if spec.update_strategy.is_on_delete() {
        "OnDelete"
    } else {
        spec.update_strategy.policy().name()
    };
    inspect::CloneSetSettings {
        policy: policy.to_owned(),
        paused: limits.paused,
        partition: count(limits.partition),
        max_unavailable: count(limits.max_unavailable),
        max_surge: count(limits.max_surge),
    }
}

/// The planner's order of reasons is the one in which they are shown.
fn by_reason(waiting: &[Waiting]) -> Vec<inspect::CloneSetWaiting> {
    let mut sorted: Vec<&Waiting> = waiting.iter().collect();
    sorted.sort_by_key(|waiting| waiting.reason);
    let told = sorted.into_iter().map(|waiting| inspect::CloneSetWaiting {
        reason: waiting.reason.name().to_owned(),
        message: waiting.message.clone(),
        pods: waiting.pods.iter().take(MOST_NAMES).cloned().collect(),
        pods_left_out: count(waiting.pods.len().saturating_sub(MOST_NAMES)),
    });
    told.collect()
}

/// Writes by type and reason, in the order in which the first of each comes.
fn next(plan: &CloneSetPlan) -> Vec<inspect::PlannedWrites> {
    let mut all: Vec<inspect::PlannedWrites> = Vec::new();
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for action in &plan.actions {
        let told = action.told();
        let place = *places.entry((told.kind, told.reason)).or_insert_with(|| {
            all.push(inspect::PlannedWrites {
                r#type: told.kind.to_owned(),
                reason: told.reason.to_owned(),
                ..Default::default()
            });
            all.len() - 1
        });
        let writes = &mut all[place];
        writes.count += 1;
        if writes.names.len() < MOST_NAMES && !told.name.is_empty() {
            writes.names.push(told.name.to_owned());
        }
    }
    all
}

fn states(snapshot: &CloneSetSnapshot<'_>) -> BTreeMap<String, u32> {
    let uid = snapshot.set.metadata.uid.as_deref();
    let mut states = BTreeMap::new();
    for pod in snapshot
        .pods
        .iter()
        .filter(|pod| pod.controller.as_deref() == uid)
    {
        *states.entry(state(pod).to_owned()).or_insert(0) += 1;
    }
    states
}

fn state(pod: &PodView) -> &'static str {
    match (pod.terminating, pod.phase, pod.state) {
        (true, ..) => "Terminating",
        (false, Phase::Failed, _) => "Failed",
        (false, Phase::Succeeded, _) => "Succeeded",
        // Nobody has written a state: it counts as the ordinary one.
        (false, _, LifecycleState::Unset) => LifecycleState::Normal.label(),
        (false, _, LifecycleState::Other) => "Unknown",
        (false, _, state) => state.label(),
    }
}

#[cfg(test)]
mod tests {
    use kruise_api::clone_set::CloneSet;
    use kruise_planner::cloneset::{Gates, Reason, Writes, plan};
    use serde_json::json;

    use super::*;

    fn set() -> CloneSet {
        serde_json::from_value(json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": 3},
            "spec": {
                "replicas": 30, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {
                    "podUpdatePolicy": "InPlaceOnly", "paused": true, "partition": "10%", "maxUnavailable": 2,
                }},
            },
        }))
        .expect("a set")
    }

    #[test]
    fn names_are_few_and_the_rest_is_counted() {
        let (set, nodes, writes) = (set(), BTreeMap::new(), Writes::default());
        let pod = |state, controller: &str| PodView {
            state,
            controller: Some(controller.to_owned()),
            ..PodView::default()
        };
        let pods = [
            pod(LifecycleState::Unset, "u"),
            pod(LifecycleState::Updating, "u"),
            pod(LifecycleState::Normal, "u"),
            pod(LifecycleState::Normal, "another"),
        ];
        let snapshot = |pods| CloneSetSnapshot {
            set: &set,
            pods,
            claims: Vec::new(),
            revisions: Vec::new(),
            jobs: Vec::new(),
            requests: Vec::new(),
            nodes: &nodes,
            pulls: None,
            writes: &writes,
            gates: Gates::default(),
            now: jiff::Timestamp::UNIX_EPOCH,
        };
        let mut plan = plan(&snapshot(Vec::new()));
        plan.waiting = vec![
            Waiting {
                reason: Reason::NotReady,
                pods: (0..25).map(|number| format!("web-{number}")).collect(),
                message: "not ready".to_owned(),
            },
            Waiting {
                reason: Reason::Paused,
                pods: Vec::new(),
                message: "paused".to_owned(),
            },
        ];
        let told = explanation(&snapshot(pods.iter().collect()), &plan);
        assert_eq!(told.clone_set, "shop/web");
        assert_eq!(told.waiting[0].reason, "Paused");
        assert_eq!(
            (told.waiting[1].pods.len(), told.waiting[1].pods_left_out),
            (20, 5)
        );
        let created = told
            .next
            .iter()
            .find(|writes| writes.r#type == "CreatePod")
            .expect("missing pods");
        assert_eq!((created.count, created.names.len()), (30, 20));
        assert_eq!(
            told.states,
            BTreeMap::from([("Normal".to_owned(), 2), ("Updating".to_owned(), 1)])
        );
        let settings = told.settings.expect("set");
        assert_eq!(
            (settings.policy.as_str(), settings.paused, settings.partition),
            ("InPlaceOnly", true, 3)
        );
    }
}
