//! A node that is cut off from the network.

use std::time::{Duration, Instant};

use anyhow::Result;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

use crate::judge;
use crate::managers::node_of_leader;

/// What the tests' installation tells agents; see `cargo xtask deploy`.
const CONTACT_LEASE: Duration = Duration::from_secs(30);
/// A quarter for clocks, and the time to begin a pull.
const MARGIN: Duration = Duration::from_secs(10);

/// Heals the node also when the test fails.
struct Cut<'a>(&'a Product, &'static str);

impl<'a> Cut<'a> {
    fn new(product: &'a Product, node: &'static str) -> Result<Self> {
        product.cluster.cut(node)?;
        Ok(Self(product, node))
    }
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.0.cluster.heal(self.1).expect("a node can be healed");
    }
}

/// A node whose agent and managers others do not depend on.
async fn node_without_leader(product: &Product) -> Result<&'static str> {
    Ok(if node_of_leader(product).await? == "node1" {
        "node2"
    } else {
        "node1"
    })
}

#[tokio::test]
async fn one_that_holds_a_slot_delays_the_others_by_the_contact_lease_at_most() -> Result<()> {
    let product = Product::attach("cut-off").await?;
    product.push_new_image(1, 8 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(1 << 20);
    let image = product.new_image_at(&front.host());
    let victim = node_without_leader(&product).await?;
    let other = if victim == "node3" { "node1" } else { "node3" };
    let spec = json!({"parallelism": 1, "selector": {"names": [victim, other]}});
    let job = Job::create(&product, "slot", &image, spec).await?;
    wait_for(
        "the first pull to be on its way",
        Duration::from_secs(30),
        async || {
            let bytes = judge::bytes_of(&front.log(), victim);
            if bytes > 1 << 20 {
                Ok(Seen::Done(()))
            } else {
                not_yet(format!("{bytes} bytes"))
            }
        },
    )
    .await?;
    let cut = Cut::new(&product, victim)?;
    let began = Instant::now();
    let limit = CONTACT_LEASE + MARGIN;
    wait_for(
        "the other node to get its turn",
        limit + Duration::from_secs(5),
        async || {
            let bytes = judge::bytes_of(&front.log(), other);
            if bytes > 0 {
                Ok(Seen::Done(()))
            } else {
                not_yet("nothing fetched")
            }
        },
    )
    .await?;
    let delay = began.elapsed();
    println!("the other node began {delay:?} after the cut");
    assert!(delay <= limit, "{delay:?}");
    job.until("the other node to succeed", Duration::from_secs(60), |status| {
        status.succeeded == 1 || status.active == 0
    })
    .await?;
    drop(cut);
    let status = job.complete(Duration::from_secs(120)).await?;
    assert_eq!((status.succeeded, status.failed), (2, 0), "{:?}", status.failures);
    product.leave().await
}

#[tokio::test]
async fn one_that_holds_no_slot_delays_nobody() -> Result<()> {
    let product = Product::attach("cut-off").await?;
    product.push_new_image(1, 1 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    let victim = node_without_leader(&product).await?;
    let others: Vec<_> = product
        .cluster
        .nodes()
        .into_iter()
        .filter(|node| node != victim)
        .collect();
    let cut = Cut::new(&product, victim)?;
    // The leader has noticed: a stream that is silent for longer than a few heartbeats counts as gone.
    wait_for("the node to be not ready", Duration::from_secs(90), async || {
        let line = product
            .cluster
            .kubectl(&["get", "node", victim, "--no-headers"])?;
        if line.contains("NotReady") {
            Ok(Seen::Done(()))
        } else {
            not_yet(line)
        }
    })
    .await?;
    let image = product.new_image_at(&front.host());
    let names = [&[victim.to_owned()][..], &others].concat();
    let began = Instant::now();
    let job = Job::create(
        &product,
        "free",
        &image,
        json!({"parallelism": 1, "selector": {"names": names}}),
    )
    .await?;
    wait_for(
        "the others to have the image",
        Duration::from_secs(20),
        async || {
            let log = front.log();
            let done = others
                .iter()
                .filter(|node| judge::bytes_of(&log, node) >= 1 << 20)
                .count();
            if done == others.len() {
                Ok(Seen::Done(()))
            } else {
                not_yet(judge::told(&log))
            }
        },
    )
    .await?;
    println!(
        "the others were done {:?} after the job was made",
        began.elapsed()
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(cut);
    let status = job.complete(Duration::from_secs(120)).await?;
    assert_eq!(status.succeeded, 3, "{:?}", status.failures);
    product.leave().await
}
