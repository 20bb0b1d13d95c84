//! A leader that is stopped, kindly or by force, and one that was thought dead and wakes up.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kruise_tests::audit::{Counters, Mark, Request};
use kruise_tests::process::State;
use kruise_tests::product::{Job, Leader, Product, manager_process};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use rustix::process::Signal;
use serde_json::json;

use crate::{judge, managers, rounds};

const NODES: usize = 3;
/// What was promised.
const HANDED_OVER: Duration = Duration::from_secs(3);
const TAKEN_OVER: Duration = Duration::from_secs(20);
/// How long a leader that woke up is watched.
const WATCHED: Duration = Duration::from_secs(3);

/// A job over all nodes, one at a time, by a registry of its own whose log tells the truth about it.
struct Work {
    job: Job,
    front: Front,
    bytes: u64,
}

impl Work {
    async fn begin(product: &Product, name: &str) -> Result<Self> {
        let pushed = product.push_new_image(1, 1 << 20).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(512 << 10);
        let image = product.new_image_at(&front.host());
        let job = Job::create(product, name, &image, json!({"parallelism": 1})).await?;
        Ok(Self {
            job,
            front,
            bytes: pushed.size(),
        })
    }

    /// Waits until the first node has fetched something.
    async fn is_under_way(&self, product: &Product) -> Result<()> {
        wait_for("the first pull", Duration::from_secs(30), async || {
            let log = self.front.log();
            let nodes = product.cluster.nodes();
            let bytes: u64 = nodes.iter().map(|node| judge::bytes_of(&log, node)).sum();
            if bytes > 64 << 10 {
                Ok(Seen::Done(()))
            } else {
                not_yet(format!("{bytes} bytes"))
            }
        })
        .await
    }

    /// Completes, one node at a time, with every image fetched once.
    async fn is_done_right(&self, product: &Product) -> Result<()> {
        let status = self.job.complete(Duration::from_secs(120)).await?;
        let log = self.front.log();
        anyhow::ensure!(
            (status.succeeded, status.failed) == (3, 0),
            "{:?}",
            status.failures
        );
        anyhow::ensure!(judge::most_at_once(&log) == 1, "{}", judge::told(&log));
        for node in product.cluster.nodes() {
            let fetched = judge::bytes_of(&log, &node);
            anyhow::ensure!(
                fetched < self.bytes * 3 / 2,
                "{node} fetched {fetched} of {}",
                self.bytes
            );
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_leader_that_is_told_to_stop_hands_over_within_three_seconds() -> Result<()> {
    for _ in 0..rounds(1, 20) {
        let product = Product::attach("leader-stopped").await?;
        let old = managers::fresh(&product).await?;
        let work = Work::begin(&product, "handed-over").await?;
        work.is_under_way(&product).await?;
        let began = Instant::now();
        manager_process(&product, &old.pod).await?.signal(Signal::TERM)?;
        managers::successor(&product, &old, HANDED_OVER * 3).await?;
        let took = began.elapsed();
        println!("handed over in {took:.2?}");
        anyhow::ensure!(took <= HANDED_OVER, "took {took:?}");
        work.is_done_right(&product).await?;
        product.leave().await?;
    }
    Ok(())
}

/// The old leader sleeps until another one leads, with its streams open, work in its queues and news on its sockets. Then it wakes up.
#[tokio::test]
async fn a_leader_that_slept_past_its_lease_can_do_nothing() -> Result<()> {
    for round in 0..rounds(3, 20) {
        let product = Product::attach("leader-paused").await?;
        let old = managers::fresh(&product).await?;
        let old_pod = managers::pod_of(&product, &old).await?;
        let address = old_pod
            .status
            .and_then(|status| status.pod_ip)
            .context("the leader has no address")?;
        let process = manager_process(&product, &old.pod).await?;
        let before = Work::begin(&product, "before").await?;
        before.is_under_way(&product).await?;
        let began = Instant::now();
        process.signal(Signal::STOP)?;
        // Something that it would act upon when it wakes up.
        let product_of_later = Product::attach("leader-paused-later").await?;
        let later = Work::begin(&product_of_later, "later").await?;
        let new = managers::successor(&product, &old, TAKEN_OVER + Duration::from_secs(10)).await?;
        let took = began.elapsed();
        let mark = Mark::now(&product.cluster)?;
        process.signal(Signal::CONT)?;
        let woken = Instant::now();
        wait_for("the old leader to end", WATCHED * 3, async || {
            if process.state() == State::Gone {
                Ok(Seen::Done(()))
            } else {
                not_yet(format!("{:?}", process.state()))
            }
        })
        .await?;
        let ended = woken.elapsed();
        tokio::time::sleep(WATCHED).await;
        nothing_was_done(&product, &new, mark, &address).await?;
        before.is_done_right(&product).await?;
        later.is_done_right(&product_of_later).await?;
        println!("round {round}: another led after {took:.1?}; the old one woke up and ended in {ended:.1?}");
        anyhow::ensure!(took <= TAKEN_OVER, "taken over only after {took:?}");
        product.leave().await?;
        product_of_later.leave().await?;
    }
    Ok(())
}

/// No write from the old leader's address since it woke up, nor an order that an agent took: all of them follow the new one.
async fn nothing_was_done(product: &Product, new: &Leader, mark: Mark, address: &str) -> Result<()> {
    let is_act = |request: &&Request| {
        request.source == address
            && !request.is_read()
            && request.code < 300
            && !request.resource.ends_with("reviews")
    };
    let counters = Counters::since(&product.cluster, mark)?;
    let acts: Vec<&Request> = counters.requests.iter().filter(is_act).collect();
    anyhow::ensure!(acts.is_empty(), "the old leader acted: {acts:?}");
    anyhow::ensure!(
        counters.count(|request| request.source == address) > 0,
        "the audit log knows nothing of {address}"
    );
    let ask = [
        "grpcurl",
        "-plaintext",
        "-unix",
        "/run/kruise/agent.sock",
        "kruise.node.v1.NodeService/GetAgent",
    ];
    let mut following = 0;
    for node in product.cluster.nodes() {
        wait_for(
            "an agent to follow the new leader",
            Duration::from_secs(40),
            async || {
                let agent: serde_json::Value =
                    serde_json::from_str(&product.cluster.node_exec(&node, &ask)?)?;
                if agent["epoch"].as_str() == Some(new.epoch.to_string().as_str()) {
                    Ok(Seen::Done(()))
                } else {
                    not_yet(format!("{node}: {}", agent["epoch"]))
                }
            },
        )
        .await?;
        following += 1;
    }
    anyhow::ensure!(following == NODES, "{following} agents");
    Ok(())
}
