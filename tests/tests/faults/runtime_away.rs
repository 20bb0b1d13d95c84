//! A container runtime that is away: the agent says which sockets it tried, keeps trying, and is ready again soon after.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::ImageSpec;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::{Value, json};

#[tokio::test]
async fn the_agent_lists_what_it_tried_and_comes_back() -> Result<()> {
    let product = Product::attach("runtime-away").await?;
    product
        .cluster
        .registry()
        .push(&ImageSpec::random("runtime-away/image", "1", 1, 64 << 10))
        .await?;
    let mut runtime = product.cluster.component("containerd-node3")?;
    runtime.kill9()?;
    let ask = [
        "grpcurl",
        "-plaintext",
        "-unix",
        "/run/kruise/agent.sock",
        "kruise.node.v1.NodeService/GetAgent",
    ];
    let seen = wait_for("the agent to notice", Duration::from_secs(30), async || {
        let agent: Value = serde_json::from_str(&product.cluster.node_exec("node3", &ask)?)?;
        let tried = agent["socketsTried"].as_array().map_or(0, Vec::len);
        if tried > 0 {
            Ok(Seen::Done(agent))
        } else {
            not_yet(agent)
        }
    })
    .await;
    runtime.start()?;
    let seen = seen?.to_string();
    assert!(
        seen.contains("/run/containerd/containerd.sock") && seen.contains("/run/crio/crio.sock"),
        "{seen}"
    );
    let spec = json!({"selector": {"names": ["node3"]}});
    let job = Job::create(
        &product,
        "after",
        &format!("{REGISTRY}/runtime-away/image:1"),
        spec,
    )
    .await?;
    let status = job.complete(Duration::from_secs(60)).await?;
    assert_eq!(status.succeeded, 1, "{:?}", status.failures);
    product.leave().await
}
