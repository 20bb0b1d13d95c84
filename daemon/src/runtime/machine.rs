//! What people may ask of the runtime on one machine: its images, and its containers one at a time.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_cri::v1 as cri;
use kruise_proto::node::Image;

use super::RuntimeError;
use super::cri::{CALL_TIMEOUT, Cri, failed, within};

/// Time beyond the grace period after which a stop call is given up.
const STOP_SLACK: Duration = Duration::from_secs(30);

/// Labels and annotations that a kubelet puts on what it makes.
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
const GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// Images and containers of one runtime.
pub trait Machine: Send + Sync {
    /// All images.
    fn images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>>;

    /// All containers, or those of a pod's UID and a name.
    fn containers(&self, of: Option<(&str, &str)>) -> BoxFuture<'_, Result<Vec<Container>, RuntimeError>>;

    /// All sandboxes.
    fn sandboxes(&self) -> BoxFuture<'_, Result<Vec<Sandbox>, RuntimeError>>;

    /// When a container ran; none if there is no such container.
    fn times(&self, id: &str) -> BoxFuture<'_, Result<Option<Times>, RuntimeError>>;

    /// Stops a container: the stop signal, and the kill after the grace period. One that has stopped already is fine.
    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>>;
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// Its full id.
    pub id: String,
    /// In its pod.
    pub name: String,
    /// `namespace/name` of its pod.
    pub pod: String,
    /// UID of its pod; empty if no kubelet made it.
    pub pod_uid: String,
    /// Whether it runs now.
    pub running: bool,
    /// When it was made, in nanoseconds of the machine's clock.
    pub created: i64,
    /// Grace period of its pod, if it is written down.
    pub grace: Option<Duration>,
}

/// A pod's sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Its full id.
    pub id: String,
    /// `namespace/name` of its pod.
    pub pod: String,
}

/// When a container ran, in nanoseconds of the machine's clock; 0 is not yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When it was started.
    pub started: i64,
    /// When it ended.
    pub finished: i64,
    /// With which code.
    pub exit_code: i32,
}

impl Machine for Cri {
    fn images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        let mut client = self.images.clone();
        async move {
            let call = client.list_images(cri::ListImagesRequest::default());
            let answer = within("ListImages", CALL_TIMEOUT, call).await?;
            Ok(answer.images.into_iter().map(image).collect())
        }
        .boxed()
    }

    fn containers(&self, of: Option<(&str, &str)>) -> BoxFuture<'_, Result<Vec<Container>, RuntimeError>> {
        let mut client = self.runtime.clone();
        let label_selector = of.map(|(uid, name)| {
            let labels = [(POD_UID, uid), (CONTAINER_NAME, name)];
            labels.map(|(key, value)| (key.to_owned(), value.to_owned()))
        });
        let filter = cri::ContainerFilter {
            label_selector: label_selector.into_iter().flatten().collect(),
            ..Default::default()
        };
        async move {
            let request = cri::ListContainersRequest { filter: Some(filter) };
            let answer = within("ListContainers", CALL_TIMEOUT, client.list_containers(request)).await?;
            Ok(answer.containers.into_iter().map(container).collect())
        }
        .boxed()
    }

    fn sandboxes(&self) -> BoxFuture<'_, Result<Vec<Sandbox>, RuntimeError>> {
        let mut client = self.runtime.clone();
        async move {
            let call = client.list_pod_sandbox(cri::ListPodSandboxRequest::default());
            let answer = within("ListPodSandbox", CALL_TIMEOUT, call).await?;
            let sandbox = |sandbox: cri::PodSandbox| {
                let pod = sandbox.metadata.unwrap_or_default();
                Sandbox {
                    id: sandbox.id,
                    pod: format!("{}/{}", pod.namespace, pod.name),
                }
            };
            Ok(answer.items.into_iter().map(sandbox).collect())
        }
        .boxed()
    }

    fn times(&self, id: &str) -> BoxFuture<'_, Result<Option<Times>, RuntimeError>> {
        let mut client = self.runtime.clone();
        let request = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        async move {
            let answer = within("ContainerStatus", CALL_TIMEOUT, client.container_status(request)).await;
            let answer = match answer {
                Err(error) if error.code == kruise_planner::node::reason::Code::NotFound => return Ok(None),
                answer => answer?,
            };
            Ok(answer.status.map(|status| Times {
                started: status.started_at,
                finished: status.finished_at,
                exit_code: status.exit_code,
            }))
        }
        .boxed()
    }

    fn stop(&self, id: &str, grace: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.runtime.clone();
        let mut request = tonic::Request::new(cri::StopContainerRequest {
            container_id: id.to_owned(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        });
        request.set_timeout(grace.saturating_add(STOP_SLACK));
        async move {
            client
                .stop_container(request)
                .await
                .map_err(failed("StopContainer"))?;
            Ok(())
        }
        .boxed()
    }
}

fn image(found: cri::Image) -> Image {
    Image {
        id: found.id,
        repo_tags: found.repo_tags,
        repo_digests: found.repo_digests,
        size_bytes: found.size,
        pinned: found.pinned,
    }
}

fn container(found: cri::Container) -> Container {
    let label = |key: &str| found.labels.get(key).cloned().unwrap_or_default();
    let pod = (label(POD_NAMESPACE), label(POD_NAME));
    let grace = found
        .annotations
        .get(GRACE_PERIOD)
        .and_then(|seconds| seconds.parse().ok());
    Container {
        name: found.metadata.unwrap_or_default().name,
        pod: if pod.1.is_empty() {
            String::new()
        } else {
            format!("{}/{}", pod.0, pod.1)
        },
        pod_uid: label(POD_UID),
        running: found.state == i32::from(cri::ContainerState::ContainerRunning),
        created: found.created_at,
        grace: grace.map(Duration::from_secs),
        id: found.id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubelet_wrote_down_is_read() {
        let labels = [(POD_NAME, "web-0"), (POD_NAMESPACE, "default"), (POD_UID, "u")];
        let found = cri::Container {
            id: "abc".into(),
            metadata: Some(cri::ContainerMetadata {
                name: "web".into(),
                attempt: 1,
            }),
            state: cri::ContainerState::ContainerRunning.into(),
            created_at: 7,
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            annotations: [(GRACE_PERIOD.to_owned(), "45".to_owned())].into(),
            ..Default::default()
        };
        let want = Container {
            id: "abc".into(),
            name: "web".into(),
            pod: "default/web-0".into(),
            pod_uid: "u".into(),
            running: true,
            created: 7,
            grace: Some(Duration::from_secs(45)),
        };
        assert_eq!(container(found), want);
        let by_hand = container(cri::Container::default());
        assert!(by_hand.pod_uid.is_empty() && by_hand.pod.is_empty() && !by_hand.running);
    }
}
