//! What a job costs the API server, and what an agent costs its node.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::cluster::TEST_AGENT;
use kruise_tests::process::Process;
use kruise_tests::product::{Job, Product, container_pid};
use kruise_tests::registry::ImageSpec;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

#[tokio::test]
async fn a_job_on_three_nodes_costs_ten_writes_and_three_events_at_most_in_its_whole_life() -> Result<()> {
    let product = Product::attach("budget").await?;
    product
        .cluster
        .registry()
        .push(&ImageSpec::random("budget/image", "1", 2, 1 << 20))
        .await?;
    let began = Mark::now(&product.cluster)?;
    let spec = json!({"completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 2}});
    let job = Job::create(&product, "cheap", &format!("{REGISTRY}/budget/image:1"), spec).await?;
    job.complete(Duration::from_secs(60)).await?;
    job.gone(Duration::from_secs(30)).await?;
    let cost = wait_for("the deletion in the log", Duration::from_secs(10), async || {
        let mut counters = Counters::since(&product.cluster, began)?;
        // Other tests run beside this one.
        counters
            .requests
            .retain(|request| request.namespace == product.namespace);
        let cost = counters.api_writes("kruise-");
        if cost.ttl_deletes > 0 {
            Ok(Seen::Done(cost))
        } else {
            not_yet(format!("{cost:?}"))
        }
    })
    .await?;
    println!("a job on 3 nodes: {cost:?}");
    assert!(
        cost.writes > 0 && cost.writes + cost.ttl_deletes <= 10,
        "{cost:?}"
    );
    assert!(cost.events <= 3, "{cost:?}");
    product.leave().await
}

#[tokio::test]
async fn agents_never_speak_to_the_api_server_and_are_small() -> Result<()> {
    let product = Product::attach("budget").await?;
    let all = Counters::since(&product.cluster, Mark::START)?;
    // Tests that try what an agent's token opens are no agents.
    let by_agents = |request: &kruise_tests::audit::Request| {
        let by_account = request.user.contains("kruise-daemon") && !request.agent.starts_with(TEST_AGENT);
        by_account || request.agent.starts_with("kruise-daemon")
    };
    assert_eq!(all.count(by_agents), 0, "an agent spoke to the API server");
    for node in product.cluster.nodes() {
        let pod = product.daemon_pod(&node).await?.metadata.name.unwrap_or_default();
        let pss = Process::of(container_pid(&product, &node, &pod, "daemon")?).map(|process| process.pss());
        let pss = pss.transpose()?.unwrap_or(u64::MAX);
        println!("{node}: an agent of {:.1} MB", pss as f64 / 1e6);
        assert!(pss <= 12_000_000, "{pss} bytes");
    }
    product.leave().await
}
