//! What the engine needs of the world, as small traits, so that tests stand in for a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey};
use kruise_planner::job::JobEvent;

use super::event::JobWrite;
use super::objects::{JobObject, Listing, NodeObject};

/// Why a request to the API server came to nothing, by what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiFailure {
    /// The object has changed since it was read: read it again.
    #[error("the object has changed since it was read")]
    Conflict,
    /// The object is gone.
    #[error("the object does not exist")]
    Gone,
    /// This replica does not lead: do nothing.
    #[error("this replica does not lead")]
    NotLeading,
    /// The server will not take it however often it is asked.
    #[error("refused: {0}")]
    Refused(String),
    /// Nobody knows whether it was done: wait and look.
    #[error("no answer that helps: {detail}")]
    Unsure {
        /// For people.
        detail: String,
        /// The server's wish.
        retry_after: Option<Duration>,
    },
}

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
    /// All nodes.
    fn nodes(&self) -> BoxStream<'static, Listing<NodeObject, NodeUid>>;
    /// Nodes of the running pods of a namespace that a label selector matches, in order of pod names, after each change.
    fn pods(&self, namespace: String, selector: String) -> BoxStream<'static, Vec<NodeName>>;
}

/// All of it, and the API server's time.
pub(crate) trait Cluster: Jobs + Secrets + Agents + Watches {
    /// Time of the API server.
    fn now(&self) -> Timestamp;
}
