//! Managers that are away, hang, are not trusted any more or are installed anew: pods of others are made all the time, and everything comes back
//! by itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kruise_api::names::{MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS};
use kruise_tests::cluster::REGISTRY;
use kruise_tests::cmd;
use kruise_tests::process::State;
use kruise_tests::product::{Job, NAMESPACE, Product, manager_process};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::foreign::Foreign;
use crate::{held, managers};

/// What was promised.
const BACK: Duration = Duration::from_secs(60);
const HEALED: Duration = Duration::from_secs(10);
/// Without any manager, and between two repetitions of a fault that heals.
const AWAY: Duration = Duration::from_secs(15);

const DEPLOYMENT: &str = "deployment/kruise-controller-manager";

/// A job that needs a leader, its agents and their trust in it. Nodes have its image already.
async fn works(product: &Product, name: &str, since: Instant) -> Result<String> {
    let image = format!("{REGISTRY}/pause:3.10");
    // With webhooks that hang or are not trusted, this waits for them and is taken all the same: they fail open.
    let job = Job::create(product, name, &image, json!({})).await?;
    let left = BACK.saturating_sub(since.elapsed());
    let status = job.complete(left).await?;
    anyhow::ensure!((status.succeeded, status.failed) == (3, 0), "{status:?}");
    Ok(format!("a job was done {:.1?} after", since.elapsed()))
}

pub(crate) fn scale(product: &Product, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    product
        .cluster
        .kubectl(&["scale", "-n", NAMESPACE, DEPLOYMENT, &replicas])
        .map(drop)
}

pub(crate) async fn no_manager(product: &Product) -> Result<()> {
    wait_for("the last manager to go", BACK, async || {
        match product.pods("controller-manager").await?.len() {
            0 => Ok(Seen::Done(())),
            left => not_yet(format!("{left} are left")),
        }
    })
    .await
}

#[tokio::test]
async fn without_a_manager_others_do_not_notice() -> Result<()> {
    let product = Product::attach("no-manager").await?;
    managers::fresh(&product).await?;
    let foreign = Foreign::start(&product);
    scale(&product, 0)?;
    let away = async {
        no_manager(&product).await?;
        // The rules of the CRD are enough to take a job that nobody is there to check.
        let image = format!("{REGISTRY}/pause:3.10");
        let waiting = Job::create(&product, "meanwhile", &image, json!({})).await?;
        tokio::time::sleep(held(AWAY)).await;
        anyhow::Ok(waiting)
    };
    let waiting = away.await;
    let since = Instant::now();
    scale(&product, 2)?;
    waiting?.complete(BACK).await?;
    let back = works(&product, "afterwards", since).await?;
    println!("no manager: {}; {back}", foreign.were_all_made().await?);
    product.leave().await
}

#[tokio::test]
async fn managers_that_hang_hold_nobody_up_and_are_replaced() -> Result<()> {
    let product = Product::attach("hung").await?;
    let foreign = Foreign::start(&product);
    let began = Instant::now();
    let (mut times, mut told) = (0, String::new());
    while times == 0 || began.elapsed() < held(Duration::ZERO) {
        // The kubelet waits longer with each restart of one container, so each time it is about new ones.
        managers::fresh(&product).await?;
        let since = Instant::now();
        stop_all(&product).await?;
        told = works(&product, &format!("after-{times}"), since).await?;
        times += 1;
    }
    println!(
        "hung {times} times: {}; at last {told}",
        foreign.were_all_made().await?
    );
    managers::fresh(&product).await?;
    product.leave().await
}

/// Stops every manager's process that runs.
async fn stop_all(product: &Product) -> Result<()> {
    for pod in product.pods("controller-manager").await? {
        let name = pod.metadata.name.context("a pod has a name")?;
        // One that is between two containers has none.
        let Ok(process) = manager_process(product, &name).await else {
            continue;
        };
        if process.state() == State::Running {
            process.signal(Signal::STOP)?;
        }
    }
    Ok(())
}

/// Where the API server is told whom to trust.
const TRUSTING: [(&str, &str, &str); 3] = [
    (
        "validatingwebhookconfiguration",
        VALIDATING_WEBHOOKS,
        "/webhooks/0/clientConfig/caBundle",
    ),
    (
        "mutatingwebhookconfiguration",
        MUTATING_WEBHOOKS,
        "/webhooks/0/clientConfig/caBundle",
    ),
    (
        "customresourcedefinition",
        "clonesets.apps.kruise.io",
        "/spec/conversion/webhook/clientConfig/caBundle",
    ),
];

fn trusted(product: &Product, kind: &str, name: &str, path: &str) -> Result<String> {
    let object: Value = serde_json::from_str(&product.cluster.kubectl(&["get", kind, name, "-o", "json"])?)?;
    let bundle = object.pointer(path).and_then(Value::as_str);
    Ok(bundle.unwrap_or_default().to_owned())
}

/// Waits until the API server trusts the managers everywhere, and answers how long that took.
async fn is_healed(product: &Product) -> Result<Duration> {
    let began = Instant::now();
    let wanted = STANDARD.encode(product.trust_bundle().await?);
    wait_for("every authority to be mended", HEALED, async || {
        for (kind, name, path) in TRUSTING {
            if trusted(product, kind, name, path)? != wanted {
                return not_yet(format!("{kind} {name}"));
            }
        }
        Ok(Seen::Done(()))
    })
    .await?;
    Ok(began.elapsed())
}

#[tokio::test]
async fn an_authority_that_somebody_resets_is_mended() -> Result<()> {
    let product = Product::attach("authority").await?;
    managers::fresh(&product).await?;
    let foreign = Foreign::start(&product);
    let stranger = rcgen::generate_simple_self_signed(vec!["stranger".to_owned()])?;
    let stranger = STANDARD.encode(stranger.cert.pem());
    let (began, mut slowest, mut times) = (Instant::now(), Duration::ZERO, 0);
    let mut since = began;
    while times == 0 || began.elapsed() < held(Duration::ZERO) {
        for (kind, name, path) in TRUSTING {
            let patch = json!([{"op": "replace", "path": path, "value": stranger}]).to_string();
            product
                .cluster
                .kubectl(&["patch", kind, name, "--type=json", "-p", &patch])?;
        }
        since = Instant::now();
        slowest = slowest.max(is_healed(&product).await?);
        times += 1;
    }
    let back = works(&product, "afterwards", since).await?;
    println!(
        "authority reset {times} times: mended in {slowest:.1?} at most; {}; {back}",
        foreign.were_all_made().await?
    );
    product.leave().await
}

#[tokio::test]
async fn manifests_that_are_applied_twice_change_nothing() -> Result<()> {
    let product = Product::attach("applied").await?;
    managers::fresh(&product).await?;
    let foreign = Foreign::start(&product);
    let manifest =
        cmd::run(
            product
                .cluster
                .tool("helm")
                .args(["get", "manifest", "kruise", "--namespace", NAMESPACE]),
        )?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), manifest)?;
    let file = file.path().display().to_string();
    let before = standing(&product).await?;
    let began = Instant::now();
    let mut times = 0;
    while times < 2 || began.elapsed() < held(Duration::ZERO) {
        product.cluster.kubectl(&["apply", "-f", &file])?;
        times += 1;
    }
    let since = Instant::now();
    is_healed(&product).await?;
    let back = works(&product, "afterwards", since).await?;
    let after = standing(&product).await?;
    anyhow::ensure!(before == after, "{before:?} became {after:?}");
    println!(
        "manifests applied {times} times: {}; {back}",
        foreign.were_all_made().await?
    );
    product.leave().await
}

/// What must outlive an application of the manifests: pods, and the key material that the managers wrote.
async fn standing(product: &Product) -> Result<(Vec<String>, usize)> {
    let mut pods = product.pods("controller-manager").await?;
    pods.append(&mut product.pods("daemon").await?);
    let mut uids: Vec<String> = pods.into_iter().filter_map(|pod| pod.metadata.uid).collect();
    uids.sort();
    let secrets: Api<Secret> = Api::namespaced(product.client.clone(), NAMESPACE);
    let material = secrets.get("kruise-webhook-certs").await?.data;
    Ok((uids, material.map_or(0, |data| data.len())))
}

#[tokio::test]
async fn all_managers_lost_at_once_are_made_up_for() -> Result<()> {
    let product = Product::attach("all-lost").await?;
    managers::fresh(&product).await?;
    let foreign = Foreign::start(&product);
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), NAMESPACE);
    let began = Instant::now();
    let (mut times, mut told) = (0, String::new());
    while times == 0 || began.elapsed() < held(Duration::ZERO) {
        let since = Instant::now();
        for pod in product.pods("controller-manager").await? {
            let name = pod.metadata.name.context("a pod has a name")?;
            pods.delete(&name, &DeleteParams::default().grace_period(0))
                .await?;
        }
        told = works(&product, &format!("after-{times}"), since).await?;
        times += 1;
    }
    println!(
        "all managers lost {times} times: {}; at last {told}",
        foreign.were_all_made().await?
    );
    managers::fresh(&product).await?;
    product.leave().await
}
