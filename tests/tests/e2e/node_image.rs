//! A NodeImage that somebody writes by hand.

use std::time::Duration;

use anyhow::{Context, Result};
use kruise_api::node_image::{NodeImage, TagStatus};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::Product;
use kruise_tests::registry::ImageSpec;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

const A_MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_tag_written_by_hand_is_pulled_and_answered_under_its_version() -> Result<()> {
    let product = Product::attach("nodeimages").await?;
    let pushed = product
        .cluster
        .registry()
        .push(&ImageSpec::random("nodeimages/app", "1", 1, 64 << 10))
        .await?;
    let node = product.cluster.nodes().pop().context("a cluster has nodes")?;
    let name = format!("{REGISTRY}/nodeimages/app");
    let images: Api<NodeImage> = Api::all(product.client.clone());
    images.delete(&node, &DeleteParams::default()).await.ok();
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "metadata": {"name": node},
        "spec": {"images": {&name: {"tags": [
            {"tag": "1", "pullPolicy": {"ttlSecondsAfterFinished": 600}},
            {"tag": "missing", "pullPolicy": {"ttlSecondsAfterFinished": 600, "backoffLimit": 0}},
        ]}}},
    });
    let image = serde_json::from_value(object)?;
    images.create(&PostParams::default(), &image).await?;
    let tag = async |tag: &str, version: i64| -> Result<TagStatus> {
        wait_for(
            &format!("an end of {tag}, version {version}"),
            A_MINUTE,
            async || {
                let status = images.get(&node).await?.status.unwrap_or_default();
                let tags = status.image_statuses.get(&name).cloned().unwrap_or_default().tags;
                match tags
                    .iter()
                    .find(|told| told.tag == tag && told.version == version && told.is_final())
                {
                    Some(told) => Ok(Seen::Done(told.clone())),
                    None => not_yet(serde_json::to_string(&tags)?),
                }
            },
        )
        .await
    };
    let told = tag("1", 0).await?;
    assert_eq!((told.phase.as_str(), told.progress), ("Succeeded", 100));
    let seen = product
        .cluster
        .crictl(&node, &["inspecti", "-o", "json", &format!("{name}:1")])?;
    assert!(seen.contains(&pushed.digest));
    let told = tag("missing", 0).await?;
    assert!(
        told.phase == "Failed" && told.message.starts_with("NotFound"),
        "{told:?}"
    );
    let shown = product.cluster.kubectl(&["get", "nodeimages", &node])?;
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["NAME", "DESIRED", "PULLING", "SUCCEED", "FAILED", "AGE"]
    );
    assert_eq!(rows[1][..5], [node.as_str(), "2", "0", "1", "1"]);
    let again = json!({"spec": {"images": {&name: {"tags": [{"tag": "1", "version": 1}]}}}});
    images
        .patch(&node, &PatchParams::default(), &Patch::Merge(again))
        .await?;
    assert_eq!(tag("1", 1).await?.phase, "Succeeded");
    images.delete(&node, &DeleteParams::default()).await?;
    product.leave().await
}
