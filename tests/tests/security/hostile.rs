//! Clients that mean harm, with and without a token: the leader stays small and answers others, work goes on, and they are thrown out.

mod attacks;
mod insiders;
mod watch;

use std::time::Duration;

use anyhow::Result;
use kruise_tests::cluster::netns_file;
use kruise_tests::net::spawn_in_namespace;
use kruise_tests::product::{Job, Product, viewer_token};
use kruise_tests::registry::Front;
use serde_json::json;

use crate::ghost::{AUDIENCE, Ghost};
use crate::leader::{Target, all_attached};
use watch::{Probe, Sampler};

/// How much larger the leader may get.
const GROWTH: u64 = 64 << 20;
/// How soon an offender must be out.
const OUT: Duration = Duration::from_secs(10);
/// How fast others must be answered, but for one in a hundred.
const ANSWER: Duration = Duration::from_secs(1);

/// What an attack came to.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) offenders: usize,
    /// The longest time from the offence to its end.
    pub(crate) out: Duration,
    pub(crate) how: String,
}

#[tokio::test]
async fn hostile_clients_change_nothing_for_others() -> Result<()> {
    let product = Product::attach("hostile").await?;
    all_attached(&product, Duration::from_secs(60)).await?;
    let target = Target::leader(&product).await?;
    let before = restarts(&product).await?;
    product.push_new_image(1, 6 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(400 << 10);
    let image = product.new_image_at(&front.host());
    let spec = json!({"parallelism": 1, "selector": {"names": product.cluster.nodes()}});
    let job = Job::create(&product, "meanwhile", &image, spec).await?;

    let ghost = Ghost::rise(&product, "hostile").await?;
    let token = ghost.token(AUDIENCE).await?;
    let sampler = Sampler::start(target.process)?;
    let probe = Probe::start(&product, &target, viewer_token(&product)?)?;
    let job_name = format!("{}/{}", product.namespace, job.name);
    let outcomes = insiders::all(&product, &target, &ghost.node, &token, &job_name).await?;
    let namespace = netns_file(&product.cluster.layout().control_plane());
    let thread = {
        let target = target.clone();
        spawn_in_namespace(&namespace, move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(attacks::all(&target, &token))
        })
    };
    while !thread.is_finished() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let outside = thread
        .join()
        .map_err(|_| anyhow::anyhow!("the attackers' thread panicked"))??;
    let status = job.complete(Duration::from_secs(120)).await?;
    let answers = probe.stop()?;
    let growth = sampler.stop();

    for Outcome {
        name,
        offenders,
        out,
        how,
    } in outcomes.iter().chain(&outside)
    {
        println!("{name:<44} {offenders:>6}  out after {out:>8.1?}  {how}");
    }
    println!("leader's memory: {growth}");
    println!("others: {answers}");
    for outcome in outcomes.iter().chain(&outside) {
        assert!(
            outcome.out <= OUT,
            "{}: out only after {:?}",
            outcome.name,
            outcome.out
        );
    }
    assert!(growth.bytes() <= GROWTH, "{growth}");
    assert_eq!(answers.detached, 0, "{answers}");
    assert!(answers.p99() <= ANSWER, "{answers}");
    assert_eq!((status.succeeded, status.failed), (3, 0), "{:?}", status.failures);
    assert_eq!(
        restarts(&product).await?,
        before,
        "something was restarted, or another leads"
    );
    drop(ghost);
    product.leave().await
}

/// Restarts of all pods of the product, and the epoch.
async fn restarts(product: &Product) -> Result<(i32, u64)> {
    let mut count = 0;
    for part in ["controller-manager", "daemon"] {
        for pod in product.pods(part).await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            count += statuses
                .into_iter()
                .flatten()
                .map(|status| status.restart_count)
                .sum::<i32>();
        }
    }
    Ok((count, product.leader().await?.epoch))
}
