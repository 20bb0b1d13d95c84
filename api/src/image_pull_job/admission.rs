//! What a job must be: OpenKruise's rules in its order, and warnings where something is allowed and yet hardly meant.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::options::{PREFIX, PullOptions};
use super::{DEFAULT_TIMEOUT_SECONDS, ImagePullJob, ImagePullJobSpec};
use crate::admission::{Denied, bad, check_label_selector, check_node_selector, gate_is_off, is_subdomain};
use crate::reference::ImageRef;

/// Checks a new job, or a change of one. `switched_off` is the feature gate that keeps jobs from running, if one does.
///
/// A change that leaves spec and options alone is never refused: labels and finalizers must be removable whatever the spec is.
///
/// # Errors
/// The first rule that it breaks. What is returned otherwise are warnings.
pub fn validate(
    job: &ImagePullJob,
    old: Option<&ImagePullJob>,
    switched_off: Option<&str>,
) -> Result<Vec<String>, Denied> {
    if old.is_some_and(|old| old.spec == job.spec && options(old).eq(options(job))) {
        return Ok(Vec::new());
    }
    if let Some(gate) = switched_off {
        return Err(gate_is_off(gate));
    }
    if old.is_some_and(|old| old.spec.pull_secrets != job.spec.pull_secrets) {
        return Err(bad(
            "spec.pullSecrets: fixed once the job exists; make another job to log in otherwise",
        ));
    }
    check_selection(&job.spec)?;
    check_image("spec.image", &job.spec.image)?;
    check_parallelism(job.spec.parallelism.as_ref())?;
    check_deadline(&job.spec)?;
    check_completion(&job.spec)?;
    let mut warnings = spec_warnings(&job.spec);
    warnings.extend(option_warnings(job));
    let ended = old
        .and_then(|old| old.status.as_ref())
        .is_some_and(|status| status.completion_time.is_some());
    if ended {
        warnings.push("the job has completed: this change has no effect; make another job".to_owned());
    }
    Ok(warnings)
}

fn options(job: &ImagePullJob) -> impl Iterator<Item = (&String, &String)> {
    let annotations = job.metadata.annotations.iter().flatten();
    annotations.filter(|(key, _)| key.starts_with(PREFIX))
}

fn option_warnings(job: &ImagePullJob) -> Option<String> {
    let annotations = job.metadata.annotations.as_ref()?;
    PullOptions::parse(annotations)
        .err()
        .map(|error| error.to_string())
}

/// Which nodes.
pub(crate) fn check_selection(spec: &ImagePullJobSpec) -> Result<(), Denied> {
    if let Some(selector) = &spec.selector {
        let by_label = selector
            .match_labels
            .as_ref()
            .is_some_and(|labels| !labels.is_empty())
            || selector
                .match_expressions
                .as_ref()
                .is_some_and(|list| !list.is_empty());
        let names = selector.names.as_deref().unwrap_or_default();
        if by_label && !names.is_empty() {
            return Err(bad(
                "spec.selector: names exclude matchLabels and matchExpressions",
            ));
        }
        check_node_selector("spec.selector", selector)?;
        let mut seen = BTreeSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(bad(format!("spec.selector.names: {name} is listed twice")));
        }
    }
    let Some(pods) = &spec.pod_selector else {
        return Ok(());
    };
    if spec.selector.is_some() {
        return Err(bad("spec.podSelector: not together with spec.selector"));
    }
    check_label_selector("spec.podSelector", pods)
}

/// A reference that a runtime can pull.
pub(crate) fn check_image(path: &str, image: &str) -> Result<ImageRef, Denied> {
    ImageRef::parse(image).map_err(|error| bad(format!("{path}: {error}")))
}

/// A whole number that is not negative, perhaps as text.
pub(crate) fn check_parallelism(parallelism: Option<&IntOrString>) -> Result<(), Denied> {
    let fits = match parallelism {
        None => true,
        Some(IntOrString::Int(number)) => *number >= 0,
        Some(IntOrString::String(text)) => text.parse::<i32>().is_ok_and(|number| number >= 0),
    };
    if fits {
        return Ok(());
    }
    Err(bad(
        "spec.parallelism: must be a whole number from 0 on (0 pauses the job); percentages are not accepted",
    ))
}

/// The deadline leaves time for one attempt.
pub(crate) fn check_deadline(spec: &ImagePullJobSpec) -> Result<(), Denied> {
    let attempt = i64::from(
        spec.pull_policy
            .timeout_seconds
            .unwrap_or(DEFAULT_TIMEOUT_SECONDS),
    );
    let deadline = spec.completion_policy.active_deadline_seconds;
    let is_always = spec.completion_policy.kind.as_deref() == Some("Always");
    if is_always && deadline.is_some_and(|deadline| deadline < attempt) {
        return Err(bad(format!(
            "spec.completionPolicy.activeDeadlineSeconds: must not be less than pullPolicy.timeoutSeconds ({attempt})"
        )));
    }
    Ok(())
}

/// Always or Never, and for Never none of what belongs to Always.
pub(crate) fn check_completion(spec: &ImagePullJobSpec) -> Result<(), Denied> {
    let policy = &spec.completion_policy;
    match policy.kind.as_deref() {
        Some("Always") => Ok(()),
        Some("Never")
            if policy.active_deadline_seconds.is_some() || policy.ttl_seconds_after_finished.is_some() =>
        {
            Err(bad(
                "spec.completionPolicy: type Never excludes activeDeadlineSeconds and ttlSecondsAfterFinished, which belong to Always",
            ))
        }
        Some("Never") => Ok(()),
        other => Err(bad(format!(
            "spec.completionPolicy.type: {:?} is neither Always nor Never",
            other.unwrap_or_default()
        ))),
    }
}

/// What is allowed and hardly meant.
pub(crate) fn spec_warnings(spec: &ImagePullJobSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    let names = spec
        .selector
        .as_ref()
        .and_then(|selector| selector.names.as_ref());
    if names.is_some_and(Vec::is_empty) {
        warn("spec.selector.names is empty: no node gets the image".to_owned());
    }
    for name in names
        .into_iter()
        .flatten()
        .filter(|name| !is_subdomain(name))
        .take(3)
    {
        warn(format!("spec.selector.names: no node can be called {name:?}"));
    }
    let (attempt, retries) = (spec.pull_policy.timeout_seconds, spec.pull_policy.backoff_limit);
    if attempt.is_some_and(|seconds| seconds <= 0) {
        warn("spec.pullPolicy.timeoutSeconds is not positive and acts as 600".to_owned());
    }
    if retries.is_some_and(|retries| retries < 0) {
        warn("spec.pullPolicy.backoffLimit is negative and acts as 3".to_owned());
    }
    if spec
        .completion_policy
        .ttl_seconds_after_finished
        .is_some_and(|seconds| seconds < 0)
    {
        warn("spec.completionPolicy.ttlSecondsAfterFinished is negative: the job is deleted as soon as it has ended".to_owned());
    }
    if !matches!(spec.image_pull_policy.as_str(), "" | "Always" | "IfNotPresent") {
        warn(format!(
            "spec.imagePullPolicy {:?} is neither Always nor IfNotPresent",
            spec.image_pull_policy
        ));
    }
    warnings
}

#[cfg(test)]
mod tests;
