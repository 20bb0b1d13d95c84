//! What the engine's state is told, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{Epoch, JobUid, NodeName, NodeUid, ObjectKey};
use kruise_planner::job::{JobEvent, PodView};
use kruise_planner::node_image::TagEvent;
use kruise_proto::dispatch::{
    Ack, Credential, DesiredDelta, DesiredSet, Hello, Probe, ProbeAnswer, ResultAck,
};
use kruise_proto::inspect;
use kruise_proto::task::TaskStatus;
use serde_json::Value;

use super::guests::GuestChange;
use super::objects::{JobObject, Listing, NodeImageObject, NodeObject};
use super::ports::ApiFailure;
use super::vitals::Vitals;

/// One moment on both clocks: decisions about leases go by `mono`, times in objects by `wall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// This process' monotonic clock.
    pub(crate) mono: Duration,
    /// The API server's time.
    pub(crate) wall: Timestamp,
}

/// Number of a stream within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An agent that has said Hello and proven who it is.
#[derive(Debug)]
pub(crate) struct Attach {
    pub(crate) session: SessionId,
    pub(crate) node: NodeName,
    pub(crate) node_uid: NodeUid,
    /// IP address of the peer.
    pub(crate) peer: String,
    pub(crate) hello: Hello,
    pub(crate) vitals: Arc<Vitals>,
}

/// Why an agent cannot attach now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttachRefused {
    /// The leader has not read jobs and nodes yet.
    #[error("the leader is still reading jobs and nodes")]
    NotReady,
    /// The agent has obeyed a higher epoch than ours.
    #[error("the agent has seen a newer leader than this one")]
    OldEpoch,
    /// No such node, or one with another UID.
    #[error("there is no such node with the UID of the token")]
    UnknownNode,
    /// This replica does not lead any more.
    #[error("this replica does not lead")]
    NotLeading,
    /// A Hello of a later stream of this agent has been accepted: what this one says is out of date.
    #[error("a later Hello of this agent has been accepted already")]
    Overtaken,
    /// Too much to do.
    #[error("the leader has too much to do at this moment")]
    Busy,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    Jobs(Listing<JobObject, JobUid>),
    Nodes(Listing<NodeObject, NodeUid>),
    /// Pods of a job, from the watch with this number.
    Pods {
        job: JobUid,
        watch: u64,
        pods: Vec<PodView>,
    },
    NodeImages(Listing<NodeImageObject, NodeUid>),
    /// A write on a NodeImage has ended; with the object that it made, if any.
    ImageWritten {
        node: NodeName,
        result: Result<Option<NodeImageObject>, ApiFailure>,
    },
    /// An agent says whether it has an image.
    Probed {
        session: SessionId,
        answer: ProbeAnswer,
    },
    /// Nodes on which an agent's pod runs, as of the beginning of this leadership.
    AgentNodes(BTreeSet<NodeName>),
    Detached {
        session: SessionId,
    },
    /// Another controller wants something, under this leadership.
    Guest {
        epoch: Epoch,
        change: GuestChange,
    },
    /// No heartbeat in time, or one again.
    Stale {
        session: SessionId,
        stale: bool,
    },
    Ack {
        session: SessionId,
        ack: Ack,
    },
    Report {
        session: SessionId,
        status: Box<TaskStatus>,
    },
    /// An object read on its own; none when it does not exist.
    Fetched {
        job: JobUid,
        result: Result<Option<JobObject>, ApiFailure>,
    },
    /// An object that somebody else read, newer than the watch perhaps.
    Seen(Box<JobObject>),
    /// A write has ended; with the object that it made, if any.
    Written {
        job: JobUid,
        result: Result<Option<JobObject>, ApiFailure>,
    },
    Secrets(BTreeMap<JobUid, SecretAnswer>),
}

/// What came of reading a job's pull secrets.
pub(crate) enum SecretAnswer {
    /// The credentials that match the image, in the order to be tried.
    Ready(Vec<Credential>),
    /// A secret does not exist or cannot be used; for people.
    Problem(String),
    /// They could not be read now; for people.
    Unavailable(String),
}

impl fmt::Debug for SecretAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(credentials) => write!(f, "Ready({} credentials)", credentials.len()),
            Self::Problem(text) => write!(f, "Problem({text})"),
            Self::Unavailable(text) => write!(f, "Unavailable({text})"),
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug)]
pub(crate) enum Effect {
    /// To an agent.
    Send { session: SessionId, message: ToAgent },
    /// One write on one job; its end comes back as [`Event::Written`].
    Write {
        job: JobUid,
        key: ObjectKey,
        write: JobWrite,
    },
    /// One write on one NodeImage; its end comes back as [`Event::ImageWritten`].
    WriteImage {
        node: NodeName,
        uid: NodeUid,
        write: ImageWrite,
    },
    /// Read one job; comes back as [`Event::Fetched`].
    Fetch { job: JobUid, key: ObjectKey },
    /// Read the secrets of these jobs; comes back as one [`Event::Secrets`] for all.
    ReadSecrets(Vec<SecretRequest>),
    /// Watch pods; comes back as [`Event::Pods`] with the same number.
    WatchPods {
        job: JobUid,
        watch: u64,
        namespace: String,
        selector: String,
    },
    /// End this watch of pods.
    UnwatchPods { watch: u64 },
    /// Tell whoever watches tasks.
    Publish(Change),
}

/// A write on a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum JobWrite {
    /// Merge patch on the status, for this version of the object; the event is told once it is stored.
    Status {
        version: String,
        patch: Value,
        reason: &'static str,
        event: Option<JobEvent>,
    },
    /// The finalizers that stay, for this version.
    Finalizers {
        version: String,
        finalizers: Vec<String>,
    },
    /// Delete the object of this UID.
    Delete,
}

/// A write on a NodeImage.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ImageWrite {
    /// Merge patch on the status, for this version; the events are told once it is stored.
    Status {
        version: String,
        patch: Value,
        events: Vec<TagEvent>,
    },
    /// Merge patch on the spec.
    Spec { body: Value },
    /// Delete the object of this UID.
    Delete,
}

/// A read of secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretRequest {
    pub(crate) job: JobUid,
    pub(crate) secrets: Vec<ObjectKey>,
    /// As in the job.
    pub(crate) image: String,
}

/// What a session sends for the engine. Stamps are put in at the moment of sending.
#[derive(Debug)]
pub(crate) enum ToAgent {
    Set(DesiredSet),
    Delta(DesiredDelta),
    Saved(ResultAck),
    Probe(Probe),
    Close(CloseReason),
}

/// Why the engine closes a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// Another stream of the same node took over.
    Replaced,
    /// The node is gone, or was made again.
    NodeGone,
    /// The agent knows of a newer leader.
    OldEpoch,
    /// This replica does not lead any more.
    NotLeading,
}

/// A change that watchers of tasks may want to see.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Task(Arc<inspect::Task>),
    Gone { job: String, node: NodeName, id: String },
    Job(Arc<inspect::JobSummary>),
    JobGone { job: String },
}
