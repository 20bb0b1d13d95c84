//! Links that are not simply up or down: one direction of the stream is lost, or the link comes and goes.

use std::time::{Duration, Instant};

use anyhow::Result;
use kruise_tests::net::Direction;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::{Front, Pushed};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

use crate::managers::node_of_leader;
use crate::{judge, rounds};

/// How soon the truth must be shown once the link is good again.
const SHOWN: Duration = Duration::from_secs(10);
const RATE: u64 = 1 << 20;

/// Heals the nodes also when the test fails.
struct Cut<'a>(&'a Product, Vec<String>);

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        for node in &self.1 {
            self.0.cluster.heal_stream(node).expect("a stream can be healed");
            self.0.cluster.heal(node).expect("a node can be healed");
        }
    }
}

/// The leader's node, and the two others.
async fn parts(product: &Product) -> Result<(String, [String; 2])> {
    let leader = node_of_leader(product).await?;
    let mut others = product.cluster.nodes();
    others.retain(|node| *node != leader);
    let others = <[String; 2]>::try_from(others).map_err(|found| anyhow::anyhow!("{found:?}"))?;
    Ok((leader, others))
}

async fn fetched(front: &Front, nodes: &[String], bytes: u64, within: Duration) -> Result<()> {
    wait_for("nodes to fetch", within, async || {
        let log = front.log();
        if nodes.iter().all(|node| judge::bytes_of(&log, node) >= bytes) {
            Ok(Seen::Done(()))
        } else {
            not_yet(judge::told(&log))
        }
    })
    .await
}

fn once(front: &Front, nodes: &[String], pushed: &Pushed) -> Result<()> {
    let log = front.log();
    for node in nodes {
        let bytes = judge::bytes_of(&log, node);
        anyhow::ensure!(
            bytes < pushed.size() * 5 / 4,
            "{node} fetched {bytes} of {}",
            pushed.size()
        );
    }
    Ok(())
}

/// How long a job of three seconds takes that has nothing to do with any of this.
async fn undisturbed(node: &str) -> Result<Duration> {
    let product = Product::attach("undisturbed").await?;
    product.push_new_image(1, 3 * RATE).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(RATE);
    let image = product.new_image_at(&front.host());
    let began = Instant::now();
    let job = Job::create(&product, "job", &image, json!({"selector": {"names": [node]}})).await?;
    job.complete(Duration::from_secs(30)).await?;
    let took = began.elapsed();
    product.leave().await?;
    Ok(took)
}

/// One node's words do not reach the leader, and the leader's words do not reach another one. Both go on with their pull and end it once, the third does
/// not notice, and the truth is shown soon after.
#[tokio::test]
async fn one_direction_alone_fails_nothing_and_doubles_nothing() -> Result<()> {
    for round in 0..rounds(1, 20) {
        let product = Product::attach("one-way").await?;
        let pushed = product.push_new_image(1, 8 << 20).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(RATE);
        let image = product.new_image_at(&front.host());
        let (leader, victims) = parts(&product).await?;
        let alone = undisturbed(&leader).await?;
        let spec = json!({"parallelism": 2, "selector": {"names": victims}});
        let job = Job::create(&product, "one-way", &image, spec).await?;
        fetched(&front, &victims, RATE, Duration::from_secs(30)).await?;
        let cut = Cut(&product, victims.to_vec());
        product.cluster.cut_stream(&victims[0], Direction::ToServer)?;
        product.cluster.cut_stream(&victims[1], Direction::ToClient)?;
        let began = Instant::now();
        let took = undisturbed(&leader).await?;
        // One part in twenty, and what two runs differ by on a busy machine.
        let limit = alone + alone / 20 + Duration::from_secs(1);
        fetched(&front, &victims, pushed.size(), Duration::from_secs(20)).await?;
        // Some rounds of soak outlast what a stream is kept for without a sign of life.
        let long = Duration::from_secs([16, 22, 34][round % 3]);
        tokio::time::sleep(long.saturating_sub(began.elapsed())).await;
        let status = job.status().await?;
        anyhow::ensure!(status.failed == 0, "failed by silence: {:?}", status.failures);
        drop(cut);
        let healed = Instant::now();
        let status = job.complete(Duration::from_secs(60)).await?;
        let shown = healed.elapsed();
        println!(
            "cut for {long:?}: the third node took {took:.1?}, before it {alone:.1?}; the truth was shown {shown:.1?} after healing"
        );
        anyhow::ensure!(
            (status.succeeded, status.failed) == (2, 0),
            "{:?}",
            status.failures
        );
        once(&front, &victims, &pushed)?;
        anyhow::ensure!(took <= limit, "the third node took {took:?}, limit {limit:?}");
        anyhow::ensure!(shown <= SHOWN, "{shown:?}");
        product.leave().await?;
    }
    Ok(())
}

/// A whole node comes and goes every second while it pulls.
#[tokio::test]
async fn a_link_that_flaps_loses_nothing() -> Result<()> {
    for _ in 0..rounds(1, 20) {
        let product = Product::attach("flapping").await?;
        let pushed = product.push_new_image(2, 4 << 20).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(RATE);
        let image = product.new_image_at(&front.host());
        let (leader, [victim, other]) = parts(&product).await?;
        let names = [victim.clone(), other, leader];
        let spec = json!({"parallelism": 3, "selector": {"names": names}});
        let job = Job::create(&product, "flapping", &image, spec).await?;
        fetched(&front, &names[..1], RATE, Duration::from_secs(30)).await?;
        let cut = Cut(&product, vec![victim.clone()]);
        for _ in 0..5 {
            product.cluster.cut(&victim)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
            product.cluster.heal(&victim)?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        drop(cut);
        let healed = Instant::now();
        let status = job.complete(Duration::from_secs(60)).await?;
        println!("done {:.1?} after the last flap", healed.elapsed());
        anyhow::ensure!(
            (status.succeeded, status.failed) == (3, 0),
            "{:?}",
            status.failures
        );
        once(&front, &names, &pushed)?;
        let left = Duration::from_secs(pushed.size() / RATE) + SHOWN;
        anyhow::ensure!(healed.elapsed() <= left, "{:?}", healed.elapsed());
        product.leave().await?;
    }
    Ok(())
}
