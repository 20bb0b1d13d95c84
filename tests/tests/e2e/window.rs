//! `parallelism` holds at every instant. Judged by the registry's access log and the runtimes' events, never by what the product says.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::Front;
use serde_json::json;

use crate::judge;

async fn holds(parallelism: usize) -> Result<()> {
    let product = Product::attach("window").await?;
    let pushed = product.push_new_image(3, 4 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(6 << 20);
    let image = product.new_image_at(&front.host());
    let job = Job::create(&product, "window", &image, json!({"parallelism": parallelism})).await?;
    let status = job.complete(Duration::from_secs(90)).await?;
    assert_eq!(status.succeeded, 3, "{:?}", status.failures);
    let log = front.log();
    assert_eq!(judge::most_at_once(&log), parallelism, "{}", judge::told(&log));
    for node in product.cluster.nodes() {
        assert_eq!(
            judge::bytes_of(&log, &node),
            pushed.size(),
            "{node} fetched each byte once"
        );
    }
    product.leave().await
}

#[tokio::test]
async fn one_at_a_time() -> Result<()> {
    holds(1).await
}

#[tokio::test]
async fn two_at_a_time() -> Result<()> {
    holds(2).await
}
