//! What does not take the product's word: the runtime of each node, and the API server's audit log.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::cluster::Cluster;
use kruise_tests::registry::Pushed;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::Value;

/// Shows, by crictl on each node, that the image there is the one that was pushed.
pub(super) fn present(cluster: &Cluster, image: &Pushed) -> Result<()> {
    println!("\ncrictl inspecti on each node; pushed was {}", image.digest);
    for node in cluster.nodes() {
        let text = cluster.crictl(&node, &["inspecti", "-o", "json", &image.reference])?;
        let shown: Value = serde_json::from_str(&text).context("crictl does not answer in JSON")?;
        let digests: Vec<_> = shown["status"]["repoDigests"]
            .as_array()
            .into_iter()
            .flatten()
            .collect();
        let same = digests
            .iter()
            .filter_map(|digest| digest.as_str())
            .find(|digest| digest.ends_with(&image.digest));
        let Some(same) = same else {
            bail!("{node} has another image than the one that was pushed: {digests:?}");
        };
        println!("  {node}  {same}");
    }
    Ok(())
}

/// Waits until the jobs are gone, and prints what all of it wrote to the API.
pub(super) async fn api_writes(cluster: &Cluster, since: Mark) -> Result<()> {
    let counters = wait_for("the job to be deleted", Duration::from_secs(60), async || {
        let counters = Counters::since(cluster, since)?;
        if counters.api_writes("kruise-").ttl_deletes > 0 {
            return Ok(Seen::Done(counters));
        }
        not_yet(counters.api_writes("kruise-"))
    })
    .await?;
    let (manager, agents) = (
        counters.api_writes("kruise-manager"),
        counters.api_writes("kruise-daemon"),
    );
    let nodes = cluster.nodes().len();
    println!("\nAPI writes of this job, by the API server's audit log, from its creation to its deletion:");
    println!("  by the manager: {manager}");
    println!(
        "  by the agents of {nodes} nodes: {} writes, {} events",
        agents.writes, agents.events
    );
    let writes = manager.writes + agents.writes + manager.ttl_deletes + agents.ttl_deletes;
    println!(
        "  in all {writes} writes for {nodes} nodes, {:.1} per node; events apart: {}",
        share(writes, nodes),
        manager.events
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "one digit is shown")]
fn share(count: usize, nodes: usize) -> f64 {
    count as f64 / nodes.max(1) as f64
}
