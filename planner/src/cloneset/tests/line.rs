//! Pods of a test as one line of text, and what a plan does with them as another.
//!
//! A pod is `o` (on the older revision) or `n` (on the update revision) with letters behind it: `!` not ready, `y` ready only now, `m`
//! marked, `l` held before its deletion, `c` preparing to be normal, `p` preparing for an update, `u` being changed, `f` changed and
//! finished, `e` updated, `D` with the label of the deletion hook, `U` with that of the update hook, `N` with that of the normal hook,
//! `x` without a node, `t` being deleted, `F` failed. Pods are named `web-p00`, `web-p01` and so on.

use kruise_api::clone_set::names;
use serde_json::Value;

use super::world::{World, told};
use crate::cloneset::*;

/// One row: what it shows, the spec, the pods, and what the plan does.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) spec: Value,
    pub(super) pods: &'static str,
    pub(super) does: &'static str,
}

pub(super) fn row(name: &'static str, spec: Value, pods: &'static str, does: &'static str) -> Row {
    Row {
        name,
        spec,
        pods,
        does,
    }
}

/// Runs rows; `change` may set more about the world.
pub(super) fn run(rows: Vec<Row>, change: impl Fn(&mut World)) {
    for row in rows {
        let mut world = World::new(row.spec);
        line(&mut world, row.pods);
        change(&mut world);
        assert_eq!(short(&world.plan()), row.does, "{}", row.name);
    }
}

/// Actions, with the names of pods cut to what the line means, new ones without their id.
pub(super) fn short(plan: &CloneSetPlan) -> String {
    let update = plan.update_revision.clone();
    let told = told(plan).into_iter().map(|text| {
        let (kind, name) = text.split_once(' ').unwrap_or((&text, ""));
        match kind {
            "CreatePod" => {
                let created = plan.actions.iter().find_map(|action| match action {
                    Action::CreatePod { pod, revision, .. } if *pod == name => Some(revision.clone()),
                    _ => None,
                });
                let side = if created == Some(update.clone()) { "n" } else { "o" };
                format!("CreatePod {side}")
            }
            _ => format!("{kind} {}", name.replace("web-p", "")),
        }
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Adds the pods of a line.
pub(super) fn line(world: &mut World, pods: &str) {
    for (index, word) in pods.split_whitespace().enumerate() {
        let (side, flags) = word.split_at(1);
        let revision = usize::from(side == "n");
        let now = world.play.now;
        let pod = world.pod(&format!("web-p{index:02}"), revision);
        for flag in flags.chars() {
            set(pod, flag, now);
        }
    }
}

fn set(pod: &mut PodView, flag: char, now: jiff::Timestamp) {
    let state = |pod: &mut PodView, state: &str| pod.set_label(names::LIFECYCLE_STATE, Some(state));
    match flag {
        '!' => pod.ready = Readiness::NotReady,
        'y' => pod.ready = Readiness::Ready { since: Some(now) },
        'm' => pod.set_label(names::SPECIFIED_DELETE, Some("true")),
        'l' => state(pod, "PreparingDelete"),
        'c' => state(pod, "PreparingNormal"),
        'p' => state(pod, "PreparingUpdate"),
        'e' => state(pod, "Updated"),
        'u' | 'f' => {
            state(pod, "Updating");
            pod.in_place_ready = Some(false);
            pod.ready = Readiness::NotReady;
            if flag == 'u' {
                pod.in_place.unfinished = vec!["main".to_owned()];
            }
        }
        'D' => pod.set_label("hook/delete", Some("on")),
        'U' => pod.set_label("hook/update", Some("on")),
        'N' => pod.set_label("hook/normal", Some("on")),
        'x' => {
            pod.node = None;
            pod.phase = Phase::Pending;
            pod.ready = Readiness::Absent;
        }
        't' => pod.terminating = true,
        'F' => pod.phase = Phase::Failed,
        other => panic!("no such letter: {other}"),
    }
}

/// A rolling update with these fields.
#[expect(
    clippy::needless_pass_by_value,
    reason = "rows are easier to read without references"
)]
pub(super) fn rolling(replicas: i32, fields: Value) -> Value {
    let mut rolling = serde_json::json!({"podUpdatePolicy": "InPlaceIfPossible"});
    for (key, value) in fields.as_object().expect("object") {
        rolling[key] = value.clone();
    }
    serde_json::json!({"replicas": replicas, "updateStrategy": {"rollingUpdate": rolling}})
}

/// The same with all three hooks.
pub(super) fn hooked(replicas: i32, fields: Value) -> Value {
    let mut spec = rolling(replicas, fields);
    let hook = |name: &str| serde_json::json!({"labelsHandler": {format!("hook/{name}"): "on"}});
    spec["lifecycle"] = serde_json::json!({"preDelete": hook("delete"), "inPlaceUpdate": hook("update")});
    spec
}
