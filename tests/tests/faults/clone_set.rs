//! A leader that is killed in the middle of a rollout in place: the next one goes on, no pod is changed twice, none stays out.

use std::time::Duration;

use anyhow::Result;
use kruise_tests::product::{Product, Set, Witness, manager_process, push_idle_image, push_padded_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kruise_tests::{audit::Counters, audit::Mark, cluster::REGISTRY};
use rustix::process::Signal;
use serde_json::json;

use crate::{managers, rounds};

const PODS: i32 = 6;
const MINUTES: Duration = Duration::from_secs(180);

#[tokio::test]
async fn a_rollout_survives_the_death_of_its_leader() -> Result<()> {
    for _ in 0..rounds(1, 10) {
        let product = Product::attach("rollout-killed").await?;
        let old_leader = managers::fresh(&product).await?;
        let old = push_idle_image(&product, "1").await?;
        push_padded_image(&product, "2", 4 << 20).await?;
        let new = format!("{REGISTRY}/{}:2", product.namespace);
        let rolling = json!({"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1});
        let spec = json!({"replicas": PODS, "updateStrategy": {"rollingUpdate": rolling}});
        let set = Set::create(&product, "web", &old, spec).await?;
        set.settled(PODS, MINUTES).await?;
        let witness = Witness::begin(&product, "web").await?;
        let before = witness.now()?;
        let mark = Mark::now(&product.cluster)?;
        set.set_image(&new).await?;
        wait_for("two pods to be changed", MINUTES, async || {
            let now = witness.now()?;
            let changed = now.values().filter(|seen| seen.image == new).count();
            if changed >= 2 {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{changed} changed"))
        })
        .await?;
        manager_process(&product, &old_leader.pod)
            .await?
            .signal(Signal::KILL)?;
        managers::successor(&product, &old_leader, Duration::from_secs(30)).await?;
        set.settled(PODS, MINUTES).await?;
        let after = witness.now()?;
        for (name, was) in &before {
            let is = &after[name];
            assert_eq!((&is.uid, &is.node), (&was.uid, &was.node), "{name}");
            assert_eq!(is.restarts, was.restarts + 1, "{name} was restarted once");
            assert_eq!(is.image, new, "{name}");
        }
        assert!(witness.fewest_ready()? >= 5, "{}", witness.story());
        let specs = Counters::since(&product.cluster, mark)?.count(|request| {
            request.agent.starts_with("kruise-manager")
                && request.resource == "pods"
                && request.verb == "patch"
                && request.namespace == product.namespace
                && request.code == 200
        });
        println!("{specs} patches of {PODS} pods");
        product.leave().await?;
    }
    Ok(())
}
