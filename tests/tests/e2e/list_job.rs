//! Several images by one list.

use std::time::Duration;

use anyhow::Result;
use kruise_api::image_list_pull_job::ImageListPullJob;
use kruise_api::image_pull_job::ImagePullJob;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::Product;
use kruise_tests::registry::ImageSpec;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const A_MINUTE: Duration = Duration::from_secs(60);

async fn push(product: &Product, name: &str) -> Result<String> {
    let repository = format!("lists/{name}");
    let spec = ImageSpec::random(&repository, "1", 1, 64 << 10);
    product.cluster.registry().push(&spec).await?;
    Ok(format!("{REGISTRY}/{repository}:1"))
}

fn lists(product: &Product) -> Api<ImageListPullJob> {
    Api::namespaced(product.client.clone(), &product.namespace)
}

async fn make(product: &Product, name: &str, spec: &Value) -> Result<()> {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImageListPullJob", "metadata": {"name": name}, "spec": spec,
    });
    let list = serde_json::from_value(object)?;
    lists(product).create(&PostParams::default(), &list).await?;
    Ok(())
}

async fn children(product: &Product, name: &str) -> Result<Vec<ImagePullJob>> {
    let jobs: Api<ImagePullJob> = Api::namespaced(product.client.clone(), &product.namespace);
    let all = jobs.list(&ListParams::default()).await?;
    let of_list = |job: &ImagePullJob| {
        let owners = job.metadata.owner_references.iter().flatten();
        owners
            .into_iter()
            .any(|owner| owner.name == name && owner.controller == Some(true))
    };
    Ok(all.items.into_iter().filter(of_list).collect())
}

#[tokio::test]
async fn a_list_pulls_each_image_and_kubectl_waits_for_it() -> Result<()> {
    let product = Product::attach("lists").await?;
    let (first, second) = (push(&product, "first").await?, push(&product, "second").await?);
    let missing = format!("{REGISTRY}/lists/nothing:1");
    let images = json!([first, second, missing]);
    make(&product, "three", &json!({"images": images, "parallelism": 3})).await?;
    let namespace = product.namespace.as_str();
    product.cluster.kubectl(&[
        "wait",
        "--for=condition=Complete",
        "--timeout=60s",
        "-n",
        namespace,
        "imagelistpulljob/three",
    ])?;
    let jobs = children(&product, "three").await?;
    assert_eq!(jobs.len(), 3);
    for job in &jobs {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        assert!(name.starts_with("three-"), "{name}");
        let labels = job.metadata.labels.clone().unwrap_or_default();
        assert!(labels.contains_key("controller-revision-hash"));
    }
    let status = lists(&product).get("three").await?.status.unwrap_or_default();
    assert_eq!((status.desired, status.completed, status.succeeded), (3, 3, 2));
    assert_eq!(status.failed_image_statuses.len(), 1);
    assert_eq!(status.failed_image_statuses[0].name, missing);
    for version in ["v1alpha1", "v1beta1"] {
        let kind = format!("imagelistpulljobs.{version}.apps.kruise.io");
        let shown = product.cluster.kubectl(&["get", &kind, "-n", namespace])?;
        let heads: Vec<_> = shown
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(heads, ["NAME", "TOTAL", "SUCCEEDED", "COMPLETED", "AGE"]);
        let row: Vec<_> = shown
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(row[..4], ["three", "3", "2", "3"]);
    }
    product.leave().await
}

#[tokio::test]
async fn an_edit_of_a_list_reaches_its_jobs() -> Result<()> {
    let product = Product::attach("lists").await?;
    let (first, second) = (push(&product, "kept").await?, push(&product, "new").await?);
    let gone = push(&product, "gone").await?;
    make(
        &product,
        "edited",
        &json!({"images": [first, gone], "parallelism": 0}),
    )
    .await?;
    let images = async || -> Result<Vec<String>> {
        let jobs = children(&product, "edited").await?;
        let mut images: Vec<_> = jobs.into_iter().map(|job| job.spec.image).collect();
        images.sort();
        Ok(images)
    };
    wait_for("two jobs", A_MINUTE, async || match images().await? {
        images if images.len() == 2 => Ok(Seen::Done(())),
        images => not_yet(images.join(" ")),
    })
    .await?;
    let before = children(&product, "edited").await?;
    let edit = json!({"spec": {"images": [first, second], "parallelism": 2}});
    lists(&product)
        .patch("edited", &PatchParams::default(), &Patch::Merge(edit))
        .await?;
    product.cluster.kubectl(&[
        "wait",
        "--for=condition=Complete",
        "--timeout=60s",
        "-n",
        &product.namespace,
        "imagelistpulljob/edited",
    ])?;
    assert_eq!(images().await?, [first.clone(), second]);
    let uid_of = |jobs: &[ImagePullJob]| {
        let kept = jobs.iter().find(|job| job.spec.image == first);
        kept.and_then(|job| job.metadata.uid.clone())
    };
    assert_eq!(
        uid_of(&before),
        uid_of(&children(&product, "edited").await?),
        "it was changed in place"
    );
    product.leave().await
}

#[tokio::test]
async fn what_a_list_must_not_say_is_refused() -> Result<()> {
    let product = Product::attach("lists").await?;
    for (spec, wanted) in [
        (json!({"images": []}), "at least 1"),
        (json!({"images": ["a:1", "a:1"]}), "Duplicate"),
        (json!({"images": ["Upper/Case"]}), "not a valid image reference"),
        (json!({"images": ["a:1"], "parallelism": "10%"}), "percentages"),
        (
            json!({"images": ["a:1"], "selector": {"names": ["n"]}, "podSelector": {}}),
            "exclude each other",
        ),
    ] {
        let error = make(&product, "bad", &spec)
            .await
            .expect_err("refused")
            .to_string();
        assert!(error.contains(wanted), "{spec}: {error}");
    }
    product.leave().await
}
