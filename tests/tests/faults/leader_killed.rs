//! A leader that is killed in the middle of a job: another one leads soon, no window is overrun, nothing is pulled twice.

use std::time::{Duration, Instant};

use anyhow::Result;
use kruise_tests::product::{Job, Product, manager_process};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use rustix::process::Signal;
use serde_json::json;

use crate::{judge, managers, rounds};

#[tokio::test]
async fn another_leads_within_twenty_seconds_and_nothing_is_lost_or_doubled() -> Result<()> {
    for _ in 0..rounds(1, 20) {
        let product = Product::attach("leader-killed").await?;
        let old = managers::fresh(&product).await?;
        let pushed = product.push_new_image(2, 8 << 20).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(1 << 20);
        let image = product.new_image_at(&front.host());
        let job = Job::create(&product, "failover", &image, json!({"parallelism": 1})).await?;
        wait_for(
            "the first pull to be on its way",
            Duration::from_secs(30),
            async || {
                let log = front.log();
                let bytes: u64 = product
                    .cluster
                    .nodes()
                    .iter()
                    .map(|node| judge::bytes_of(&log, node))
                    .sum();
                if bytes > 2 << 20 {
                    Ok(Seen::Done(()))
                } else {
                    not_yet(format!("{bytes} bytes"))
                }
            },
        )
        .await?;
        let killed = Instant::now();
        manager_process(&product, &old.pod).await?.signal(Signal::KILL)?;
        let new = managers::successor(&product, &old, Duration::from_secs(30)).await?;
        let took = killed.elapsed();
        println!("epoch {} to {} in {took:?}", old.epoch, new.epoch);
        assert!(took <= Duration::from_secs(20), "took {took:?}");
        let status = job.complete(Duration::from_secs(150)).await?;
        assert_eq!((status.succeeded, status.failed), (3, 0), "{:?}", status.failures);
        let log = front.log();
        assert_eq!(judge::most_at_once(&log), 1, "{}", judge::told(&log));
        for node in product.cluster.nodes() {
            let fetched = judge::bytes_of(&log, &node);
            // A pull that the contact lease broke off goes on where it stopped, so only what was under way can come again.
            assert!(
                fetched < pushed.size() + pushed.size() / 4,
                "{node} fetched {fetched} of {}",
                pushed.size()
            );
        }
        product.leave().await?;
    }
    Ok(())
}
