//! What users get wrong is refused with a message that names the field and the accepted values.

use anyhow::Result;
use kruise_tests::product::{Job, Product};
use serde_json::{Value, json};

async fn refused(product: &Product, image: &str, spec: Value, wanted: &str) {
    match Job::create(product, "refused", image, spec.clone()).await {
        Ok(_) => panic!("{image} {spec} was accepted"),
        Err(error) => {
            let text = format!("{error:#}");
            assert!(text.contains(wanted), "{image} {spec}: {text}");
        }
    }
}

#[tokio::test]
async fn the_crds_own_rules_refuse_and_explain() -> Result<()> {
    let product = Product::attach("bad-input").await?;
    for image in [
        "",
        "Upper",
        "nginx:",
        "nginx latest",
        "a//b",
        "nginx@sha256:abc",
        "http://nginx",
    ] {
        refused(&product, image, json!({}), "not a valid image reference").await;
    }
    refused(
        &product,
        "nginx",
        json!({"parallelism": "10%"}),
        "percentages are not accepted",
    )
    .await;
    refused(
        &product,
        "nginx",
        json!({"parallelism": -1}),
        "whole number from 0",
    )
    .await;
    refused(
        &product,
        "nginx",
        json!({"completionPolicy": {"type": "Sometimes"}}),
        "Always and Never",
    )
    .await;
    let both = json!({"selector": {"names": ["a"]}, "podSelector": {"matchLabels": {"a": "b"}}});
    refused(
        &product,
        "nginx",
        both,
        "selector and podSelector exclude each other",
    )
    .await;
    let mixed = json!({"selector": {"names": ["a"], "matchLabels": {"a": "b"}}});
    refused(&product, "nginx", mixed, "selector.names excludes").await;
    let never = json!({"completionPolicy": {"type": "Never", "ttlSecondsAfterFinished": 1}});
    refused(&product, "nginx", never, "belong to Always").await;
    let short = json!({"completionPolicy": {"type": "Always", "activeDeadlineSeconds": 599}});
    refused(
        &product,
        "nginx",
        short,
        "activeDeadlineSeconds must not be less than",
    )
    .await;
    product.leave().await
}

#[tokio::test]
async fn what_is_left_out_is_filled_in() -> Result<()> {
    let product = Product::attach("bad-input").await?;
    let spec = json!({"selector": {"names": []}});
    let job = Job::create(&product, "defaults", "nginx", spec)
        .await?
        .get()
        .await?;
    let spec = serde_json::to_value(&job.spec)?;
    assert_eq!(spec["completionPolicy"], json!({"type": "Always"}));
    assert_eq!(
        spec["pullPolicy"],
        json!({"timeoutSeconds": 600, "backoffLimit": 3})
    );
    assert_eq!(spec["imagePullPolicy"], "IfNotPresent");
    product.leave().await
}
