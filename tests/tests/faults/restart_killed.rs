//! Restarts in place whose leader, agent or API server goes away between the acceptance of the request and the stop: every container is restarted
//! exactly once and no hook runs twice. The hooks, which the test answers, hold that moment open.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_tests::cluster::Component;
use kruise_tests::events::Events;
use kruise_tests::net::Hooks;
use kruise_tests::product::{NAMESPACE, Product, Restarts, kill_daemon, manager_process};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use kube::api::{Api, DeleteParams};
use rustix::process::Signal;
use serde_json::json;

use crate::{managers, rounds};

/// Requests under way at each fault.
const AT_ONCE: usize = 6;
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// Requests that are all between acceptance and stop.
struct Held {
    product: Product,
    restarts: Restarts,
    hooks: Hooks,
    pods: Vec<String>,
}

impl Held {
    /// Two pods per node, every other request forced.
    async fn begin(product: Product) -> Result<Self> {
        let held = Self {
            restarts: Restarts::of(&product),
            hooks: Hooks::start(&product.cluster)?,
            pods: (0..AT_ONCE).map(|number| format!("pod-{number}")).collect(),
            product,
        };
        let nodes = held.product.cluster.nodes();
        for (pod, node) in held.pods.iter().zip(nodes.iter().cycle()) {
            let lifecycle = held.hooks.lifecycle(pod);
            held.restarts.make_pod(pod, Some(node), Some(lifecycle)).await?;
        }
        for pod in &held.pods {
            held.restarts.ready(pod).await?;
        }
        for (number, pod) in held.pods.iter().enumerate() {
            let strategy = json!({"strategy": {"forceRecreate": number % 2 == 0}});
            held.restarts.ask(pod, pod, &["main"], strategy).await?;
        }
        wait_for("all hooks to run", HALF_A_MINUTE, async || {
            let waiting: Vec<_> = held
                .pods
                .iter()
                .filter(|pod| held.hooks.calls(pod) == 0)
                .collect();
            if waiting.is_empty() {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("not those of {waiting:?}"))
        })
        .await?;
        Ok(held)
    }

    /// Every request ends well, after which the same leader and agents restart the other container: had any of them still a stop to repeat, it would
    /// have come before that.
    async fn ends_well(self) -> Result<()> {
        self.hooks.answer();
        for pod in &self.pods {
            let outcome = self.restarts.outcome(pod).await?;
            assert_eq!(outcome, [("Succeeded".to_owned(), String::new())], "{pod}");
        }
        let again = |pod: &String| format!("{pod}-side");
        for pod in &self.pods {
            self.restarts.ask(&again(pod), pod, &["side"], json!({})).await?;
        }
        for pod in &self.pods {
            self.restarts.outcome(&again(pod)).await?;
            assert_eq!(self.restarts.counts(pod).await?, (1, 1), "{pod}");
            assert_eq!(self.hooks.calls(pod), 1, "the hook of {pod}");
        }
        self.product.leave().await
    }
}

#[tokio::test]
async fn a_killed_leader_restarts_nothing_twice() -> Result<()> {
    for _ in 0..rounds(1, 17) {
        let product = Product::attach("restart-leader").await?;
        managers::fresh(&product).await?;
        let held = Held::begin(product).await?;
        let old = held.product.leader().await?;
        manager_process(&held.product, &old.pod)
            .await?
            .signal(Signal::KILL)?;
        // What is under way does not wait for another leader.
        held.hooks.answer();
        managers::successor(&held.product, &old, HALF_A_MINUTE).await?;
        held.ends_well().await?;
    }
    Ok(())
}

#[tokio::test]
async fn killed_agents_restart_nothing_twice() -> Result<()> {
    for _ in 0..rounds(1, 17) {
        let product = Product::attach("restart-agents").await?;
        fresh_agents(&product).await?;
        let held = Held::begin(product).await?;
        for node in held.product.cluster.nodes() {
            kill_daemon(&held.product, &node).await?;
        }
        held.ends_well().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_is_away_meanwhile_finds_everything_done() -> Result<()> {
    let held = Held::begin(Product::attach("restart-api").await?).await?;
    let mut events = Vec::new();
    for node in held.product.cluster.nodes() {
        events.push(Events::subscribe(&held.product.cluster, &node).await?);
    }
    let mut old = Vec::new();
    for pod in &held.pods {
        let containers = held.restarts.containers(pod).await?.into_iter();
        old.extend(
            containers
                .filter(|container| container.name == "main")
                .map(|main| main.id),
        );
    }
    let mut server = held.product.cluster.component("apiserver")?;
    let away = Away::begin(&mut server)?;
    held.hooks.answer();
    wait_for("all containers to be stopped", HALF_A_MINUTE, async || {
        let ended = |id: &&String| {
            events
                .iter()
                .any(|events| !events.of("/tasks/exit", id).is_empty())
        };
        let stopped = old.iter().filter(ended).count();
        if stopped == AT_ONCE {
            return Ok(Seen::Done(()));
        }
        not_yet(format!("{stopped} have been"))
    })
    .await?;
    away.end(rounds(0, 30)).await?;
    held.ends_well().await
}

/// The API server, paused; it goes on when dropped.
struct Away<'a> {
    server: &'a mut Component,
    since: Instant,
}

impl<'a> Away<'a> {
    fn begin(server: &'a mut Component) -> Result<Self> {
        server.pause()?;
        Ok(Self {
            server,
            since: Instant::now(),
        })
    }

    /// Lets it go on once it was away for so long.
    async fn end(self, seconds: usize) -> Result<()> {
        let end = self.since + Duration::from_secs(u64::try_from(seconds)?);
        tokio::time::sleep_until(end.into()).await;
        drop(self);
        Ok(())
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.server.resume() {
            println!("the API server cannot be resumed: {error:#}");
        }
    }
}

/// Agents that have never been restarted: the kubelet waits longer with each restart of a container.
async fn fresh_agents(product: &Product) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(product.client.clone(), NAMESPACE);
    let restarted = |pod: &Pod| managers::containers(pod).any(|container| container.restart_count > 0);
    for pod in product.pods("daemon").await?.iter().filter(|pod| restarted(pod)) {
        let name = pod.metadata.name.as_deref().context("a pod has a name")?;
        pods.delete(name, &DeleteParams::default().grace_period(1))
            .await?;
    }
    let wanted = product.cluster.nodes().len();
    wait_for("fresh agents", Duration::from_secs(120), async || {
        let agents = product.pods("daemon").await?;
        let good = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && !restarted(pod)
                && managers::containers(pod).next().is_some()
                && managers::containers(pod).all(|container| container.ready)
        };
        let good = agents.iter().filter(good).count();
        if good == wanted && agents.len() == wanted {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("{good} of {}", agents.len()))
        }
    })
    .await
}
