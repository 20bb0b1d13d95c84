//! What others do with CloneSets, by the requests that they make: kubectl, PodDisruptionBudgets, kruise-rollouts, kube-state-metrics. What a
//! HorizontalPodAutoscaler does is part of the tests of scaling.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kruise_tests::product::{Product, Set, push_idle_image};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ApiResource, DynamicObject, EvictParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const TWO_MINUTES: Duration = Duration::from_secs(120);

/// Sets as those see them that were built before v1beta1.
fn older(product: &Product) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "apps.kruise.io".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "apps.kruise.io/v1alpha1".to_owned(),
        kind: "CloneSet".to_owned(),
        plural: "clonesets".to_owned(),
    };
    Api::namespaced_with(product.client.clone(), &product.namespace, &resource)
}

#[tokio::test]
async fn kubectl_scales_by_the_short_name() -> Result<()> {
    let product = Product::attach("kubectl-scale").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 1})).await?;
    set.settled(1, TWO_MINUTES).await?;
    let namespace = product.namespace.as_str();
    let asked = product
        .cluster
        .kubectl(&["scale", "-n", namespace, "clone/web", "--replicas=2"])?;
    anyhow::ensure!(asked.contains("scaled"), "{asked}");
    set.settled(2, TWO_MINUTES).await?;
    // The columns by which people follow a rollout.
    let shown = product
        .cluster
        .kubectl(&["get", "-n", namespace, "clone", "web", "--no-headers"])?;
    let columns: Vec<&str> = shown.split_whitespace().take(7).collect();
    assert_eq!(columns, ["web", "2", "2", "2", "2", "2", "2"], "{shown}");
    product.leave().await
}

/// The disruption controller finds out how many pods are expected by the scale subresource of what controls them.
#[tokio::test]
async fn a_disruption_budget_knows_how_many_pods_there_should_be() -> Result<()> {
    let product = Product::attach("budget").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 3})).await?;
    set.settled(3, TWO_MINUTES).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(product.client.clone(), &product.namespace);
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets
        .create(&PostParams::default(), &serde_json::from_value(budget)?)
        .await?;
    wait_for("the budget to know the set", TWO_MINUTES, async || {
        let status = budgets.get("web").await?.status.unwrap_or_default();
        if (
            status.expected_pods,
            status.desired_healthy,
            status.disruptions_allowed,
        ) == (3, 2, 1)
        {
            return Ok(Seen::Done(()));
        }
        not_yet(serde_json::to_string(&status)?)
    })
    .await?;
    // A drain takes one pod away, and the set makes up for it.
    let victim = set.pods().await?.pop().context("there are three")?;
    let name = victim.metadata.name.context("a pod has a name")?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> =
        Api::namespaced(product.client.clone(), &product.namespace);
    pods.evict(&name, &EvictParams::default()).await?;
    wait_for("another pod in its place", TWO_MINUTES, async || {
        let pods = set.pods().await?;
        let is_there = pods
            .iter()
            .any(|pod| pod.metadata.name.as_deref() == Some(name.as_str()));
        if pods.len() == 3 && !is_there {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{} pods", pods.len()))
    })
    .await?;
    set.settled(3, TWO_MINUTES).await?;
    product.leave().await
}

/// What kruise-rollouts reads of a set.
#[derive(Debug)]
struct Rollout {
    update: String,
    current: String,
    updated: i64,
    updated_ready: i64,
}

/// Patches the set as kruise-rollouts does, and waits until what it reads is as wanted.
async fn step(product: &Product, patch: Value, updated: i64) -> Result<Rollout> {
    let sets = older(product);
    sets.patch("web", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    wait_for("the batch to be ready", TWO_MINUTES, async || {
        let set = sets.get("web").await?;
        let status = &set.data["status"];
        let number = |name: &str| status[name].as_i64().unwrap_or_default();
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        let seen = Rollout {
            update: text("updateRevision"),
            current: text("currentRevision"),
            updated: number("updatedReplicas"),
            updated_ready: number("updatedReadyReplicas"),
        };
        let is_new = status["observedGeneration"].as_i64() == set.metadata.generation;
        if is_new && number("replicas") == 4 && (seen.updated, seen.updated_ready) == (updated, updated) {
            return Ok(Seen::Done(seen));
        }
        not_yet(format!("{seen:?}"))
    })
    .await
}

/// Pods whose label says what the revision's name ends with.
async fn of_revision(set: &Set, revision: &str) -> Result<i64> {
    let hash = revision.rsplit('-').next().unwrap_or_default();
    let pods = set.pods().await?;
    let labelled = pods.iter().filter(|pod| {
        let labels = pod.metadata.labels.as_ref();
        let value = labels.and_then(|labels| labels.get("pod-template-hash"));
        value.map(String::as_str) == Some(hash)
    });
    Ok(i64::try_from(labelled.count())?)
}

#[tokio::test]
async fn kruise_rollouts_drives_a_set_batch_by_batch() -> Result<()> {
    let product = Product::attach("rollouts").await?;
    let images = [
        push_idle_image(&product, "1").await?,
        push_idle_image(&product, "2").await?,
    ];
    let spec = json!({"replicas": 4, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 4}}});
    let set = Set::create(&product, "web", &images[0], spec).await?;
    set.settled(4, TWO_MINUTES).await?;
    // Its webhook holds the change back, and its controller takes the set over before the first batch.
    set.patch(json!({
        "metadata": {"annotations": {"rollouts.kruise.io/in-progressing": "{\"rolloutName\":\"web\"}"}},
        "spec": {"updateStrategy": {"rollingUpdate": {"paused": true}}},
    }))
    .await?;
    set.set_image(&images[1]).await?;
    let control =
        "{\"apiVersion\":\"rollouts.kruise.io/v1beta1\",\"kind\":\"BatchRelease\",\"name\":\"web\"}";
    let begin = json!({
        "metadata": {"annotations": {"batchrelease.rollouts.kruise.io/control-info": control}},
        "spec": {"updateStrategy": {"paused": false, "partition": "100%"}},
    });
    let seen = step(&product, begin, 0).await?;
    anyhow::ensure!(
        seen.update != seen.current && !seen.current.is_empty(),
        "{seen:?}"
    );
    for (partition, updated) in [(json!("75%"), 1), (json!(1), 3)] {
        let patch = json!({"spec": {"updateStrategy": {"partition": partition}}});
        let seen = step(&product, patch, updated).await?;
        assert_eq!(of_revision(&set, &seen.update).await?, updated, "{seen:?}");
    }
    let end = json!({
        "metadata": {"annotations": {"batchrelease.rollouts.kruise.io/control-info": null}},
        "spec": {"updateStrategy": {"paused": false, "partition": null}},
    });
    let seen = step(&product, end, 4).await?;
    set.when("one revision", TWO_MINUTES, |status| {
        status.current_revision == status.update_revision && !status.update_revision.is_empty()
    })
    .await?;
    assert_eq!(of_revision(&set, &seen.update).await?, 4);
    let annotations = set.get().await?.metadata.annotations.unwrap_or_default();
    assert!(
        annotations.contains_key("rollouts.kruise.io/in-progressing"),
        "marks of others stay: {annotations:?}"
    );
    product.leave().await
}

/// kube-state-metrics reads fields by path; each one that our configuration names is in an object of the cluster.
#[tokio::test]
async fn kube_state_metrics_finds_what_it_is_told_to_read() -> Result<()> {
    let product = Product::attach("state-metrics").await?;
    let image = push_idle_image(&product, "1").await?;
    let set = Set::create(&product, "web", &image, json!({"replicas": 1})).await?;
    set.settled(1, TWO_MINUTES).await?;
    let sets = older(&product);
    let stored = serde_json::to_value(set.get().await?)?;
    let config: Value = serde_norway::from_str(CONFIG)?;
    let mut seen = 0;
    for resource in config["spec"]["resources"].as_array().context("resources")? {
        if resource["groupVersionKind"]["kind"] != "CloneSet" {
            continue;
        }
        for metric in resource["metrics"].as_array().context("metrics")? {
            let gauge = &metric["each"]["gauge"];
            // A list of conditions may be empty.
            let Some(path) = gauge["path"].as_array().filter(|_| gauge["valueFrom"].is_null()) else {
                continue;
            };
            let found = path
                .iter()
                .filter_map(Value::as_str)
                .try_fold(&stored, |value, name| value.get(name));
            let optional = gauge["nilIsZero"] == json!(true);
            anyhow::ensure!(
                optional || found.is_some(),
                "{} reads {path:?}, which is not there",
                metric["name"]
            );
            // Counters are written even when they are 0, so that a typing mistake in a path shows.
            if path.first() == Some(&json!("status")) && path.len() == 2 {
                anyhow::ensure!(
                    found.is_some_and(Value::is_number),
                    "{} reads {path:?}: {found:?}",
                    metric["name"]
                );
            }
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen}");
    sets.get("web").await.context("the older version is served too")?;
    product.leave().await
}

const CONFIG: &str = include_str!("../../../deploy/kube-state-metrics/custom-resource-state.yaml");
