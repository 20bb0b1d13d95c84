//! A container runtime that goes away during pulls, in three ways: the pulls end well, the agent is soon back, and nothing of theirs stays in the runtime.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::{Front, ImageSpec};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::{Value, json};

use crate::{judge, rounds};

const NODE: &str = "node3";
const PULLS: usize = 5;
const LAYER: u64 = 2 << 20;
/// How soon the agent must work again once the socket takes connections. How long the runtime takes until then is its own affair.
const BACK: Duration = Duration::from_secs(5);

/// How the runtime goes away.
#[derive(Clone, Copy, Debug)]
enum Away {
    /// Told to end, and started again ten seconds later.
    Stopped,
    /// Killed, and started again at once.
    Killed,
    /// Frozen: its socket takes calls and answers none.
    Frozen,
}

#[tokio::test]
async fn a_runtime_that_goes_away_in_mid_pull_loses_nothing() -> Result<()> {
    let ways = [Away::Killed, Away::Stopped, Away::Frozen];
    let count = rounds(ways.len(), 50);
    let mut longest = Duration::ZERO;
    for round in 0..count {
        longest = longest.max(one(ways[round % ways.len()]).await?);
    }
    println!("{count} runs; the agent was back after {longest:.1?} at most");
    Ok(())
}

async fn one(away: Away) -> Result<Duration> {
    let product = Product::attach("runtime-restart").await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(512 << 10);
    let pulls = (0..PULLS).map(async |number| -> Result<Job> {
        let repository = format!("{}/app-{number}", product.namespace);
        let spec = ImageSpec::random(&repository, "1", 2, LAYER);
        product.cluster.registry().push(&spec).await?;
        let image = format!("{}/{repository}:1", front.host());
        Job::create(
            &product,
            &format!("app-{number}"),
            &image,
            json!({"selector": {"names": [NODE]}}),
        )
        .await
    });
    let jobs = try_join_all(pulls).await?;
    wait_for("some bytes", Duration::from_secs(30), async || {
        let bytes = judge::bytes_of(&front.log(), NODE);
        if bytes > LAYER {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{bytes} bytes"))
        }
    })
    .await?;
    leave(&product, away).await?;
    let socket = product.cluster.containerd_socket(NODE);
    wait_for(
        "the runtime to listen",
        Duration::from_secs(30),
        async || match UnixStream::connect(&socket) {
            Ok(_) => Ok(Seen::Done(())),
            Err(error) => not_yet(error),
        },
    )
    .await?;
    let began = Instant::now();
    wait_for("the agent to work again", Duration::from_secs(60), async || {
        let agent: Value = serde_json::from_str(&ask(&product, "GetAgent")?)?;
        if agent["runtime"].is_object() && agent["socketsTried"].is_null() {
            Ok(Seen::Done(()))
        } else {
            not_yet(agent)
        }
    })
    .await?;
    let back = began.elapsed();
    for job in &jobs {
        let status = job.complete(Duration::from_secs(120)).await?;
        anyhow::ensure!(
            (status.succeeded, status.failed) == (1, 0),
            "{away:?}, {}: {:?}",
            job.name,
            status.failures
        );
    }
    nothing_is_left(&product).await?;
    println!("{away:?}: back after {back:.1?}");
    anyhow::ensure!(back <= BACK, "{away:?}: back after {back:?}");
    product.leave().await?;
    Ok(back)
}

/// Lets it be away for a while, and back.
async fn leave(product: &Product, away: Away) -> Result<()> {
    let mut runtime = product.cluster.component(&format!("containerd-{NODE}"))?;
    match away {
        Away::Killed => runtime.kill9()?,
        Away::Stopped => runtime.stop()?,
        Away::Frozen => runtime.pause()?,
    }
    let long = if matches!(away, Away::Killed) { 0 } else { 10 };
    tokio::time::sleep(Duration::from_secs(long)).await;
    match away {
        Away::Frozen => runtime.resume(),
        Away::Killed | Away::Stopped => runtime.start(),
    }
}

fn ask(product: &Product, method: &str) -> Result<String> {
    let method = format!("kruise.node.v1.NodeService/{method}");
    let words = [
        "grpcurl",
        "-plaintext",
        "-unix",
        "/run/kruise/agent.sock",
        method.as_str(),
    ];
    product.cluster.node_exec(NODE, &words)
}

/// Neither a lease of a task nor a download that nobody goes on with.
async fn nothing_is_left(product: &Product) -> Result<()> {
    wait_for("the runtime to be tidy", Duration::from_secs(30), async || {
        let leases = product.cluster.node_exec(NODE, &["ctr", "leases", "ls"])?;
        let ours = leases
            .lines()
            .filter(|lease| lease.contains("kruise.io/lease-of"))
            .count();
        let active = product.cluster.node_exec(NODE, &["ctr", "content", "active"])?;
        let ingests = active
            .lines()
            .skip(1)
            .filter(|line| !line.trim().is_empty())
            .count();
        if (ours, ingests) == (0, 0) {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{ours} leases, {ingests} ingests: {leases} {active}"))
        }
    })
    .await
}
