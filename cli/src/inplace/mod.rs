//! `kruisectl inplace`: whether pods can come from one template to another in place. Decided as the manager decides, without a cluster.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use kruise_api::clone_set::defaults::{PullDefault, TemplateDefaults, fill_template};
use kruise_api::features::FeatureGates;
use kruise_planner::inplace::{Decision, ObstacleReason, Options, decide};
use serde_json::{Value, json};

use crate::args::ResultFormat;
use crate::documents;
use crate::exit::{Code, Usage};
use crate::output;

/// Arguments of `inplace`.
#[derive(Args, Debug)]
pub(crate) struct InPlaceArgs {
    /// File with the template that pods have: a pod template, or an object with one (CloneSet, Deployment, ControllerRevision, Pod …).
    #[arg(long, value_name = "FILE")]
    pub(crate) from: PathBuf,
    /// File with the template that they are to have.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Feature gates, as NAME=true, several separated by commas.
    #[arg(long, value_name = "GATES", default_value = "")]
    pub(crate) feature_gates: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = ResultFormat::Text)]
    pub(crate) output: ResultFormat,
}

/// Compares the templates of two files.
pub(crate) fn run(args: &InPlaceArgs) -> Result<Code> {
    output::put(&told(args)?)?;
    Ok(Code::Success)
}

/// What `run` prints.
pub(crate) fn told(args: &InPlaceArgs) -> Result<String> {
    let gates = FeatureGates::parse_known(&args.feature_gates)
        .map_err(|error| Usage(format!("--feature-gates: {error}")))?;
    let (from, to) = (template(&args.from)?, template(&args.to)?);
    let decision = decision(from, to, &gates);
    match args.output {
        ResultFormat::Json => documents::show(&[document(&decision)], false),
        ResultFormat::Text => Ok(text(&decision)),
    }
}

/// Both templates get the defaults that a CloneSet's get, so that one as stored can be held against one as written.
fn decision(mut from: Value, mut to: Value, gates: &FeatureGates) -> Decision {
    for template in [&mut from, &mut to] {
        if let TemplateDefaults::Fill { host_ports } = TemplateDefaults::of(gates, None, template) {
            fill_template(template, PullDefault::Always, host_ports);
        }
    }
    decide(&from, &to, Options::of(gates))
}

fn template(file: &PathBuf) -> Result<Value> {
    let objects = documents::read(std::slice::from_ref(file))?;
    let [object] = objects.as_slice() else {
        let count = objects.len();
        return Err(Usage(format!(
            "{} holds {count} objects; give one with a pod template",
            file.display()
        ))
        .into());
    };
    Ok(template_of(object))
}

/// The template, wherever the kind of object keeps it.
fn template_of(object: &Value) -> Value {
    let place = match documents::kind(object) {
        "ControllerRevision" => "/data/spec/template",
        "PodTemplate" => "/template",
        _ if object.pointer("/spec/template").is_some() => "/spec/template",
        _ => "",
    };
    let mut template = object.pointer(place).cloned().unwrap_or(Value::Null);
    if let Some(fields) = template.as_object_mut() {
        for name in ["$patch", "apiVersion", "kind", "status"] {
            fields.remove(name);
        }
    }
    template
}

/// The names are stable: programs read them.
fn document(decision: &Decision) -> Value {
    match decision {
        Decision::InPlace(change) => json!({
            "inPlace": true,
            "reason": null,
            "field": null,
            "message": null,
            "images": change.images,
            "metadataPatch": change.metadata_patch,
            "refMetadata": change.ref_metadata,
            "resources": change.resources,
            "updateEnvFromMetadata": change.updates_env_from_metadata(),
        }),
        Decision::Impossible(obstacle) => json!({
            "inPlace": false,
            "reason": obstacle.reason,
            "field": obstacle.field,
            "message": obstacle.to_string(),
            "images": {},
            "metadataPatch": null,
            "refMetadata": {},
            "resources": {},
            "updateEnvFromMetadata": false,
        }),
    }
}

fn text(decision: &Decision) -> String {
    let change = match decision {
        Decision::Impossible(obstacle) => {
            let hint = match obstacle.reason {
                ObstacleReason::ResourcesNeedGate => "",
                _ => "; pods have to be made anew",
            };
            return format!("not in place: {obstacle}{hint}\n");
        }
        Decision::InPlace(change) if change.is_empty() => {
            return "in place: nothing of a pod changes but the label of its revision\n".to_owned();
        }
        Decision::InPlace(change) => change,
    };
    let mut text = if change.is_metadata_only() {
        "in place, without restarting a container:\n".to_owned()
    } else {
        "in place:\n".to_owned()
    };
    let mut line = |what: String| {
        text.push_str("  ");
        text.push_str(&what);
        text.push('\n');
    };
    for (container, image) in &change.images {
        line(format!("container {container} restarts with image {image}"));
    }
    for (container, refs) in &change.ref_metadata {
        let keys: Vec<_> = refs
            .labels
            .keys()
            .chain(refs.annotations.keys())
            .map(String::as_str)
            .collect();
        line(format!(
            "container {container} restarts, since it reads {}",
            keys.join(", ")
        ));
    }
    for (container, resources) in &change.resources {
        for (kind, amounts) in [("limit", &resources.limits), ("request", &resources.requests)] {
            for (name, amount) in amounts {
                line(format!("container {container} gets {kind} {name} {amount}"));
            }
        }
    }
    if let Some(patch) = &change.metadata_patch {
        line(format!("metadata: {}", patch["metadata"]));
    }
    text
}

#[cfg(test)]
mod tests;
