//! A container runtime over CRI.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_cri::v1 as cri;
use k8s_cri::v1::image_service_client::ImageServiceClient;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use kruise_api::names;
use kruise_api::reference::ImageRef;
use kruise_planner::node::reason::Code;
use kruise_proto::{dispatch, task};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::containerd::Containerd;
use super::containers::{Containers, CriContainers};
use super::machine::Machine;
use super::{ContentStore, Pull, Runtime, RuntimeError};
use crate::errors::{chain, is_local, status_text};

/// Time for a call that only looks. Longer ones are cut off, so that a runtime that hangs holds nobody.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// An agent that runs cancels an attempt itself, and says why; the deadline that goes with the call is for one that does not.
const PULL_SLACK: Duration = Duration::from_secs(5);
/// Time for a call that may wait for the runtime's disk.
const SLOW_CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// An image list entry with thousands of tags still fits.
const MAX_MESSAGE: usize = 16 << 20;
/// Windows of the connection. Answers are small; the default would reserve megabytes.
const WINDOW: u32 = 64 << 10;

/// A connection to one socket.
#[derive(Debug)]
pub struct Cri {
    socket: String,
    pub(super) images: ImageServiceClient<Channel>,
    pub(super) runtime: RuntimeServiceClient<Channel>,
    containers: CriContainers,
    content: Option<Containerd>,
}

impl Cri {
    /// Connects and asks for the version. The content store is used if it answers too.
    ///
    /// # Errors
    /// The socket is not there, or what listens does not speak CRI v1.
    pub async fn connect(socket: &str) -> Result<(Self, task::Runtime), RuntimeError> {
        let channel = dial(socket).await?;
        let mut cri = Self {
            socket: socket.to_owned(),
            images: ImageServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            containers: CriContainers(
                RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            ),
            runtime: RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE),
            content: None,
        };
        let known = cri.version().await?;
        cri.disk().await?;
        cri.content = Containerd::probe(channel, &known.version).await;
        let info = cri.version().await?;
        Ok((cri, info))
    }
}

async fn dial(socket: &str) -> Result<Channel, RuntimeError> {
    let away = |error: tonic::transport::Error| RuntimeError {
        call: "connect",
        code: Code::Away,
        text: chain(&error),
    };
    let endpoint = Endpoint::from_shared(format!("unix://{socket}")).map_err(away)?;
    endpoint
        .connect_timeout(CALL_TIMEOUT)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .buffer_size(16)
        .connect()
        .await
        .map_err(away)
}

/// Turns a status into what the agent knows.
pub(super) fn failed(call: &'static str) -> impl Fn(Status) -> RuntimeError {
    move |status| {
        let code = match status.code() {
            _ if is_local(&status) => Code::Away,
            tonic::Code::Unavailable | tonic::Code::Cancelled | tonic::Code::Unimplemented => {
                Code::Unavailable
            }
            tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
            tonic::Code::NotFound => Code::NotFound,
            tonic::Code::PermissionDenied | tonic::Code::Unauthenticated => Code::Denied,
            _ => Code::Other,
        };
        RuntimeError {
            call,
            code,
            text: status_text(&status),
        }
    }
}

/// Bounds a call that only looks.
pub(super) async fn within<T>(
    call: &'static str,
    limit: Duration,
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, RuntimeError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map(tonic::Response::into_inner).map_err(failed(call)),
        Err(_) => Err(RuntimeError {
            call,
            code: Code::Away,
            text: format!("no answer for {} s", limit.as_secs()),
        }),
    }
}

impl Runtime for Cri {
    fn version(&self) -> BoxFuture<'_, Result<task::Runtime, RuntimeError>> {
        let mut client = self.runtime.clone();
        async move {
            let request = cri::VersionRequest { version: "v1".into() };
            let answer = within("Version", CALL_TIMEOUT, client.version(request)).await?;
            Ok(task::Runtime {
                name: answer.runtime_name,
                version: answer.runtime_version,
                socket: self.socket.clone(),
                content_store: self.content.is_some(),
            })
        }
        .boxed()
    }

    fn image(&self, image: &ImageRef) -> BoxFuture<'_, Result<Option<String>, RuntimeError>> {
        let mut client = self.images.clone();
        let image = image.clone();
        async move {
            let request = cri::ImageStatusRequest {
                image: Some(spec(&image)),
                verbose: false,
            };
            let answer = within("ImageStatus", SLOW_CALL_TIMEOUT, client.image_status(request)).await?;
            Ok(answer.image.map(|found| digest_of(&found, &image)))
        }
        .boxed()
    }

    fn pull(&self, pull: Pull) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.images.clone();
        async move {
            let lease = pull.lease.clone();
            let limit = pull.limit.saturating_add(PULL_SLACK);
            let mut request = Request::new(request(pull));
            request.set_timeout(limit);
            if let Some(lease) = lease.and_then(|lease| lease.0.parse().ok()) {
                request.metadata_mut().insert("containerd-lease", lease);
            }
            client.pull_image(request).await.map_err(failed("PullImage"))?;
            Ok(())
        }
        .boxed()
    }

    fn disk(&self) -> BoxFuture<'_, Result<task::DiskSpace, RuntimeError>> {
        let mut client = self.images.clone();
        async move {
            let call = client.image_fs_info(cri::ImageFsInfoRequest {});
            let answer = within("ImageFsInfo", CALL_TIMEOUT, call).await?;
            let system = answer.image_filesystems.into_iter().next().unwrap_or_default();
            let mountpoint = system.fs_id.unwrap_or_default().mountpoint;
            // Seen from here only where that directory is mounted too.
            let space = rustix::fs::statvfs(mountpoint.as_str()).ok();
            let (free, total) = space.map_or((0, 0), |space| {
                (space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize)
            });
            let used = system.used_bytes.map_or(0, |used| used.value);
            Ok(task::DiskSpace {
                bytes_used_by_images: used,
                bytes_free: free,
                bytes_total: total,
            })
        }
        .boxed()
    }

    fn content(&self) -> Option<&dyn ContentStore> {
        self.content.as_ref().map(|content| content as &dyn ContentStore)
    }

    fn machine(&self) -> Option<&dyn Machine> {
        Some(self)
    }

    fn containers(&self) -> Option<&dyn Containers> {
        Some(&self.containers)
    }
}

fn spec(image: &ImageRef) -> cri::ImageSpec {
    cri::ImageSpec {
        image: image.canonical().to_owned(),
        ..Default::default()
    }
}

fn request(pull: Pull) -> cri::PullImageRequest {
    let mut annotations = pull.annotations;
    annotations.insert(
        names::PULLED_BY_ANNOTATION.to_owned(),
        names::PULLED_BY_VALUE.to_owned(),
    );
    cri::PullImageRequest {
        image: Some(spec(&pull.image)),
        auth: pull.credential.map(auth),
        sandbox_config: Some(cri::PodSandboxConfig {
            labels: pull.labels.into_iter().collect(),
            annotations: annotations.into_iter().collect(),
            ..Default::default()
        }),
    }
}

fn auth(credential: dispatch::Credential) -> cri::AuthConfig {
    let dispatch::Credential {
        username,
        password,
        identity_token,
        registry_token,
    } = credential;
    // containerd reads the server's address as a URL, which a host with a port is not, and the name that it compares with is that
    // of the endpoint rather than that of the image. So it stays empty, as the kubelet leaves it.
    cri::AuthConfig {
        username,
        password,
        identity_token,
        registry_token,
        ..Default::default()
    }
}

/// The digest of the image in its repository; failing that the runtime's id.
fn digest_of(found: &cri::Image, image: &ImageRef) -> String {
    let in_repository = |text: &String| {
        let (name, digest) = text.rsplit_once('@')?;
        (name == image.name()).then(|| digest.to_owned())
    };
    found
        .repo_digests
        .iter()
        .find_map(in_repository)
        .unwrap_or_else(|| found.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> ImageRef {
        ImageRef::parse(text).expect("a valid reference")
    }

    #[test]
    fn the_digest_is_that_of_the_repository() {
        let found = cri::Image {
            id: "sha256:id".into(),
            repo_digests: vec![
                "other/x@sha256:1".into(),
                "docker.io/library/nginx@sha256:2".into(),
            ],
            ..Default::default()
        };
        assert_eq!(digest_of(&found, &image("nginx:1.25")), "sha256:2");
        assert_eq!(digest_of(&found, &image("reg:5000/nginx:1.25")), "sha256:id");
    }

    #[test]
    fn every_pull_says_who_pulls() {
        let pull = Pull {
            image: image("reg:5000/app:1"),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            annotations: [("apps.kruise.io/pulling-image-by".to_owned(), "forged".to_owned())].into(),
            credential: Some(dispatch::Credential {
                identity_token: "t".into(),
                ..Default::default()
            }),
            lease: None,
            limit: Duration::ZERO,
        };
        let request = request(pull);
        let sandbox = request.sandbox_config.expect("always there");
        assert_eq!(
            sandbox.annotations["apps.kruise.io/pulling-image-by"],
            "kruise-daemon"
        );
        assert_eq!(sandbox.labels["a"], "b");
        let auth = request.auth.expect("given");
        assert_eq!(
            (auth.server_address.as_str(), auth.identity_token.as_str()),
            ("", "t")
        );
        assert_eq!(request.image.expect("given").image, "reg:5000/app:1");
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_says_so() {
        let error = Cri::connect("/nonexistent/containerd.sock")
            .await
            .expect_err("nothing listens");
        assert_eq!(error.code, Code::Away);
        assert!(error.text.contains("No such file"), "{error}");
    }
}
