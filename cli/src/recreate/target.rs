//! What is restarted: one pod, or the pods of a workload.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, Selector};

use crate::connect::Cluster;
use crate::exit::Usage;

/// A target as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Kind,
    name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pod,
    CloneSet,
    Deployment,
    StatefulSet,
    DaemonSet,
}

impl Target {
    pub(super) fn parse(text: &str) -> Result<Self, Usage> {
        let accepted = "give pod/NAME, clone/NAME, deploy/NAME, sts/NAME or ds/NAME";
        let (kind, name) = text
            .split_once('/')
            .filter(|(_, name)| !name.is_empty() && !name.contains('/'))
            .ok_or_else(|| Usage(format!("{text}: {accepted}")))?;
        let kind = match kind {
            "pod" | "pods" | "po" => Kind::Pod,
            "clone" | "cloneset" | "clonesets" => Kind::CloneSet,
            "deploy" | "deployment" | "deployments" => Kind::Deployment,
            "sts" | "statefulset" | "statefulsets" => Kind::StatefulSet,
            "ds" | "daemonset" | "daemonsets" => Kind::DaemonSet,
            _ => return Err(Usage(format!("{text}: {accepted}"))),
        };
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }

    pub(super) fn is_workload(&self) -> bool {
        self.kind != Kind::Pod
    }

    fn resource(&self) -> Option<ApiResource> {
        let (group, version, kind) = match self.kind {
            Kind::Pod => return None,
            Kind::CloneSet => ("apps.kruise.io", "v1beta1", "CloneSet"),
            Kind::Deployment => ("apps", "v1", "Deployment"),
            Kind::StatefulSet => ("apps", "v1", "StatefulSet"),
            Kind::DaemonSet => ("apps", "v1", "DaemonSet"),
        };
        Some(ApiResource::from_gvk(&GroupVersionKind::gvk(
            group, version, kind,
        )))
    }

    /// How its pods are found.
    pub(super) async fn pods(&self, cluster: &Cluster) -> Result<PodsOf> {
        let Some(resource) = self.resource() else {
            return Ok(PodsOf::Name(self.name.clone()));
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &resource);
        let object = api
            .get(&self.name)
            .await
            .with_context(|| format!("{} {} cannot be read", resource.kind, self.name))?;
        let selector: LabelSelector = serde_json::from_value(object.data["spec"]["selector"].clone())
            .context("its selector cannot be read")?;
        let selector = Selector::try_from(selector).context("its selector cannot be used")?;
        Ok(PodsOf::Labels(selector.to_string()))
    }
}

/// How pods are found.
#[derive(Clone, Debug)]
pub(super) enum PodsOf {
    Name(String),
    Labels(String),
}

impl PodsOf {
    /// The pods that are not leaving, by name.
    pub(super) async fn list(&self, api: &Api<Pod>) -> Result<Vec<Pod>> {
        let mut pods = match self {
            Self::Name(name) => {
                let pod = api.get_opt(name).await.context("the pod cannot be read")?;
                pod.into_iter().collect()
            }
            Self::Labels(labels) => {
                let params = ListParams::default().labels(labels);
                api.list(&params).await.context("pods cannot be listed")?.items
            }
        };
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        Ok(pods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_kubectl_has_them() {
        for (text, kind) in [
            ("pod/a", Kind::Pod),
            ("clone/a", Kind::CloneSet),
            ("deploy/a", Kind::Deployment),
            ("sts/a", Kind::StatefulSet),
            ("ds/a", Kind::DaemonSet),
        ] {
            assert_eq!(Target::parse(text).unwrap().kind, kind);
        }
        for text in ["a", "pod/", "job/a", "pod/a/b"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
