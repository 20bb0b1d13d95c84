//! The managers as tests of leadership need them.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kruise_tests::product::{Leader, NAMESPACE, Product};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams};

pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses.into_iter().flatten()
}

/// Waits for two managers that have never been restarted, one of which leads. The kubelet waits longer with each restart of a container, and whoever
/// is not there cannot take over.
pub(crate) async fn fresh(product: &Product) -> Result<Leader> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), NAMESPACE);
    for pod in product.pods("controller-manager").await? {
        if containers(&pod).any(|container| container.restart_count > 0) {
            let name = pod.metadata.name.context("a pod has a name")?;
            pods.delete(&name, &DeleteParams::default().grace_period(1))
                .await?;
        }
    }
    wait_for("two fresh managers", Duration::from_secs(60), async || {
        let managers = product.pods("controller-manager").await?;
        let good = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && containers(pod).all(|container| container.ready && container.restart_count == 0)
                && containers(pod).next().is_some()
        };
        let good: Vec<&Pod> = managers.iter().filter(good).collect();
        let leader = product.leader().await?;
        let leads = |pod: &&&Pod| pod.metadata.name.as_deref() == Some(leader.pod.as_str());
        if managers.len() == 2 && good.len() == 2 && good.iter().any(|pod| leads(&pod)) {
            Ok(Seen::Done(leader))
        } else {
            not_yet(format!(
                "{} of {} are fresh, {} leads",
                good.len(),
                managers.len(),
                leader.pod
            ))
        }
    })
    .await
}

/// Waits for another leadership than this one.
pub(crate) async fn successor(product: &Product, old: &Leader, within: Duration) -> Result<Leader> {
    wait_for("another leadership", within, async || {
        let leader = product.leader().await?;
        if leader.epoch > old.epoch {
            Ok(Seen::Done(leader))
        } else {
            not_yet(format!("{leader:?}"))
        }
    })
    .await
}

/// The pod of a leader.
pub(crate) async fn pod_of(product: &Product, leader: &Leader) -> Result<Pod> {
    let pods = product.pods("controller-manager").await?;
    pods.into_iter()
        .find(|pod| pod.metadata.name.as_deref() == Some(leader.pod.as_str()))
        .context("the leader's pod is gone")
}

/// The node that the leader runs on.
pub(crate) async fn node_of_leader(product: &Product) -> Result<String> {
    let pod = pod_of(product, &product.leader().await?).await?;
    pod.spec
        .and_then(|spec| spec.node_name)
        .context("a running pod is on a node")
}
