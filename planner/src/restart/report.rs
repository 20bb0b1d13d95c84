//! What the restart of each container took.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::facts::TaskFacts;
use super::view::Memory;

/// One container, as it stands in the annotation of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Name in the pod.
    pub name: String,
    /// The instance that was stopped.
    #[serde(rename = "oldID", skip_serializing_if = "Option::is_none")]
    pub old_id: Option<String>,
    /// The one that came after it.
    #[serde(rename = "newID", skip_serializing_if = "Option::is_none")]
    pub new_id: Option<String>,
    /// From the beginning of hook or stop to the end of the instance, by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_seconds: Option<f64>,
    /// From the end of the instance to the start of its successor, by the node's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_seconds: Option<f64>,
    /// From when the leader heard of the stop to when it saw the successor ready, by the leader's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_seconds: Option<f64>,
}

/// Reports of all containers that agents have told about.
#[must_use]
pub fn report(facts: &TaskFacts, memory: &Memory) -> Vec<ContainerReport> {
    facts
        .containers
        .iter()
        .map(|container| {
            let begun = container.hook_began.or(container.stop_began);
            let finished = container.exit.and_then(|exit| exit.finished_at);
            let started = container
                .successor
                .as_ref()
                .and_then(|successor| successor.started_at);
            ContainerReport {
                name: container.name.clone(),
                old_id: container.bound.clone(),
                new_id: container.successor.as_ref().map(|successor| successor.id.clone()),
                stop_seconds: between(begun, finished),
                down_seconds: between(finished, started),
                not_ready_seconds: not_ready(&memory.stop_seen, &memory.ready_seen, &container.name),
            }
        })
        .collect()
}

fn not_ready(
    stopped: &BTreeMap<String, Duration>,
    ready: &BTreeMap<String, Duration>,
    name: &str,
) -> Option<f64> {
    let span = ready.get(name)?.saturating_sub(*stopped.get(name)?);
    Some(rounded(span))
}

fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
    let span = Duration::try_from(to?.duration_since(from?)).ok()?;
    Some(rounded(span))
}

/// To milliseconds: more is noise.
fn rounded(span: Duration) -> f64 {
    (span.as_secs_f64() * 1000.0).round() / 1000.0
}
