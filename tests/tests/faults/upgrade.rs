//! Another version of the programs, and back, while images are pulled and a container is restarted: no pull is lost or begun anew, and no
//! container is restarted twice.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::product::{Job, NAMESPACE, Product};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::{judge, managers, rounds};

/// Long enough for a job to be under way until the last part has been replaced.
const BYTES_PER_LAYER: u64 = 12 << 20;
const LAYERS: u64 = 3;
const PACE: u64 = 256 << 10;
const ROLLED_OUT: &str = "--timeout=120s";

/// A part of the product, as the cluster knows it.
#[derive(Clone, Copy, Debug)]
struct Part {
    workload: &'static str,
    container: &'static str,
}

const MANAGER: Part = Part {
    workload: "deployment/kruise-controller-manager",
    container: "manager",
};
const AGENT: Part = Part {
    workload: "daemonset/kruise-daemon",
    container: "daemon",
};

impl Part {
    fn image(self, product: &Product) -> Result<String> {
        let path = format!(
            "jsonpath={{.spec.template.spec.containers[?(@.name=='{}')].image}}",
            self.container
        );
        product
            .cluster
            .kubectl(&["get", "-n", NAMESPACE, self.workload, "-o", &path])
    }

    /// The same program under another tag: what is replaced is every pod of the part.
    async fn next(self, product: &Product, image: &str) -> Result<String> {
        let path = image
            .strip_prefix(&format!("{REGISTRY}/"))
            .context("an image of the cluster's registry")?;
        let (name, tag) = path.rsplit_once(':').context("an image with a tag")?;
        let next = format!("next-{tag}");
        let registry = product.cluster.registry();
        let (manifest, kind) = registry.manifest(name, tag).await?;
        registry.put_manifest(name, &next, manifest, &kind).await?;
        Ok(format!("{REGISTRY}/{name}:{next}"))
    }

    /// Replaces every pod by one of this image, and waits until the last is ready.
    fn replace(self, product: &Product, image: &str) -> Result<()> {
        let set = format!("{}={image}", self.container);
        let cluster = &product.cluster;
        cluster.kubectl(&["set", "image", "-n", NAMESPACE, self.workload, &set])?;
        cluster.kubectl(&["rollout", "status", "-n", NAMESPACE, self.workload, ROLLED_OUT])?;
        Ok(())
    }
}

/// A job over all nodes that has not ended when it is looked at, and a registry whose log tells the truth about it.
struct Pulls {
    job: Job,
    front: Front,
    bytes: u64,
}

impl Pulls {
    async fn begin(product: &Product) -> Result<Self> {
        let pushed = product.push_new_image(LAYERS, BYTES_PER_LAYER).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(PACE);
        let image = product.new_image_at(&front.host());
        let spec = json!({"parallelism": 3, "pullPolicy": {"backoffLimit": 0}});
        let pulls = Self {
            job: Job::create(product, "pulls", &image, spec).await?,
            front,
            bytes: pushed.size(),
        };
        wait_for("every node to pull", Duration::from_secs(30), async || {
            let log = pulls.front.log();
            let nodes = product.cluster.nodes();
            let busy = nodes
                .iter()
                .filter(|node| judge::bytes_of(&log, node) > 64 << 10)
                .count();
            if busy == nodes.len() {
                Ok(Seen::Done(()))
            } else {
                not_yet(format!("{busy} nodes"))
            }
        })
        .await?;
        Ok(pulls)
    }

    /// Ends well on every node, and nothing of it was fetched twice.
    async fn are_whole(&self, product: &Product) -> Result<()> {
        let ended = self.job.status().await?.completion_time.is_some();
        anyhow::ensure!(!ended, "the job was over before the last part was replaced");
        self.front.clear();
        let status = self.job.complete(Duration::from_secs(120)).await?;
        anyhow::ensure!(
            (status.succeeded, status.failed) == (3, 0),
            "{:?}",
            status.failures
        );
        let log = self.front.log();
        for node in product.cluster.nodes() {
            let fetched = judge::bytes_of(&log, &node);
            anyhow::ensure!(
                fetched < self.bytes + self.bytes / 4,
                "{node} fetched {fetched} of {}",
                self.bytes
            );
        }
        Ok(())
    }
}

/// A pod whose container is to be restarted while everything else changes.
async fn pod(product: &Product) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let pod = json!({
        "metadata": {"name": "app"},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": format!("{REGISTRY}/pause:3.10")},
        ]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    restarts(product, 0).await
}

/// Waits until the pod's container is ready after so many restarts.
async fn restarts(product: &Product, wanted: i32) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    wait_for("the pod to be ready", Duration::from_secs(60), async || {
        let status = pods.get("app").await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        match containers.first() {
            Some(main) if main.ready && main.restart_count == wanted => Ok(Seen::Done(())),
            Some(main) => not_yet(format!("{} restarts, ready: {}", main.restart_count, main.ready)),
            None => not_yet("it does not run"),
        }
    })
    .await
}

async fn restart(product: &Product, name: &str) -> Result<()> {
    let requests: Api<ContainerRecreateRequest> = Api::namespaced(product.client.clone(), &product.namespace);
    let request = json!({
        "metadata": {"name": name},
        "spec": {"podName": "app", "containers": [{"name": "main"}]},
    });
    requests
        .create(&PostParams::default(), &serde_json::from_value(request)?)
        .await?;
    Ok(())
}

async fn is_done(product: &Product, name: &str) -> Result<()> {
    let requests: Api<ContainerRecreateRequest> = Api::namespaced(product.client.clone(), &product.namespace);
    wait_for("the restart to end", Duration::from_secs(60), async || {
        let status = requests.get(name).await?.status;
        let over = status.as_ref().is_some_and(|s| s.completion_time.is_some());
        if over {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{status:?}"))
        }
    })
    .await
}

#[tokio::test]
async fn to_the_next_version_and_back_in_both_orders_loses_nothing() -> Result<()> {
    for round in 0..rounds(1, 20) {
        let product = Product::attach("upgrade").await?;
        managers::fresh(&product).await?;
        let mut parts = Vec::new();
        for part in [MANAGER, AGENT] {
            let image = part.image(&product)?;
            parts.push((part, part.next(&product, &image).await?, image));
        }
        pod(&product).await?;
        // There managers first, back agents first.
        for (turn, is_back) in [("there", false), ("back", true)] {
            let work = Product::attach("upgrade-pulls").await?;
            let pulls = Pulls::begin(&work).await?;
            let began = Instant::now();
            restart(&product, turn).await?;
            for (part, next, image) in &parts {
                part.replace(&product, if is_back { image } else { next })?;
            }
            let took = began.elapsed();
            is_done(&product, turn).await?;
            restarts(&product, if is_back { 2 } else { 1 }).await?;
            pulls.are_whole(&work).await?;
            println!("round {round}, {turn}: every part replaced in {took:.1?}, nothing lost");
            work.leave().await?;
            parts.reverse();
        }
        managers::fresh(&product).await?;
        product.leave().await?;
    }
    Ok(())
}
