//! What the engine needs of the world, as small traits, so that tests stand in for a cluster.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_planner::job::{JobEvent, PodView};
use kruise_planner::node_image::TagEvent;

use super::event::{ImageWrite, JobWrite};
use super::objects::{JobObject, Listing, NodeImageObject, NodeObject};
pub(crate) use crate::kubeapi::ApiFailure;

/// Writes and single reads of jobs.
pub(crate) trait Jobs: Send + Sync + 'static {
    /// Does a write and returns the object that it made.
    fn write(
        &self,
        job: JobUid,
        key: ObjectKey,
        write: JobWrite,
    ) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>>;
    /// The object as the API server has it now; none when it does not exist.
    fn fetch(&self, key: ObjectKey) -> BoxFuture<'static, Result<Option<JobObject>, ApiFailure>>;
    /// Tells an event about a job.
    fn record(
        &self,
        job: JobUid,
        key: ObjectKey,
        event: JobEvent,
    ) -> BoxFuture<'static, Result<(), ApiFailure>>;
}

/// Writes of NodeImages.
pub(crate) trait NodeImages: Send + Sync + 'static {
    /// Does a write and returns the object that it made.
    fn write_image(
        &self,
        node: NodeName,
        uid: NodeUid,
        write: ImageWrite,
    ) -> BoxFuture<'static, Result<Option<NodeImageObject>, ApiFailure>>;
    /// Tells an event about a NodeImage.
    fn record_image(
        &self,
        node: NodeName,
        uid: NodeUid,
        event: TagEvent,
    ) -> BoxFuture<'static, Result<(), ApiFailure>>;
}

/// Reads of secrets, one by one and by name: nothing else is allowed to the manager.
pub(crate) trait Secrets: Send + Sync + 'static {
    /// The secret; none when it does not exist.
    fn secret(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<Option<Secret>, ApiFailure>>;
}

/// Reads of pods.
pub(crate) trait Agents: Send + Sync + 'static {
    /// Nodes on which an agent's pod runs at this moment.
    fn agent_nodes(&self) -> BoxFuture<'static, Result<BTreeSet<NodeName>, ApiFailure>>;
}

/// Watches. Each begins with a list that is as new as the moment of the call, heals itself, and never ends.
pub(crate) trait Watches: Send + Sync + 'static {
    /// All jobs.
    fn jobs(&self) -> BoxStream<'static, Listing<JobObject, JobUid>>;
    /// All NodeImages; an empty list where the cluster does not know that kind.
    fn node_images(&self) -> BoxStream<'static, Listing<NodeImageObject, NodeUid>>;
    /// All nodes.
    fn nodes(&self) -> BoxStream<'static, Listing<NodeObject, NodeUid>>;
    /// Pods of a namespace that sit on a node and that a label selector matches, in order of their names, after each change.
    fn pods(&self, namespace: String, selector: String) -> BoxStream<'static, Vec<PodView>>;
}

/// All of it, and the API server's time.
pub(crate) trait Cluster: Jobs + NodeImages + Secrets + Agents + Watches {
    /// Time of the API server.
    fn now(&self) -> Timestamp;
}
