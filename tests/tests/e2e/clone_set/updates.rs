//! New templates: in place, by new pods, with surge, step by step, stopped, and taken back.

use anyhow::{Context, Result};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::product::{Product, Set, Witness, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use serde_json::json;

use super::TWO_MINUTES;

#[tokio::test]
async fn in_place_the_pods_stay_and_one_at_a_time_is_out() -> Result<()> {
    let product = Product::attach("inplace").await?;
    let (old, new) = (
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    );
    let strategy = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}});
    let spec = json!({"replicas": 4, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(4, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    let before = witness.now()?;
    let mark = Mark::now(&product.cluster)?;
    set.set_image(&new).await?;
    set.settled(4, TWO_MINUTES).await?;
    let after = witness.now()?;
    assert_eq!(before.len(), after.len());
    let counters = Counters::since(&product.cluster, mark)?;
    let writes = counters.count(|request| {
        request.agent.starts_with("kruise-manager")
            && request.resource.starts_with("pods")
            && request.namespace == product.namespace
            && !request.is_read()
            // A conflict with the kubelet writes nothing.
            && request.code == 200
    });
    assert!(
        writes <= 4 * 4,
        "{writes} writes of 4 pods: {:?}",
        counters.table()
    );
    for (name, was) in &before {
        let is = &after[name];
        assert_eq!(
            (&is.uid, &is.node, &is.ip),
            (&was.uid, &was.node, &was.ip),
            "{name}"
        );
        assert_eq!(is.restarts, was.restarts + 1, "{name}");
        assert_eq!(is.image, new, "{name}");
    }
    assert!(witness.fewest_ready()? >= 3, "{}", witness.story());
    product.leave().await
}

#[tokio::test]
async fn by_new_pods_the_budget_holds_too() -> Result<()> {
    let product = Product::attach("recreate").await?;
    let (old, new) = (
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    );
    let strategy = json!({"rollingUpdate": {"podUpdatePolicy": "ReCreate", "maxUnavailable": 1}});
    let spec = json!({"replicas": 4, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(4, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    let before = witness.now()?;
    set.set_image(&new).await?;
    set.settled(4, TWO_MINUTES).await?;
    let mut staying = witness.now()?;
    staying.retain(|_, seen| !seen.leaving);
    assert!(
        staying.keys().all(|name| !before.contains_key(name)),
        "{staying:?}"
    );
    assert!(witness.fewest_ready()? >= 3, "{}", witness.story());
    assert!(witness.most()? <= 4, "{}", witness.story());
    product.leave().await
}

#[tokio::test]
async fn with_surge_none_is_missing_and_at_most_one_is_extra() -> Result<()> {
    let product = Product::attach("surge").await?;
    let (old, new) = (
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    );
    let strategy =
        json!({"rollingUpdate": {"podUpdatePolicy": "ReCreate", "maxUnavailable": 0, "maxSurge": 1}});
    let spec = json!({"replicas": 3, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(3, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    set.set_image(&new).await?;
    set.settled(3, TWO_MINUTES).await?;
    assert!(witness.fewest_ready()? >= 3, "{}", witness.story());
    assert!(witness.most()? <= 4, "{}", witness.story());
    let mut staying = witness.now()?;
    staying.retain(|_, seen| !seen.leaving);
    assert!(staying.values().all(|seen| seen.image == new), "{staying:?}");
    product.leave().await
}

/// A partition holds pods back, lower ones let them go, a pause stops everything, and the old template takes it all back.
#[tokio::test]
async fn step_by_step_paused_and_taken_back() -> Result<()> {
    let product = Product::attach("steps").await?;
    let (old, new) = (
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    );
    let rolling = |partition: i32, paused: bool| json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1, "partition": partition, "paused": paused}});
    let spec = json!({"replicas": 4, "updateStrategy": rolling(3, false)});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(4, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    set.set_image(&new).await?;
    let updated = async |wanted: i32| {
        set.when(&format!("{wanted} updated pods"), TWO_MINUTES, |status| {
            status.updated_available_replicas == wanted && status.available_replicas == 4
        })
        .await
    };
    updated(1).await?;
    set.patch(json!({"spec": {"updateStrategy": rolling(2, false)}}))
        .await?;
    updated(2).await?;
    set.patch(json!({"spec": {"updateStrategy": rolling(0, true)}}))
        .await?;
    let paused = set.when("the pause to be seen", TWO_MINUTES, |_| true).await?;
    assert_eq!(paused.updated_replicas, 2);
    // The old template is the update revision again: with a pause nothing moves, without it the two go back.
    set.set_image(&old).await?;
    set.patch(json!({"spec": {"updateStrategy": rolling(0, false)}}))
        .await?;
    set.settled(4, TWO_MINUTES).await?;
    let now = witness.now()?;
    assert!(now.values().all(|seen| seen.image == old), "{now:?}");
    assert!(witness.fewest_ready()? >= 3, "{}", witness.story());
    let mut restarts: Vec<_> = now.values().map(|seen| seen.restarts).collect();
    restarts.sort_unstable();
    assert_eq!(
        restarts,
        [0, 0, 2, 2],
        "a pod that was not touched was not restarted"
    );
    product.leave().await
}

#[tokio::test]
async fn a_pod_is_available_only_after_its_min_ready_seconds() -> Result<()> {
    let product = Product::attach("minready").await?;
    let image = push_idle_image(&product, "1").await?;
    let spec = json!({"replicas": 1, "minReadySeconds": 6});
    let set = Set::create(&product, "web", &image, spec).await?;
    let available = wait_for("the pod to be available", TWO_MINUTES, async || {
        let status = set.status().await?;
        if status.available_replicas == 1 {
            return Ok(Seen::Done(jiff::Timestamp::now()));
        }
        not_yet(format!("{status:?}"))
    })
    .await?;
    let pods = set.pods().await?;
    let status = pods
        .first()
        .and_then(|pod| pod.status.as_ref())
        .context("a pod")?;
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let since = ready
        .and_then(|ready| ready.last_transition_time.clone())
        .context("it is ready")?;
    let waited = available.duration_since(since.0);
    assert!(waited.as_secs() >= 6, "{waited:?}");
    product.leave().await
}
