//! `kruisectl rollout`: how a CloneSet comes to its template, and the switches of that.
//!
//! Everything is written to the set alone; the manager does the rest.

mod downtime;
mod history;
mod scale_down;
mod status;
mod switch;
mod undo;
mod write;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::clone_set::{CloneSet, names};
use kube::Api;
use kube::api::ListParams;

use crate::args::Global;
use crate::connect::Cluster;
use crate::exit::Code;
use crate::plan::set_name;

pub(crate) use scale_down::{ScaleDownArgs, run as scale_down};

/// Arguments of `rollout`.
#[derive(Args, Debug)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    command: Rollout,
}

/// What to do about a rollout.
#[derive(Debug, Subcommand)]
enum Rollout {
    /// Show how a rollout goes until it is done, with what it waits for. Ends with 1 when it failed or the set is gone.
    Status(status::StatusArgs),
    /// List the revisions of a set, or show the template of one.
    History(history::HistoryArgs),
    /// Give a set the template of an earlier revision again.
    Undo(undo::UndoArgs),
    /// Update no more pods. The number of pods is still kept.
    Pause(switch::SwitchArgs),
    /// Go on updating pods.
    Resume(switch::SwitchArgs),
    /// Restart all pods: containers in place under an in-place policy, else every pod is made again.
    Restart(switch::RestartArgs),
}

pub(crate) async fn run(global: &Global, args: RolloutArgs) -> Result<Code> {
    match args.command {
        Rollout::Status(args) => status::run(global, args).await,
        Rollout::History(args) => history::run(global, &args).await,
        Rollout::Undo(args) => undo::run(global, &args).await,
        Rollout::Pause(args) => switch::pause(global, &args, true).await,
        Rollout::Resume(args) => switch::pause(global, &args, false).await,
        Rollout::Restart(args) => switch::restart(global, args).await,
    }
}

/// A set of a cluster.
struct Target {
    cluster: Cluster,
    name: String,
    sets: Api<CloneSet>,
}

impl Target {
    async fn new(global: &Global, text: &str) -> Result<Self> {
        let name = set_name(text)?.to_owned();
        Ok(Self::of(Cluster::new(global).await?, name))
    }

    fn of(cluster: Cluster, name: String) -> Self {
        let sets = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        Self { cluster, name, sets }
    }

    fn title(&self) -> String {
        format!("CloneSet {}/{}", self.cluster.namespace, self.name)
    }

    async fn get(&self) -> Result<CloneSet> {
        self.sets.get(&self.name).await.with_context(|| self.title())
    }

    /// Its revisions, oldest first.
    async fn revisions(&self, set: &CloneSet) -> Result<Vec<ControllerRevision>> {
        let api: Api<ControllerRevision> =
            Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let labelled = ListParams::default().labels(names::REVISION_HASH);
        let mut revisions = api.list(&labelled).await.context("revisions")?.items;
        revisions.retain(|revision| is_controlled(&revision.metadata, set));
        revisions.sort_by_key(|revision| revision.revision);
        Ok(revisions)
    }

    /// Its pods.
    async fn pods(&self, set: &CloneSet) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace);
        let mut pods = api.list(&ListParams::default()).await.context("pods")?.items;
        pods.retain(|pod| is_controlled(&pod.metadata, set));
        Ok(pods)
    }
}

fn is_controlled(meta: &ObjectMeta, set: &CloneSet) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

#[cfg(test)]
mod tests;
