//! Objects that a plan is made from, from files or from a cluster.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kruise_api::clone_set::{CloneSet, convert, v1alpha1};
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::strict;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::connect::Cluster;
use crate::documents;
use crate::exit::Usage;

/// Objects by kind, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) sets: Vec<CloneSet>,
    pub(super) pods: Vec<Pod>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
    pub(super) revisions: Vec<ControllerRevision>,
    pub(super) jobs: Vec<ImagePullJob>,
    pub(super) requests: Vec<ContainerRecreateRequest>,
    pub(super) nodes: Vec<Node>,
}

/// Sorts objects by kind.
pub(super) fn from_values(values: &[Value]) -> Result<Objects> {
    let mut objects = Objects::default();
    for value in values {
        objects.add(value)?;
    }
    Ok(objects)
}

impl Objects {
    /// Adds an object. Kinds that say nothing about a plan are passed over, so that whole manifests can be given.
    fn add(&mut self, value: &Value) -> Result<()> {
        match documents::kind(value) {
            "CloneSet" if documents::group_version(value).1 == "v1alpha1" => {
                let set: v1alpha1::CloneSet = typed(value)?;
                self.sets.push(convert::to_v1beta1(&set));
            }
            "CloneSet" => self.sets.push(typed(value)?),
            "Pod" => self.pods.push(typed(value)?),
            "PersistentVolumeClaim" => self.claims.push(typed(value)?),
            "ControllerRevision" => self.revisions.push(typed(value)?),
            "ImagePullJob" => self.jobs.push(typed(value)?),
            "ContainerRecreateRequest" => self.requests.push(typed(value)?),
            "Node" => self.nodes.push(typed(value)?),
            "" => bail!("{} has no kind", documents::title(value)),
            _ => {}
        }
        Ok(())
    }
}

fn typed<T: DeserializeOwned>(value: &Value) -> Result<T> {
    let title = documents::title(value);
    strict::read(value).with_context(|| format!("{title} is not readable"))
}

/// Reads what bears on one set of a cluster. Nothing is written.
pub(super) async fn from_cluster(cluster: &Cluster, name: &str) -> Result<Objects> {
    let client = || cluster.client.clone();
    let namespace = &cluster.namespace;
    let sets: Api<CloneSet> = Api::namespaced(client(), namespace);
    let set = sets
        .get(name)
        .await
        .with_context(|| format!("CloneSet {namespace}/{name}"))?;
    let everything = ListParams::default();
    let pods: Api<Pod> = Api::namespaced(client(), namespace);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client(), namespace);
    let revisions: Api<ControllerRevision> = Api::namespaced(client(), namespace);
    let jobs: Api<ImagePullJob> = Api::namespaced(client(), namespace);
    let requests: Api<ContainerRecreateRequest> = Api::namespaced(client(), namespace);
    let nodes: Api<Node> = Api::all(client());
    Ok(Objects {
        sets: vec![set],
        pods: pods.list(&everything).await.context("pods")?.items,
        claims: claims.list(&everything).await.context("claims")?.items,
        revisions: revisions.list(&everything).await.context("revisions")?.items,
        jobs: jobs.list(&everything).await.context("jobs")?.items,
        // Only of those that belong to a run. Where the kind is not served there are none.
        requests: requests
            .list(&ListParams::default().labels(keys::RESTART_RUN))
            .await
            .map(|list| list.items)
            .unwrap_or_default(),
        // Without the right to see nodes the plan is the same, but for the choice among pods of one zone.
        nodes: nodes
            .list(&everything)
            .await
            .map(|list| list.items)
            .unwrap_or_default(),
    })
}

/// The name in `clone/NAME`.
pub(crate) fn kind_and_name(text: &str) -> Option<&str> {
    match text.split_once('/')? {
        ("clone" | "cloneset" | "clonesets" | "clonesets.apps.kruise.io", name)
            if !name.is_empty() && !name.contains('/') =>
        {
            Some(name)
        }
        _ => None,
    }
}

/// The name in `clone/NAME`; a bare name does too.
pub(crate) fn set_name(text: &str) -> Result<&str> {
    let name = if text.contains('/') {
        kind_and_name(text).ok_or_else(|| Usage(format!("{text:?} is no CloneSet; give clone/NAME")))?
    } else {
        text
    };
    if name.is_empty() {
        return Err(Usage("give the name of the CloneSet, as clone/NAME".to_owned()).into());
    }
    Ok(name)
}

/// Puts other images into the template of a set: `image=REFERENCE` or `CONTAINER=REFERENCE`.
pub(super) fn edit(set: &mut CloneSet, edits: &[String]) -> Result<()> {
    for text in edits {
        let Some((key, image)) = text.split_once('=') else {
            return Err(Usage(format!(
                "--set {text}: give image=REFERENCE or CONTAINER=REFERENCE"
            ))
            .into());
        };
        let containers = set
            .spec
            .template
            .pointer_mut("/spec/containers")
            .and_then(Value::as_array_mut);
        let mut found = false;
        for container in containers.into_iter().flatten() {
            if key == "image" || container["name"] == key {
                container["image"] = image.into();
                found = true;
            }
        }
        if !found {
            return Err(Usage(format!("--set {text}: the template has no container {key:?}")).into());
        }
    }
    Ok(())
}

/// Labels of nodes by name.
pub(super) fn node_labels(nodes: &[Node]) -> BTreeMap<String, BTreeMap<String, String>> {
    nodes
        .iter()
        .map(|node| {
            let name = node.metadata.name.clone().unwrap_or_default();
            (name, node.metadata.labels.clone().unwrap_or_default())
        })
        .collect()
}
