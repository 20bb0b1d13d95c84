//! Asks for everything that a report shows, each part by the rights that the user has.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kruise_api::image_pull_job::ImagePullJob;
use kruise_proto::inspect;
use kube::Api;
use kube::api::ListParams;

use super::report::{Agents, Job, Laggard, Manager, Report};
use crate::connect::{self, Cluster, Inspect};
use crate::exit::chain;
use crate::tasks::refused;

/// Pods of the manager, as the chart labels them.
const MANAGER_PODS: &str = "control-plane=controller-manager";
/// Time for one replica to answer.
const REPLICA: Duration = Duration::from_secs(10);

/// Everything, as it is now.
pub(super) async fn gather(cluster: &Cluster) -> Result<Report> {
    let client = connect::open(cluster).await?;
    let (mut report, managers, jobs) = tokio::join!(agents(client), managers(cluster), jobs(cluster));
    if let Ok(report) = &mut report {
        match managers {
            Ok(mut managers) => {
                for manager in &mut managers {
                    manager.leads = manager.pod == report.leader;
                }
                report.managers = Some(managers);
            }
            Err(error) => report.unknown.push(format!("managers: {}", chain(&error))),
        }
        match jobs {
            Ok(jobs) => report.jobs = Some(jobs),
            Err(error) => report.unknown.push(format!("jobs: {}", chain(&error))),
        }
    }
    report
}

/// The leader's own account of itself and its agents.
async fn agents(mut client: Inspect) -> Result<Report> {
    let mut agents = Agents::default();
    let mut page_token = String::new();
    loop {
        let request = inspect::ListAgentsRequest {
            page_size: 0,
            page_token,
        };
        let page = client.list_agents(request).await.map_err(refused)?.into_inner();
        for agent in page.agents {
            let state = agent.sync_state();
            match state {
                inspect::SyncState::Synced => agents.synced += 1,
                inspect::SyncState::Stale => agents.stale += 1,
                inspect::SyncState::NotSent | inspect::SyncState::Unspecified => agents.not_sent += 1,
            }
            if state != inspect::SyncState::Synced {
                agents.not_in_sync.push(Laggard {
                    state: crate::agents::state(state).to_owned(),
                    node: agent.node_name,
                });
            }
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(Report {
                leader: page.leader,
                epoch: page.epoch,
                agents,
                ..Report::default()
            });
        }
    }
}

/// Each replica, by a connection of its own. With an address given there is but that one to be seen.
async fn managers(cluster: &Cluster) -> Result<Vec<Manager>> {
    anyhow::ensure!(cluster.server.is_none(), "only the one at --server was asked");
    let system = &cluster.system;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), system);
    let found = pods
        .list(&ListParams::default().labels(MANAGER_PODS))
        .await
        .with_context(|| format!("cannot list pods in namespace {system}"))?;
    let asked = found.items.into_iter().map(|pod| manager(cluster, pod));
    Ok(futures::future::join_all(asked).await)
}

async fn manager(cluster: &Cluster, pod: Pod) -> Manager {
    let name = pod.metadata.name.unwrap_or_default();
    let status = pod.status.unwrap_or_default();
    let ready = (status.conditions.unwrap_or_default().iter())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let phase = status.phase.unwrap_or_default();
    let problem = if phase == "Running" {
        match tokio::time::timeout(REPLICA, ask(cluster, &name)).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => chain(&error),
            Err(_) => format!("no answer within {} s", REPLICA.as_secs()),
        }
    } else {
        format!("its pod is {phase}")
    };
    Manager {
        pod: name,
        leads: false,
        ready,
        answers: problem.is_empty(),
        problem,
    }
}

/// One that does not lead asks the leader in turn, so an answer shows that both ways are open.
async fn ask(cluster: &Cluster, pod: &str) -> Result<()> {
    let mut client = connect::open_pod(cluster, pod).await?;
    let request = inspect::ListAgentsRequest {
        page_size: 1,
        ..Default::default()
    };
    client.list_agents(request).await.map_err(refused)?;
    Ok(())
}

/// Jobs that are not over, of all namespaces.
async fn jobs(cluster: &Cluster) -> Result<Vec<Job>> {
    let jobs: Api<ImagePullJob> = Api::all(cluster.client.clone());
    let found = jobs
        .list(&ListParams::default())
        .await
        .context("cannot list ImagePullJobs of all namespaces")?;
    Ok(found.items.into_iter().filter_map(Job::in_progress).collect())
}
