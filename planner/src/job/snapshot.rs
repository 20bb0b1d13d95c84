//! What a plan is made from.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName, NodeUid, ObjectKey, TaskId};
use kruise_api::image_pull_job::{Bytes, ImagePullJobSpec, ImagePullJobStatus};

use crate::task::{Phase, Progress, Reason};

/// One job and everything that bears on it, at one moment.
#[derive(Clone, Debug)]
pub struct JobSnapshot<'a> {
    /// UID of the job.
    pub uid: &'a JobUid,
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// `metadata.generation`.
    pub generation: i64,
    /// Whether the job is being deleted.
    pub deleting: bool,
    /// Whether the job carries OpenKruise's finalizer.
    pub legacy_finalizer: bool,
    /// `metadata.annotations`.
    pub annotations: &'a BTreeMap<String, String>,
    /// The workload that controls the job, if one does.
    pub owner: Option<Owner>,
    /// What is wanted.
    pub spec: &'a ImagePullJobSpec,
    /// As last read from, or written to, the API.
    pub status: Option<&'a ImagePullJobStatus>,
    /// Every node that may be selected, by name.
    pub nodes: &'a BTreeMap<NodeName, NodeView>,
    /// Whether nodes exist that are too young to be selected yet.
    pub young_nodes: bool,
    /// Pods of the job's namespace that match its podSelector and sit on a node, by name. Empty for jobs without podSelector.
    pub pods: &'a [PodView],
    /// Nodes with a Ready pod that the job waits for; none for jobs that wait for no pods.
    pub ready_pods: Option<&'a BTreeSet<NodeName>>,
    /// Orders that the caps of the cluster leave for this job; none without caps.
    pub room: Option<Room>,
    /// Bytes of all nodes under this leader whose total is known.
    pub bytes: Option<Bytes>,
    /// Tasks of this job by node, at most one each, those of earlier rounds included while they hold a slot.
    pub tasks: &'a BTreeMap<NodeName, TaskView>,
    /// What the caller remembers between plans.
    pub memory: &'a JobMemory,
    /// Spans and moments of this leadership.
    pub clocks: Clocks,
    /// Time of the API server.
    pub now: Timestamp,
}

/// A node as far as pulling is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// UID of the Node object.
    pub uid: NodeUid,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its agent.
    pub agent: AgentView,
    /// When the Node object was made.
    pub created: Timestamp,
    /// Whether new pods are kept off it.
    pub cordoned: bool,
    /// Why nothing new should be pulled there.
    pub trouble: Option<NodeTrouble>,
    /// Whether it has as many tasks as it runs at once.
    pub busy: bool,
    /// Whether its agent tells what is present when asked.
    pub answers_probes: bool,
}

/// What a node says of itself that speaks against a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeTrouble {
    /// It is not Ready.
    NotReady,
    /// It is short of disk: what is pulled now would be thrown away.
    DiskPressure,
    /// Its network is not set up.
    NetworkUnavailable,
}

/// What controls a job, as far as the order of nodes goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Replaces pods in the order of a CloneSet, or of a SidecarSet.
    CloneSet,
    /// Replaces pods from the highest ordinal down.
    StatefulSet,
    /// Another kind of this group; pods by name.
    Other,
}

/// What the caps of the cluster leave for one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Orders that it may have on top of those that it has.
    pub orders: usize,
    /// The cap that binds, for people: "20 pulls from docker.io".
    pub cap: String,
}

/// An agent as far as hand-out is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentView {
    /// Has a live stream to this leader.
    Attached,
    /// Has no stream and can hold no task that this leader does not know of.
    Away,
    /// Has not attached to this leader yet, and may hold a task of an earlier one.
    MayHold,
}

/// A pod of a podSelector job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Node that the pod sits on.
    pub node: NodeName,
    /// Its phase.
    pub phase: PodPhase,
    /// Whether it is Ready.
    pub ready: bool,
    /// Since when, if it is.
    pub ready_since: Option<Timestamp>,
    /// What its owner asks for its deletion; lower goes first.
    pub deletion_cost: i32,
    /// Restarts of the container with the most.
    pub restarts: i32,
    /// When it was made.
    pub created: Timestamp,
}

/// Phase of a pod, in the order in which workloads replace them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodPhase {
    /// Pending, or one that does not exist yet.
    #[default]
    Pending,
    /// Nobody knows.
    Unknown,
    /// Running.
    Running,
}

/// A task of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskView {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: TaskState,
}

/// Where a task stands, as the leader knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// Ordered, or adopted from an agent that attached with it; holds a slot.
    InFlight {
        /// As last reported.
        phase: Phase,
        /// As last reported.
        progress: Progress,
    },
    /// Told to stop, not yet acknowledged; holds a slot until it is.
    Cancelling,
    /// Ended, and not yet in a status that was written.
    Ended(TaskOutcome),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// The image was present and whole.
    Succeeded,
    /// It failed for good.
    Failed {
        /// Why.
        reason: Reason,
        /// The runtime's words.
        message: String,
    },
}

/// What the caller keeps for a job from plan to plan. Lost with the leader; nothing in it is truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobMemory {
    /// When this leader last wrote the status, or first saw the job.
    pub last_write: Option<Timestamp>,
    /// Since when there is a result that no written status contains.
    pub unsaved_since: Option<Timestamp>,
    /// Since when a selected node has been passed over for want of an agent. Taken from the last plan.
    pub deferred_since: BTreeMap<NodeName, Timestamp>,
    /// Round and image that the probes are about; those of another one count for nothing. The round alone does not tell: before anything is stored, an edit of the
    /// image begins no other one.
    pub probed: (u32, String),
    /// What nodes were asked about the image, and what they said.
    pub probes: BTreeMap<NodeName, Probe>,
    /// Nodes where somebody waits for the image: a pod is to be updated. They come first.
    pub urgent: BTreeSet<NodeName>,
}

/// A question to an agent whether it has the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The node that was asked; another may have come by its name.
    pub uid: NodeUid,
    /// What came of it.
    pub answer: ProbeAnswer,
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// Nothing yet.
    Asked,
    /// The image is not there, or nobody can say: an order will tell.
    Absent,
    /// Present and whole, as the leader heard at this moment.
    Present(Timestamp),
}

/// Spans and moments of this leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Until then an agent that may hold a task of an earlier leader keeps a slot reserved. None once that is over.
    pub reserve_until: Option<Timestamp>,
    /// Until then windows are filled only once every agent that may hold a task has attached.
    pub grace_until: Option<Timestamp>,
    /// How long a node may be without an agent before it counts as failed.
    pub silent_node: Duration,
}

impl Clocks {
    /// Ten minutes, as OpenKruise waits for a silent node.
    pub const SILENT_NODE: Duration = Duration::from_mins(10);
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            reserve_until: None,
            grace_until: None,
            silent_node: Self::SILENT_NODE,
        }
    }
}
