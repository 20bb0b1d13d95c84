//! The product as installed in a cluster: its pods and processes, its leader, its certificates, and jobs for it.

mod job;
mod process;
mod reach;
mod restart;
mod set;
mod witness;

use std::fmt;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kruise_api::names;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;

pub use job::{Job, Outcome};
pub use process::{container_pid, kill_daemon, manager_process};
pub use reach::{Forward, viewer_token};
pub use restart::{Container, Restarts};
pub use set::{Set, push_idle_image, push_padded_image};
pub use witness::{Seen, Witness};

use crate::cluster::Cluster;
use crate::registry::{ImageSpec, Pushed};

/// Where the product is installed.
pub const NAMESPACE: &str = names::DEFAULT_NAMESPACE;

/// A cluster with the product in it, and a namespace of the test's own.
#[derive(Clone)]
pub struct Product {
    pub cluster: Cluster,
    pub client: kube::Client,
    /// Of this test only.
    pub namespace: String,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub pod: String,
    pub holder: String,
    pub epoch: u64,
}

impl fmt::Debug for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A client has nothing to show.
        f.debug_struct("Product")
            .field("cluster", &self.cluster)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Product {
    /// Attaches to the cluster that `KRUISE_BED` names, with a new namespace for the test of this name.
    pub async fn attach(test: &str) -> Result<Self> {
        let name = std::env::var("KRUISE_BED").context(
            "KRUISE_BED names no cluster: run `cargo xtask test e2e`, or `cargo xtask cluster up`, `cargo xtask deploy` and set it",
        )?;
        let cluster = Cluster::attach(&name)?;
        let client = cluster.client().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let wanted = json!({"metadata": {"generateName": format!("{test}-")}});
        let made = namespaces
            .create(&PostParams::default(), &serde_json::from_value(wanted)?)
            .await?;
        let namespace = made.metadata.name.context("a namespace has a name")?;
        Ok(Self {
            cluster,
            client,
            namespace,
        })
    }

    /// Pushes an image whose bytes no node has ever seen: nodes keep what they have pulled. Its name is the test's namespace, its tag "1".
    pub async fn push_new_image(&self, layers: u64, bytes_per_layer: u64) -> Result<Pushed> {
        self.cluster
            .registry()
            .push(&ImageSpec::random(&self.namespace, "1", layers, bytes_per_layer))
            .await
    }

    /// Reference of that image by way of a registry, for example a front.
    #[must_use]
    pub fn new_image_at(&self, host: &str) -> String {
        format!("{host}/{}:1", self.namespace)
    }

    /// Deletes the test's namespace, without waiting.
    pub async fn leave(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::background())
            .await?;
        Ok(())
    }

    /// Who leads, by the Lease.
    pub async fn leader(&self) -> Result<Leader> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let lease = leases.get(names::LEASE).await?;
        let epoch = lease
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(names::LEASE_EPOCH));
        let epoch = epoch.context("the Lease carries no epoch")?.parse()?;
        let holder = lease
            .spec
            .and_then(|spec| spec.holder_identity)
            .filter(|holder| !holder.is_empty());
        let holder = holder.context("nobody holds the Lease")?;
        let pod = holder
            .rsplit_once('_')
            .map_or(holder.as_str(), |(pod, _)| pod)
            .to_owned();
        Ok(Leader { pod, holder, epoch })
    }

    /// Pods of one part: `controller-manager` or `daemon`.
    pub async fn pods(&self, part: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        Ok(pods
            .list(&ListParams::default().labels(&format!("control-plane={part}")))
            .await?
            .items)
    }

    /// The pod of a node's agent.
    pub async fn daemon_pod(&self, node: &str) -> Result<Pod> {
        let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let pods = self.pods("daemon").await?;
        pods.into_iter()
            .find(on_node)
            .with_context(|| format!("no agent on {node}"))
    }

    /// Certificates that agents and people trust.
    pub async fn trust_bundle(&self) -> Result<String> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let bundle = maps.get(names::TRUST_CONFIGMAP).await?;
        let text = bundle
            .data
            .and_then(|mut data| data.remove(names::TRUST_BUNDLE_KEY));
        text.filter(|text| !text.is_empty())
            .context("the trust bundle is empty")
    }

    /// What a pod has logged, the container that ended before included.
    pub fn logs(&self, pod: &str) -> Result<String> {
        let mut text = self.cluster.kubectl(&["logs", "-n", NAMESPACE, pod])?;
        if let Ok(earlier) = self
            .cluster
            .kubectl(&["logs", "-n", NAMESPACE, "--previous", pod])
        {
            text.insert_str(0, &earlier);
        }
        Ok(text)
    }
}
