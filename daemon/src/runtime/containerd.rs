//! Content and leases of containerd, over the services that share the socket with CRI.

use std::collections::{BTreeMap, BTreeSet};

use containerd_client::services::v1 as services;
use containerd_client::services::v1::content_client::ContentClient;
use containerd_client::services::v1::leases_client::LeasesClient;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::reason::Code;
use kruise_proto::convert;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::cri::{CALL_TIMEOUT, failed, within};
use super::pins::Pins;
use super::{BlobInfo, ContentStore, LeaseId, RuntimeError};

/// Namespace of everything that CRI does.
const NAMESPACE: &str = "k8s.io";
/// When containerd may collect a lease, so that an agent that never comes back leaks nothing for long.
const EXPIRE_LABEL: &str = "containerd.io/gc.expire";
/// Marks leases of agents, so that those that nobody needs any more can be found.
const OWNER_LABEL: &str = "kruise.io/lease-of";
/// Value of [`OWNER_LABEL`].
const OWNER: &str = "kruise-daemon";

/// Clients of the services in use.
#[derive(Debug)]
pub(super) struct Containerd {
    content: ContentClient<Channel>,
    leases: LeasesClient<Channel>,
    pins: Pins,
}

impl Containerd {
    /// Uses the services if they are there: on the socket of CRI-O or cri-dockerd they are not.
    pub(super) async fn probe(channel: Channel, version: &str) -> Option<Self> {
        let store = Self {
            content: ContentClient::new(channel.clone()),
            leases: LeasesClient::new(channel.clone()),
            pins: Pins::new(channel, version),
        };
        match store.leases().await {
            Ok(_) => Some(store),
            Err(error) => {
                tracing::info!(%error, "no content store on this socket: pulls show no bytes and do not resume");
                None
            }
        }
    }
}

impl Containerd {
    /// What a lease holds of one kind.
    fn held(
        &self,
        lease: &LeaseId,
        kind: &'static str,
    ) -> impl Future<Output = Result<BTreeSet<String>, RuntimeError>> + use<> {
        let mut client = self.leases.clone();
        let request = services::ListResourcesRequest { id: lease.0.clone() };
        async move {
            let call = client.list_resources(in_namespace(request));
            let answer = within("ListLeaseResources", CALL_TIMEOUT, call).await?;
            let of_kind = answer
                .resources
                .into_iter()
                .filter(|resource| resource.r#type == kind);
            Ok(of_kind.map(|resource| resource.id).collect())
        }
    }
}

pub(super) fn in_namespace<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("containerd-namespace", MetadataValue::from_static(NAMESPACE));
    request
}

impl ContentStore for Containerd {
    fn make_lease(&self, lease: &LeaseId, expires: Timestamp) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.leases.clone();
        let labels = [
            (EXPIRE_LABEL.to_owned(), expires.to_string()),
            (OWNER_LABEL.to_owned(), OWNER.to_owned()),
        ];
        let request = services::CreateRequest {
            id: lease.0.clone(),
            labels: labels.into_iter().collect(),
        };
        async move {
            let made = tokio::time::timeout(CALL_TIMEOUT, client.create(in_namespace(request))).await;
            match made.unwrap_or_else(|_| Err(Status::unavailable("no answer"))) {
                Ok(_) => Ok(()),
                Err(status) if status.code() == tonic::Code::AlreadyExists => Ok(()),
                Err(status) => Err(failed("CreateLease")(status)),
            }
        }
        .boxed()
    }

    fn drop_lease(&self, lease: &LeaseId, now: bool) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.leases.clone();
        let request = services::DeleteRequest {
            id: lease.0.clone(),
            sync: now,
        };
        async move {
            match within("DeleteLease", CALL_TIMEOUT, client.delete(in_namespace(request))).await {
                Err(error) if error.code != Code::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            }
        }
        .boxed()
    }

    fn leases(&self) -> BoxFuture<'_, Result<BTreeSet<LeaseId>, RuntimeError>> {
        let mut client = self.leases.clone();
        async move {
            let request = services::ListRequest {
                filters: vec![format!("labels.{OWNER_LABEL:?}=={OWNER}")],
            };
            let answer = within("ListLeases", CALL_TIMEOUT, client.list(in_namespace(request))).await?;
            Ok(answer.leases.into_iter().map(|lease| LeaseId(lease.id)).collect())
        }
        .boxed()
    }

    fn leased(&self, lease: &LeaseId) -> BoxFuture<'_, Result<BTreeSet<String>, RuntimeError>> {
        self.held(lease, "content").boxed()
    }

    fn discard(&self, lease: &LeaseId) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let mut client = self.content.clone();
        let held = self.held(lease, "ingests");
        async move {
            for r#ref in held.await? {
                let call = client.abort(in_namespace(services::AbortRequest { r#ref }));
                within("AbortContent", CALL_TIMEOUT, call).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn blobs(&self, digests: &[&str]) -> BoxFuture<'_, Result<Vec<BlobInfo>, RuntimeError>> {
        let mut client = self.content.clone();
        let filters: Vec<String> = digests.iter().map(|digest| format!("digest=={digest}")).collect();
        async move {
            if filters.is_empty() {
                return Ok(Vec::new());
            }
            let call = client.list(in_namespace(services::ListContentRequest { filters }));
            let mut pages = within("ListContent", CALL_TIMEOUT, call).await?;
            let mut blobs = Vec::new();
            while let Some(page) = pages.message().await.map_err(failed("ListContent"))? {
                blobs.extend(page.info.into_iter().map(blob));
            }
            Ok(blobs)
        }
        .boxed()
    }

    fn downloads(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, RuntimeError>> {
        let mut client = self.content.clone();
        async move {
            let call = client.list_statuses(in_namespace(services::ListStatusesRequest::default()));
            let answer = within("ListStatuses", CALL_TIMEOUT, call).await?;
            let by_digest = |status: services::Status| {
                // The name of a download is its kind and its digest, for example "layer-sha256:…".
                let (_, digest) = status.r#ref.split_once('-')?;
                Some((
                    digest.to_owned(),
                    u64::try_from(status.offset).unwrap_or_default(),
                ))
            };
            Ok(answer.statuses.into_iter().filter_map(by_digest).collect())
        }
        .boxed()
    }

    fn pin(&self, image: &ImageRef, until: Timestamp) -> BoxFuture<'_, Result<bool, RuntimeError>> {
        let image = image.clone();
        async move { self.pins.pin(&image, until).await }.boxed()
    }

    fn unpin(&self, now: Timestamp) -> BoxFuture<'_, Result<Option<Timestamp>, RuntimeError>> {
        self.pins.unpin(now).boxed()
    }

    fn document(&self, digest: &str, most: u64) -> BoxFuture<'_, Result<Vec<u8>, RuntimeError>> {
        let mut client = self.content.clone();
        let size = i64::try_from(most).unwrap_or(i64::MAX);
        let request = services::ReadContentRequest {
            digest: digest.to_owned(),
            offset: 0,
            size,
        };
        async move {
            let mut chunks = within("ReadContent", CALL_TIMEOUT, client.read(in_namespace(request))).await?;
            let mut document = Vec::new();
            while let Some(chunk) = chunks.message().await.map_err(failed("ReadContent"))? {
                document.extend_from_slice(&chunk.data);
                // A layer is not wanted, and the first byte tells.
                if document.first().is_some_and(|first| *first != b'{') {
                    break;
                }
            }
            Ok(document)
        }
        .boxed()
    }
}

fn blob(info: services::Info) -> BlobInfo {
    let time = |time: Option<prost_types::Timestamp>| {
        time.and_then(|time| convert::from_timestamp(&time))
            .unwrap_or(Timestamp::UNIX_EPOCH)
    };
    BlobInfo {
        digest: info.digest,
        size: u64::try_from(info.size).unwrap_or_default(),
        created: time(info.created_at),
    }
}
