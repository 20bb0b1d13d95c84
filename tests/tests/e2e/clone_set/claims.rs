//! Volumes that belong to pods: made with them, kept for the next one, taken away with those that go for good.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kruise_tests::product::{Product, Set, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

use super::TWO_MINUTES;

const INSTANCE: &str = "apps.kruise.io/cloneset-instance-id";

/// Volumes that only this test's claims fit.
async fn volumes(product: &Product, count: usize) -> Result<()> {
    let api: Api<PersistentVolume> = Api::all(product.client.clone());
    for index in 0..count {
        let name = format!("{}-{index}", product.namespace);
        let volume = json!({"metadata": {"name": name}, "spec": {
            "storageClassName": product.namespace, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": format!("/var/tmp/{name}"), "type": "DirectoryOrCreate"},
        }});
        api.create(&PostParams::default(), &serde_json::from_value(volume)?)
            .await?;
    }
    Ok(())
}

async fn remove_volumes(product: &Product, count: usize) -> Result<()> {
    let api: Api<PersistentVolume> = Api::all(product.client.clone());
    for index in 0..count {
        api.delete(
            &format!("{}-{index}", product.namespace),
            &DeleteParams::default(),
        )
        .await?;
    }
    Ok(())
}

/// Claims by the instance that they belong to.
async fn claims(product: &Product) -> Result<BTreeMap<String, String>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(product.client.clone(), &product.namespace);
    let all = api.list(&ListParams::default()).await?;
    let living = all
        .items
        .into_iter()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(living
        .map(|claim| {
            let instance = claim.labels().get(INSTANCE).cloned().unwrap_or_default();
            (instance, claim.uid().unwrap_or_default())
        })
        .collect())
}

#[tokio::test]
async fn a_claim_waits_for_the_next_pod_and_goes_when_its_place_goes() -> Result<()> {
    let product = Product::attach("claims").await?;
    volumes(&product, 4).await?;
    let image = push_idle_image(&product, "1").await?;
    let template = json!({"metadata": {"name": "data"}, "spec": {
        "storageClassName": product.namespace, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let spec =
        json!({"replicas": 3, "scaleStrategy": {"enablePVCReuse": true}, "volumeClaimTemplates": [template]});
    let set = Set::create(&product, "web", &image, spec).await?;
    set.settled(3, TWO_MINUTES).await?;
    let before = claims(&product).await?;
    assert_eq!(before.len(), 3);
    let first = set.pods().await?.into_iter().next().context("three pods")?;
    let instance = first
        .labels()
        .get(INSTANCE)
        .cloned()
        .context("a pod has an instance")?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    // Gone at once, as after the loss of a node: while the old pod is still ending, its place is not free.
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&first.name_any(), &at_once).await?;
    wait_for("the pod's place to be taken", TWO_MINUTES, async || {
        let now = set.pods().await?;
        let next = now
            .iter()
            .find(|pod| pod.labels().get(INSTANCE) == Some(&instance));
        match next.filter(|pod| pod.uid() != first.uid()) {
            Some(_) => Ok(Seen::Done(())),
            None => not_yet(format!("{} pods", now.len())),
        }
    })
    .await?;
    set.settled(3, TWO_MINUTES).await?;
    assert_eq!(claims(&product).await?, before, "no claim was made or lost");
    set.scale(1).await?;
    set.settled(1, TWO_MINUTES).await?;
    let kept = set.pods().await?[0].labels()[INSTANCE].clone();
    wait_for("the claims of those that went to go", TWO_MINUTES, async || {
        let now = claims(&product).await?;
        if now.len() == 1 {
            return Ok(Seen::Done(now));
        }
        not_yet(format!("{now:?}"))
    })
    .await
    .map(|now| assert_eq!(now.get(&kept), before.get(&kept)))?;
    remove_volumes(&product, 4).await?;
    product.leave().await
}
