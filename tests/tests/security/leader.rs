//! The leader as a target: its address, its process, its log.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use kruise_api::names;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use kruise_proto::inspect::{Agent, ListAgentsRequest, SyncState};
use kruise_tests::cluster::netns_file;
use kruise_tests::net::in_namespace;
use kruise_tests::process::Process;
use kruise_tests::product::{Product, manager_process, viewer_token};
use kruise_tests::wait::{Seen, not_yet, wait_for};
use tonic::Request;

use crate::call;

/// Address of the control plane, from which the tests' calls come.
pub(crate) const CALLER: &str = "10.90.0.1";

/// Where to reach the leader, and whom to trust.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) pod: String,
    pub(crate) address: SocketAddr,
    pub(crate) bundle: String,
    pub(crate) process: Process,
}

impl Target {
    pub(crate) async fn leader(product: &Product) -> Result<Self> {
        let pod = product.leader().await?.pod;
        let pods = product.pods("controller-manager").await?;
        let found = pods
            .iter()
            .find(|candidate| candidate.metadata.name.as_deref() == Some(&pod));
        let ip = found
            .and_then(|pod| pod.status.as_ref()?.pod_ip.clone())
            .context("the leader has no address")?;
        Ok(Self {
            address: SocketAddr::new(ip.parse()?, names::MANAGER_GRPC_PORT),
            bundle: product.trust_bundle().await?,
            process: manager_process(product, &pod).await?,
            pod,
        })
    }
}

/// Runs asynchronous work on a thread in the control plane's network, from where pods can be reached.
pub(crate) fn inside<T: Send>(product: &Product, work: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = netns_file(&product.cluster.layout().control_plane());
    in_namespace(&namespace, || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(work())
    })
}

/// Lines of a log that tell of a refusal of the tests' caller for this reason.
pub(crate) fn refusals(log: &str, reason: &str) -> usize {
    let reason = format!("reason=\"{reason}\"");
    let peer = format!("peer=\"{CALLER}");
    log.lines()
        .filter(|line| line.contains(&peer) && line.contains(&reason))
        .count()
}

/// The agents by the leader's own view. To be asked from inside.
pub(crate) async fn agents(target: &Target, token: &str) -> Result<Vec<Agent>> {
    let mut request = Request::new(ListAgentsRequest::default());
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse()?);
    let mut client = InspectServiceClient::new(call::channel(target).await?);
    Ok(client.list_agents(request).await?.into_inner().agents)
}

/// Waits until every node's agent is attached to whoever leads.
pub(crate) async fn all_attached(product: &Product, within: Duration) -> Result<()> {
    let token = viewer_token(product)?;
    wait_for("every agent to be attached", within, async || {
        let target = Target::leader(product).await?;
        let agents = inside(product, async || agents(&target, &token).await)?;
        let synced = |node: &String| {
            agents
                .iter()
                .any(|agent| agent.node_name == *node && agent.sync_state() == SyncState::Synced)
        };
        let missing: Vec<String> = product
            .cluster
            .nodes()
            .into_iter()
            .filter(|node| !synced(node))
            .collect();
        if missing.is_empty() {
            Ok(Seen::Done(()))
        } else {
            not_yet(format!("not attached: {missing:?}"))
        }
    })
    .await
}
