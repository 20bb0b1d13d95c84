//! What admission has to read: the pod of a request to restart, and whether its node exists.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kruise_api::admission::Denied;
use kruise_api::clone_set::validation::PodRef;
use kube::api::ListParams;

use crate::kubeapi::Api;

/// Reads of the admission functions; none when there is no such object.
pub trait Lookup: Send + Sync {
    /// A pod.
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Pod>, Denied>>;
    /// The pods of a namespace.
    fn pods<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<PodRef>, Denied>>;
    /// The labels of a node.
    fn node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Denied>>;
}

/// Reads from the API server.
#[derive(Debug)]
pub struct KubeLookup(pub Api);

impl Lookup for KubeLookup {
    fn pod<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Pod>, Denied>> {
        async move {
            // The API server would take an empty name for a list.
            if namespace.is_empty() || name.is_empty() {
                return Ok(None);
            }
            let pods: kube::Api<Pod> = kube::Api::namespaced(self.0.plain(), namespace);
            pods.get_opt(name).await.map_err(|error| failed("pod", &error))
        }
        .boxed()
    }

    fn pods<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Vec<PodRef>, Denied>> {
        async move {
            let pods: kube::Api<Pod> = kube::Api::namespaced(self.0.plain(), namespace);
            // From the API server's memory: what is a moment old will do.
            let params = ListParams::default().match_any();
            let list = pods.list_metadata(&params).await;
            let list = list.map_err(|error| failed("pods", &error))?;
            Ok(list.items.into_iter().map(|pod| pod_ref(pod.metadata)).collect())
        }
        .boxed()
    }

    fn node<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Denied>> {
        async move {
            let nodes: kube::Api<Node> = kube::Api::all(self.0.plain());
            let node = nodes.get_metadata_opt(name).await;
            let node = node.map_err(|error| failed("node", &error))?;
            Ok(node.map(|node| node.metadata.labels.unwrap_or_default()))
        }
        .boxed()
    }
}

fn pod_ref(metadata: ObjectMeta) -> PodRef {
    let mut owners = metadata.owner_references.into_iter().flatten();
    PodRef {
        name: metadata.name.unwrap_or_default(),
        terminating: metadata.deletion_timestamp.is_some(),
        controller: owners
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid),
    }
}

fn failed(what: &str, error: &kube::Error) -> Denied {
    Denied {
        code: 500,
        message: format!("cannot read the {what}: {error}"),
    }
}
