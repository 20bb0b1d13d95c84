//! JSON merge patches (RFC 7386) between two versions of a status.

use serde_json::{Map, Value};

/// The patch that turns `old` into `new`; none when they are equal. Fields that `new` lacks are set to null.
pub(crate) fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        _ if old == new => None,
        (Value::Object(old), Value::Object(new)) => Some(Value::Object(object_patch(old, new))),
        _ => Some(new.clone()),
    }
}

fn object_patch(old: &Map<String, Value>, new: &Map<String, Value>) -> Map<String, Value> {
    let removed = old
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| {
        merge_patch(old.get(key).unwrap_or(&Value::Null), value).map(|patch| (key.clone(), patch))
    });
    removed.chain(changed).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_changed_and_nulls_for_what_went() {
        let old = json!({"a": 1, "b": {"x": 1, "y": 2}, "list": [1, 2], "gone": "z"});
        let new = json!({"a": 1, "b": {"x": 3}, "list": [2], "fresh": {"k": 1}});
        assert_eq!(
            merge_patch(&old, &new),
            Some(json!({"b": {"x": 3, "y": null}, "list": [2], "fresh": {"k": 1}, "gone": null}))
        );
        assert_eq!(merge_patch(&new, &new), None);
        assert_eq!(merge_patch(&Value::Null, &json!({"a": 1})), Some(json!({"a": 1})));
    }
}
