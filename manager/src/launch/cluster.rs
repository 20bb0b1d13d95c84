//! The API server as the controller uses it.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kruise_planner::launch::{COMPLETED, config_map};
use kube::Api;
use kube::api::{Patch, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;

use crate::kubeapi::{self, ApiFailure, Guarded, failure, patch_params};

/// Seconds after which a watch ends and goes on where it was.
const WATCH_SECONDS: u32 = 290;
const PAGE: u32 = 500;
/// Value of a key that is there.
const OPEN: &str = "true";

/// What a watch tells.
#[derive(Debug)]
pub(super) enum Told {
    /// A pod as it is now.
    Is(Box<Pod>),
    /// A pod, by UID, that is gone or not Pending any more.
    Gone(String),
}

/// What the controller needs of the world.
pub(super) trait Cluster: Send + Sync + 'static {
    /// Pods that are Pending.
    fn pending(&self) -> BoxStream<'static, Told>;
    /// Keys of a pod's ConfigMap; none when it does not exist.
    fn keys(&self, pod: &Pod) -> BoxFuture<'static, Result<BTreeSet<String>, ApiFailure>>;
    /// Adds a key, and with the `first` one the ConfigMap.
    fn add(&self, pod: &Pod, key: &str, first: bool) -> BoxFuture<'static, Result<(), ApiFailure>>;
    /// Notes that nothing is left to be done.
    fn complete(&self, pod: &Pod) -> BoxFuture<'static, Result<(), ApiFailure>>;
}

/// The cluster behind [`crate::kubeapi::Api`].
#[derive(Clone, Debug)]
pub(super) struct KubeCluster {
    api: kubeapi::Api,
}

impl KubeCluster {
    pub(super) fn new(api: kubeapi::Api) -> Self {
        Self { api }
    }

    fn writer(&self) -> Result<kube::Client, ApiFailure> {
        self.api.writer().map_err(|_| ApiFailure::NotLeading)
    }
}

fn key_of(pod: &Pod) -> (String, String) {
    let meta = &pod.metadata;
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

impl Cluster for KubeCluster {
    fn pending(&self) -> BoxStream<'static, Told> {
        let api: Api<Guarded<Pod>> = Api::all(self.api.reader());
        let config = watcher::Config::default()
            .timeout(WATCH_SECONDS)
            .page_size(PAGE)
            .fields("status.phase=Pending");
        let told = |event| match event {
            Ok(watcher::Event::InitApply(Guarded(pod)) | watcher::Event::Apply(Guarded(pod))) => {
                pod.ok().map(|pod| Told::Is(Box::new(pod)))
            }
            Ok(watcher::Event::Delete(guarded)) => {
                let meta = match guarded.0 {
                    Ok(pod) => pod.metadata,
                    Err(broken) => broken.metadata,
                };
                Some(Told::Gone(meta.uid.unwrap_or_default()))
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(error) => {
                tracing::warn!(%error, "watch of pending pods failed; it begins again");
                None
            }
        };
        watcher(api, config)
            .default_backoff()
            .filter_map(move |event| std::future::ready(told(event)))
            .boxed()
    }

    fn keys(&self, pod: &Pod) -> BoxFuture<'static, Result<BTreeSet<String>, ApiFailure>> {
        let (namespace, name) = key_of(pod);
        let maps: Api<ConfigMap> = Api::namespaced(self.api.reader(), &namespace);
        async move {
            let map = maps
                .get_opt(&config_map(&name))
                .await
                .map_err(|error| failure(&error))?;
            Ok(map
                .and_then(|map| map.data)
                .into_iter()
                .flatten()
                .map(|(key, _)| key)
                .collect())
        }
        .boxed()
    }

    fn add(&self, pod: &Pod, key: &str, first: bool) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        let (namespace, name) = key_of(pod);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let data = [(key.to_owned(), OPEN.to_owned())];
        async move {
            let maps: Api<ConfigMap> = Api::namespaced(cluster.writer()?, &namespace);
            let map = config_map(&name);
            if first {
                let object = object(&map, name, uid, data.clone().into());
                match maps.create(&PostParams::default(), &object).await {
                    // An empty one is there, or an earlier try of ours got through.
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                    Err(error) => return Err(failure(&error)),
                    Ok(_) => return Ok(()),
                }
            }
            let body = json!({"data": std::collections::BTreeMap::from(data)});
            let patched = maps.patch(&map, &patch_params(), &Patch::Merge(body)).await;
            patched.map(drop).map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn complete(&self, pod: &Pod) -> BoxFuture<'static, Result<(), ApiFailure>> {
        let cluster = self.clone();
        let (namespace, name) = key_of(pod);
        let body = json!({"metadata": {"uid": pod.metadata.uid, "annotations": {COMPLETED: "true"}}});
        async move {
            let pods: Api<Pod> = Api::namespaced(cluster.writer()?, &namespace);
            let patched = pods.patch(&name, &patch_params(), &Patch::Merge(body)).await;
            patched.map(drop).map_err(|error| failure(&error))
        }
        .boxed()
    }
}

/// A ConfigMap that goes with its pod.
fn object(
    map: &str,
    pod: String,
    uid: String,
    data: std::collections::BTreeMap<String, String>,
) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(map.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod,
                uid,
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    }
}
