//! A node whose disk is full: pulls fail soon and say why, small ones go on, what is to be left free is left free, and all is well again once
//! there is space, with nothing restarted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::disk::SmallDisk;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::{Front, ImageSpec};
use kruise_tests::wait::{Seen, not_yet, wait_for, wait_until};
use serde_json::{Value, json};

const NODE: &str = "node3";
/// Where the runtime keeps images.
const IMAGES: &str = "/var/lib/containerd";
const MIB: u64 = 1 << 20;
const DISK: u64 = 256 * MIB;
const A_MINUTE: Duration = Duration::from_secs(60);

/// The node with a small disk for its images. When dropped the node has its own again, and all that ran on it starts anew.
struct Small<'a> {
    product: &'a Product,
    disk: Option<SmallDisk>,
}

impl<'a> Small<'a> {
    async fn mount(product: &'a Product) -> Result<Self> {
        stop(product)?;
        let disk = SmallDisk::mount(&product.cluster, NODE, IMAGES, DISK)?;
        let small = Self {
            product,
            disk: Some(disk),
        };
        start(product)?;
        settled(product).await?;
        Ok(small)
    }

    fn disk(&self) -> Result<&SmallDisk> {
        self.disk.as_ref().context("it is mounted until the end")
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let given_back = stop(self.product).and_then(|()| {
            drop(self.disk.take());
            start(self.product)
        });
        if let Err(error) = given_back {
            println!("{NODE} is not what it was: {error:#}");
        }
    }
}

/// Ends all pods of the node and what runs them. Another disk knows nothing of them, so they must not go on.
fn stop(product: &Product) -> Result<()> {
    product.cluster.component(&format!("kubelet-{NODE}"))?.stop()?;
    let words = ["crictl", "--timeout", "60s", "rmp", "--all", "--force"];
    product.cluster.node_exec(NODE, &words)?;
    product.cluster.component(&format!("containerd-{NODE}"))?.stop()
}

fn start(product: &Product) -> Result<()> {
    product
        .cluster
        .component(&format!("containerd-{NODE}"))?
        .start()?;
    // A kubelet that finds a runtime which still reads what it had ends.
    wait_until("the runtime to answer", A_MINUTE, || {
        product
            .cluster
            .runtime_answers(NODE)
            .map_err(|error| format!("{error:#}"))
    })?;
    product.cluster.component(&format!("kubelet-{NODE}"))?.start()
}

/// Waits until the node's agent works and is attached.
async fn settled(product: &Product) -> Result<()> {
    wait_for("the agent to be attached", Duration::from_secs(120), async || {
        let words = [
            "grpcurl",
            "-plaintext",
            "-unix",
            "/run/kruise/agent.sock",
            "kruise.node.v1.NodeService/GetAgent",
        ];
        let agent: Value = serde_json::from_str(&product.cluster.node_exec(NODE, &words)?)?;
        let recent = agent["lastContactAgo"].as_str().is_some();
        if agent["contact"] == "CONTACT_ATTACHED" && agent["runtime"].is_object() && recent {
            Ok(Seen::Done(()))
        } else {
            not_yet(agent)
        }
    })
    .await
}

/// Pushes an image that the node has never seen, and answers its reference.
async fn push(product: &Product, name: &str, layers: u64, layer: u64) -> Result<String> {
    let repository = format!("{}/{name}", product.namespace);
    product
        .cluster
        .registry()
        .push(&ImageSpec::random(&repository, "1", layers, layer))
        .await?;
    Ok(format!("{REGISTRY}/{repository}:1"))
}

/// A job for the node alone, with some annotations.
async fn job(product: &Product, name: &str, image: &str, retries: u32, notes: Value) -> Result<Job> {
    let object = json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": name, "namespace": product.namespace, "annotations": notes},
        "spec": {"image": image, "selector": {"names": [NODE]}, "pullPolicy": {"backoffLimit": retries}},
    });
    Job::of(product, object).await
}

async fn succeeds(job: &Job) -> Result<()> {
    let status = job.complete(A_MINUTE).await?;
    anyhow::ensure!(status.succeeded == 1, "{}: {:?}", job.name, status.failures);
    Ok(())
}

#[tokio::test]
async fn a_full_disk_fails_soon_spares_small_pulls_and_mends_itself() -> Result<()> {
    let product = Product::attach("disk-full").await?;
    let small = Small::mount(&product).await?;
    let done = all(&product, small.disk()?).await;
    drop(small);
    settled(&product).await?;
    done?;
    product.leave().await
}

async fn all(product: &Product, disk: &SmallDisk) -> Result<()> {
    too_large_for_the_disk(product).await?;
    full_in_mid_layer(product, disk).await?;
    the_reserve_is_kept(product, disk).await
}

/// More than the disk has room for: it fails within ten seconds, gives back what it took, and a small one finds room.
async fn too_large_for_the_disk(product: &Product) -> Result<()> {
    let large = push(product, "large", 4, 100 * MIB).await?;
    let before = free(product)?;
    let began = Instant::now();
    let status = job(product, "large", &large, 0, json!({}))
        .await?
        .complete(A_MINUTE)
        .await?;
    let took = began.elapsed();
    let told = status.failures.first().context("no failure is told")?;
    anyhow::ensure!(told.reason == "NoSpace", "{told:?}");
    println!("400 MiB for 256: failed after {took:.1?}: {}", told.message);
    anyhow::ensure!(took <= Duration::from_secs(10), "{took:?}");
    wait_for("the space to be given back", A_MINUTE, async || {
        let now = free(product)?;
        if now + 8 * MIB >= before {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{now} of {before} bytes are free"))
        }
    })
    .await?;
    let image = push(product, "small", 1, MIB).await?;
    succeeds(&job(product, "small", &image, 0, json!({})).await?).await
}

/// Full while a layer is on its way, and then not any more: the same pull goes on by itself.
async fn full_in_mid_layer(product: &Product, disk: &SmallDisk) -> Result<()> {
    let image = push(product, "middle", 1, 24 * MIB).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(12 * MIB);
    let image = image.replace(REGISTRY, &front.host());
    disk.fill(10 * MIB)?;
    let job = job(product, "middle", &image, 10, json!({})).await?;
    let refused = async || -> Result<Seen<()>> {
        let words = [
            "grpcurl",
            "-plaintext",
            "-unix",
            "/run/kruise/agent.sock",
            "kruise.node.v1.NodeService/ListTasks",
        ];
        let told = product.cluster.node_exec(NODE, &words)?;
        if told.contains("REASON_NO_SPACE") {
            Ok(Seen::Done(()))
        } else {
            not_yet(told)
        }
    };
    wait_for("the pull to miss space", A_MINUTE, refused).await?;
    let small = push(product, "beside", 1, 256 << 10).await?;
    succeeds(&self::job(product, "beside", &small, 3, json!({})).await?).await?;
    disk.relieve()?;
    succeeds(&job).await
}

/// A pull whose size is known never drives the disk below what is to be left; it waits, and goes on when there is room.
async fn the_reserve_is_kept(product: &Product, disk: &SmallDisk) -> Result<()> {
    let image = push(product, "guarded", 2, 10 * MIB).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(4 * MIB);
    let image = image.replace(REGISTRY, &front.host());
    let reserve = 60 * MIB;
    // Room for the image's bytes, but not for what they unpack to beside the reserve.
    disk.fill(reserve + 50 * MIB)?;
    let lowest = Lowest::watch(product);
    let notes = json!({"pull.kruise.io/min-free-space": "60Mi"});
    let job = job(product, "guarded", &image, 0, notes).await?;
    wait_for("the pull to wait for space", A_MINUTE, async || {
        let words = [
            "grpcurl",
            "-plaintext",
            "-unix",
            "/run/kruise/agent.sock",
            "kruise.node.v1.NodeService/ListTasks",
        ];
        let told = product.cluster.node_exec(NODE, &words)?;
        if told.contains("to be left free") {
            Ok(Seen::Done(()))
        } else {
            not_yet(told)
        }
    })
    .await?;
    disk.relieve()?;
    let status = job.complete(Duration::from_secs(90)).await?;
    anyhow::ensure!(status.succeeded == 1, "{:?}", status.failures);
    let lowest = lowest.end();
    println!("least space while a pull waited and went on: {lowest} bytes, to be left were {reserve}");
    anyhow::ensure!(
        lowest >= reserve,
        "{lowest} bytes were free, {reserve} were to be left"
    );
    Ok(())
}

/// Free bytes of the small disk, asked from outside.
fn free(product: &Product) -> Result<u64> {
    let told = product
        .cluster
        .node_exec(NODE, &["stat", "-f", "-c", "%a %S", IMAGES])?;
    let numbers: Vec<u64> = told
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [blocks, size] = numbers.as_slice() else {
        anyhow::bail!("{told:?}");
    };
    Ok(blocks * size)
}

/// Keeps an eye on the free space.
struct Lowest {
    lowest: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Lowest {
    fn watch(product: &Product) -> Self {
        let this = Self {
            lowest: Arc::new(AtomicU64::new(u64::MAX)),
            ended: Arc::default(),
        };
        let (product, lowest, ended) = (product.clone(), this.lowest.clone(), this.ended.clone());
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                if let Ok(now) = free(&product) {
                    lowest.fetch_min(now, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        this
    }

    fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.lowest.load(Ordering::Relaxed)
    }
}
