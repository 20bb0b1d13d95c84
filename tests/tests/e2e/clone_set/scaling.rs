//! More pods, fewer pods, and which ones go.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::product::{Product, Set, Witness, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::TWO_MINUTES;

fn names(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().map(Pod::name_any).collect()
}

#[tokio::test]
async fn from_none_to_thirty_and_down_to_three_as_an_autoscaler_asks() -> Result<()> {
    let product = Product::attach("scale").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 0})).await?;
    set.settled(0, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    set.scale(30).await?;
    set.settled(30, TWO_MINUTES).await?;
    set.scale(3).await?;
    set.settled(3, TWO_MINUTES).await?;
    assert_eq!(set.pods().await?.len(), 3);
    assert_eq!(witness.most()?, 30, "never one too many: {}", witness.story());
    product.leave().await
}

#[tokio::test]
async fn the_pods_that_are_named_go_and_no_others() -> Result<()> {
    let product = Product::attach("named").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 4})).await?;
    set.settled(4, TWO_MINUTES).await?;
    let before = names(&set.pods().await?);
    let gone: Vec<_> = before.iter().take(2).cloned().collect();
    set.patch(json!({"spec": {"replicas": 2, "scaleStrategy": {"podsToDelete": gone}}}))
        .await?;
    set.settled(2, TWO_MINUTES).await?;
    let left: BTreeSet<_> = before
        .difference(&gone.iter().cloned().collect())
        .cloned()
        .collect();
    assert_eq!(names(&set.pods().await?), left);
    wait_for("podsToDelete to be emptied", TWO_MINUTES, async || {
        let named = set.get().await?.spec.scale_strategy.pods_to_delete;
        if named.is_empty() {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{named:?}"))
    })
    .await?;
    // Marked by its label, a pod is replaced.
    let marked = left.first().context("two are left")?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let mark = json!({"metadata": {"labels": {"apps.kruise.io/specified-delete": "true"}}});
    pods.patch(marked, &PatchParams::default(), &Patch::Merge(mark))
        .await?;
    wait_for("the marked pod to be replaced", TWO_MINUTES, async || {
        let now = names(&set.pods().await?);
        if now.len() == 2 && !now.contains(marked) {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{now:?}"))
    })
    .await?;
    set.settled(2, TWO_MINUTES).await?;
    product.leave().await
}

#[tokio::test]
async fn a_pod_that_is_relabelled_is_let_go_and_replaced() -> Result<()> {
    let product = Product::attach("release").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 2})).await?;
    set.settled(2, TWO_MINUTES).await?;
    let first = set.pods().await?.first().map(Pod::name_any).context("two pods")?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let label = json!({"metadata": {"labels": {"app": "mine"}}});
    pods.patch(&first, &PatchParams::default(), &Patch::Merge(label))
        .await?;
    wait_for("the pod to be nobody's", TWO_MINUTES, async || {
        let pod = pods.get(&first).await?;
        if pod.owner_references().is_empty() && set.pods().await?.len() == 2 {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{:?}", pod.owner_references()))
    })
    .await?;
    set.settled(2, TWO_MINUTES).await?;
    let free = pods.get(&first).await?;
    assert!(
        free.metadata.deletion_timestamp.is_none(),
        "a pod that was let go lives on"
    );
    product.leave().await
}
