//! What a NodeImage must be, and what is filled in when it is written.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{MAX_NAMES, NodeImage};
use crate::admission::{Denied, bad, gate_is_off};
use crate::image_pull_job::{DEFAULT_BACKOFF_LIMIT, DEFAULT_TIMEOUT_SECONDS};

/// Fills in what the writer left out, and sorts tags.
pub fn default(object: &mut NodeImage, now: Timestamp) {
    for image in object.spec.images.values_mut() {
        for tag in &mut image.tags {
            tag.created_at.get_or_insert(Time(now));
            let policy = tag.pull_policy.get_or_insert_default();
            policy.timeout_seconds.get_or_insert(DEFAULT_TIMEOUT_SECONDS);
            policy.backoff_limit.get_or_insert(DEFAULT_BACKOFF_LIMIT);
        }
        image.tags.sort_by(|one, other| one.tag.cmp(&other.tag));
    }
}

/// Checks what is to be stored.
///
/// # Errors
/// The first rule that it breaks. What is returned otherwise are warnings.
pub fn validate(
    object: &NodeImage,
    old: Option<&NodeImage>,
    switched_off: Option<&str>,
) -> Result<Vec<String>, Denied> {
    if old.is_some_and(|old| old.spec == object.spec) {
        return Ok(Vec::new());
    }
    if let Some(gate) = switched_off {
        return Err(gate_is_off(gate));
    }
    let images = &object.spec.images;
    if images.len() > MAX_NAMES {
        return Err(bad(format!(
            "spec.images: {} names; at most {MAX_NAMES} are accepted",
            images.len()
        )));
    }
    let mut warnings = Vec::new();
    for (name, image) in images {
        if name.is_empty() {
            return Err(bad("spec.images: a name is empty"));
        }
        let mut seen = BTreeSet::new();
        for (index, tag) in image.tags.iter().enumerate() {
            let path = format!("spec.images[{name}].tags[{index}]");
            if tag.tag.is_empty() {
                return Err(bad(format!("{path}.tag: must not be empty")));
            }
            if !seen.insert(&tag.tag) {
                return Err(bad(format!("{path}.tag: {} is listed twice", tag.tag)));
            }
            if tag.created_at.is_none() {
                return Err(bad(format!("{path}.createdAt: needed")));
            }
            if tag.version < 0 {
                return Err(bad(format!("{path}.version: must not be negative")));
            }
            let Some(policy) = &tag.pull_policy else {
                return Err(bad(format!("{path}.pullPolicy: needed")));
            };
            if policy.ttl_seconds_after_finished.is_none() {
                warnings.push(format!(
                    "{path}.pullPolicy.ttlSecondsAfterFinished is left out: the tag stays until somebody takes it away"
                ));
            }
        }
    }
    // A client shows all of them; a few are enough to see what is meant.
    warnings.truncate(5);
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(images: &Value) -> NodeImage {
        let object = json!({"metadata": {"name": "n"}, "spec": {"images": images}});
        serde_json::from_value(object).expect("a NodeImage")
    }

    #[test]
    fn defaults_complete_and_sort() {
        let mut image = object(&json!({"nginx": {"tags": [{"tag": "2"}, {"tag": "1", "version": 3}]}}));
        let now = Timestamp::from_second(1_800_000_000).expect("in range");
        default(&mut image, now);
        let tags = &image.spec.images["nginx"].tags;
        assert_eq!(tags[0].tag, "1");
        assert_eq!(tags[1].created_at, Some(Time(now)));
        let policy = tags[1].pull_policy.as_ref().expect("filled in");
        assert_eq!(
            (policy.timeout_seconds, policy.backoff_limit),
            (Some(600), Some(3))
        );
        let warnings = validate(&image, None, None).expect("whole");
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        let again = image.clone();
        default(&mut image, Timestamp::UNIX_EPOCH);
        assert_eq!(image, again);
    }

    #[test]
    fn each_rule_names_its_field() {
        let full = |tag: &Value| {
            let mut whole =
                json!({"createdAt": "2026-01-01T00:00:00Z", "pullPolicy": {"ttlSecondsAfterFinished": 1}});
            for (key, value) in tag.as_object().expect("fields") {
                whole[key] = value.clone();
            }
            whole
        };
        let many: serde_json::Map<_, _> = (0..257)
            .map(|number| (format!("n{number}"), json!({"tags": []})))
            .collect();
        for (images, field) in [
            (json!(many), "spec.images: 257"),
            (json!({"": {"tags": []}}), "spec.images: a name"),
            (
                json!({"a": {"tags": [full(&json!({"tag": ""}))]}}),
                "spec.images[a].tags[0].tag: must",
            ),
            (
                json!({"a": {"tags": [full(&json!({"tag": "1"})), full(&json!({"tag": "1"}))]}}),
                "spec.images[a].tags[1].tag: 1 is",
            ),
            (
                json!({"a": {"tags": [full(&json!({"tag": "1", "version": -1}))]}}),
                "spec.images[a].tags[0].version",
            ),
            (
                json!({"a": {"tags": [{"tag": "1"}]}}),
                "spec.images[a].tags[0].createdAt",
            ),
            (
                json!({"a": {"tags": [{"tag": "1", "createdAt": "2026-01-01T00:00:00Z"}]}}),
                "spec.images[a].tags[0].pullPolicy",
            ),
        ] {
            let denied = validate(&object(&images), None, None).expect_err(field);
            assert!(denied.message.starts_with(field), "{denied}");
        }
    }
}
