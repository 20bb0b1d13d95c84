//! The patches that change one pod in place.
//!
//! They are strategic merge patches without preconditions: whoever sends them adds the UID and the resourceVersion of the pod that they
//! were made from, and makes them anew after a conflict.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use kruise_api::clone_set::names;
use kruise_api::quantity;
use serde_json::{Map, Value, json};

use super::change::{Change, Resources};
use super::state::{Batch, Grace, ImageRecord, PreCheck, State, stamp};
use super::{Options, batch};
use crate::revision;

/// What the pod is after the change.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Name of the revision, for the annotation.
    pub revision: &'a str,
    /// Value of the label `controller-revision-hash`: the name, or the hash with CloneSetShortHash.
    pub label: &'a str,
    /// Value of the label `lifecycle.apps.kruise.io/state`.
    pub lifecycle_state: &'a str,
    /// Length of the grace period; 0 for none.
    pub grace_seconds: i32,
    /// CPU and memory go through the subresource `resize` (Kubernetes 1.32 and newer).
    pub resize: bool,
}

/// Patches for one pod, to be sent in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// For the subresource `status`: conditions that say that the pod is not ready.
    pub status: Option<Value>,
    /// For the subresource `resize`.
    pub resize: Option<Value>,
    /// For the pod itself.
    pub pod: Value,
}

/// Begins a change, or writes it down when there is a grace period. Later batches of an earlier change that this one does not touch are
/// carried on: their containers still have the oldest image.
#[must_use]
pub fn begin(pod: &Pod, change: &Change, target: &Target<'_>, options: Options, now: Timestamp) -> Written {
    let change = &carrying(pod, change);
    let status = not_ready(pod, change, options, now);
    let mut state = State {
        revision: target.revision.to_owned(),
        update_timestamp: Some(stamp(now)),
        update_env_from_metadata: change.updates_env_from_metadata(),
        update_resources: !change.resources.is_empty(),
        update_images: !change.images.is_empty(),
        ..State::default()
    };
    let mut patch = PodPatch::default();
    patch
        .labels
        .insert(names::REVISION.to_owned(), target.label.into());
    let hash = revision::short_hash(target.revision);
    patch.labels.insert(names::TEMPLATE_HASH.to_owned(), hash.into());
    patch
        .labels
        .insert(names::LIFECYCLE_STATE.to_owned(), target.lifecycle_state.into());
    patch
        .annotations
        .insert(names::LIFECYCLE_TIMESTAMP.to_owned(), stamp(now).into());
    if target.grace_seconds > 0 && !change.is_metadata_only() {
        let grace = Grace::new(change, target.revision, target.grace_seconds);
        patch
            .annotations
            .insert(names::IN_PLACE_GRACE.to_owned(), json!(grace).to_string().into());
        patch.finish(pod, &state);
        return Written {
            status,
            resize: None,
            pod: patch.into_value(),
        };
    }
    patch.drop_grace(pod);
    let resize = write_batch(pod, change, &mut state, &mut patch, target.resize, now);
    patch.finish(pod, &state);
    Written {
        status,
        resize,
        pod: patch.into_value(),
    }
}

/// Writes the change that waited for its grace period. None without one.
#[must_use]
pub fn end_grace(pod: &Pod, resize: bool, now: Timestamp) -> Option<Written> {
    let grace = Grace::of(pod)?;
    let change = grace.change();
    let mut state = State::of(pod).unwrap_or_else(|| State {
        revision: grace.revision.clone(),
        update_timestamp: Some(stamp(now)),
        ..State::default()
    });
    state.update_env_from_metadata |= change.updates_env_from_metadata();
    state.update_resources |= !change.resources.is_empty();
    state.update_images |= !change.images.is_empty();
    let mut patch = PodPatch::default();
    patch.drop_grace(pod);
    let resize = write_batch(pod, &change, &mut state, &mut patch, resize, now);
    patch.finish(pod, &state);
    Some(Written {
        status: None,
        resize,
        pod: patch.into_value(),
    })
}

/// Writes the next batch. None when nothing is left.
#[must_use]
pub fn next_batch(pod: &Pod, resize: bool, now: Timestamp) -> Option<Written> {
    let mut state = State::of(pod).filter(State::has_next)?;
    let change = pending(&state);
    let mut patch = PodPatch::default();
    let resize = write_batch(pod, &change, &mut state, &mut patch, resize, now);
    patch.finish(pod, &state);
    Some(Written {
        status: None,
        resize,
        pod: patch.into_value(),
    })
}

/// What later batches have left to do.
fn pending(state: &State) -> Change {
    Change {
        images: state.next_container_images.clone(),
        metadata_patch: None,
        ref_metadata: state.next_container_ref_metadata.clone(),
        resources: state.next_container_resources.clone(),
    }
}

/// The change with what an earlier one has left to do, where the two do not speak of the same container.
fn carrying(pod: &Pod, change: &Change) -> Change {
    let left = State::of(pod).map(|state| pending(&state)).unwrap_or_default();
    let waiting = Grace::of(pod).map(|grace| grace.change()).unwrap_or_default();
    let mut all = change.clone();
    for older in [left, waiting] {
        for (name, image) in older.images {
            all.images.entry(name).or_insert(image);
        }
        for (name, refs) in older.ref_metadata {
            let entry = all.ref_metadata.entry(name).or_default();
            for (key, value) in refs.labels {
                entry.labels.entry(key).or_insert(value);
            }
            for (key, value) in refs.annotations {
                entry.annotations.entry(key).or_insert(value);
            }
        }
        for (name, resources) in older.resources {
            let entry = all.resources.entry(name).or_default();
            for (key, value) in resources.limits {
                entry.limits.entry(key).or_insert(value);
            }
            for (key, value) in resources.requests {
                entry.requests.entry(key).or_insert(value);
            }
        }
        if let Some(patch) = older.metadata_patch {
            all.metadata_patch = Some(match all.metadata_patch.take() {
                None => patch,
                Some(newer) => overlay(patch, newer),
            });
        }
    }
    all
}

/// One patch after another, as one.
fn overlay(older: Value, newer: Value) -> Value {
    match (older, newer) {
        (Value::Object(mut older), Value::Object(newer)) => {
            for (key, value) in newer {
                let below = older.remove(&key).unwrap_or(Value::Null);
                older.insert(key, overlay(below, value));
            }
            Value::Object(older)
        }
        (_, newer) => newer,
    }
}

/// Writes one batch into the patch and keeps the rest in the state. Answers with what goes through `resize`.
fn write_batch(
    pod: &Pod,
    change: &Change,
    state: &mut State,
    patch: &mut PodPatch,
    resize: bool,
    now: Timestamp,
) -> Option<Value> {
    if let Some(metadata) = &change.metadata_patch {
        patch.overlay(metadata);
    }
    let chosen = batch::choose(pod, change);
    let (present, later) = change.split(&chosen);
    let records = state.last_container_statuses.get_or_insert_default();
    for (name, image) in &present.images {
        // A container that has the image already will not report another one.
        if container(pod, name).is_some_and(|container| container.image.as_ref() != Some(image)) {
            let fields = patch.container(name);
            fields.insert("image".to_owned(), image.as_str().into());
            if let Some(image_id) = image_id(pod, name) {
                records.insert(name.clone(), ImageRecord { image_id });
            }
        }
    }
    let mut resized = Vec::new();
    for (name, resources) in &present.resources {
        match container(pod, name).and_then(|container| differing(container, resources)) {
            Some(differs) if resize => resized.push(json!({"name": name, "resources": differs})),
            Some(differs) => {
                patch
                    .container(name)
                    .insert("resources".to_owned(), json!(differs));
            }
            None => {}
        }
    }
    for refs in present.ref_metadata.into_values() {
        let texts = |map: BTreeMap<String, String>| map.into_iter().map(|(key, value)| (key, value.into()));
        patch.labels.extend(texts(refs.labels));
        patch.annotations.extend(texts(refs.annotations));
    }
    state.next_container_images = later.images;
    state.next_container_ref_metadata = later.ref_metadata;
    state.next_container_resources = later.resources;
    let chosen: Vec<String> = chosen.into_iter().collect();
    state.pre_check_before_next = state.has_next().then(|| PreCheck {
        containers_required_ready: chosen.clone(),
    });
    state.container_batches_record.push(Batch {
        timestamp: Some(stamp(now)),
        containers: chosen,
    });
    (!resized.is_empty()).then(|| json!({"spec": {"containers": resized}}))
}

fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let containers = &pod.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == name)
}

fn image_id(pod: &Pod, name: &str) -> Option<String> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.iter().find(|status| status.name == name)?;
    Some(status.image_id.clone())
}

/// The amounts that the container does not have. None when it has all of them.
fn differing(container: &Container, wanted: &Resources) -> Option<Resources> {
    let has = container.resources.as_ref();
    let mut differs = wanted.clone();
    let amount = |text: &String| quantity::amount(text);
    let limits = has.and_then(|has| has.limits.as_ref());
    differs
        .limits
        .retain(|name, value| limits.and_then(|limits| amount(&limits.get(name)?.0)) != amount(value));
    let requests = has.and_then(|has| has.requests.as_ref());
    differs
        .requests
        .retain(|name, value| requests.and_then(|requests| amount(&requests.get(name)?.0)) != amount(value));
    (differs != Resources::default()).then_some(differs)
}

/// Whether a changed amount restarts its container.
fn restarts(pod: &Pod, name: &str, resources: &Resources) -> bool {
    let policies = container(pod, name).and_then(|container| container.resize_policy.as_ref());
    policies.into_iter().flatten().any(|policy| {
        let changed = resources.limits.contains_key(&policy.resource_name)
            || resources.requests.contains_key(&policy.resource_name);
        policy.restart_policy == "RestartContainer" && changed
    })
}

/// Conditions that make the pod not ready before the change. None for a pod that is not gated, a change of metadata alone, which nobody
/// notices, and amounts that the kubelet changes without a restart.
#[must_use]
pub fn not_ready(pod: &Pod, change: &Change, options: Options, now: Timestamp) -> Option<Value> {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let gated = gates
        .into_iter()
        .flatten()
        .any(|gate| gate.condition_type == names::IN_PLACE_READY);
    let only_resources =
        change.images.is_empty() && change.ref_metadata.is_empty() && options.vertical_scaling;
    let quiet = only_resources
        && !change
            .resources
            .iter()
            .any(|(name, resources)| restarts(pod, name, resources));
    if !gated || change.is_metadata_only() || quiet {
        return None;
    }
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let find = |kind: &str| conditions?.iter().find(|condition| condition.type_ == kind);
    let mut set = vec![json!({
        "type": names::IN_PLACE_READY,
        "status": "False",
        "reason": "StartInPlaceUpdate",
        "lastTransitionTime": stamp(now),
    })];
    let is_true = |condition: &PodCondition| condition.status == "True";
    if let Some(ready) = find("Ready")
        && find("ContainersReady").is_some_and(is_true)
    {
        // The kubelet would say the same in a moment; endpoints must not wait for it.
        let mut condition = json!({
            "type": "Ready",
            "status": "False",
            "reason": "ReadinessGatesNotReady",
        });
        if is_true(ready) {
            condition["lastTransitionTime"] = stamp(now).into();
        }
        set.push(condition);
    }
    Some(json!({"status": {"conditions": set}}))
}

/// A strategic merge patch of a pod in the making.
#[derive(Debug, Default)]
struct PodPatch {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
    /// Finalizers, and directives about them.
    others: Map<String, Value>,
    containers: BTreeMap<String, Map<String, Value>>,
}

impl PodPatch {
    fn container(&mut self, name: &str) -> &mut Map<String, Value> {
        self.containers.entry(name.to_owned()).or_default()
    }

    /// Takes in the metadata patch of a change.
    fn overlay(&mut self, patch: &Value) {
        for (key, value) in patch["metadata"].as_object().into_iter().flatten() {
            match (key.as_str(), value.as_object()) {
                ("labels", Some(map)) => self.labels.extend(map.clone()),
                ("annotations", Some(map)) => self.annotations.extend(map.clone()),
                _ => {
                    self.others.insert(key.clone(), value.clone());
                }
            }
        }
    }

    fn drop_grace(&mut self, pod: &Pod) {
        for key in [names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_OLD] {
            if has_annotation(pod, key) {
                self.annotations.insert(key.to_owned(), Value::Null);
            }
        }
    }

    /// Writes the state under its present key alone.
    fn finish(&mut self, pod: &Pod, state: &State) {
        let text = json_text(state);
        self.annotations
            .insert(names::IN_PLACE_STATE.to_owned(), text.into());
        for key in [names::IN_PLACE_STATE_OLD, names::IN_PLACE_GRACE_OLD] {
            if has_annotation(pod, key) {
                self.annotations.insert(key.to_owned(), Value::Null);
            }
        }
    }

    fn into_value(self) -> Value {
        let mut metadata = self.others;
        metadata.insert("labels".to_owned(), self.labels.into());
        metadata.insert("annotations".to_owned(), self.annotations.into());
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
        let mut patch = json!({"metadata": metadata});
        if !self.containers.is_empty() {
            let containers: Vec<Value> = self
                .containers
                .into_iter()
                .map(|(name, mut fields)| {
                    fields.insert("name".to_owned(), name.into());
                    Value::Object(fields)
                })
                .collect();
            patch["spec"] = json!({"containers": containers});
        }
        patch
    }
}

fn has_annotation(pod: &Pod, key: &str) -> bool {
    pod.metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(key))
}

/// Fields in the order of the type, as upstream writes them.
fn json_text(state: &State) -> String {
    serde_json::to_string(state).unwrap_or_default()
}
