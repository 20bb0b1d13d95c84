//! Writes to a set: one merge patch, for the version that was read.

use anyhow::{Context as _, Result, bail};
use kruise_api::clone_set::CloneSet;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::Target;

/// Reads of a set that changes while it is written.
const TRIES: usize = 5;

impl Target {
    /// Reads the set, works out a new spec, and writes it if the set has not changed meanwhile; else once more from the start. Without a change
    /// nothing is written. Answers what `change` said about the set that was written to.
    pub(super) async fn change<T>(&self, change: impl Fn(&CloneSet) -> Result<(Value, T)>) -> Result<T> {
        for _ in 0..TRIES {
            let set = self.get().await?;
            let (spec, said) = change(&set)?;
            if spec.as_object().is_some_and(Map::is_empty) {
                return Ok(said);
            }
            let patch = json!({
                "metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version},
                "spec": spec,
            });
            let written = self
                .sets
                .patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            match written {
                Ok(_) => return Ok(said),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("{} is not changed", self.title()));
                }
            }
        }
        bail!(
            "{} changes faster than it can be written; nothing is done, try again",
            self.title()
        )
    }
}

/// The JSON merge patch (RFC 7386) that makes one value of another; none when they are the same.
pub(super) fn merge_patch(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            // Under an absent key a null means nothing to begin with.
            None if value.is_null() => {}
            None => drop(patch.insert(key.clone(), value.clone())),
            Some(known) => patch.extend(merge_patch(known, value).map(|value| (key.clone(), value))),
        }
    }
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_says_what_changes_and_what_goes() {
        let from = json!({"a": 1, "b": {"c": [1, 2], "d": "x"}, "e": {}});
        let to = json!({"a": 1, "b": {"c": [1]}, "f": true, "g": null});
        assert_eq!(
            merge_patch(&from, &to),
            Some(json!({"b": {"c": [1], "d": null}, "e": null, "f": true}))
        );
        assert_eq!(merge_patch(&from, &from), None);
    }
}
