//! Volumes that belong to pods: made with them, kept for the next one, taken away with those that go for good.

use std::collections::{BTreeMap, BTreeSet};

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

/// Instances that have a pod.
async fn places(set: &Set) -> Result<BTreeSet<String>> {
    let pods = set.pods().await?;
    Ok(pods
        .iter()
        .filter_map(|pod| pod.labels().get(INSTANCE).cloned())
        .collect())
}

/// Deletes the oldest pod and waits until another is there in its stead. The instance of the deleted one.
async fn delete_one(product: &Product, set: &Set) -> Result<String> {
    let mut pods = set.pods().await?;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    let oldest = pods.first().context("there are pods")?;
    let instance = oldest
        .labels()
        .get(INSTANCE)
        .cloned()
        .context("a pod has an instance")?;
    let api: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    api.delete(&oldest.name_any(), &DeleteParams::default()).await?;
    wait_for("the deleted pod to be gone", TWO_MINUTES, async || {
        match api.get_opt(&oldest.name_any()).await? {
            None => Ok(Seen::Done(())),
            Some(_) => not_yet("still there"),
        }
    })
    .await?;
    set.settled(3, TWO_MINUTES).await?;
    Ok(instance)
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
    // While a deleted pod is still ending, its place is not free: the next pod gets one of its own, and the claim waits.
    let first = delete_one(&product, &set).await?;
    let fresh = claims(&product).await?;
    assert!(
        before.iter().all(|kept| fresh.get(kept.0) == Some(kept.1)),
        "{fresh:?}"
    );
    assert_eq!(fresh.len(), 4);
    // The pod after that takes the place and the claim that wait.
    delete_one(&product, &set).await?;
    assert_eq!(claims(&product).await?, fresh, "no claim was made or lost");
    let taken = set
        .pods()
        .await?
        .iter()
        .any(|pod| pod.labels().get(INSTANCE) == Some(&first));
    assert!(taken, "nobody took the place {first}");
    let gone = places(&set).await?;
    set.scale(1).await?;
    set.settled(1, TWO_MINUTES).await?;
    let kept = places(&set).await?;
    let gone: Vec<_> = gone.difference(&kept).cloned().collect();
    wait_for("the claims of those that went to go", TWO_MINUTES, async || {
        let now = claims(&product).await?;
        if !now.keys().any(|instance| gone.contains(instance)) {
            return Ok(Seen::Done(now));
        }
        not_yet(format!("{now:?}"))
    })
    .await
    .map(|now| {
        let same = kept.iter().all(|place| now.get(place) == fresh.get(place));
        assert!(same, "{now:?}");
    })?;
    remove_volumes(&product, 4).await?;
    product.leave().await
}
