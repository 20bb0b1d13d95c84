//! Labels, annotations and finalizers of a template: what a container reads by its environment, and what is only written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Options;
use super::change::Change;

/// Variables that other machinery of upstream's feeds: they restart nothing.
const NOT_READ: [&str; 2] = ["SIDECARSET_VERSION", "SIDECARSET_VERSION_ALT"];

type Texts = BTreeMap<String, String>;

/// Takes the differences of two templates' metadata into the change, key by key: a map that appears or vanishes as a whole is nothing
/// special, and a key that vanishes changes the variable that it feeds to empty.
pub(super) fn compare(old: &Value, new: &Value, options: Options, change: &mut Change) {
    let mut patch = Map::new();
    for part in ["labels", "annotations"] {
        let (before, after) = (texts(old, part), texts(new, part));
        let mut plain = Map::new();
        for (key, value) in changed(&before, &after) {
            let read = options.env_from_metadata && note_readers(new, part, &key, value.as_deref(), change);
            if !read {
                plain.insert(key, value.map_or(Value::Null, Value::String));
            }
        }
        if !plain.is_empty() {
            patch.insert(part.to_owned(), Value::Object(plain));
        }
    }
    let (before, after) = (finalizers(old), finalizers(new));
    let without = |list: &[String], other: &[String]| -> Vec<String> {
        list.iter()
            .filter(|item| !other.contains(item))
            .cloned()
            .collect()
    };
    let (added, removed) = (without(&after, &before), without(&before, &after));
    if !added.is_empty() {
        patch.insert("finalizers".to_owned(), json!(added));
    }
    if !removed.is_empty() {
        patch.insert("$deleteFromPrimitiveList/finalizers".to_owned(), json!(removed));
    }
    if !patch.is_empty() {
        change.metadata_patch = Some(json!({"metadata": patch}));
    }
}

fn texts(template: &Value, part: &str) -> Texts {
    let map = template["metadata"][part].as_object();
    map.into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

fn finalizers(template: &Value) -> Vec<String> {
    let list = template["metadata"]["finalizers"].as_array();
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Keys that differ, with their new value; none when they vanish.
fn changed(before: &Texts, after: &Texts) -> BTreeMap<String, Option<String>> {
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let new = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    gone.map(|key| (key.clone(), None))
        .chain(new.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect()
}

/// Notes the key at every container that reads it, and answers whether there is one.
fn note_readers(template: &Value, part: &str, key: &str, value: Option<&str>, change: &mut Change) -> bool {
    let path = format!("metadata.{part}['{key}']");
    let mut read = false;
    for container in template["spec"]["containers"].as_array().into_iter().flatten() {
        let reads = container["env"].as_array().into_iter().flatten().any(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            let given = variable["value"].as_str().unwrap_or_default();
            given.is_empty()
                && !NOT_READ.contains(&name)
                && variable["valueFrom"]["fieldRef"]["fieldPath"] == path
        });
        let Some(name) = container["name"].as_str().filter(|_| reads) else {
            continue;
        };
        read = true;
        let refs = change.ref_metadata.entry(name.to_owned()).or_default();
        let keys = if part == "labels" {
            &mut refs.labels
        } else {
            &mut refs.annotations
        };
        keys.insert(key.to_owned(), value.unwrap_or_default().to_owned());
    }
    read
}
