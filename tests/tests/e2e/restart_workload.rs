//! `kruisectl restart` of a whole workload: one pod at a time, each once, also when the program is killed in the middle.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::cluster::REGISTRY;
use kruise_tests::events::Events;
use kruise_tests::product::{Container, Product, Restarts};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;

const PODS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(180);

/// A Deployment and what its nodes' runtimes do.
struct Watched {
    product: Product,
    restarts: Restarts,
    events: Vec<Events>,
}

impl Watched {
    async fn begin() -> Result<Self> {
        let product = Product::attach("bulk").await?;
        let labels = json!({"app": "web"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": PODS, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": format!("{REGISTRY}/pause:3.10")}]},
            }},
        });
        let api: Api<Deployment> = Api::namespaced(product.client.clone(), &product.namespace);
        api.create(&PostParams::default(), &serde_json::from_value(deployment)?)
            .await?;
        let mut events = Vec::new();
        for node in product.cluster.nodes() {
            events.push(Events::subscribe(&product.cluster, &node).await?);
        }
        let this = Self {
            restarts: Restarts::of(&product),
            product,
            events,
        };
        wait_for("all pods to run", PATIENCE, async || {
            let ready = this
                .containers()
                .await?
                .values()
                .filter(|main| main.ready)
                .count();
            if ready == PODS {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{ready} do"))
        })
        .await?;
        Ok(this)
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.restarts.pods.list(&ListParams::default()).await?.items)
    }

    /// The container of each pod, by the pod's name.
    async fn containers(&self) -> Result<BTreeMap<String, Container>> {
        let pods = self.pods().await?;
        let one = |pod: Pod| {
            let main = Restarts::containers_of(&pod).pop()?;
            Some((pod.metadata.name?, main))
        };
        Ok(pods.into_iter().filter_map(one).collect())
    }

    fn kruisectl(&self, log: &File) -> Result<Child> {
        let mut command = self.product.cluster.tool("kruisectl");
        command.args(["restart", "deploy/web", "-n", &self.product.namespace]);
        command.args(["--max-unavailable", "1", "--ordered", "--wait", "--run", "e2e"]);
        let child = command.stdin(Stdio::null()).stderr(log.try_clone()?).spawn();
        child.context("kruisectl cannot be started")
    }

    /// Waits until so many pods have been restarted. At no look is more than one of them down.
    async fn restarted(&self, count: usize) -> Result<()> {
        wait_for(&format!("{count} restarts"), PATIENCE, async || {
            let containers = self.containers().await?;
            let down: Vec<_> = containers.iter().filter(|(_, main)| !main.ready).collect();
            assert!(down.len() <= 1, "{down:?}");
            let done = containers.values().filter(|main| main.restarts > 0).count();
            if done >= count && down.is_empty() {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{done} so far"))
        })
        .await
    }

    /// When a container began or ended, by its runtime.
    fn moment(&self, topic: &str, id: &str) -> Result<Timestamp> {
        let mut found = self.events.iter().flat_map(|events| events.of(topic, id));
        let event = found.next().with_context(|| format!("no {topic} of {id}"))?;
        Ok(event.time)
    }
}

#[tokio::test]
async fn never_two_down_at_once_and_none_restarted_twice() -> Result<()> {
    let watched = Watched::begin().await?;
    let before = watched.containers().await?;
    let log = tempfile::NamedTempFile::new()?;
    let mut killed = watched.kruisectl(log.as_file())?;
    watched.restarted(3).await?;
    killed.kill()?;
    killed.wait()?;
    let mut child = watched.kruisectl(log.as_file())?;
    watched.restarted(PODS).await?;
    let status = wait_for("kruisectl to end", PATIENCE, async || match child.try_wait()? {
        Some(status) => Ok(Seen::Done(status)),
        None => not_yet("it runs"),
    })
    .await?;
    let said = std::fs::read_to_string(log.path())?;
    ensure!(status.success(), "{status}:\n{said}");
    println!("{said}");
    let after = watched.containers().await?;
    let mut down = Vec::new();
    for (pod, new) in &after {
        let old = before.get(pod).with_context(|| format!("{pod} is another pod"))?;
        assert_eq!(new.restarts, 1, "{pod}\n{said}");
        down.push((
            watched.moment("/tasks/exit", &old.id)?,
            watched.moment("/tasks/start", &new.id)?,
        ));
    }
    assert_eq!(down.len(), PODS);
    down.sort();
    for pair in down.windows(2) {
        assert!(pair[0].1 < pair[1].0, "two were down at once: {pair:?}\n{said}");
    }
    watched.product.leave().await
}
