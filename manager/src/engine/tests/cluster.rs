//! A cluster in this process, behind the engine's ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_planner::job::{JobEvent, PodView};
use kruise_planner::node_image::TagEvent;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use super::world::{job_object, merge, node_object, start};
use crate::engine::event::{ImageWrite, JobWrite};
use crate::engine::objects::{JobObject, Listing, NodeImageObject, NodeObject};
use crate::engine::ports::{Agents, ApiFailure, Cluster, Jobs, NodeImages, Secrets, Watches};

#[derive(Debug)]
struct State {
    jobs: BTreeMap<ObjectKey, JobObject>,
    nodes: BTreeMap<NodeName, NodeObject>,
    secrets: BTreeMap<ObjectKey, Secret>,
    events: Vec<JobEvent>,
    version: u64,
    writes: usize,
}

/// The cluster. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct FakeCluster {
    state: Arc<Mutex<State>>,
    jobs: broadcast::Sender<Listing<JobObject, JobUid>>,
    nodes: broadcast::Sender<Listing<NodeObject, NodeUid>>,
    begun: tokio::time::Instant,
}

impl FakeCluster {
    /// With Ready nodes node1, node2, ...
    pub(crate) fn new(nodes: usize) -> Self {
        let nodes = (1..=nodes)
            .map(|i| node_object(&format!("node{i}")))
            .map(|node| (node.name.clone(), node));
        let state = State {
            jobs: BTreeMap::new(),
            nodes: nodes.collect(),
            secrets: BTreeMap::new(),
            events: Vec::new(),
            version: 10,
            writes: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            jobs: broadcast::channel(1024).0,
            nodes: broadcast::channel(1024).0,
            begun: tokio::time::Instant::now(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a job in namespace "ns"; the watch tells.
    pub(crate) fn create_job(&self, name: &str, spec: &serde_json::Value) {
        let job = job_object(name, spec);
        self.lock().jobs.insert(job.key.clone(), job.clone());
        drop(self.jobs.send(Listing::Applied(job)));
    }

    /// Makes a job that the watch does not tell of.
    pub(crate) fn create_job_unseen(&self, name: &str, spec: &serde_json::Value) {
        let job = job_object(name, spec);
        self.lock().jobs.insert(job.key.clone(), job);
    }

    pub(crate) fn delete_job(&self, name: &str) {
        if let Some(job) = self.lock().jobs.remove(&ObjectKey::new("ns", name)) {
            drop(self.jobs.send(Listing::Deleted(job.uid)));
        }
    }

    pub(crate) fn delete_node(&self, name: &str) {
        if let Some(node) = self.lock().nodes.remove(&NodeName::from(name)) {
            drop(self.nodes.send(Listing::Deleted(node.uid)));
        }
    }

    pub(crate) fn job(&self, name: &str) -> Option<JobObject> {
        self.lock().jobs.get(&ObjectKey::new("ns", name)).cloned()
    }

    pub(crate) fn writes(&self) -> usize {
        self.lock().writes
    }

    pub(crate) fn events(&self) -> Vec<JobEvent> {
        self.lock().events.clone()
    }

    fn write_now(&self, key: &ObjectKey, write: JobWrite) -> Result<Option<JobObject>, ApiFailure> {
        let mut state = self.lock();
        state.writes += 1;
        state.version += 1;
        let new_version = state.version.to_string();
        let job = state.jobs.get_mut(key).ok_or(ApiFailure::Gone)?;
        match write {
            JobWrite::Status { version, patch, .. } => {
                if version != job.version {
                    return Err(ApiFailure::Conflict);
                }
                let mut status = serde_json::to_value(&job.status).expect("json");
                merge(&mut status, &patch);
                job.status = serde_json::from_value(status).expect("a status");
            }
            JobWrite::Finalizers { finalizers, .. } => job.finalizers = finalizers,
            JobWrite::Delete => {
                let job = state.jobs.remove(key).ok_or(ApiFailure::Gone)?;
                drop(self.jobs.send(Listing::Deleted(job.uid)));
                return Ok(None);
            }
        }
        job.version = new_version;
        let job = job.clone();
        drop(self.jobs.send(Listing::Applied(job.clone())));
        Ok(Some(job))
    }
}

fn listed<T: Clone + Send + 'static, K: Clone + Send + 'static>(
    objects: Vec<T>,
    changes: &broadcast::Sender<Listing<T, K>>,
) -> BoxStream<'static, Listing<T, K>> {
    let changes =
        BroadcastStream::new(changes.subscribe()).filter_map(|change| std::future::ready(change.ok()));
    let list = std::iter::once(Listing::Begin)
        .chain(objects.into_iter().map(Listing::Listed))
        .chain([Listing::Complete])
        .collect::<Vec<_>>();
    futures::stream::iter(list).chain(changes).boxed()
}

impl Jobs for FakeCluster {
    fn write(
        &self,
        _: JobUid,
        key: ObjectKey,
        write: JobWrite,
    ) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>> {
        std::future::ready(self.write_now(&key, write)).boxed()
    }

    fn fetch(&self, key: ObjectKey) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>> {
        std::future::ready(Ok(self.lock().jobs.get(&key).cloned())).boxed()
    }

    fn record(&self, _: JobUid, _: ObjectKey, event: JobEvent) -> BoxFuture<'static, Result<(), ApiFailure>> {
        self.lock().events.push(event);
        std::future::ready(Ok(())).boxed()
    }
}

impl NodeImages for FakeCluster {
    fn write_image(
        &self,
        _: NodeName,
        _: NodeUid,
        _: ImageWrite,
    ) -> BoxFuture<'static, Result<Option<NodeImageObject>, ApiFailure>> {
        std::future::ready(Err(ApiFailure::Gone)).boxed()
    }

    fn record_image(
        &self,
        _: NodeName,
        _: NodeUid,
        _: TagEvent,
    ) -> BoxFuture<'static, Result<(), ApiFailure>> {
        std::future::ready(Ok(())).boxed()
    }
}

impl Secrets for FakeCluster {
    fn secret(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Secret>, ApiFailure>> {
        std::future::ready(Ok(self
            .lock()
            .secrets
            .get(&ObjectKey::new(namespace, name))
            .cloned()))
        .boxed()
    }
}

impl Agents for FakeCluster {
    fn agent_nodes(&self) -> BoxFuture<'static, Result<BTreeSet<NodeName>, ApiFailure>> {
        // Their agents begin only now.
        std::future::ready(Ok(BTreeSet::new())).boxed()
    }
}

impl Watches for FakeCluster {
    fn jobs(&self) -> BoxStream<'static, Listing<JobObject, JobUid>> {
        listed(self.lock().jobs.values().cloned().collect(), &self.jobs)
    }

    fn node_images(&self) -> BoxStream<'static, Listing<NodeImageObject, NodeUid>> {
        futures::stream::iter([Listing::Begin, Listing::Complete])
            .chain(futures::stream::pending())
            .boxed()
    }

    fn nodes(&self) -> BoxStream<'static, Listing<NodeObject, NodeUid>> {
        listed(self.lock().nodes.values().cloned().collect(), &self.nodes)
    }

    fn pods(&self, _: String, _: String) -> BoxStream<'static, Vec<PodView>> {
        futures::stream::pending().boxed()
    }
}

impl Cluster for FakeCluster {
    fn now(&self) -> Timestamp {
        start().wall + jiff::SignedDuration::try_from(self.begun.elapsed()).expect("short")
    }
}
