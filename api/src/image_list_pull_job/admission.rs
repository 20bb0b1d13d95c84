//! What a list must be: the rules of a job without those about secrets and deadline, and its own about the images.

use std::collections::{BTreeMap, BTreeSet};

use super::{ImageListPullJob, MAX_IMAGES};
use crate::admission::{Denied, bad, gate_is_off};
use crate::image_pull_job::admission::{
    check_completion, check_deadline, check_image, check_parallelism, check_selection, spec_warnings,
};
use crate::reference::ImageRef;

/// Checks a new list, or a change of one. `switched_off` is the feature gate that keeps jobs from running, if one does.
///
/// # Errors
/// The first rule that it breaks. What is returned otherwise are warnings.
pub fn validate(
    list: &ImageListPullJob,
    old: Option<&ImageListPullJob>,
    switched_off: Option<&str>,
) -> Result<Vec<String>, Denied> {
    if old.is_some_and(|old| old.spec == list.spec) {
        return Ok(Vec::new());
    }
    if let Some(gate) = switched_off {
        return Err(gate_is_off(gate));
    }
    // What the images' jobs have in common.
    let job = list.spec.child("");
    check_selection(&job)?;
    let images = check_images(&list.spec.images)?;
    check_parallelism(job.parallelism.as_ref())?;
    check_completion(&job)?;
    let mut warnings = spec_warnings(&job);
    if let Err(denied) = check_deadline(&job) {
        warnings.push(format!("no job of the images will be taken: {denied}"));
    }
    warnings.extend(images);
    let ended = old
        .and_then(|old| old.status.as_ref())
        .is_some_and(|status| status.completion_time.is_some());
    if ended {
        warnings.push("the list has completed: this change has no effect; make another one".to_owned());
    }
    Ok(warnings)
}

/// Warnings about different spellings of one image.
fn check_images(images: &[String]) -> Result<Vec<String>, Denied> {
    if images.is_empty() {
        return Err(bad("spec.images: at least one image is needed"));
    }
    let mut seen = BTreeSet::new();
    if let Some(image) = images.iter().find(|image| !seen.insert(*image)) {
        return Err(bad(format!("spec.images: {image:?} is listed twice")));
    }
    if images.len() > MAX_IMAGES {
        return Err(bad(format!(
            "spec.images: {} images; at most {MAX_IMAGES} are accepted",
            images.len()
        )));
    }
    let mut canonical: BTreeMap<ImageRef, &String> = BTreeMap::new();
    let mut warnings = Vec::new();
    for (index, image) in images.iter().enumerate() {
        let reference = check_image(&format!("spec.images[{index}]"), image)?;
        if let Some(other) = canonical.insert(reference, image) {
            warnings.push(format!(
                "spec.images: {other:?} and {image:?} are one image and count once"
            ));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn list(spec: &Value) -> ImageListPullJob {
        let mut object = json!({"metadata": {"name": "a"}, "spec": {"images": ["nginx:1", "redis"]}});
        for (key, value) in spec.as_object().expect("fields") {
            object["spec"][key] = value.clone();
        }
        serde_json::from_value(object).expect("a list")
    }

    #[test]
    fn each_rule_names_its_field() {
        let many: Vec<_> = (0..256).map(|number| format!("app:{number}")).collect();
        for (spec, field) in [
            (json!({"images": []}), "spec.images: at least"),
            (
                json!({"images": ["a", "a"]}),
                "spec.images: \"a\" is listed twice",
            ),
            (json!({"images": many}), "spec.images: 256 images"),
            (json!({"images": ["a", "B"]}), "spec.images[1]:"),
            (json!({"selector": {}, "podSelector": {}}), "spec.podSelector"),
            (json!({"parallelism": "1%"}), "spec.parallelism"),
            (
                json!({"completionPolicy": {"type": "x"}}),
                "spec.completionPolicy.type",
            ),
        ] {
            let denied = validate(&list(&spec), None, None).expect_err(field);
            assert!(denied.message.starts_with(field), "{denied}");
        }
    }

    #[test]
    fn what_is_not_checked_by_openkruise_is_warned_of() {
        for (spec, words) in [
            (json!({"images": ["nginx", "nginx:latest"]}), "are one image"),
            (
                json!({"completionPolicy": {"type": "Always", "activeDeadlineSeconds": 5}}),
                "no job of the images",
            ),
        ] {
            let warnings = validate(&list(&spec), None, None).expect("allowed");
            assert!(warnings[0].contains(words), "{warnings:?}");
        }
        assert_eq!(validate(&list(&json!({})), None, None), Ok(Vec::new()));
    }

    #[test]
    fn secrets_may_change_and_a_closed_gate_stops_only_changes_of_the_spec() {
        let old = list(&json!({"pullSecrets": ["a"]}));
        let new = list(&json!({"pullSecrets": ["b"]}));
        assert!(validate(&new, Some(&old), None).is_ok());
        assert!(validate(&new, Some(&old), Some("KruiseDaemon")).is_err());
        assert!(validate(&old, Some(&old), Some("KruiseDaemon")).is_ok());
    }
}
