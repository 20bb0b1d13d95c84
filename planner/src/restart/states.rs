//! From what agent and kubelet say to the states of a request's containers.

use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::{
    ContainerRecreateState, ContainerSnapshot, Phase, RecreateContainer, split_id,
};

use super::facts::{ContainerFacts, Step, TaskFacts};
use super::outcome::texts;
use super::pods;

/// States of all containers, in the order of the request. What has ended stays as it is.
pub(super) fn derive(
    containers: &[RecreateContainer],
    stored: &[ContainerRecreateState],
    facts: Option<&TaskFacts>,
    pod: Option<&Pod>,
) -> Vec<ContainerRecreateState> {
    containers
        .iter()
        .map(|container| {
            let stored = stored.iter().find(|state| state.name == container.name);
            let facts = facts.and_then(|facts| facts.of(&container.name));
            one(&container.name, stored, facts, pod)
        })
        .collect()
}

fn one(
    name: &str,
    stored: Option<&ContainerRecreateState>,
    facts: Option<&ContainerFacts>,
    pod: Option<&Pod>,
) -> ContainerRecreateState {
    if let Some(stored) = stored.filter(|stored| stored.phase.is_final()) {
        return stored.clone();
    }
    let killed = stored.is_some_and(|stored| stored.is_killed) || facts.is_some_and(|facts| facts.killed);
    let state = |phase, message: String| ContainerRecreateState {
        name: name.to_owned(),
        phase,
        message,
        is_killed: killed,
    };
    let Some(facts) = facts else {
        // Of an agent that has not told yet: what was stored is the best there is.
        let phase = stored.map_or(Phase::Pending, |stored| stored.phase);
        return state(
            phase,
            stored.map(|stored| stored.message.clone()).unwrap_or_default(),
        );
    };
    match facts.step {
        Step::Failed => state(Phase::Failed, format!("kill container error: {}", facts.error)),
        Step::Waiting | Step::Missing | Step::Hook | Step::Stopping => state(Phase::Pending, String::new()),
        Step::Stopped | Step::Running => {
            if is_back(facts, pod) {
                return state(Phase::Succeeded, String::new());
            }
            let code = facts.exit.map(|exit| exit.code);
            if facts.step == Step::Stopped && pod.is_some_and(|pod| !pods::restarts(pod, name, code)) {
                let gone = state(Phase::Failed, texts::NO_RESTART.to_owned());
                return ContainerRecreateState {
                    is_killed: true,
                    ..gone
                };
            }
            let waits = pod
                .and_then(|pod| pods::status_of(pod, name))
                .and_then(pods::waits_for);
            state(Phase::Recreating, waits.unwrap_or_default())
        }
    }
}

/// Whether a successor runs for long enough and the kubelet says of the same one that it is ready.
fn is_back(facts: &ContainerFacts, pod: Option<&Pod>) -> bool {
    let Some(successor) = facts.successor.as_ref().filter(|successor| successor.settled) else {
        return false;
    };
    facts.step == Step::Running
        && pod
            .and_then(|pod| pods::status_of(pod, &facts.name))
            .is_some_and(|status| status.ready && pods::bare_id(status) == Some(successor.id.as_str()))
}

/// Ends whatever has not ended. A container that was stopped is told apart from one that was not touched.
pub(super) fn finish(states: &mut [ContainerRecreateState], text: &str) {
    for state in states.iter_mut().filter(|state| !state.phase.is_final()) {
        state.phase = Phase::Failed;
        text.clone_into(&mut state.message);
    }
}

/// How many containers the agent may stop: in an ordered request one more than have ended.
pub(super) fn released(states: &[ContainerRecreateState], ordered: bool, fails_fast: bool) -> usize {
    if !ordered {
        return states.len();
    }
    let ended = states
        .iter()
        .take_while(|state| state.phase == Phase::Succeeded || (state.phase == Phase::Failed && !fails_fast))
        .count();
    (ended + 1).min(states.len())
}

/// What the kubelet says of the successors. Nothing new leaves what was told before.
pub(super) fn snapshot(
    containers: &[RecreateContainer],
    stored: &[ContainerSnapshot],
    facts: Option<&TaskFacts>,
    pod: Option<&Pod>,
) -> Vec<ContainerSnapshot> {
    let entry = |container: &RecreateContainer| {
        let successor = facts?.of(&container.name)?.successor.as_ref()?;
        let status = pods::status_of(pod?, &container.name)?;
        let id = status.container_id.as_deref()?;
        let same = split_id(id).is_some_and(|(_, bare)| bare == successor.id);
        (same && pods::is_running(status)).then(|| ContainerSnapshot {
            name: container.name.clone(),
            ready: status.ready,
            restart_count: status.restart_count,
            container_id: id.to_owned(),
        })
    };
    let fresh: Vec<_> = containers.iter().filter_map(entry).collect();
    if fresh.is_empty() { stored.to_vec() } else { fresh }
}
