//! The update strategy, whose fields sit in different places in the two versions.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{Report, refuse_denied};
use crate::admission::check_label_selector;
use crate::clone_set::limit::{Rounding, scaled};
use crate::clone_set::{
    InPlaceUpdateStrategy, PriorityStrategy, ScatterTerm, UpdateStrategy, policies, types, v1alpha1,
};

const POLICIES: [&str; 3] = [
    policies::RE_CREATE,
    policies::IN_PLACE_IF_POSSIBLE,
    policies::IN_PLACE_ONLY,
];

/// The fields, wherever they sit.
struct Rolling<'a> {
    path: &'a str,
    policy: &'a str,
    partition: Option<&'a IntOrString>,
    max_unavailable: Option<&'a IntOrString>,
    max_surge: Option<&'a IntOrString>,
    priority: Option<&'a PriorityStrategy>,
    scatter: &'a [ScatterTerm],
    in_place: Option<&'a InPlaceUpdateStrategy>,
}

pub(super) fn check_newer(strategy: &UpdateStrategy, replicas: i32, report: &mut Report) {
    let kind = strategy.kind.as_str();
    if !["", types::ROLLING_UPDATE, types::ON_DELETE].contains(&kind) {
        report.refuse(
            "spec.updateStrategy.type",
            format!("{kind:?} is not known; accepted are RollingUpdate and OnDelete"),
        );
    }
    let Some(rolling) = &strategy.rolling_update else {
        return;
    };
    let policy = rolling.pod_update_policy.as_str();
    if !policy.is_empty() && !POLICIES.contains(&policy) {
        report.refuse(
            "spec.updateStrategy.rollingUpdate.podUpdatePolicy",
            format!("{policy:?} is not known; accepted are {}", POLICIES.join(", ")),
        );
    }
    let rolling = Rolling {
        path: "spec.updateStrategy.rollingUpdate",
        policy,
        partition: rolling.partition.as_ref(),
        max_unavailable: rolling.max_unavailable.as_ref(),
        max_surge: rolling.max_surge.as_ref(),
        priority: rolling.priority_strategy.as_ref(),
        scatter: &rolling.scatter_strategy,
        in_place: rolling.in_place_update_strategy.as_ref(),
    };
    check_rolling(&rolling, replicas, report);
}

pub(super) fn check_older(strategy: &v1alpha1::UpdateStrategy, replicas: i32, report: &mut Report) {
    let kind = strategy.kind.as_str();
    if !POLICIES.contains(&kind) && kind != types::ON_DELETE {
        report.refuse(
            "spec.updateStrategy.type",
            format!(
                "{kind:?} is not known; accepted are {} and OnDelete",
                POLICIES.join(", ")
            ),
        );
    }
    let rolling = Rolling {
        path: "spec.updateStrategy",
        policy: kind,
        partition: strategy.partition.as_ref(),
        max_unavailable: strategy.max_unavailable.as_ref(),
        max_surge: strategy.max_surge.as_ref(),
        priority: strategy.priority_strategy.as_ref(),
        scatter: &strategy.scatter_strategy,
        in_place: strategy.in_place_update_strategy.as_ref(),
    };
    check_rolling(&rolling, replicas, report);
}

fn check_rolling(rolling: &Rolling<'_>, replicas: i32, report: &mut Report) {
    let path = rolling.path;
    match rolling
        .partition
        .map(|value| scaled(value, replicas, Rounding::Up))
    {
        None => report.refuse(format!("{path}.partition"), "is needed"),
        Some(Err(error)) => report.refuse(format!("{path}.partition"), error.to_string()),
        Some(Ok(number)) if number < 0 => {
            report.refuse(format!("{path}.partition"), "must not be negative");
        }
        Some(Ok(_)) => {}
    }
    let mut limit =
        |name: &str, value: Option<&IntOrString>| match value.map(|v| scaled(v, replicas, Rounding::Up)) {
            None => Some(0),
            Some(Ok(number)) => Some(number),
            Some(Err(error)) => {
                report.refuse(format!("{path}.{name}"), error.to_string());
                None
            }
        };
    let unavailable = limit("maxUnavailable", rolling.max_unavailable);
    let surge = limit("maxSurge", rolling.max_surge);
    if rolling.policy == policies::IN_PLACE_ONLY && surge.is_some_and(|surge| surge > 0) {
        report.refuse(
            format!("{path}.maxSurge"),
            "must be 0 with InPlaceOnly, which never makes a pod anew",
        );
    }
    if let (Some(unavailable), Some(surge)) = (unavailable, surge)
        && replicas > 0
        && unavailable < 1
        && surge < 1
    {
        report.refuse(
            format!("{path}.maxUnavailable"),
            "must not be 0 when maxSurge is 0: no pod could ever be updated",
        );
    }
    check_priority(rolling, report);
    check_scatter(rolling, report);
    check_in_place(rolling, report);
}

fn check_priority(rolling: &Rolling<'_>, report: &mut Report) {
    let Some(priority) = rolling.priority else { return };
    let path = format!("{}.priorityStrategy", rolling.path);
    if !priority.weight_priority.is_empty() && !priority.order_priority.is_empty() {
        report.refuse(
            &path,
            "weightPriority and orderPriority exclude each other: give one of them",
        );
    }
    for (index, term) in priority.weight_priority.iter().enumerate() {
        let path = format!("{path}.weightPriority[{index}]");
        if !(0..=100).contains(&term.weight) {
            report.refuse(
                format!("{path}.weight"),
                format!("is {}; accepted are 1 to 100", term.weight),
            );
        }
        let selector = &term.match_selector;
        let empty = selector.match_labels.iter().flatten().next().is_none()
            && selector.match_expressions.iter().flatten().next().is_none();
        let selector_path = format!("{path}.matchSelector");
        if empty {
            report.refuse(selector_path, "must not be empty: every pod would get the weight");
        } else if let Err(denied) = check_label_selector(&selector_path, selector) {
            refuse_denied(&denied.message, &selector_path, report);
        }
    }
    for (index, term) in priority.order_priority.iter().enumerate() {
        if term.ordered_key.is_empty() {
            report.refuse(format!("{path}.orderPriority[{index}].orderedKey"), "is needed");
        }
    }
}

fn check_scatter(rolling: &Rolling<'_>, report: &mut Report) {
    let mut seen = BTreeSet::new();
    for (index, term) in rolling.scatter.iter().enumerate() {
        let path = format!("{}.scatterStrategy[{index}]", rolling.path);
        if term.key.is_empty() {
            report.refuse(format!("{path}.key"), "is needed");
        }
        if !seen.insert(term) {
            report.refuse(path, format!("{}={} is listed twice", term.key, term.value));
        }
    }
}

fn check_in_place(rolling: &Rolling<'_>, report: &mut Report) {
    let Some(in_place) = rolling.in_place else { return };
    let path = format!("{}.inPlaceUpdateStrategy", rolling.path);
    if let Some(parallelism) = &in_place.image_pre_download_parallelism {
        let fits = match parallelism {
            IntOrString::Int(number) => *number >= 0,
            IntOrString::String(text) => text.parse::<i32>().is_ok_and(|number| number >= 0),
        };
        if !fits {
            report.refuse(
                format!("{path}.imagePreDownloadParallelism"),
                "must be a whole number from 0 on (0 pauses); percentages are not accepted",
            );
        }
    }
    for (name, value) in [
        (
            "imagePreDownloadTimeoutSeconds",
            in_place.image_pre_download_timeout_seconds,
        ),
        (
            "imagePreDownloadMinUpdatedReadyPods",
            in_place.image_pre_download_min_updated_ready_pods,
        ),
    ] {
        if let Some(number) = value.filter(|number| *number < 0) {
            report.refuse(
                format!("{path}.{name}"),
                format!("is {number}; accepted are whole numbers from 0 on"),
            );
        }
    }
    if in_place.grace_period_seconds < 0 {
        report.warn(format!("{path}.gracePeriodSeconds is negative and acts as 0"));
    }
}
