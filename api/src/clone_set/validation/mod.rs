//! What a CloneSet must be: the validating webhook's rules, the same for both versions.
//!
//! All that is wrong is told at once, each with its field. Rules that a schema or CEL can hold are in the CRD too, so that they hold while
//! no webhook answers.

mod strategy;
mod template;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde_json::Value;

use super::restart::RestartWish;
use super::{CloneSet, NO_PROGRESS_DEADLINE, names, v1alpha1};
use crate::admission::{check_label_selector, is_label_key, is_label_value, is_subdomain};
use crate::features::FeatureGates;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Path of the field, as in `spec.updateStrategy.partition`.
    pub field: String,
    /// What is wrong, for people.
    pub message: String,
    /// The change may not be made, while the value may be a good one.
    #[serde(skip)]
    pub forbidden: bool,
}

/// What validation found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong. The object is refused if there is anything.
    pub errors: Vec<FieldError>,
    /// What is allowed and hardly meant.
    pub warnings: Vec<String>,
}

impl Report {
    fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError {
            field: field.into(),
            message: message.into(),
            forbidden: false,
        });
    }

    fn forbid(&mut self, field: &str, message: impl Into<String>) {
        self.errors.push(FieldError {
            field: field.to_owned(),
            message: message.into(),
            forbidden: true,
        });
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// A pod of the set's namespace, as far as `podsToDelete` is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRef {
    /// Name.
    pub name: String,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// UID of its controller.
    pub controller: Option<String>,
}

/// What validation has to know besides the object.
#[expect(missing_debug_implementations, reason = "a function has nothing to show")]
pub struct Context<'a> {
    /// Pods of the namespace. None when nobody knows them: names of pods are then taken as they are.
    pub pods: Option<&'a [PodRef]>,
    /// What keeps a change of the template from being made in place, from the old and the new one. None when nothing does.
    pub obstacle: &'a dyn Fn(&Value, &Value) -> Option<String>,
}

/// The parts of a set that both versions have.
struct Parts<'a> {
    metadata: &'a ObjectMeta,
    replicas: Option<i32>,
    selector: &'a LabelSelector,
    template: &'a Value,
    claims: Option<&'a Value>,
    pods_to_delete: &'a [String],
    scale_limit: Option<&'a IntOrString>,
    min_ready_seconds: i32,
    revision_history_limit: Option<i32>,
    progress_deadline_seconds: Option<i32>,
}

/// Checks a v1beta1 set after its defaults were set; `old` makes it an update.
#[must_use]
pub fn validate(set: &CloneSet, old: Option<&CloneSet>, context: &Context<'_>) -> Report {
    let spec = &set.spec;
    let parts = Parts {
        metadata: &set.metadata,
        replicas: spec.replicas,
        selector: &spec.selector,
        template: &spec.template,
        claims: spec.volume_claim_templates.as_ref(),
        pods_to_delete: &spec.scale_strategy.pods_to_delete,
        scale_limit: spec.scale_strategy.max_unavailable.as_ref(),
        min_ready_seconds: spec.min_ready_seconds,
        revision_history_limit: spec.revision_history_limit,
        progress_deadline_seconds: spec.progress_deadline_seconds,
    };
    let mut report = Report::default();
    check(&parts, &mut report);
    strategy::check_newer(&spec.update_strategy, spec.wanted(), &mut report);
    check_pods(
        &parts,
        old.map(|old| old.spec.scale_strategy.pods_to_delete.as_slice()),
        context,
        &mut report,
    );
    if let Some(old) = old {
        let in_place_only = !spec.update_strategy.is_on_delete()
            && spec.update_strategy.policy() == super::UpdatePolicy::InPlaceOnly;
        check_update(
            &parts,
            &old.spec.selector,
            &old.spec.template,
            in_place_only,
            context,
            &mut report,
        );
    }
    predownload_warnings(set, &mut report);
    report
}

/// Checks a v1alpha1 set after its defaults were set; `old` makes it an update.
#[must_use]
pub fn validate_v1alpha1(
    set: &v1alpha1::CloneSet,
    old: Option<&v1alpha1::CloneSet>,
    context: &Context<'_>,
) -> Report {
    let spec = &set.spec;
    let parts = Parts {
        metadata: &set.metadata,
        replicas: spec.replicas,
        selector: &spec.selector,
        template: &spec.template,
        claims: spec.volume_claim_templates.as_ref(),
        pods_to_delete: &spec.scale_strategy.pods_to_delete,
        scale_limit: spec.scale_strategy.max_unavailable.as_ref(),
        min_ready_seconds: spec.min_ready_seconds,
        revision_history_limit: spec.revision_history_limit,
        progress_deadline_seconds: spec.progress_deadline_seconds,
    };
    let mut report = Report::default();
    check(&parts, &mut report);
    let wanted = spec.replicas.unwrap_or(super::DEFAULT_REPLICAS).max(0);
    strategy::check_older(&spec.update_strategy, wanted, &mut report);
    check_pods(
        &parts,
        old.map(|old| old.spec.scale_strategy.pods_to_delete.as_slice()),
        context,
        &mut report,
    );
    if let Some(old) = old {
        let in_place_only = spec.update_strategy.kind == super::policies::IN_PLACE_ONLY;
        check_update(
            &parts,
            &old.spec.selector,
            &old.spec.template,
            in_place_only,
            context,
            &mut report,
        );
    }
    report
}

/// Checks a deletion. `replicas` is the number of pods that are wanted.
///
/// # Errors
/// The set is protected.
pub fn check_delete(metadata: &ObjectMeta, replicas: i32, gates: &FeatureGates) -> Result<(), FieldError> {
    if !gates.enabled("ResourcesDeletionProtection") || metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let label = metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(names::DELETE_PROTECTION));
    let why = match label.map(String::as_str) {
        Some("Always") => "it is protected; take the label off to delete it".to_owned(),
        Some("Cascading") if replicas > 0 => {
            format!("it is protected while it has pods ({replicas}); scale it to 0 or take the label off")
        }
        _ => return Ok(()),
    };
    Err(FieldError {
        field: format!("metadata.labels[{}]", names::DELETE_PROTECTION),
        message: why,
        forbidden: true,
    })
}

/// Checks a change that leaves the spec as it is: only annotations that it sets or changes, since what was stored before must not keep anybody from
/// taking a label or a finalizer away.
#[must_use]
pub fn validate_metadata(new: &ObjectMeta, old: &ObjectMeta) -> Report {
    let value = |metadata: &ObjectMeta, key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let mut report = Report::default();
    check_restart(new, |key| value(new, key) != value(old, key), &mut report);
    report
}

fn check_restart(metadata: &ObjectMeta, concerns: impl Fn(&str) -> bool, report: &mut Report) {
    let problems = RestartWish::of(metadata).err().unwrap_or_default();
    for problem in problems.into_iter().filter(|problem| concerns(problem.key)) {
        report.refuse(format!("metadata.annotations[{}]", problem.key), problem.message);
    }
}

fn check(parts: &Parts<'_>, report: &mut Report) {
    check_metadata(parts.metadata, report);
    check_restart(parts.metadata, |_| true, report);
    if let Some(replicas) = parts.replicas.filter(|replicas| *replicas < 0) {
        report.refuse(
            "spec.replicas",
            format!("is {replicas}; accepted are whole numbers from 0 on"),
        );
    }
    check_selector(parts, report);
    template::check(parts.template, parts.claims, report);
    let mut seen = BTreeSet::new();
    for (index, name) in parts.pods_to_delete.iter().enumerate() {
        if !seen.insert(name) {
            report.refuse(
                format!("spec.scaleStrategy.podsToDelete[{index}]"),
                format!("{name:?} is listed twice"),
            );
        }
    }
    let deadline = parts.progress_deadline_seconds;
    match deadline.filter(|seconds| *seconds != NO_PROGRESS_DEADLINE) {
        Some(seconds) if seconds < 0 => report.refuse(
            "spec.progressDeadlineSeconds",
            format!("is {seconds}; accepted are whole numbers from 0 on"),
        ),
        Some(seconds) if seconds <= parts.min_ready_seconds => report.refuse(
            "spec.progressDeadlineSeconds",
            format!(
                "is {seconds}; it must be more than minReadySeconds ({})",
                parts.min_ready_seconds
            ),
        ),
        _ => {}
    }
    unchecked_upstream(parts, report);
}

/// OpenKruise lets these through, so manifests that hold them go on working.
fn unchecked_upstream(parts: &Parts<'_>, report: &mut Report) {
    if parts.min_ready_seconds < 0 {
        report.warn("spec.minReadySeconds is negative and acts as 0");
    }
    if parts.revision_history_limit.is_some_and(|limit| limit < 0) {
        report.warn("spec.revisionHistoryLimit is negative and acts as 0");
    }
    let limit = parts
        .scale_limit
        .map(|limit| super::limit::scaled(limit, 100, super::limit::Rounding::Up));
    if let Some(Err(error)) = limit {
        report.warn(format!(
            "spec.scaleStrategy.maxUnavailable: {error}; no pod will be added"
        ));
    }
}

fn check_metadata(metadata: &ObjectMeta, report: &mut Report) {
    match (&metadata.name, &metadata.generate_name) {
        (Some(name), _) if !is_subdomain(name) => report.refuse(
            "metadata.name",
            format!(
                "{name:?} is no DNS name: lower-case letters, digits, '-' and '.', at most 253 characters"
            ),
        ),
        (None, None) => report.refuse("metadata.name", "is needed"),
        _ => {}
    }
    check_labels("metadata.labels", metadata.labels.iter().flatten(), report);
    for key in metadata.annotations.iter().flatten().map(|(key, _)| key) {
        if !is_label_key(&key.to_lowercase()) {
            report.refuse(
                "metadata.annotations",
                format!("{key:?} is no key of an annotation"),
            );
        }
    }
}

fn check_labels<'a>(
    field: &str,
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    report: &mut Report,
) {
    for (key, value) in labels {
        if !is_label_key(key) {
            report.refuse(field, format!("{key:?} is no key of a label"));
        }
        if !is_label_value(value) {
            report.refuse(field, format!("{value:?} is no value of a label (key {key})"));
        }
    }
}

fn check_selector(parts: &Parts<'_>, report: &mut Report) {
    let selector = parts.selector;
    let none = |count: Option<usize>| count.is_none_or(|count| count == 0);
    let empty = none(
        selector
            .match_labels
            .as_ref()
            .map(std::collections::BTreeMap::len),
    ) && none(selector.match_expressions.as_ref().map(Vec::len));
    if empty {
        report.refuse(
            "spec.selector",
            "is needed, and must not be empty: it would select every pod",
        );
        return;
    }
    if let Err(denied) = check_label_selector("spec.selector", selector) {
        refuse_denied(&denied.message, "spec.selector", report);
        return;
    }
    let labels = parts.template["metadata"]["labels"].as_object();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    if !matches(selector, label) {
        report.refuse(
            "spec.template.metadata.labels",
            "spec.selector does not match them: pods of the template would not belong to the set",
        );
    }
}

/// Splits a refusal that begins with its field.
fn refuse_denied(message: &str, otherwise: &str, report: &mut Report) {
    match message.split_once(": ") {
        Some((field, rest)) if field.starts_with("spec.") => report.refuse(field, rest),
        _ => report.refuse(otherwise, message),
    }
}

/// Whether a selector matches labels. What is malformed matches nothing.
fn matches<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let exact = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| label(key) == Some(value.as_str()));
    let expressions = selector.match_expressions.iter().flatten().all(|requirement| {
        let has = label(&requirement.key);
        let listed = has.is_some_and(|has| requirement.values.iter().flatten().any(|value| value == has));
        match requirement.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => has.is_some(),
            "DoesNotExist" => has.is_none(),
            _ => false,
        }
    });
    exact && expressions
}

/// Names that are new must be living pods of this very set: a slip would otherwise wait for a pod that may come one day.
fn check_pods(parts: &Parts<'_>, old: Option<&[String]>, context: &Context<'_>, report: &mut Report) {
    let Some(pods) = context.pods else { return };
    for (index, name) in parts.pods_to_delete.iter().enumerate() {
        if old.is_some_and(|old| old.contains(name)) {
            continue;
        }
        let problem = match pods.iter().find(|pod| pod.name == *name) {
            None => "there is no such pod",
            Some(pod) if pod.terminating => "this pod is being deleted already",
            Some(pod) if pod.controller.is_none() || pod.controller != parts.metadata.uid => {
                "this pod does not belong to the set"
            }
            Some(_) => continue,
        };
        report.refuse(
            format!("spec.scaleStrategy.podsToDelete[{index}]"),
            format!("{name:?}: {problem}"),
        );
    }
}

fn check_update(
    parts: &Parts<'_>,
    old_selector: &LabelSelector,
    old_template: &Value,
    in_place_only: bool,
    context: &Context<'_>,
    report: &mut Report,
) {
    if old_selector != parts.selector {
        report.forbid(
            "spec",
            "the selector is fixed once the set exists; every other field may change",
        );
    }
    if in_place_only
        && old_template != parts.template
        && let Some(obstacle) = (context.obstacle)(old_template, parts.template)
    {
        report.forbid(
            "spec",
            format!(
                "with InPlaceOnly the template may change only in what pods can change in place; {obstacle}"
            ),
        );
    }
}

/// In v1beta1 a field and an annotation may say the same thing twice.
fn predownload_warnings(set: &CloneSet, report: &mut Report) {
    let rolling = set.spec.update_strategy.rolling_update.as_ref();
    let in_place = rolling.and_then(|rolling| rolling.in_place_update_strategy.as_ref());
    let text = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let fields = [
        (
            names::PREDOWNLOAD_PARALLELISM,
            "imagePreDownloadParallelism",
            in_place
                .and_then(|strategy| strategy.image_pre_download_parallelism.as_ref())
                .map(text),
        ),
        (
            names::PREDOWNLOAD_TIMEOUT,
            "imagePreDownloadTimeoutSeconds",
            in_place
                .and_then(|strategy| strategy.image_pre_download_timeout_seconds)
                .map(|n| n.to_string()),
        ),
        (
            names::PREDOWNLOAD_MIN_UPDATED_READY,
            "imagePreDownloadMinUpdatedReadyPods",
            in_place
                .and_then(|strategy| strategy.image_pre_download_min_updated_ready_pods)
                .map(|n| n.to_string()),
        ),
    ];
    for (key, name, field) in fields {
        let annotation = set
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(key));
        if let (Some(annotation), Some(field)) = (annotation, field)
            && *annotation != field
        {
            report.warn(format!(
                "annotation {key} is {annotation:?} and {name} is {field:?}: the field counts"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
