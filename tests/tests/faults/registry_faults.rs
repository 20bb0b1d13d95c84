//! Registries that misbehave in twelve ways: each pull ends as it must, for the right reason, after no more tries than are allowed; and once the
//! registry is good again, so are pulls.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::join_all;
use kruise_tests::cluster::Cluster;
use kruise_tests::product::{Job, Product};
use kruise_tests::registry::{Fault, Front, ImageSpec, Match, Pushed};
use serde_json::json;

use crate::rounds;

/// A pull that throttling holds up waits for half a minute, one that trickles is watched for as long.
const PATIENCE: Duration = Duration::from_secs(240);
const LAYER: u64 = 512 << 10;

/// One way of misbehaving, and how a pull must end while it lasts.
struct Case {
    name: &'static str,
    on: fn(&Pushed) -> Match,
    fault: Fault,
    end: End,
}

enum End {
    /// For this reason, after so many tries.
    After(usize, &'static str),
    /// For this reason, at once, although more tries are allowed.
    AtOnce(&'static str),
    /// It succeeds all the same.
    Good,
}

fn cases() -> Vec<Case> {
    use End::{After, AtOnce, Good};
    let case = |name, on, fault, end| Case { name, on, fault, end };
    let manifests: fn(&Pushed) -> Match = |_| Match::manifests();
    // Not the configuration, which is smaller than what is cut off.
    let blobs: fn(&Pushed) -> Match = |pushed| Match::blobs().containing(&pushed.layers[0].digest);
    vec![
        case(
            "throttled",
            manifests,
            Fault::RetryAfter(429, 1),
            After(1, "Throttled"),
        ),
        case(
            "error-500",
            manifests,
            Fault::Status(500),
            After(2, "RegistryError"),
        ),
        case("error-502", blobs, Fault::Status(502), After(2, "RegistryError")),
        case("error-503", blobs, Fault::Status(503), After(2, "RegistryError")),
        case("reset", blobs, Fault::ResetAfter(0), After(2, "Unreachable")),
        case("trickle", blobs, Fault::Trickle(100), After(1, "Stalled")),
        case("truncated", blobs, Fault::Truncate(1000), After(2, "Corrupt")),
        case("corrupt", blobs, Fault::Corrupt, After(2, "Corrupt")),
        case(
            "huge-manifest",
            manifests,
            Fault::Claim(64 << 20),
            AtOnce("Unsupported"),
        ),
        case(
            "redirect-loop",
            blobs,
            Fault::RedirectLoop,
            After(2, "RegistryError"),
        ),
        case(
            "unauthorized-in-mid-pull",
            blobs,
            Fault::Status(401),
            AtOnce("Denied"),
        ),
        case("dead-mirror", blobs, Fault::Delay(Duration::ZERO), Good),
    ]
}

/// All cases at once, each with a registry of its own: a registry that is left alone for a while must not hold up the others.
#[tokio::test]
async fn twelve_faults_of_registries_end_for_the_right_reasons() -> Result<()> {
    let mut ends = 0;
    for round in 0..rounds(1, 20) {
        let product = Product::attach("registries").await?;
        let pulls = cases()
            .into_iter()
            .enumerate()
            .map(|(number, case)| one(&product, number + round, case));
        let wrong: Vec<String> = join_all(pulls)
            .await
            .into_iter()
            .filter_map(|end| Some(format!("{:#}", end.err()?)))
            .collect();
        anyhow::ensure!(wrong.is_empty(), "round {round}: {wrong:#?}");
        ends += cases().len();
        product.leave().await?;
    }
    println!("{ends} ends, each as it must be");
    Ok(())
}

async fn one(product: &Product, number: usize, case: Case) -> Result<()> {
    let name = case.name;
    misbehave(product, number, &case)
        .await
        .with_context(|| format!("case {name}"))
}

async fn misbehave(product: &Product, number: usize, case: &Case) -> Result<()> {
    let cluster = &product.cluster;
    let repository = format!("{}/{}", product.namespace, case.name);
    let spec = ImageSpec::random(&repository, "1", 2, LAYER);
    let pushed = cluster.registry().push(&spec).await?;
    let front = Front::start(cluster).await?;
    let nodes = cluster.nodes();
    let node = &nodes[number % nodes.len()];
    let host = if matches!(case.end, End::Good) {
        // A registry whose first mirror nobody listens at.
        let host = format!("{}.bed.test", product.namespace);
        cluster.route_mirrors(
            &host,
            &["http://127.0.0.1:1", &format!("http://{}", front.host())],
        )?;
        host
    } else {
        front.host()
    };
    let (tries, allowed) = match case.end {
        End::After(tries, _) => (tries, tries),
        End::AtOnce(_) => (2, 1),
        End::Good => (1, 1),
    };
    let rule = front.fault((case.on)(&pushed), case.fault.clone()).always();
    let image = format!("{host}/{repository}:1");
    let spec = |limit: usize| json!({"selector": {"names": [node]}, "pullPolicy": {"backoffLimit": limit}});
    let job = Job::create(product, case.name, &image, spec(tries - 1)).await?;
    let status = job.complete(PATIENCE).await?;
    let begun = calls(cluster, node, &image)?;
    match case.end {
        End::Good => anyhow::ensure!(status.succeeded == 1, "{:?}", status.failures),
        End::After(_, reason) | End::AtOnce(reason) => {
            let told = status.failures.first().context("no failure is told")?;
            anyhow::ensure!(status.failed == 1 && told.reason == reason, "{reason}: {told:?}");
            anyhow::ensure!(
                begun == allowed,
                "{begun} calls of the runtime, {allowed} were to be"
            );
        }
    }
    anyhow::ensure!(rule.applied() > 0, "the fault was never met");
    // A false success would show here: nothing of what came wrong may stay.
    rule.remove();
    let after = format!("{}-after", case.name);
    let status = Job::create(product, &after, &image, spec(3))
        .await?
        .complete(PATIENCE)
        .await?;
    anyhow::ensure!(status.succeeded == 1, "afterwards: {:?}", status.failures);
    cluster.unroute_registry(&host);
    Ok(())
}

/// How often the runtime was called to pull an image, by its own log.
fn calls(cluster: &Cluster, node: &str, image: &str) -> Result<usize> {
    let file = cluster.layout().logs().join(format!("containerd-{node}.log"));
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let call = format!(r#"msg="PullImage \"{image}\"""#);
    Ok(text.matches(&call).count())
}
