//! New images are on the nodes before pods are touched. Judged by the registry's access log and the pods' own versions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Event;
use kruise_tests::product::{Product, Set, Witness, push_idle_image, push_padded_image};
use kruise_tests::registry::{Access, Fault, Front, Match};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ListParams};
use serde_json::json;

use super::TWO_MINUTES;
use crate::judge;

const PODS: i32 = 6;

/// Six pods, two of which may be out, with one node at a time pulling ahead.
async fn six(product: &Product, image: &str) -> Result<Set> {
    let rolling = json!({
        "podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 2,
        "inPlaceUpdateStrategy": {"imagePreDownloadParallelism": 1},
    });
    let spread = json!([{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }]);
    let spec = json!({"replicas": 0, "updateStrategy": {"rollingUpdate": rolling}});
    let set = Set::create(product, "web", image, spec).await?;
    let template = json!({"spec": {"topologySpreadConstraints": spread}});
    set.patch(json!({"spec": {"replicas": PODS, "template": template}}))
        .await?;
    set.settled(PODS, TWO_MINUTES).await?;
    Ok(set)
}

/// When a node's last fetch ended.
fn end_of(log: &[Access], node: &str) -> Option<Instant> {
    let own = log.iter().filter(|access| access.node.as_deref() == Some(node));
    own.filter_map(|access| access.ended).max()
}

/// Each pod is changed after its node has the image; nodes pull one at a time; never more than two pods are out.
#[tokio::test]
async fn no_pod_is_touched_before_its_node_has_the_image() -> Result<()> {
    let product = Product::attach("gate").await?;
    let old = push_idle_image(&product, "1").await?;
    push_padded_image(&product, "2", 12 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    front.limit_each(8 << 20);
    let new = format!("{}/{}:2", front.host(), product.namespace);
    let set = six(&product, &old).await?;
    let witness = Witness::begin(&product, "web").await?;
    let before = witness.now()?;
    set.set_image(&new).await?;
    set.settled(PODS, TWO_MINUTES).await?;
    let log = front.log();
    let after = witness.now()?;
    for (name, was) in &before {
        let is = &after[name];
        assert_eq!(
            (&is.uid, &is.node, &is.ip),
            (&was.uid, &was.node, &was.ip),
            "{name}"
        );
        assert_eq!(is.restarts, was.restarts + 1, "{name}");
        let pulled = end_of(&log, &is.node).context("each node pulled")?;
        let changed = witness
            .first_seen_with(name, &new)?
            .context("each pod was changed")?;
        let ahead = changed.saturating_duration_since(pulled);
        assert!(
            ahead > Duration::ZERO,
            "{name} was changed before {} had the image",
            is.node
        );
    }
    assert_eq!(judge::most_at_once(&log), 1, "{}", judge::told(&log));
    assert!(witness.fewest_ready()? >= 4, "{}", witness.story());
    product.leave().await
}

/// Events of the set with this reason.
async fn events(product: &Product, reason: &str) -> Result<Vec<String>> {
    let api: Api<Event> = Api::namespaced(product.client.clone(), &product.namespace);
    let all = api.list(&ListParams::default()).await?.items;
    let told = all
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    Ok(told.filter_map(|event| event.message).collect())
}

/// An image that is not there leaves all pods as they are, and serving; the next template is not held up by it.
#[tokio::test]
async fn an_image_that_cannot_be_had_touches_no_pod() -> Result<()> {
    let product = Product::attach("nowhere").await?;
    let old = push_idle_image(&product, "1").await?;
    let missing = old.replace(":1", ":missing");
    let strategy = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}});
    let spec = json!({"replicas": 2, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(2, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    set.set_image(&missing).await?;
    wait_for("the failure to be told", TWO_MINUTES, async || {
        let told = events(&product, "FailedPullImage").await?;
        match told.iter().find(|message| message.contains("NotFound")) {
            Some(_) => Ok(Seen::Done(())),
            None => not_yet(format!("{told:?}")),
        }
    })
    .await?;
    let good = push_idle_image(&product, "3").await?;
    let began = Instant::now();
    set.set_image(&good).await?;
    set.settled(2, TWO_MINUTES).await?;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let now = witness.now()?;
    assert!(
        now.values().all(|seen| seen.image == good && seen.restarts == 1),
        "{now:?}"
    );
    assert_eq!(
        witness.first_seen_with(now.keys().next().context("pods")?, &missing)?,
        None
    );
    assert!(witness.fewest_ready()? >= 1, "{}", witness.story());
    product.leave().await
}

/// While the registry is down nothing is touched, whatever the pull policy; it goes on by itself when the registry is back.
#[tokio::test]
async fn a_registry_that_is_down_touches_no_pod() -> Result<()> {
    let product = Product::attach("down").await?;
    let old = push_idle_image(&product, "1").await?;
    push_padded_image(&product, "2", 1 << 20).await?;
    let front = Front::start(&product.cluster).await?;
    let new = format!("{}/{}:2", front.host(), product.namespace);
    let strategy = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}});
    let spec = json!({"replicas": 2, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(2, TWO_MINUTES).await?;
    let witness = Witness::begin(&product, "web").await?;
    let down = front.fault(Match::any(), Fault::Status(503)).always();
    let always = json!([
        {"op": "replace", "path": "/spec/template/spec/containers/0/imagePullPolicy", "value": "IfNotPresent"},
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": new},
    ]);
    set.patch_json(always).await?;
    wait_for("some tries", TWO_MINUTES, async || {
        if down.applied() >= 2 {
            return Ok(Seen::Done(()));
        }
        not_yet(down.applied())
    })
    .await?;
    assert_eq!(witness.fewest_ready()?, 2, "{}", witness.story());
    assert!(witness.now()?.values().all(|seen| seen.image == old));
    down.remove();
    set.settled(2, TWO_MINUTES).await?;
    assert!(witness.fewest_ready()? >= 1, "{}", witness.story());
    product.leave().await
}
