//! Pause, resume and restart.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;
use kruise_planner::cloneset::Limits;
use serde_json::{Value, json};

use super::Target;
use crate::args::Global;
use crate::exit::{Code, Usage};
use crate::output;
use crate::recreate::{self, RestartArgs as InPlaceRestart};

/// Annotation of a template that makes pods new, under the name that kubectl gives it.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Arguments of `rollout pause` and `rollout resume`.
#[derive(Args, Debug)]
pub(super) struct SwitchArgs {
    /// CloneSet, as clone/NAME.
    set: String,
}

/// Arguments of `rollout restart`.
#[derive(Args, Debug)]
pub(super) struct RestartArgs {
    /// CloneSet, as clone/NAME.
    set: String,
    /// Most pods that are down at once while containers are restarted in place. Left out, maxUnavailable of the set, at least 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_unavailable: Option<u16>,
}

pub(super) async fn pause(global: &Global, args: &SwitchArgs, paused: bool) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    output::put(&switched(&target, paused).await?)?;
    Ok(Code::Success)
}

/// Pauses or resumes, and says so.
pub(super) async fn switched(target: &Target, paused: bool) -> Result<String> {
    let changed = target
        .change(|set| {
            let strategy = &set.spec.update_strategy;
            if strategy.is_on_delete() {
                let text = "its updateStrategy.type is OnDelete: no pod is updated by itself";
                return Err(Usage(format!("{}: {text}", target.title())).into());
            }
            let changed = strategy.is_paused() != paused;
            let spec = if changed {
                json!({"updateStrategy": {"rollingUpdate": {"paused": paused}}})
            } else {
                json!({})
            };
            Ok((spec, changed))
        })
        .await?;
    let word = if paused { "paused" } else { "resumed" };
    Ok(match (changed, paused) {
        (true, _) => format!("clone/{} {word}\n", target.name),
        (false, true) => format!("clone/{} is paused already\n", target.name),
        (false, false) => format!("clone/{} is not paused\n", target.name),
    })
}

pub(super) async fn restart(global: &Global, args: RestartArgs) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    let set = target.get().await?;
    if let Some(at_once) = in_place_budget(&set, args.max_unavailable) {
        eprintln!(
            "pods of clone/{} stay; their containers are restarted",
            target.name
        );
        return recreate::run(
            global,
            InPlaceRestart::of_workload(format!("clone/{}", target.name), at_once),
        )
        .await;
    }
    output::put(&made_again(&target, now()).await?)?;
    Ok(Code::Success)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the moment of the request is read here, once"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

/// How many pods may be down at once, for a set whose pods change in place: with one of its policies a new annotation reaches the pods without
/// restarting anything.
pub(super) fn in_place_budget(set: &CloneSet, wish: Option<u16>) -> Option<u16> {
    let strategy = &set.spec.update_strategy;
    if strategy.is_on_delete() || !strategy.policy().is_in_place() {
        return None;
    }
    let limit = Limits::of(&set.spec).max_unavailable.max(1);
    Some(wish.unwrap_or_else(|| u16::try_from(limit).unwrap_or(u16::MAX)))
}

/// Marks the template, so that every pod is made again as for any other change of it.
pub(super) async fn made_again(target: &Target, now: Timestamp) -> Result<String> {
    let time = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let note = target
        .change(|set| {
            let template: Value = json!({"metadata": {"annotations": {RESTARTED_AT: time}}});
            Ok((json!({ "template": template }), held_back(set)))
        })
        .await?;
    Ok(format!(
        "clone/{} restarts{}\n",
        target.name,
        note.unwrap_or_default()
    ))
}

/// Why a new template reaches nobody for now.
pub(super) fn held_back(set: &CloneSet) -> Option<&'static str> {
    let strategy = &set.spec.update_strategy;
    if strategy.is_on_delete() {
        Some("; its updateStrategy.type is OnDelete, so each pod does when it is deleted")
    } else if strategy.is_paused() {
        Some("; it is paused, so nothing happens before kruisectl rollout resume")
    } else {
        None
    }
}
