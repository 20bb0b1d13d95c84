//! Restart of all pods in place by an annotation.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::product::{Product, Restarts, Set, Witness, push_idle_image};
use kube::ResourceExt as _;
use serde_json::json;

use super::TWO_MINUTES;

const PODS: i32 = 4;

/// UID and restarts of each pod's container.
fn stand(pods: &[Pod]) -> BTreeMap<String, (String, i32)> {
    let one = |pod: &Pod| {
        let restarts = Restarts::containers_of(pod)
            .iter()
            .map(|container| container.restarts)
            .sum();
        (pod.name_any(), (pod.uid().unwrap_or_default(), restarts))
    };
    pods.iter().map(one).collect()
}

#[tokio::test]
async fn a_new_value_restarts_each_pod_once_and_one_at_a_time() -> Result<()> {
    let product = Product::attach("again").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": PODS})).await?;
    set.settled(PODS, TWO_MINUTES).await?;
    let before = stand(&set.pods().await?);
    let witness = Witness::begin(&product, "web").await?;
    let run = json!({"metadata": {"annotations": {"apps.kruise.io/restart": "2026-12-01T12:00:00Z"}}});
    set.patch(run).await?;
    let over = |status: &kruise_api::clone_set::CloneSetStatus| {
        let restart = status.restart.as_ref();
        restart.is_some_and(|restart| restart.completed_at.is_some())
    };
    let status = set.when("the run to be complete", TWO_MINUTES, over).await?;
    let restart = status.restart.context("it is complete")?;
    assert_eq!(
        (restart.total, restart.done, restart.failed),
        (PODS, PODS, 0),
        "{restart:?}"
    );
    let fewest = witness.fewest_ready()?;
    assert!(fewest >= 3, "{fewest} ready: {}", witness.story());
    let wanted: BTreeMap<_, _> = before
        .iter()
        .map(|(pod, (uid, restarts))| (pod.clone(), (uid.clone(), restarts + 1)))
        .collect();
    assert_eq!(stand(&set.pods().await?), wanted, "the same pods, each once");
    // A pod that comes later is none of the run's, and another number of pods is no new value.
    set.patch(json!({"spec": {"replicas": PODS + 1},
        "metadata": {"annotations": {"apps.kruise.io/restart-max-unavailable": "2"}}}))
        .await?;
    set.settled(PODS + 1, TWO_MINUTES).await?;
    let mut after = stand(&set.pods().await?);
    after.retain(|pod, _| wanted.contains_key(pod));
    assert_eq!(after, wanted, "nothing is restarted twice");
    product.leave().await
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_the_name_of_the_annotation() -> Result<()> {
    let product = Product::attach("refused").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 1})).await?;
    set.settled(1, TWO_MINUTES).await?;
    for (name, value) in [
        ("restart", "a".repeat(64)),
        ("restart-max-unavailable", "0".to_owned()),
        ("restart-containers", "main,,other".to_owned()),
        ("restart-ordered", "yes".to_owned()),
    ] {
        let key = format!("apps.kruise.io/{name}");
        let mut annotations = serde_json::Map::new();
        annotations.insert(key.clone(), value.into());
        let patch = json!({"metadata": {"annotations": annotations}});
        let refused = set.patch(patch).await.err().context("it is refused")?;
        assert!(format!("{refused:#}").contains(&key), "{refused:#}");
    }
    product.leave().await
}
