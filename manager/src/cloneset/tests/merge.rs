//! Patches as an API server applies them, as far as the controller uses them.

use serde_json::{Map, Value};

/// A JSON merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("an object");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Key by which items of a list are the same, for lists that are merged.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" => Some("type"),
        "containers" | "volumes" => Some("name"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

/// A strategic merge patch of a pod.
pub(super) fn strategic(target: &mut Value, patch: &Value) {
    let (Value::Object(patch), Some(target)) = (patch, target.as_object_mut()) else {
        *target = patch.clone();
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            Value::Array(items) if key == "finalizers" => union(target, key, items),
            Value::Array(items) if merge_key(key).is_some() => {
                by_key(target, key, merge_key(key).expect("it is one"), items);
            }
            Value::Object(_) => {
                let below = target
                    .entry(key.clone())
                    .or_insert_with(|| Value::Object(Map::new()));
                strategic(below, value);
            }
            _ => drop(target.insert(key.clone(), value.clone())),
        }
    }
}

fn union(target: &mut Map<String, Value>, key: &str, items: &[Value]) {
    let list = target
        .entry(key.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()));
    let list = list.as_array_mut().expect("a list");
    for item in items {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

fn by_key(target: &mut Map<String, Value>, key: &str, by: &str, items: &[Value]) {
    let list = target
        .entry(key.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()));
    let list = list.as_array_mut().expect("a list");
    for item in items {
        let place = list.iter().position(|known| known[by] == item[by]);
        match (place, item["$patch"] == "delete") {
            (Some(place), true) => drop(list.remove(place)),
            (Some(place), false) => strategic(&mut list[place], item),
            (None, true) => {}
            (None, false) => {
                let mut fresh = Value::Object(Map::new());
                strategic(&mut fresh, item);
                list.push(fresh);
            }
        }
    }
}
