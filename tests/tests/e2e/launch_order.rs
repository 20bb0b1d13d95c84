//! Containers of a pod start in the order that it asks for. Judged by the kubelet's own times.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kruise_tests::product::{Product, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

const TWO_MINUTES: Duration = Duration::from_secs(120);
const COMPLETED: &str = "apps.kruise.io/container-launch-priority-completed";

/// When a container started, if it did and all of the pod is ready.
fn started(pod: &Pod) -> Option<Vec<(String, Timestamp)>> {
    let status = pod.status.as_ref()?;
    let conditions = status.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    let each = status.container_statuses.as_ref()?.iter().map(|container| {
        let running = container.state.as_ref()?.running.as_ref()?;
        Some((container.name.clone(), running.started_at.as_ref()?.0))
    });
    each.collect()
}

async fn ready(pods: &Api<Pod>, name: &str) -> Result<(Pod, Vec<(String, Timestamp)>)> {
    wait_for("the pod to be ready", TWO_MINUTES, async || {
        let pod = pods.get(name).await?;
        match started(&pod) {
            Some(times) => Ok(Seen::Done((pod, times))),
            None => not_yet(format!("{:?}", pod.status)),
        }
    })
    .await
}

async fn make(pods: &Api<Pod>, name: &str, annotations: Value, containers: Value) -> Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 0},
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// Listed last and started first; a ConfigMap that goes with the pod; a note when all have started.
#[tokio::test]
async fn containers_start_in_the_order_of_their_priorities() -> Result<()> {
    let product = Product::attach("launch").await?;
    let image = push_idle_image(&product, "1").await?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let container = |name: &str, priority: &str| json!({"name": name, "image": image, "env": [{"name": "KRUISE_CONTAINER_PRIORITY", "value": priority}]});
    let containers = json!([
        container("last", "-5"),
        container("middle", "0"),
        container("first", "9")
    ]);
    make(&pods, "by-number", json!({}), containers).await?;
    let (_, times) = ready(&pods, "by-number").await?;
    let at = |name: &str| times.iter().find(|(own, _)| own == name).map(|(_, at)| *at);
    assert!(
        at("first") <= at("middle") && at("middle") <= at("last"),
        "{times:?}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(product.client.clone(), &product.namespace);
    let map = maps.get("by-number-barrier").await?;
    let keys: Vec<String> = map.data.unwrap_or_default().into_keys().collect();
    assert_eq!(keys, ["p_-5", "p_0", "p_9"]);
    let owners = map.metadata.owner_references.context("owned by the pod")?;
    assert_eq!(
        (owners[0].kind.as_str(), owners[0].name.as_str()),
        ("Pod", "by-number")
    );
    wait_for("the note", TWO_MINUTES, async || {
        let pod = pods.get("by-number").await?;
        match pod
            .metadata
            .annotations
            .is_some_and(|all| all.contains_key(COMPLETED))
        {
            true => Ok(Seen::Done(())),
            false => not_yet("not yet".to_owned()),
        }
    })
    .await?;
    pods.delete("by-number", &DeleteParams::default()).await?;
    product.leave().await
}

/// The annotation orders them as they are listed.
#[tokio::test]
async fn the_annotation_starts_them_as_they_are_listed() -> Result<()> {
    let product = Product::attach("ordered").await?;
    let image = push_idle_image(&product, "1").await?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let container = |name: &str| json!({"name": name, "image": image});
    let annotations = json!({"apps.kruise.io/container-launch-priority": "Ordered"});
    make(
        &pods,
        "listed",
        annotations,
        json!([container("one"), container("two")]),
    )
    .await?;
    let (_, times) = ready(&pods, "listed").await?;
    let at = |name: &str| times.iter().find(|(own, _)| own == name).map(|(_, at)| *at);
    assert!(at("one") <= at("two"), "{times:?}");
    product.leave().await
}

/// A priority that cannot be read keeps the pod from being made, with a text that names it.
#[tokio::test]
async fn a_priority_that_is_no_number_is_refused() -> Result<()> {
    let product = Product::attach("launch-bad").await?;
    let image = push_idle_image(&product, "1").await?;
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
    let bad = json!([
        {"name": "one", "image": image},
        {"name": "two", "image": image, "env": [{"name": "KRUISE_CONTAINER_PRIORITY", "value": "high"}]},
    ]);
    let refused = make(&pods, "bad", json!({}), bad).await.expect_err("refused");
    let text = format!("{refused:#}");
    assert!(text.contains("container two") && text.contains("high"), "{text}");
    product.leave().await
}
