//! Back to an earlier template.

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kruise_planner::revision;
use serde_json::{Value, json};

use super::Target;
use super::switch::held_back;
use super::write::merge_patch;
use crate::args::Global;
use crate::exit::{Code, Usage};
use crate::output;

/// Arguments of `rollout undo`.
#[derive(Args, Debug)]
pub(super) struct UndoArgs {
    /// CloneSet, as clone/NAME.
    set: String,
    /// Number of the revision, as `rollout history` lists it. Left out or 0, the one before the present template.
    #[arg(long, value_name = "N", default_value_t = 0)]
    to_revision: i64,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(global: &Global, args: &UndoArgs) -> Result<Code> {
    let target = Target::new(global, &args.set).await?;
    output::put(&undone(&target, args.to_revision, args.dry_run).await?)?;
    Ok(Code::Success)
}

/// Writes the template of the revision, and says so.
pub(super) async fn undone(target: &Target, wanted: i64, dry_run: bool) -> Result<String> {
    let revisions = target.revisions(&target.get().await?).await?;
    let (number, name, note) = target
        .change(|set| {
            let chosen = choose(&revisions, &set.spec.template, wanted)
                .with_context(|| format!("{} stays as it is", target.title()))?;
            let patch = merge_patch(&set.spec.template, &chosen.template);
            let note = match (&patch, dry_run) {
                (None, _) => Some("; its template is that already"),
                (_, true) => Some("; nothing is written in a dry run"),
                (_, false) => held_back(set),
            };
            let spec = match patch {
                Some(template) if !dry_run => json!({ "template": template }),
                _ => json!({}),
            };
            Ok((spec, (chosen.number, chosen.name, note)))
        })
        .await?;
    let note = note.unwrap_or_default();
    Ok(format!(
        "clone/{} goes to revision {number} ({name}){note}\n",
        target.name
    ))
}

struct Chosen {
    number: i64,
    name: String,
    template: Value,
}

/// The revision of this number; for 0 the newest one whose template is another than the present one.
fn choose(revisions: &[ControllerRevision], template: &Value, wanted: i64) -> Result<Chosen> {
    let read = |revision: &ControllerRevision| {
        let data = &revision.data.as_ref()?.0;
        Some(Chosen {
            number: revision.revision,
            name: revision.metadata.name.clone()?,
            template: revision::template_of(data)?,
        })
    };
    if wanted == 0 {
        let mut readable = revisions.iter().rev().filter_map(read);
        let earlier = readable.find(|one| !revision::same_template(&one.template, template));
        return earlier.context("there is no earlier revision");
    }
    let numbers = || {
        let numbers = revisions.iter().map(|revision| revision.revision.to_string());
        numbers.collect::<Vec<_>>().join(", ")
    };
    let Some(named) = revisions.iter().find(|revision| revision.revision == wanted) else {
        return Err(Usage(format!("there is no revision {wanted}; there are {}", numbers())).into());
    };
    match read(named) {
        Some(chosen) => Ok(chosen),
        None => bail!("revision {wanted} holds no template"),
    }
}
