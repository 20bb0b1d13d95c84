//! What people are told.

use kruise_api::container_recreate_request::ContainerRecreateState;

use super::facts::{ContainerFacts, Step};
use super::outcome::EventNote;
use super::view::{AgentView, RequestView};

/// What is told about the containers so far. Each is told once; whoever tells keeps count.
pub(super) fn notes(request: &RequestView<'_>) -> Vec<EventNote> {
    let mut notes = Vec::new();
    for facts in request.facts.iter().flat_map(|facts| &facts.containers) {
        if facts.has_begun() {
            notes.push(EventNote {
                container: Some(facts.name.clone()),
                reason: "Killing",
                warning: false,
                message: format!(
                    "Stopping container {} by ContainerRecreateRequest {}",
                    facts.name,
                    request.name()
                ),
            });
        }
        if !facts.hook_error.is_empty() {
            notes.push(EventNote {
                container: Some(facts.name.clone()),
                reason: "FailedPreStopHook",
                warning: true,
                message: named(facts),
            });
        }
        if !facts.hook_fallback.is_empty() {
            notes.push(EventNote {
                container: Some(facts.name.clone()),
                reason: "LifecycleHTTPFallback",
                warning: true,
                // The kubelet's words.
                message: format!(
                    "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
                    facts.hook_fallback
                ),
            });
        }
    }
    notes
}

/// The error of a hook, with the container's name in place of its id, so that events of the same kind are one.
fn named(facts: &ContainerFacts) -> String {
    match &facts.bound {
        Some(id) if !id.is_empty() => facts.hook_error.replace(id.as_str(), &facts.name),
        _ => facts.hook_error.clone(),
    }
}

/// Why a request is not over.
pub(super) fn waits_on(
    states: &[ContainerRecreateState],
    agent: AgentView,
    request: &RequestView<'_>,
) -> String {
    if agent != AgentView::Attached {
        return "no agent attached on the pod's node".to_owned();
    }
    let Some(facts) = request.facts else {
        return "waits for the agent to take it".to_owned();
    };
    let Some(state) = states.iter().find(|state| !state.phase.is_final()) else {
        return String::new();
    };
    let what = match facts.of(&state.name).map(|facts| facts.step) {
        Some(Step::Hook) => "its preStop hook runs",
        Some(Step::Stopping) => "it is being stopped",
        Some(Step::Stopped) => "the kubelet has not started it again",
        Some(Step::Running) => "it runs and is not ready yet",
        Some(Step::Missing) => "there is no such container on the node",
        Some(Step::Waiting | Step::Failed) | None => "it is to be stopped",
    };
    format!("{}: {what}", state.name)
}
