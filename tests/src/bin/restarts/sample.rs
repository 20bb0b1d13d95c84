//! One restart, step by step, each step timed by who does it: the runtime by its events, the API server by its watches.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_cri::v1::StopContainerRequest;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_tests::events::Events;
use kruise_tests::product::{Container, NAMESPACE, Product, Restarts};
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::How;

/// Longest time for one step.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pod's own grace; its container ends at once when it is asked.
const GRACE_SECONDS: i64 = 30;

/// Times of one restart.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// The instance that was stopped.
    old: String,
    /// The request was sent, or StopContainer was.
    asked: Timestamp,
    /// The container had ended.
    stopped: Timestamp,
    /// The kubelet had the next instance made.
    made: Timestamp,
    /// It ran.
    started: Timestamp,
    /// Its pod's status told that it is ready.
    ready: Timestamp,
    /// The request was over.
    completed: Option<Timestamp>,
}

impl Sample {
    /// Until the agent asks the runtime to stop it, by the agent's log.
    pub(crate) fn issue(&self, issued: &Issued) -> Option<f64> {
        Some(millis(self.asked, *issued.get(&self.old)?))
    }

    /// Until the container has ended.
    pub(crate) fn stop(&self) -> f64 {
        millis(self.asked, self.stopped)
    }

    /// Until the kubelet has noticed.
    pub(crate) fn relist(&self) -> f64 {
        millis(self.stopped, self.made)
    }

    pub(crate) fn start(&self) -> f64 {
        millis(self.made, self.started)
    }

    pub(crate) fn readiness(&self) -> f64 {
        millis(self.started, self.ready)
    }

    /// From readiness to the end of the request.
    pub(crate) fn completion(&self) -> Option<f64> {
        Some(millis(self.ready, self.completed?))
    }

    pub(crate) fn total(&self) -> f64 {
        millis(self.asked, self.completed.unwrap_or(self.ready))
    }
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// When agents have asked for the stop of instances, by id.
pub(crate) type Issued = BTreeMap<String, Timestamp>;

/// What is measured on.
pub(crate) struct Bench {
    product: Product,
    restarts: Restarts,
    nodes: Vec<(String, Events)>,
}

impl Bench {
    pub(crate) async fn begin(product: Product) -> Result<Self> {
        let mut nodes = Vec::new();
        for node in product.cluster.nodes() {
            let events = Events::subscribe(&product.cluster, &node).await?;
            nodes.push((node, events));
        }
        Ok(Self {
            restarts: Restarts::of(&product),
            product,
            nodes,
        })
    }

    /// Restarts container `main` of a new pod.
    pub(crate) async fn sample(&self, number: usize, how: How) -> Result<Sample> {
        let name = format!(
            "{}-{number}",
            if how == How::Request { "request" } else { "hand" }
        );
        let (node, events) = &self.nodes[number % self.nodes.len()];
        self.restarts.make_pod(&name, Some(node), None).await?;
        self.restarts.ready(&name).await?;
        let old = main(&self.restarts.containers(&name).await?)?;
        let again = tokio::spawn(again(self.restarts.clone(), name.clone(), old.clone()));
        let over = tokio::spawn(over(self.restarts.clone(), name.clone()));
        // Both watches stand before anything happens.
        tokio::task::yield_now().await;
        let asked = Timestamp::now();
        match how {
            How::Request => self.restarts.ask(&name, &name, &["main"], json!({})).await?,
            How::ByHand => self.stop(node, &old).await?,
        }
        let (ready, new) = again.await??;
        let completed = match how {
            How::Request => Some(over.await??),
            How::ByHand => {
                over.abort();
                None
            }
        };
        let sample = Sample {
            asked,
            stopped: events.wait("/tasks/exit", &old, PATIENCE).await?.time,
            old,
            made: events.wait("/containers/create", &new, PATIENCE).await?.time,
            started: events.wait("/tasks/start", &new, PATIENCE).await?.time,
            ready,
            completed,
        };
        let params = DeleteParams::default().grace_period(0);
        self.restarts.pods.delete(&name, &params).await?;
        Ok(sample)
    }

    /// When agents have called `StopContainer`, as they say: a line per call, written right before it.
    pub(crate) async fn issued(&self) -> Result<Issued> {
        let mut issued = Issued::new();
        for (node, _) in &self.nodes {
            let pod = self.product.daemon_pod(node).await?.metadata.name;
            let pod = pod.context("a pod has a name")?;
            let log = self.product.cluster.kubectl(&["logs", "-n", NAMESPACE, &pod])?;
            let stops = log.lines().filter(|line| line.contains(" stopping task="));
            issued.extend(stops.filter_map(|line| {
                let id = line.split("id=\"").nth(1)?.split('"').next()?;
                Some((id.to_owned(), line.split_whitespace().next()?.parse().ok()?))
            }));
        }
        Ok(issued)
    }

    async fn stop(&self, node: &str, id: &str) -> Result<()> {
        let socket = self.product.cluster.containerd_socket(node);
        let channel = containerd_client::connect(&socket)
            .await
            .context("no way to the runtime")?;
        let request = StopContainerRequest {
            container_id: id.to_owned(),
            timeout: GRACE_SECONDS,
        };
        RuntimeServiceClient::new(channel)
            .stop_container(request)
            .await
            .context("StopContainer failed")?;
        Ok(())
    }
}

fn main(containers: &[Container]) -> Result<String> {
    let main = containers.iter().find(|container| container.name == "main");
    Ok(main.context("no container main")?.id.clone())
}

/// Waits until another instance of `main` is ready, and answers when that was heard of, and its id.
async fn again(restarts: Restarts, pod: String, old: String) -> Result<(Timestamp, String)> {
    let is_back = |pod: Option<&Pod>| {
        let containers = pod.map(Restarts::containers_of).unwrap_or_default();
        let mut containers = containers.iter().filter(|container| container.name == "main");
        containers.any(|container| container.ready && container.id != old)
    };
    let waiting = await_condition(restarts.pods.clone(), &pod, is_back);
    let found = tokio::time::timeout(PATIENCE, waiting).await??;
    let at = Timestamp::now();
    let Some(pod) = found else { bail!("{pod} is gone") };
    Ok((at, main(&Restarts::containers_of(&pod))?))
}

/// Waits until a request is over, and answers when that was heard of.
async fn over(restarts: Restarts, name: String) -> Result<Timestamp> {
    let is_over = |request: Option<&ContainerRecreateRequest>| {
        let status = request.and_then(|request| request.status.as_ref());
        status.is_some_and(|status| status.completion_time.is_some())
    };
    tokio::time::timeout(PATIENCE, await_condition(restarts.requests, &name, is_over)).await??;
    Ok(Timestamp::now())
}
