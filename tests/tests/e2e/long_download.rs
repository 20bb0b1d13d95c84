//! A download that takes longer than one attempt may.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::Front;
use serde_json::json;

use crate::judge;

/// Attempts of three seconds at a download of eight, without a retry: one that has grown is gone on with, and costs none.
#[tokio::test]
async fn a_download_longer_than_its_own_time_out_succeeds_and_fetches_nothing_twice() -> Result<()> {
    let product = Product::attach("long-download").await?;
    let pushed = product.push_new_image(2, 8 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(1 << 20);
    let image = product.new_image_at(&front.host());
    let spec =
        json!({"selector": {"names": ["node1"]}, "pullPolicy": {"timeoutSeconds": 3, "backoffLimit": 0}});
    let job = Job::create(&product, "long", &image, spec).await?;
    let status = job.complete(Duration::from_secs(90)).await?;
    assert_eq!((status.succeeded, status.failed), (1, 0), "{:?}", status.failures);
    let log = front.log();
    let begun = log
        .iter()
        .filter(|access| access.range.is_some() && access.is_blob())
        .count();
    assert!(begun > 0, "it never went on in the middle of a layer");
    let fetched = judge::bytes_of(&log, "node1");
    // What was on its way when an attempt ended may come again.
    assert!(
        fetched < pushed.size() * 5 / 4,
        "fetched {fetched} of {}",
        pushed.size()
    );
    product.leave().await
}
