//! Containers of pods: which there are, how to end one, how to run a command in one.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_cri::v1 as cri;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use kruise_planner::node::reason::Code;
use kruise_planner::restart::facts::Exit;
use kruise_planner::restart::node::{Instance, State};
use tonic::transport::Channel;

use super::RuntimeError;
use super::cri::{CALL_TIMEOUT, within};

const POD_UID: &str = "io.kubernetes.pod.uid";
const NAME: &str = "io.kubernetes.container.name";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
const PRE_STOP: &str = "io.kubernetes.container.preStopHandler";
const PORTS: &str = "io.kubernetes.container.ports";
/// How much longer than the grace the runtime may take to say that a container has ended.
const STOP_SLACK: Duration = Duration::from_secs(5);

/// Containers of one runtime.
pub trait Containers: Send + Sync {
    /// The newest instance of each container of a pod. Times and exit codes are left out.
    fn of_pod(&self, pod_uid: &str) -> BoxFuture<'_, Result<Vec<Seen>, RuntimeError>>;

    /// The same instance with times and exit code.
    fn in_full(&self, instance: &Instance) -> BoxFuture<'_, Result<Instance, RuntimeError>>;

    /// Ends an instance: it is asked, and killed after `grace`. One that has ended already is fine.
    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Runs a command in an instance and kills it after `limit`. The exit code and what it printed.
    fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<(i32, String), RuntimeError>>;
}

/// An instance as a list shows it, with what the kubelet has noted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Name of the container.
    pub name: String,
    /// The instance.
    pub instance: Instance,
    /// The preStop handler, as JSON.
    pub pre_stop: Option<String>,
    /// The ports, as JSON.
    pub ports: Option<String>,
}

/// Over CRI.
#[derive(Debug)]
pub(super) struct CriContainers(pub(super) RuntimeServiceClient<Channel>);

impl Containers for CriContainers {
    fn of_pod(&self, pod_uid: &str) -> BoxFuture<'_, Result<Vec<Seen>, RuntimeError>> {
        let mut client = self.0.clone();
        let filter = cri::ContainerFilter {
            label_selector: [(POD_UID.to_owned(), pod_uid.to_owned())].into(),
            ..Default::default()
        };
        async move {
            let request = cri::ListContainersRequest { filter: Some(filter) };
            let answer = within("ListContainers", CALL_TIMEOUT, client.list_containers(request)).await?;
            Ok(newest(answer.containers))
        }
        .boxed()
    }

    fn in_full(&self, instance: &Instance) -> BoxFuture<'_, Result<Instance, RuntimeError>> {
        let mut client = self.0.clone();
        let mut full = instance.clone();
        async move {
            let request = cri::ContainerStatusRequest {
                container_id: full.id.clone(),
                verbose: false,
            };
            let answer = within("ContainerStatus", CALL_TIMEOUT, client.container_status(request)).await?;
            let status = answer.status.unwrap_or_default();
            full.state = state(status.state);
            full.started_at = time(status.started_at);
            full.exit = (full.state == State::Exited).then(|| Exit {
                code: status.exit_code,
                finished_at: time(status.finished_at),
            });
            Ok(full)
        }
        .boxed()
    }

    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.0.clone();
        let request = cri::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: seconds(grace),
        };
        async move {
            let call = client.stop_container(request);
            match within("StopContainer", grace + STOP_SLACK, call).await {
                // Cleared away meanwhile.
                Err(error) if error.code == Code::NotFound => Ok(()),
                other => other.map(drop),
            }
        }
        .boxed()
    }

    fn exec(
        &self,
        id: &str,
        command: Vec<String>,
        limit: Duration,
    ) -> BoxFuture<'_, Result<(i32, String), RuntimeError>> {
        let mut client = self.0.clone();
        let request = cri::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command,
            timeout: seconds(limit),
        };
        async move {
            let call = client.exec_sync(request);
            let answer = within("ExecSync", limit + STOP_SLACK, call).await?;
            let printed = [answer.stdout, answer.stderr].concat();
            Ok((
                answer.exit_code,
                String::from_utf8_lossy(&printed).trim().to_owned(),
            ))
        }
        .boxed()
    }
}

/// Whole seconds, rounded up: a grace of half a second must not be none.
fn seconds(span: Duration) -> i64 {
    let whole = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

/// Nanoseconds since 1970, where 0 stands for never.
fn time(nanos: i64) -> Option<Timestamp> {
    (nanos > 0)
        .then(|| Timestamp::from_nanosecond(nanos.into()).ok())
        .flatten()
}

fn state(number: i32) -> State {
    match cri::ContainerState::try_from(number) {
        Ok(cri::ContainerState::ContainerCreated) => State::Created,
        Ok(cri::ContainerState::ContainerRunning) => State::Running,
        Ok(cri::ContainerState::ContainerExited) => State::Exited,
        _ => State::Unknown,
    }
}

/// By name, the one that was made last.
fn newest(mut containers: Vec<cri::Container>) -> Vec<Seen> {
    containers.sort_by_key(|container| std::cmp::Reverse(container.created_at));
    let mut seen: Vec<Seen> = Vec::new();
    for mut container in containers {
        let named = container.metadata.as_ref().map(|metadata| metadata.name.clone());
        let Some(name) = container.labels.remove(NAME).or(named) else {
            continue;
        };
        if seen.iter().any(|newer| newer.name == name) {
            continue;
        }
        let count = container.annotations.get(RESTART_COUNT);
        seen.push(Seen {
            name,
            instance: Instance {
                id: container.id,
                state: state(container.state),
                restart_count: count.and_then(|count| count.parse().ok()).unwrap_or(0),
                started_at: None,
                exit: None,
            },
            pre_stop: container.annotations.remove(PRE_STOP),
            ports: container.annotations.remove(PORTS),
        });
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, id: &str, created_at: i64, count: &str) -> cri::Container {
        cri::Container {
            id: id.to_owned(),
            created_at,
            state: cri::ContainerState::ContainerRunning.into(),
            labels: [(NAME.to_owned(), name.to_owned())].into(),
            annotations: [(RESTART_COUNT.to_owned(), count.to_owned())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn the_newest_of_each_name() {
        let seen = newest(vec![
            container("web", "old", 1, "0"),
            container("web", "new", 3, "1"),
            container("agent", "a", 2, "x"),
        ]);
        let ids: Vec<_> = seen
            .iter()
            .map(|seen| {
                (
                    seen.name.as_str(),
                    seen.instance.id.as_str(),
                    seen.instance.restart_count,
                )
            })
            .collect();
        assert_eq!(ids, [("web", "new", 1), ("agent", "a", 0)]);
    }

    #[test]
    fn spans_are_rounded_up_and_times_of_zero_are_none() {
        assert_eq!(seconds(Duration::from_millis(2001)), 3);
        assert_eq!(seconds(Duration::from_secs(2)), 2);
        assert_eq!(time(0), None);
        assert!(time(1_800_000_000_000_000_000).is_some());
    }
}
