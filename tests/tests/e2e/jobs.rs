//! The main job: an image gets onto nodes.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::ImageSpec;
use serde_json::json;

const A_MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_image_is_on_every_node_and_the_runtime_says_so() -> Result<()> {
    let product = Product::attach("jobs").await?;
    let pushed = product
        .cluster
        .registry()
        .push(&ImageSpec::random("jobs/plain", "1", 3, 2 << 20))
        .await?;
    let image = format!("{REGISTRY}/jobs/plain:1");
    let job = Job::create(&product, "plain", &image, json!({"parallelism": 2})).await?;
    let status = job.complete(A_MINUTE).await?;
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (3, 3, 0, 0)
    );
    assert_eq!(status.message.as_deref(), Some("job has completed"));
    for node in product.cluster.nodes() {
        let seen = product
            .cluster
            .crictl(&node, &["inspecti", "-o", "json", &image])?;
        assert!(
            seen.contains(&pushed.digest),
            "{node} has not {}: {seen}",
            pushed.digest
        );
    }
    product.leave().await
}

#[tokio::test]
async fn both_versions_and_kubectl_wait_work() -> Result<()> {
    let product = Product::attach("jobs").await?;
    product
        .cluster
        .registry()
        .push(&ImageSpec::random("jobs/versions", "1", 1, 64 << 10))
        .await?;
    let manifest = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ImagePullJob",
        "metadata": {"name": "older", "namespace": product.namespace},
        "spec": {"image": format!("{REGISTRY}/jobs/versions:1"), "completionPolicy": {"type": "Always"}},
    });
    let file = tempfile::NamedTempFile::new()?;
    serde_json::to_writer(&file, &manifest)?;
    let path = file.path().display().to_string();
    product.cluster.kubectl(&["apply", "-f", &path])?;
    let namespace = product.namespace.as_str();
    let wait = [
        "wait",
        "--for=condition=Complete",
        "--timeout=60s",
        "-n",
        namespace,
        "imagepulljob/older",
    ];
    product.cluster.kubectl(&wait)?;
    let older =
        product
            .cluster
            .kubectl(&["get", "imagepulljobs.v1alpha1.apps.kruise.io", "-n", namespace])?;
    let columns: Vec<_> = older
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        columns,
        ["NAME", "TOTAL", "ACTIVE", "SUCCEED", "FAILED", "AGE", "MESSAGE"],
        "{older}"
    );
    assert!(older.contains("job has completed"), "{older}");
    let newer = product.cluster.kubectl(&["get", "ipj", "-n", namespace])?;
    let columns: Vec<_> = newer
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(
        columns,
        ["NAME", "TOTAL", "ACTIVE", "SUCCEED", "FAILED", "AGE"],
        "{newer}"
    );
    product.leave().await
}

#[tokio::test]
async fn a_tag_that_does_not_exist_fails_every_node_with_our_reason_and_the_runtimes_words() -> Result<()> {
    let product = Product::attach("jobs").await?;
    let image = format!("{REGISTRY}/jobs/nowhere:1");
    let job = Job::create(&product, "missing", &image, json!({"parallelism": 3})).await?;
    let status = job.complete(A_MINUTE).await?;
    assert_eq!((status.desired, status.failed), (3, 3));
    assert_eq!(status.failed_nodes, product.cluster.nodes());
    let failure = &status.failures[0];
    assert_eq!((failure.reason.as_str(), failure.count), ("NotFound", 3));
    assert!(failure.message.contains("not found"), "{failure:?}");
    let failed = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "Failed");
    assert_eq!(failed.map(|condition| condition.status.as_str()), Some("True"));
    product.leave().await
}

#[tokio::test]
async fn named_nodes_only() -> Result<()> {
    let product = Product::attach("jobs").await?;
    product
        .cluster
        .registry()
        .push(&ImageSpec::random("jobs/named", "1", 1, 64 << 10))
        .await?;
    let image = format!("{REGISTRY}/jobs/named:1");
    let spec = json!({"selector": {"names": ["node2", "node9"]}});
    let status = Job::create(&product, "named", &image, spec)
        .await?
        .complete(A_MINUTE)
        .await?;
    assert_eq!((status.desired, status.succeeded), (1, 1));
    let absent = product
        .cluster
        .node_output("node1", &["crictl", "inspecti", &image])?;
    assert!(!absent.status.success(), "node1 has it too");
    product.leave().await
}

#[tokio::test]
async fn a_digest_reference_is_pulled() -> Result<()> {
    let product = Product::attach("jobs").await?;
    let pushed = product
        .cluster
        .registry()
        .push(&ImageSpec::random("jobs/digest", "1", 1, 64 << 10))
        .await?;
    let image = format!("{REGISTRY}/jobs/digest@{}", pushed.digest);
    let status = Job::create(&product, "digest", &image, json!({"parallelism": 3}))
        .await?
        .complete(A_MINUTE)
        .await?;
    assert_eq!((status.succeeded, status.failed), (3, 0), "{:?}", status.failures);
    product.leave().await
}

#[tokio::test]
async fn a_second_job_for_a_present_image_fetches_nothing() -> Result<()> {
    let product = Product::attach("jobs").await?;
    product
        .cluster
        .registry()
        .push(&ImageSpec::random("jobs/present", "1", 1, 64 << 10))
        .await?;
    let image = format!("{REGISTRY}/jobs/present:1");
    let first = Job::create(&product, "first", &image, json!({"parallelism": 3})).await?;
    assert_eq!(first.complete(A_MINUTE).await?.succeeded, 3);
    // The registry forgets it: whoever asks for it again fails.
    let registry = product.cluster.registry();
    if let Some(digest) = registry.digest("jobs/present", "1").await? {
        registry.delete("jobs/present", &digest).await?;
    }
    let second = Job::create(&product, "second", &image, json!({"parallelism": 1})).await?;
    assert_eq!(second.complete(A_MINUTE).await?.succeeded, 3);
    let always = json!({"parallelism": 3, "imagePullPolicy": "Always", "pullPolicy": {"backoffLimit": 0}});
    let third = Job::create(&product, "third", &image, always).await?;
    assert_eq!(third.complete(A_MINUTE).await?.failed, 3);
    product.leave().await
}
