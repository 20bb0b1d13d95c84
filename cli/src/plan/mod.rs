//! `kruisectl plan`: what a CloneSet would do next, and why. It decides by the manager's own planner, and writes nothing.

mod args;
mod document;
mod objects;
mod setting;
mod text;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;
use kruise_api::features::FeatureGates;
use kruise_planner::cloneset::{Gates, Play, Step, plan};
use kruise_proto::inspect::ExplainCloneSetResponse;
use serde::Serialize;

pub(crate) use args::PlanArgs;
pub(crate) use objects::{kind_and_name, set_name};

use crate::args::{Global, ResultFormat};
use crate::connect::Cluster;
use crate::documents;
use crate::exit::{Code, Usage};
use crate::output;
use document::{PlanDocument, PlayDocument};
use objects::Objects;

/// More steps than any rollout takes with a kubelet that is never in the way.
const MAX_STEPS: usize = 5_000;

/// Plans for the sets of files or for one of the cluster.
pub(crate) async fn run(global: &Global, args: PlanArgs) -> Result<Code> {
    let mut objects = gather(global, &args).await?;
    let gates = gates(&args.feature_gates)?;
    let now = args.now.unwrap_or_else(now);
    for set in &mut objects.sets {
        objects::edit(set, &args.edits)?;
    }
    output::put(&told(&objects, gates, now, &args)?)?;
    Ok(Code::Success)
}

#[expect(
    clippy::disallowed_methods,
    reason = "what the user did not say is read here, once"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

async fn gather(global: &Global, args: &PlanArgs) -> Result<Objects> {
    let wanted = args.set.as_deref().map(objects::set_name).transpose()?;
    if args.files.is_empty() {
        let Some(name) = wanted else {
            return Err(Usage(
                "name a CloneSet of the cluster, as clone/NAME, or give files with -f".to_owned(),
            )
            .into());
        };
        return objects::from_cluster(&Cluster::new(global).await?, name).await;
    }
    let mut objects = objects::from_values(&documents::read(&args.files)?)?;
    let is_wanted = |set: &CloneSet| wanted.is_none_or(|name| set.metadata.name.as_deref() == Some(name));
    objects.sets.retain(is_wanted);
    if objects.sets.is_empty() {
        let what = wanted.map_or_else(|| "no CloneSet".to_owned(), |name| format!("no CloneSet {name}"));
        return Err(Usage(format!("the files hold {what}")).into());
    }
    Ok(objects)
}

/// Where a set of the cluster stands and why, decided here by what is stored.
pub(crate) async fn explanation(cluster: &Cluster, name: &str) -> Result<ExplainCloneSetResponse> {
    let objects = objects::from_cluster(cluster, name).await?;
    let set = objects.sets.first().context("it was just read")?;
    Ok(explained(set, &objects, now()))
}

fn explained(set: &CloneSet, objects: &Objects, now: Timestamp) -> ExplainCloneSetResponse {
    let play = setting::play(set, objects, Gates::default(), now);
    let snapshot = play.snapshot();
    kruise_proto::clone_set::explanation(&snapshot, &plan(&snapshot))
}

fn gates(text: &str) -> Result<Gates> {
    let gates =
        FeatureGates::parse_known(text).map_err(|error| Usage(format!("--feature-gates: {error}")))?;
    Ok(Gates::of(&gates))
}

/// All plans as text: a document for one set, a list for several.
fn told(objects: &Objects, gates: Gates, now: Timestamp, args: &PlanArgs) -> Result<String> {
    let mut texts = Vec::new();
    let mut documents = Vec::new();
    for set in &objects.sets {
        let mut play = setting::play(set, objects, gates, now);
        if args.until_settled {
            let steps = steps(&mut play);
            documents.push(serde_json::to_value(PlayDocument::of(&play.set, &steps))?);
            texts.push(text::play(&play.set, &steps));
        } else {
            let plan = plan(&play.snapshot());
            documents.push(serde_json::to_value(PlanDocument::of(&play.set, &plan, now))?);
            texts.push(text::plan(&play.set, &plan, now));
        }
    }
    match (args.output, documents.as_slice()) {
        (ResultFormat::Text, _) => Ok(texts.join("\n")),
        (ResultFormat::Json, [one]) => pretty(one),
        (ResultFormat::Json, all) => pretty(&all),
    }
}

fn pretty(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn steps(play: &mut Play) -> Vec<Step> {
    let mut steps = Vec::new();
    while steps.len() < MAX_STEPS {
        steps.push(play.step());
        if steps.last().is_some_and(|step| step.settled) {
            break;
        }
    }
    steps
}

#[cfg(test)]
pub(crate) use tests::example;

#[cfg(test)]
mod tests;
