//! A plan as a person reads it: where the set stands, what comes next, and why no more.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;
use kruise_planner::cloneset::{Action, CloneSetPlan, Limits, Step};

/// Names that are shown before the rest is counted.
const NAMES: usize = 5;

/// The whole plan.
pub(super) fn plan(set: &CloneSet, plan: &CloneSetPlan, now: Timestamp) -> String {
    let mut text = standing(set, plan);
    text.push_str("\nNext:\n");
    text.push_str(&actions(plan));
    if !plan.waiting.is_empty() {
        text.push_str("\nWaits for:\n");
        text.push_str(&waiting(plan));
    }
    if let Some(left) = plan.wake_after(now) {
        let _ = write!(
            text,
            "\nLooks again in {} s if nothing happens before.\n",
            left.as_secs()
        );
    }
    text
}

/// The steps of a play, then how it ends.
pub(super) fn play(set: &CloneSet, steps: &[Step]) -> String {
    let mut text = String::new();
    let Some(last) = steps.last() else { return text };
    let start = steps[0].at;
    for (index, step) in steps.iter().enumerate() {
        if step.plan.actions.is_empty() {
            continue;
        }
        let status = &step.plan.status;
        let after = step.at.duration_since(start).as_secs();
        let _ = writeln!(
            text,
            "Step {} (+{after} s): {} pods, {} available, {} updated",
            index + 1,
            status.replicas,
            status.available_replicas,
            status.updated_replicas
        );
        text.push_str(&actions(&step.plan));
    }
    let end = if last.settled { "Settled" } else { "Not settled" };
    let _ = write!(
        text,
        "{end} after {} steps.\n\n{}",
        steps.len(),
        standing(set, &last.plan)
    );
    if !last.plan.waiting.is_empty() {
        text.push_str("\nWaits for:\n");
        text.push_str(&waiting(&last.plan));
    }
    text
}

/// Two lines: the revisions, and the pods.
fn standing(set: &CloneSet, plan: &CloneSetPlan) -> String {
    let meta = &set.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let namespace = meta.namespace.as_deref().unwrap_or("default");
    let limits = Limits::of(&set.spec);
    let status = &plan.status;
    let strategy = &set.spec.update_strategy;
    let rollout = if status.current_revision == plan.update_revision {
        format!("all pods come from {}", plan.update_revision)
    } else {
        format!(
            "from {} to {}, {} of {} pods updated",
            plan.current_revision,
            plan.update_revision,
            status.updated_replicas,
            status.expected_updated_replicas
        )
    };
    let mut modes = vec![strategy.policy().name().to_owned()];
    if strategy.is_on_delete() {
        modes = vec!["OnDelete".to_owned()];
    }
    if strategy.is_paused() {
        modes.push("paused".to_owned());
    }
    if limits.partition > 0 {
        modes.push(format!("partition {}", limits.partition));
    }
    modes.push(format!("maxUnavailable {}", limits.max_unavailable));
    if limits.max_surge > 0 {
        modes.push(format!("maxSurge {}", limits.max_surge));
    }
    format!(
        "CloneSet {namespace}/{name}: {rollout}\n  {} of {} pods, {} ready, {} available; {}\n",
        status.replicas,
        limits.replicas,
        status.ready_replicas,
        status.available_replicas,
        modes.join(", ")
    )
}

/// Writes of one kind and reason on one line.
fn actions(plan: &CloneSetPlan) -> String {
    if plan.actions.is_empty() {
        return "  nothing\n".to_owned();
    }
    let mut lines: Vec<(String, &'static str, Vec<&str>)> = Vec::new();
    for action in &plan.actions {
        let (verb, name, why) = told(action);
        match lines.iter_mut().find(|line| line.0 == verb && line.1 == why) {
            Some(line) => line.2.push(name),
            None => lines.push((verb, why, vec![name])),
        }
    }
    let width = lines.iter().map(|line| line.0.len()).max().unwrap_or(0);
    lines
        .iter()
        .map(|(verb, why, names)| format!("  {verb:width$}  {}  ({why})\n", listed(names)))
        .collect()
}

/// What is done, to what, and why.
fn told(action: &Action) -> (String, &str, &'static str) {
    let verb = |text: &str| text.to_owned();
    match action {
        Action::CreatePod {
            pod,
            revision,
            reason,
            ..
        } => (format!("create pod from {revision}"), pod, reason),
        Action::DeletePod { pod, reason } => (verb("delete pod"), pod, reason),
        Action::UpdateInPlace {
            pod,
            revision,
            reason,
            ..
        } => (format!("update in place to {revision}"), pod, reason),
        Action::Recreate {
            pod,
            revision,
            reason,
        } => (format!("mark, to be made again from {revision}"), pod, reason),
        Action::PatchPod { pod, patch, reason } => (patched(patch), pod, reason),
        Action::CreateClaim { claim, reason, .. } => (verb("create claim"), claim, reason),
        Action::DeleteClaim { claim, reason, .. } => (verb("delete claim"), claim, reason),
        Action::PatchClaim { claim, reason, .. } => (verb("give claim to its pod"), claim, reason),
        Action::CreateImagePullJob { job, reason, .. } => (verb("create ImagePullJob"), job, reason),
        Action::DeleteImagePullJob { job, reason } => (verb("delete ImagePullJob"), job, reason),
        Action::CreateContainerRecreateRequest { pod, reason, .. } => {
            (verb("restart containers of pod"), pod, reason)
        }
        Action::CreateRevision { revision, reason, .. } => (verb("create revision"), revision, reason),
        Action::PatchRevision { revision, reason, .. } => (verb("patch revision"), revision, reason),
        Action::DeleteRevision { revision, reason } => (verb("delete revision"), revision, reason),
        Action::PatchCloneSet { reason, .. } => (verb("clear podsToDelete of"), "the set", reason),
    }
}

fn patched(patch: &kruise_planner::cloneset::PodPatch) -> String {
    let mut what = Vec::new();
    if let Some(state) = patch.lifecycle_state {
        what.push(format!("to {state}"));
    }
    what.extend(
        patch
            .conditions
            .iter()
            .map(|condition| format!("{}={}", condition.kind, condition.status)),
    );
    if let Some(owners) = patch.owners {
        what.push(format!("{owners:?}").to_lowercase());
    }
    if what.is_empty() {
        what.push("labels".to_owned());
    }
    format!("set pod {}", what.join(", "))
}

fn waiting(plan: &CloneSetPlan) -> String {
    let mut by_reason: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for waiting in &plan.waiting {
        by_reason.entry(waiting.reason).or_default().push(waiting);
    }
    let mut text = String::new();
    for (reason, all) in by_reason {
        for waiting in all {
            let names: Vec<&str> = waiting.pods.iter().map(String::as_str).collect();
            let pods = if names.is_empty() {
                String::new()
            } else {
                format!(": {}", listed(&names))
            };
            let _ = writeln!(text, "  {}{pods}\n      {}", reason.name(), waiting.message);
        }
    }
    text
}

/// Names, the first ones and how many more.
fn listed(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMES)].join(" ");
    match names.len().saturating_sub(NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
