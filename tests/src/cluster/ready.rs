//! Waiting for a cluster's parts to be ready.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, ListParams};

use super::Cluster;
use crate::wait::{Seen, not_yet, wait_for};

impl Cluster {
    /// Fails, with the end of its log, when a component is not running.
    pub fn must_run(&self, name: &str) -> Result<()> {
        let component = self.component(name)?;
        if component.is_running() {
            return Ok(());
        }
        bail!(
            "{name} is {:?}; its log ends with:\n{}",
            component.state(),
            component.log_tail(15)
        );
    }

    /// Waits until the API server serves, and answers a client.
    pub async fn wait_api(&self) -> Result<kube::Client> {
        let client = self.client().await?;
        wait_for("the API server", Duration::from_secs(60), || async {
            self.must_run("etcd")?;
            self.must_run("apiserver")?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            match client.request_text(request).await {
                Ok(_) => Ok(Seen::Done(())),
                Err(error) => not_yet(error),
            }
        })
        .await?;
        Ok(client)
    }

    /// Waits until the registry accepts connections.
    pub async fn wait_registry(&self) -> Result<()> {
        let registry = self.registry();
        wait_for("the registry", Duration::from_secs(20), || async {
            self.must_run("registry")?;
            self.must_run("forward-registry")?;
            registry.ping().await.map(Seen::Done)
        })
        .await
    }

    /// Waits until every node is ready and pods can be made in the default namespace.
    pub async fn wait_ready(&self, timeout: Duration) -> Result<()> {
        let client = self.client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
        let wanted = self.description().nodes;
        wait_for(&format!("{wanted} ready nodes"), timeout, || async {
            for component in self.components()? {
                self.must_run(component.name())?;
            }
            let list = nodes.list(&ListParams::default()).await?;
            let ready = list.iter().filter(|n| is_ready(n)).count();
            if ready < wanted {
                return not_yet(format!("{ready} of {wanted} ready"));
            }
            match accounts.get_opt("default").await? {
                Some(_) => Ok(Seen::Done(())),
                None => not_yet("the default ServiceAccount is not there"),
            }
        })
        .await
    }
}

/// Whether a node says that it is ready.
#[must_use]
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}
