//! An agent that is killed in the middle of a pull: the job completes, and the pull goes on where it stopped.

use std::time::{Duration, Instant};

use anyhow::Result;
use kruise_tests::product::{Job, Product, kill_daemon};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

use crate::{judge, rounds};

const NODE: &str = "node2";
const LAYERS: u64 = 6;
const LAYER: u64 = 4 << 20;
const RATE: u64 = 1 << 20;
/// For the kubelet to start another agent, and for that to attach, beside the time of the pull itself.
const RESTART: Duration = Duration::from_secs(30);

/// Points of the kill are spread from the moment at which the registry is first asked to that at which all bytes have come and are unpacked.
#[tokio::test]
async fn a_killed_agent_goes_on_where_it_stopped() -> Result<()> {
    let points: Vec<u64> = match rounds(1, 20) {
        1 => vec![10],
        count => (0..u64::try_from(count)?).map(|point| point * 20 / 19).collect(),
    };
    let count = points.len();
    for point in points {
        killed_at(point).await?;
    }
    println!("{count} kills, {count} pulls that went on");
    Ok(())
}

/// Kills it when so many twentieths of the bytes have come.
async fn killed_at(twentieths: u64) -> Result<()> {
    let product = Product::attach("agent-killed").await?;
    let pushed = product.push_new_image(LAYERS, LAYER).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(RATE);
    let image = product.new_image_at(&front.host());
    let spec = json!({"selector": {"names": [NODE]}, "pullPolicy": {"backoffLimit": 0}});
    let began = Instant::now();
    let job = Job::create(&product, "resume", &image, spec).await?;
    let wanted = pushed.size() * twentieths / 20;
    wait_for("the bytes to come", Duration::from_secs(60), async || {
        let log = front.log();
        let bytes = judge::bytes_of(&log, NODE);
        if bytes >= wanted && !log.is_empty() {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{bytes} of {wanted}"))
        }
    })
    .await?;
    kill_daemon(&product, NODE).await?;
    let status = job.complete(Duration::from_secs(90)).await?;
    let took = began.elapsed();
    anyhow::ensure!(
        (status.succeeded, status.failed) == (1, 0),
        "killed at {twentieths}/20: {:?}",
        status.failures
    );
    let shown = product
        .cluster
        .crictl(NODE, &["inspecti", "-o", "json", &image])?;
    anyhow::ensure!(shown.contains(&pushed.digest), "another image: {shown}");
    let fetched = judge::bytes_of(&front.log(), NODE);
    // What was on its way at the moment of the kill comes again; what had arrived does not.
    let again = fetched.saturating_sub(pushed.size());
    println!("killed at {twentieths}/20: {took:.1?}, {again} bytes again");
    anyhow::ensure!(
        again <= LAYER,
        "fetched {fetched} of {}: {again} again",
        pushed.size()
    );
    // Three layers come at once.
    let alone = Duration::from_secs(pushed.size() / (3 * RATE));
    anyhow::ensure!(took <= alone + RESTART, "killed at {twentieths}/20: {took:?}");
    product.leave().await
}
