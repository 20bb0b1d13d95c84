//! How long containers were down is told as the runtime saw it. Judged by the kubelet's own times, which have whole seconds.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Event, Pod};
use kruise_tests::product::{Product, Set, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ListParams};
use serde_json::json;

use super::TWO_MINUTES;

/// Seconds between the end of the container before and the start of the present one, as the kubelet reports them.
fn by_kubelet(pod: &Pod) -> Option<f64> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ended = status.last_state.as_ref()?.terminated.as_ref()?;
    let began = status.state.as_ref()?.running.as_ref()?.started_at.as_ref()?;
    Some(
        began
            .0
            .duration_since(ended.finished_at.as_ref()?.0)
            .as_secs_f64(),
    )
}

/// The number in `... was down for 0.812 s`, if it is known to the millisecond.
fn told(message: &str) -> Option<f64> {
    let (_, rest) = message.split_once("was down for ")?;
    let number = rest.strip_suffix(" s")?;
    number.contains('.').then(|| number.parse().ok()).flatten()
}

/// Each pod has one event, to the millisecond, that agrees with the kubelet as far as whole seconds go.
#[tokio::test]
async fn each_pod_is_told_of_once_with_the_runtimes_times() -> Result<()> {
    let product = Product::attach("downtime").await?;
    let old = push_idle_image(&product, "1").await?;
    let new = push_idle_image(&product, "2").await?;
    let strategy = json!({"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}});
    let spec = json!({"replicas": 3, "updateStrategy": strategy});
    let set = Set::create(&product, "web", &old, spec).await?;
    set.settled(3, TWO_MINUTES).await?;
    set.set_image(&new).await?;
    set.settled(3, TWO_MINUTES).await?;
    let events: Api<Event> = Api::namespaced(product.client.clone(), &product.namespace);
    let updated = wait_for("an event for each pod", TWO_MINUTES, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let own = |event: &Event| event.reason.as_deref() == Some("InPlaceUpdated");
        let updated: Vec<Event> = all.into_iter().filter(own).collect();
        match updated.len() {
            3 => Ok(Seen::Done(updated)),
            other => not_yet(format!("{other} events")),
        }
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    for event in updated {
        let name = event.involved_object.name.context("an event about a pod")?;
        let message = event.message.context("a message")?;
        let exact = told(&message).with_context(|| format!("the runtime knows milliseconds: {message}"))?;
        let rough = by_kubelet(&pods.get(&name).await?).context("the kubelet knows both moments")?;
        assert!(
            (exact - rough).abs() <= 1.0,
            "{name}: {message}, the kubelet says {rough} s"
        );
    }
    product.leave().await
}
