//! The revisions of a set.

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::{CloneSet, names};
use kruise_planner::revision;
use serde::Serialize;
use serde_json::Value;

use super::Target;
use crate::args::{Format, Global};
use crate::exit::{Code, Usage};
use crate::output::{self, Row, cell};

/// Annotation that people write the cause of a change into.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// Arguments of `rollout history`.
#[derive(Args, Debug)]
pub(super) struct HistoryArgs {
    /// CloneSet, as clone/NAME.
    set: String,
    /// Show the template of the revision of this number.
    #[arg(long, value_name = "N")]
    revision: Option<i64>,
    /// Form of the output; a template is YAML, or JSON if asked for.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

pub(super) async fn run(global: &Global, args: &HistoryArgs) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    output::put(&told(&target, args.revision, args.output).await?)?;
    Ok(Code::Success)
}

/// The list, or one template.
pub(super) async fn told(target: &Target, one: Option<i64>, format: Format) -> Result<String> {
    let set = target.get().await?;
    let revisions = target.revisions(&set).await?;
    let Some(number) = one else {
        let pods = target.pods(&set).await?;
        return output::listing(&rows(&set, &revisions, &pods), format);
    };
    let revision = revisions.iter().find(|revision| revision.revision == number);
    let revision = revision.ok_or_else(|| Usage(format!("{} has no revision {number}", target.title())))?;
    let template = template(revision).with_context(|| format!("revision {number} holds no template"))?;
    let form = match format {
        Format::Json => Format::Json,
        Format::Table | Format::Wide | Format::Yaml => Format::Yaml,
    };
    output::document(&template, form)
}

fn template(revision: &ControllerRevision) -> Option<Value> {
    revision::template_of(&revision.data.as_ref()?.0)
}

/// One revision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Revision {
    revision: i64,
    name: String,
    pods: usize,
    /// That of the template.
    update: bool,
    /// The one that pods come from.
    current: bool,
    images: Vec<String>,
    change_cause: String,
}

fn rows(set: &CloneSet, revisions: &[ControllerRevision], pods: &[Pod]) -> Vec<Revision> {
    let status = set.status.clone().unwrap_or_default();
    let row = |revision: &ControllerRevision| {
        let meta = &revision.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let hash = revision::short_hash(&name);
        let is_on = |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            let label = labels.and_then(|labels| labels.get(names::REVISION));
            label.is_some_and(|label| revision::short_hash(label) == hash)
        };
        let annotations = meta.annotations.as_ref();
        let cause = annotations.and_then(|all| all.get(CHANGE_CAUSE));
        Revision {
            revision: revision.revision,
            pods: pods.iter().filter(is_on).count(),
            update: status.update_revision == name,
            current: status.current_revision == name,
            images: template(revision)
                .map(|template| images(&template))
                .unwrap_or_default(),
            change_cause: cause.cloned().unwrap_or_default(),
            name,
        }
    };
    revisions.iter().map(row).collect()
}

fn images(template: &Value) -> Vec<String> {
    let containers = template.pointer("/spec/containers").and_then(Value::as_array);
    let images = containers
        .into_iter()
        .flatten()
        .filter_map(|one| one["image"].as_str());
    images.map(str::to_owned).collect()
}

impl Row for Revision {
    const HEADS: (&'static [&'static str], &'static [&'static str]) = (
        &["REVISION", "NAME", "PODS", "ROLE", "IMAGES", "CHANGE-CAUSE"],
        &[],
    );

    fn cells(&self) -> Vec<String> {
        let role = match (self.current, self.update) {
            (true, true) => "current,update",
            (true, false) => "current",
            (false, true) => "update",
            (false, false) => "",
        };
        vec![
            self.revision.to_string(),
            self.name.clone(),
            self.pods.to_string(),
            cell(role),
            cell(self.images.join(",")),
            cell(&self.change_cause),
        ]
    }

    fn wide(&self) -> Vec<String> {
        Vec::new()
    }
}
