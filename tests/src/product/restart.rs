//! Pods whose containers are restarted in place, and the requests for it.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::Product;
use crate::cluster::REGISTRY;
use crate::wait::{Seen, not_yet, wait_for};

/// Longest time for a pod to come up, or for a request to end that nothing holds up.
const A_MINUTE: Duration = Duration::from_secs(60);

/// A container as its pod's status has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    pub id: String,
    pub restarts: i32,
    pub ready: bool,
}

/// The pods and requests of a test's namespace.
#[derive(Clone)]
pub struct Restarts {
    pub pods: Api<Pod>,
    pub requests: Api<ContainerRecreateRequest>,
}

impl std::fmt::Debug for Restarts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A client has nothing to show.
        f.debug_struct("Restarts").finish_non_exhaustive()
    }
}

impl Restarts {
    #[must_use]
    pub fn of(product: &Product) -> Self {
        Self {
            pods: Api::namespaced(product.client.clone(), &product.namespace),
            requests: Api::namespaced(product.client.clone(), &product.namespace),
        }
    }

    /// Makes a pod of containers `main` and `side` that do nothing and end when they are told to. `main` has this lifecycle.
    pub async fn make_pod(&self, name: &str, node: Option<&str>, lifecycle: Option<Value>) -> Result<()> {
        let image = format!("{REGISTRY}/pause:3.10");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 60, "nodeName": node, "containers": [
                {"name": "main", "image": image, "lifecycle": lifecycle}, {"name": "side", "image": image},
            ]},
        });
        self.pods
            .create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        Ok(())
    }

    /// Waits until all containers of a pod are ready.
    pub async fn ready(&self, name: &str) -> Result<()> {
        wait_for(&format!("pod {name} to run"), A_MINUTE, async || {
            let containers = self.containers(name).await?;
            if !containers.is_empty() && containers.iter().all(|container| container.ready) {
                return Ok(Seen::Done(()));
            }
            not_yet(format!("{containers:?}"))
        })
        .await
    }

    /// The regular containers that a pod's status has.
    #[must_use]
    pub fn containers_of(pod: &Pod) -> Vec<Container> {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.clone());
        let one = |status: ContainerStatus| {
            let id = status.container_id.unwrap_or_default();
            Container {
                name: status.name,
                id: id.rsplit('/').next().unwrap_or_default().to_owned(),
                restarts: status.restart_count,
                ready: status.ready,
            }
        };
        statuses.into_iter().flatten().map(one).collect()
    }

    /// The containers of a pod.
    pub async fn containers(&self, name: &str) -> Result<Vec<Container>> {
        Ok(Self::containers_of(&self.pods.get(name).await?))
    }

    /// Restarts so far of `main` and `side`.
    pub async fn counts(&self, name: &str) -> Result<(i32, i32)> {
        let containers = self.containers(name).await?;
        let of = |wanted: &str| {
            let found = containers.iter().find(|container| container.name == wanted);
            found
                .map(|container| container.restarts)
                .with_context(|| format!("{name} has no container {wanted}"))
        };
        Ok((of("main")?, of("side")?))
    }

    /// Makes a request. `more` is merged into its spec.
    pub async fn ask(&self, name: &str, pod: &str, containers: &[&str], more: Value) -> Result<()> {
        let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({"podName": pod, "containers": containers, "ttlSecondsAfterFinished": 600});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let request = json!({
            "apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest", "metadata": {"name": name}, "spec": spec,
        });
        self.requests
            .create(&PostParams::default(), &serde_json::from_value(request)?)
            .await?;
        Ok(())
    }

    /// Waits until a request has ended.
    pub async fn ended(&self, name: &str) -> Result<ContainerRecreateRequest> {
        wait_for(&format!("request {name} to end"), A_MINUTE, async || {
            let request = self.requests.get(name).await?;
            let status = request.status.as_ref();
            if status.is_some_and(|status| status.completion_time.is_some()) {
                return Ok(Seen::Done(request));
            }
            not_yet(format!("{status:?}"))
        })
        .await
    }

    /// Waits until a request has ended, and answers phase and message of each container.
    pub async fn outcome(&self, name: &str) -> Result<Vec<(String, String)>> {
        let status = self.ended(name).await?.status.context("it has ended")?;
        let states = status.container_recreate_states.into_iter();
        Ok(states
            .map(|state| (format!("{:?}", state.phase), state.message))
            .collect())
    }
}
