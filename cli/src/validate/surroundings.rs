//! Objects that stand for the cluster.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::validation::PodRef;
use kruise_api::features::FeatureGates;
use serde_json::Value;

use crate::documents;

/// What is known of the cluster besides the objects that are checked.
#[derive(Debug)]
pub(super) struct Surroundings {
    pods: Vec<Pod>,
    nodes: Vec<String>,
    pub(super) gates: FeatureGates,
    pub(super) now: Timestamp,
}

impl Surroundings {
    /// Takes Pods and Nodes. A pod that is not readable is none.
    pub(super) fn new(objects: &[Value], gates: FeatureGates, now: Timestamp) -> Self {
        let of = |kind: &'static str| {
            objects
                .iter()
                .filter(move |object| documents::kind(object) == kind && object["apiVersion"] == "v1")
        };
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        Self {
            pods: of("Pod")
                .filter_map(|pod| serde_json::from_value(pod.clone()).ok())
                .collect(),
            nodes: of("Node").filter_map(name).collect(),
            gates,
            now,
        }
    }

    /// The pod, by namespace and name.
    pub(super) fn pod(&self, namespace: Option<&str>, name: &str) -> Option<&Pod> {
        self.pods
            .iter()
            .find(|pod| pod.metadata.name.as_deref() == Some(name) && same(pod, namespace))
    }

    /// Pods of a namespace. None when the files hold no pods at all: then nothing is known of them.
    pub(super) fn pods(&self, namespace: Option<&str>) -> Option<Vec<PodRef>> {
        if self.pods.is_empty() {
            return None;
        }
        let pods = self.pods.iter().filter(|pod| same(pod, namespace));
        let refs = pods.map(|pod| PodRef {
            name: pod.metadata.name.clone().unwrap_or_default(),
            terminating: pod.metadata.deletion_timestamp.is_some(),
            controller: pod
                .metadata
                .owner_references
                .iter()
                .flatten()
                .find(|owner| owner.controller == Some(true))
                .map(|owner| owner.uid.clone()),
        });
        Some(refs.collect())
    }

    /// Whether there is such a node. Without any node in the files each is taken to exist.
    pub(super) fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| node == name)
    }

    /// The gate that keeps objects of a kind from being used, if one does.
    pub(super) fn switched_off(&self, gates: &[&'static str]) -> Option<&'static str> {
        gates.iter().copied().find(|gate| !self.gates.enabled(gate))
    }
}

fn same(pod: &Pod, namespace: Option<&str>) -> bool {
    let default = |namespace: Option<&str>| {
        namespace
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
            .to_owned()
    };
    default(pod.metadata.namespace.as_deref()) == default(namespace)
}
