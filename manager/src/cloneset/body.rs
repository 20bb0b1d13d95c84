//! Bodies of the requests: objects to create, patches of objects.
//!
//! Every patch names the UID of the object, and the version where the plan rests on what it saw: the API server refuses the patch of
//! another object of that name, and of one that has changed.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::clone_set::{CloneSet, CloneSetStatus, names};
use kruise_planner::cloneset::{Action, JobContent, OwnerChange, PodConditionPatch, PodPatch};
use kruise_planner::revision;
use serde_json::{Map, Value, json};

use super::event::Seen;
use crate::engine::merge_patch;

/// The owner reference that everything made for a set carries.
pub(super) fn owner(set: &CloneSet) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "CloneSet",
        "name": set.metadata.name,
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn name_of(set: &CloneSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// What a new pod is made of besides its set and its template.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewPod<'a> {
    pub(super) name: &'a str,
    pub(super) revision: &'a str,
    pub(super) instance_id: &'a str,
    pub(super) instance_seq: Option<i64>,
    /// Its revision label has the hash alone.
    pub(super) short_hash: bool,
    pub(super) now: Timestamp,
}

/// A pod of a set, from the data of a revision.
pub(super) fn pod(set: &CloneSet, data: &Value, new: NewPod<'_>) -> Option<Value> {
    let mut pod = revision::template_of(data)?;
    let hash = revision::short_hash(new.revision);
    let label = if new.short_hash { hash } else { new.revision };
    let meta = object(&mut pod, "metadata");
    meta.remove("creationTimestamp");
    meta.insert("name".to_owned(), new.name.into());
    meta.insert("generateName".to_owned(), format!("{}-", name_of(set)).into());
    meta.insert("namespace".to_owned(), json!(set.metadata.namespace));
    meta.insert("ownerReferences".to_owned(), json!([owner(set)]));
    let labels = entry(meta, "labels");
    for (key, value) in [
        (names::INSTANCE_ID, new.instance_id),
        (names::REVISION, label),
        (names::TEMPLATE_HASH, hash),
        (names::LIFECYCLE_STATE, names::state::PREPARING_NORMAL),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    let annotations = entry(meta, "annotations");
    annotations.insert(names::LIFECYCLE_TIMESTAMP.to_owned(), time(new.now).into());
    if let Some(seq) = new.instance_seq {
        annotations.insert(names::INSTANCE_SEQ.to_owned(), seq.to_string().into());
    }
    let spec = object(&mut pod, "spec");
    add_gate(spec, names::IN_PLACE_READY);
    let templates = set.spec.volume_claim_templates.as_ref().and_then(Value::as_array);
    for template in templates.into_iter().flatten().filter_map(template_name) {
        add_claim_volume(spec, template, name_of(set), new.instance_id);
    }
    let fields = pod.as_object_mut()?;
    fields.insert("apiVersion".to_owned(), "v1".into());
    fields.insert("kind".to_owned(), "Pod".into());
    Some(pod)
}

fn template_name(template: &Value) -> Option<&str> {
    template.pointer("/metadata/name")?.as_str()
}

fn add_gate(spec: &mut Map<String, Value>, kind: &str) {
    let gates = list(spec, "readinessGates");
    if !gates.iter().any(|gate| gate["conditionType"] == kind) {
        gates.push(json!({ "conditionType": kind }));
    }
}

/// The claim's volume takes the place of one of the same name in the template.
fn add_claim_volume(spec: &mut Map<String, Value>, template: &str, set: &str, id: &str) {
    let volumes = list(spec, "volumes");
    volumes.retain(|volume| volume["name"] != template);
    let claim = format!("{template}-{set}-{id}");
    volumes.push(json!({"name": template, "persistentVolumeClaim": {"claimName": claim}}));
}

/// A claim of a set, from the template of this name.
pub(super) fn claim(set: &CloneSet, name: &str, template: &str, id: &str, seq: Option<i64>) -> Option<Value> {
    let templates = set.spec.volume_claim_templates.as_ref()?.as_array()?;
    let found = templates
        .iter()
        .find(|known| template_name(known) == Some(template))?;
    let mut claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": set.metadata.namespace, "ownerReferences": [owner(set)]},
        "spec": found.get("spec").cloned().unwrap_or_default(),
    });
    let meta = object(&mut claim, "metadata");
    for part in ["labels", "annotations"] {
        if let Some(Value::Object(values)) = found.pointer(&format!("/metadata/{part}")) {
            meta.insert(part.to_owned(), Value::Object(values.clone()));
        }
    }
    let labels = entry(meta, "labels");
    for (key, value) in set.spec.selector.match_labels.iter().flatten() {
        labels.insert(key.clone(), value.clone().into());
    }
    labels.insert(names::INSTANCE_ID.to_owned(), id.into());
    if let Some(seq) = seq {
        entry(meta, "annotations").insert(names::INSTANCE_SEQ.to_owned(), seq.to_string().into());
    }
    Some(claim)
}

/// A revision.
pub(super) fn controller_revision(
    set: &CloneSet,
    data: &Value,
    name: &str,
    number: i64,
    hash: &str,
    claim_template_hash: &str,
) -> Value {
    let mut labels = data
        .pointer("/spec/template/metadata/labels")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    labels.insert(names::REVISION_HASH.to_owned(), hash.into());
    let mut annotations: BTreeMap<String, String> = set.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(
        names::CLAIM_TEMPLATE_HASH.to_owned(),
        claim_template_hash.to_owned(),
    );
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": set.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner(set)],
        },
        "data": data,
        "revision": number,
    })
}

/// A pre-download job.
pub(super) fn image_pull_job(set: &CloneSet, name: &str, content: &JobContent) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "ImagePullJob",
        "metadata": {
            "name": name,
            "namespace": set.metadata.namespace,
            "labels": content.labels,
            "ownerReferences": [owner(set)],
        },
        "spec": {
            "image": content.image,
            "pullSecrets": content.pull_secrets.iter().map(|secret| &secret.name).collect::<Vec<_>>(),
            "podSelector": content.pod_selector,
            "parallelism": content.parallelism,
            "pullPolicy": {"timeoutSeconds": content.timeout_seconds, "backoffLimit": content.backoff_limit},
            "completionPolicy": {
                "type": "Always",
                "ttlSecondsAfterFinished": content.ttl_seconds_after_finished,
            },
            "sandboxConfig": {"labels": content.labels, "annotations": content.annotations},
        },
    })
}

/// Metadata of a patch.
pub(super) fn preconditions(seen: &Seen) -> Value {
    json!({"uid": seen.uid, "resourceVersion": seen.version})
}

/// Strategic patch of a pod. The second part tells whether it belongs to the status: a write of the status carries labels and annotations
/// too, but no finalizers and owners.
pub(super) fn pod_patch(set: &CloneSet, seen: &Seen, patch: &PodPatch, now: Timestamp) -> (Value, bool) {
    let mut meta = preconditions(seen);
    let fields = as_object(&mut meta);
    let mut labels = patch.labels.clone();
    let mut annotations = patch.annotations.clone();
    if let Some(state) = patch.lifecycle_state {
        labels.insert(names::LIFECYCLE_STATE.to_owned(), Some(state.to_owned()));
        annotations.insert(names::LIFECYCLE_TIMESTAMP.to_owned(), Some(time(now)));
    }
    if !labels.is_empty() {
        fields.insert("labels".to_owned(), json!(labels));
    }
    if !annotations.is_empty() {
        fields.insert("annotations".to_owned(), json!(annotations));
    }
    if !patch.finalizers.is_empty() {
        fields.insert("finalizers".to_owned(), json!(patch.finalizers));
    }
    let uid = set.metadata.uid.clone().unwrap_or_default();
    match patch.owners {
        Some(OwnerChange::Claim) => {
            fields.insert("ownerReferences".to_owned(), json!([owner(set)]));
        }
        Some(OwnerChange::Release) => {
            let delete = json!([{"$patch": "delete", "uid": uid}]);
            fields.insert("ownerReferences".to_owned(), delete);
        }
        None => {}
    }
    let of_status = !patch.conditions.is_empty();
    let mut body = json!({ "metadata": meta });
    if of_status && let Some(body) = body.as_object_mut() {
        let conditions: Vec<Value> = patch.conditions.iter().map(|one| condition(one, now)).collect();
        body.insert("status".to_owned(), json!({ "conditions": conditions }));
    }
    (body, of_status)
}

fn condition(patch: &PodConditionPatch, now: Timestamp) -> Value {
    let mut condition = json!({
        "type": patch.kind,
        "status": patch.status,
        "lastTransitionTime": time(now),
        "reason": null,
        "message": null,
    });
    if let Some(fields) = condition.as_object_mut() {
        if !patch.reason.is_empty() {
            fields.insert("reason".to_owned(), patch.reason.into());
        }
        if !patch.message.is_empty() {
            fields.insert("message".to_owned(), patch.message.clone().into());
        }
    }
    condition
}

/// Merge patch of a claim that makes a pod its owner.
pub(super) fn hand_over(seen: &Seen, pod: &str, pod_uid: &str) -> Value {
    let mut meta = preconditions(seen);
    if let Some(fields) = meta.as_object_mut() {
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_uid}]);
        fields.insert("ownerReferences".to_owned(), owner);
    }
    json!({ "metadata": meta })
}

/// Merge patch of a revision.
pub(super) fn revision_patch(seen: &Seen, action: &Action) -> Option<Value> {
    let Action::PatchRevision {
        number,
        labels,
        annotations,
        ..
    } = action
    else {
        return None;
    };
    let mut meta = preconditions(seen);
    if let Some(fields) = meta.as_object_mut() {
        for (part, values) in [("labels", labels), ("annotations", annotations)] {
            if !values.is_empty() {
                fields.insert(part.to_owned(), json!(values));
            }
        }
    }
    let mut body = json!({ "metadata": meta });
    if let (Some(number), Some(body)) = (number, body.as_object_mut()) {
        body.insert("revision".to_owned(), (*number).into());
    }
    Some(body)
}

/// Merge patch of `podsToDelete`, bound to the version that the plan saw: a name that was added meanwhile must not be lost.
pub(super) fn pods_to_delete(set: &CloneSet, left: &[String]) -> Value {
    let left = if left.is_empty() { Value::Null } else { json!(left) };
    json!({
        "metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version},
        "spec": {"scaleStrategy": {"podsToDelete": left}},
    })
}

/// Merge patch of the status.
pub(super) fn status(set: &CloneSet, status: &CloneSetStatus) -> Value {
    let old = set.status.as_ref().map_or(json!({}), |status| json!(status));
    let patch = merge_patch(&old, &json!(status)).unwrap_or_else(|| json!({}));
    json!({
        "metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version},
        "status": patch,
    })
}

/// In whole seconds, as Kubernetes writes times.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The object under this key of an object, made when it is not there.
fn object<'v>(value: &'v mut Value, key: &str) -> &'v mut Map<String, Value> {
    entry(as_object(value), key)
}

fn entry<'v>(fields: &'v mut Map<String, Value>, key: &str) -> &'v mut Map<String, Value> {
    as_object(fields.entry(key.to_owned()).or_insert(Value::Null))
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made one")
}

fn list<'v>(fields: &'v mut Map<String, Value>, key: &str) -> &'v mut Vec<Value> {
    let value = fields.entry(key.to_owned()).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it was just made one")
}
