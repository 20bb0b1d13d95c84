//! `cargo xtask demo`: from nothing to images on nodes, with proof.

mod proof;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kruise_tests::audit::Mark;
use kruise_tests::cluster::{Cluster, Options};
use kruise_tests::registry::{ImageSpec, Pushed};
use kruise_tests::tools::{self, Setup};
use tokio::runtime::Runtime;

use crate::deploy;

/// Beside whatever cluster one works with.
const CLUSTER: &str = "kruise-demo";

/// Slow enough to see something move: 10 MB a second into each node.
const MEGABITS: u32 = 80;

/// Repository, layers and MiB per layer.
const IMAGES: [(&str, u64, u64); 3] = [("demo/web", 4, 10), ("demo/api", 5, 8), ("demo/batch", 3, 16)];

/// Jobs of the demo are deleted soon after they are over, so that the clean-up is part of what is counted.
const TTL: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes that pull at once.
    #[arg(long, default_value_t = 2)]
    parallelism: u32,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let began = Instant::now();
    let runtime = Runtime::new().context("cannot start the asynchronous runtime")?;
    step("what the cluster needs");
    tools::install(Setup { containerd_2: false })?;
    step("a cluster of three nodes");
    Cluster::down(CLUSTER).context("cannot take the cluster of an earlier demo down")?;
    let options = Options {
        name: CLUSTER.to_owned(),
        nodes: 3,
        ..Options::default()
    };
    let cluster = runtime.block_on(Cluster::up(options))?;
    step("the product, by its chart");
    deploy::install(CLUSTER)?;
    print!(
        "{}",
        cluster.kubectl(&["get", "pods", "-n", "kruise-system", "-o", "wide"])?
    );
    print!("{}", kruisectl(&cluster, &["agents"])?);
    step("images in the cluster's registry, and links of 80 Mbit/s to the nodes");
    let images = runtime.block_on(push(&cluster))?;
    for node in cluster.nodes() {
        cluster.rate_limit(&node, MEGABITS)?;
    }
    for image in &images {
        runtime.block_on(pull(&cluster, image, args.parallelism))?;
    }
    look_around(began.elapsed());
    Ok(())
}

async fn push(cluster: &Cluster) -> Result<Vec<Pushed>> {
    let mut pushed = Vec::new();
    for (name, layers, mebibytes) in IMAGES {
        let spec = ImageSpec::random(name, "1.0", layers, mebibytes << 20);
        let image = cluster.registry().push(&spec).await?;
        println!(
            "{}  {layers} layers, {} MiB  {}",
            image.reference,
            image.size() >> 20,
            image.digest
        );
        pushed.push(image);
    }
    Ok(pushed)
}

/// One job: shown while it runs, then proved and counted.
async fn pull(cluster: &Cluster, image: &Pushed, parallelism: u32) -> Result<()> {
    step(&format!(
        "{} onto all nodes, {parallelism} at a time",
        image.reference
    ));
    let before = Mark::now(cluster)?;
    let ttl = format!("{}s", TTL.as_secs());
    let status = cluster
        .tool("kruisectl")
        .args([
            "pull",
            &image.reference,
            "--parallelism",
            &parallelism.to_string(),
            "--ttl",
            &ttl,
        ])
        .args(["--wait-timeout", "5m"])
        .status()
        .context("cannot run kruisectl")?;
    if !status.success() {
        bail!("kruisectl ended with {status}; the cluster {CLUSTER} is still up to be looked at");
    }
    proof::present(cluster, image)?;
    proof::api_writes(cluster, before).await
}

fn kruisectl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    kruise_tests::cmd::run(cluster.tool("kruisectl").args(words))
}

fn step(what: &str) {
    println!("\n== {what}");
}

fn look_around(took: Duration) {
    println!(
        "\n== done in {:.0} s; the cluster stays up to be looked at\n\n{}",
        took.as_secs_f64(),
        look_around_text()
    );
}

fn look_around_text() -> String {
    format!(
        r#"  eval "$(cargo xtask cluster env --name {CLUSTER})"   # kubectl, helm, grpcurl and kruisectl speak to it

  kubectl get nodes,pods -A
  kubectl get imagepulljobs -A -o wide
  kruisectl agents -o wide
  kruisectl pull 10.90.0.1:5000/demo/web:1.0 --always
  cargo xtask cluster exec --name {CLUSTER} node1 -- crictl images

  # the manager's gRPC services, by hand
  kubectl -n kruise-system get configmap kruise-manager-ca -o jsonpath='{{.data.ca\.crt}}' > /tmp/kruise-ca.crt
  kubectl -n kruise-system port-forward service/kruise-manager 9877:9877 >/dev/null & FORWARD=$!
  TOKEN=$(kubectl -n kruise-system create token kruise-viewer --audience kruise-inspect)
  call() {{ grpcurl -cacert /tmp/kruise-ca.crt -servername kruise-manager.kruise-system.svc -H "authorization: Bearer $TOKEN" "$@"; }}
  sleep 1; call localhost:9877 list
  call localhost:9877 kruise.inspect.v1.InspectService/ListAgents
  kill $FORWARD

  cargo xtask cluster down --name {CLUSTER}   # takes it down, nothing is left
"#
    )
}
