//! A job that is deleted stops: nothing is fetched any more, and nothing is left behind on the nodes.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

#[tokio::test]
async fn deleting_the_job_cancels_running_pulls() -> Result<()> {
    let product = Product::attach("cancel").await?;
    product.push_new_image(2, 32 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(1 << 20);
    let image = product.new_image_at(&front.host());
    let job = Job::create(&product, "big", &image, json!({"parallelism": 3})).await?;
    wait_for("pulls on three nodes", Duration::from_secs(30), async || {
        let open = front
            .log()
            .iter()
            .filter(|access| access.is_blob() && access.ended.is_none())
            .count();
        if open >= 3 {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{open} downloads"))
        }
    })
    .await?;
    job.delete().await?;
    job.gone(Duration::from_secs(10)).await?;
    wait_for("all downloads to end", Duration::from_secs(10), async || {
        let open = front.log().iter().filter(|access| access.ended.is_none()).count();
        if open == 0 {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{open} downloads"))
        }
    })
    .await?;
    for node in product.cluster.nodes() {
        wait_for(
            &format!("{node} to forget the bytes"),
            Duration::from_secs(20),
            async || {
                let active = product
                    .cluster
                    .node_exec(&node, &["ctr", "-n", "k8s.io", "leases", "ls"])?;
                if active.contains("kruise") {
                    not_yet(active)
                } else {
                    Ok(Seen::Done(()))
                }
            },
        )
        .await?;
    }
    product.leave().await
}
