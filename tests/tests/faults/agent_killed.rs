//! An agent that is killed in the middle of a pull: the job completes, and the pull goes on where it stopped.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::{Job, Product, kill_daemon};
use kruise_tests::registry::Front;
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

use crate::{judge, rounds};

#[tokio::test]
async fn a_killed_agent_goes_on_where_it_stopped() -> Result<()> {
    for _ in 0..rounds(1, 20) {
        let product = Product::attach("agent-killed").await?;
        let pushed = product.push_new_image(3, 8 << 20).await?;
        let front = Front::start(&product.cluster).await?;
        front.limit_each(1 << 20);
        let image = product.new_image_at(&front.host());
        let spec = json!({"selector": {"names": ["node2"]}, "pullPolicy": {"backoffLimit": 0}});
        let job = Job::create(&product, "resume", &image, spec).await?;
        let half = pushed.size() / 2;
        wait_for("half of the bytes", Duration::from_secs(60), async || {
            let bytes = judge::bytes_of(&front.log(), "node2");
            if bytes >= half {
                Ok(Seen::Done(()))
            } else {
                not_yet(format!("{bytes} of {half}"))
            }
        })
        .await?;
        kill_daemon(&product, "node2").await?;
        let status = job.complete(Duration::from_secs(90)).await?;
        assert_eq!((status.succeeded, status.failed), (1, 0), "{:?}", status.failures);
        let fetched = judge::bytes_of(&front.log(), "node2");
        // What was on its way at the moment of the kill comes again; what had arrived does not.
        let again = fetched.saturating_sub(pushed.size());
        assert!(
            again < pushed.size() / 4,
            "fetched {fetched} of {}: {again} again",
            pushed.size()
        );
        product.leave().await?;
    }
    Ok(())
}
