//! What a plan is made from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::clone_set::CloneSet;

use super::pod::PodView;
use crate::restart::bulk::Came;

/// One CloneSet and everything that bears on it, at one moment.
#[derive(Clone, Debug)]
pub struct CloneSetSnapshot<'a> {
    /// The set as last read, in the stored version.
    pub set: &'a CloneSet,
    /// Every pod of the namespace that refers to the set as an owner, matches its selector without having an owner, or holds a name
    /// that a pod of the set could have. Whether a pod belongs to the set is decided here.
    pub pods: Vec<&'a PodView>,
    /// Every claim of the namespace that refers to the set as an owner or holds a name that a claim of it could have.
    pub claims: Vec<&'a ClaimView>,
    /// Every ControllerRevision of the namespace that the set or nobody controls and that its selector matches, and any that holds the
    /// name which the set's template would get.
    pub revisions: Vec<&'a RevisionView>,
    /// ImagePullJobs whose controller is the set.
    pub jobs: Vec<&'a JobView>,
    /// Requests of any run to restart containers of pods of the set.
    pub requests: Vec<&'a RecreateView>,
    /// Labels of nodes by name, for topology keys. Nodes without pods of the set may be left out.
    pub nodes: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// What agents say about images, by pod. None when nobody is to be waited for: the pull gate is off or there are no agents.
    pub pulls: Option<&'a BTreeMap<String, PullReport>>,
    /// What the caller remembers of its own writes.
    pub writes: &'a Writes,
    /// Switches.
    pub gates: Gates,
    /// Time of the API server.
    pub now: Timestamp,
}

/// What the caller remembers of its own writes. Lost with the leader; nothing in it is truth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Objects of which an own write is neither in this snapshot nor laid over it. While there are any, a plan does nothing: it would
    /// decide on what is no longer so.
    pub unseen: Vec<String>,
    /// Pods on which the last write failed: they are left alone until then, and hold nobody else up.
    pub held: BTreeMap<String, Hold>,
    /// Creation of pods or claims failed: none is tried until then.
    pub creation: Option<Hold>,
    /// The last pass that added or took away pods failed with this.
    pub scale_failure: Option<String>,
    /// The last pass that updated pods failed with this.
    pub update_failure: Option<String>,
}

/// A back-off after a failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When it may be tried again.
    pub until: Timestamp,
    /// The error.
    pub message: String,
}

/// A PersistentVolumeClaim as far as its owner and its name are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version that was read.
    pub resource_version: String,
    /// Label that ties it to a pod.
    pub instance_id: Option<String>,
    /// Number of that id.
    pub instance_seq: Option<i64>,
    /// UIDs of its owners.
    pub owners: Vec<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// A ControllerRevision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RevisionView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version that was read.
    pub resource_version: String,
    /// `revision`.
    pub number: i64,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// UID of its controller.
    pub controller: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// `data`, an object with the template in it.
    pub data: serde_json::Value,
}

/// A ContainerRecreateRequest of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecreateView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version that was read.
    pub resource_version: String,
    /// Label: the run.
    pub run: Option<String>,
    /// Pod.
    pub pod: String,
    /// UID of the pod, once that is known.
    pub pod_uid: Option<String>,
    /// How it went so far.
    pub came: Came,
}

/// An ImagePullJob of the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobView {
    /// Name.
    pub name: String,
    /// Hash label of the revision that it was made for. None on jobs that somebody else hung under the set.
    pub revision_hash: Option<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// What the agent of a pod's node says about the images of the pod's next revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullReport {
    /// Revision that the images belong to. A report about another one counts as none.
    pub revision: String,
    /// How far it is.
    pub state: PullState,
}

/// How far the images of a pod are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullState {
    /// All are on the node, as of then. It counts for a minute: the kubelet may remove an unused image.
    Present {
        /// When the agent said so, by the manager's clock.
        at: Timestamp,
    },
    /// Under way, or asked for.
    Pulling {
        /// For people.
        message: String,
    },
    /// It cannot be pulled: not found, denied, no space.
    Failed {
        /// The runtime's words.
        message: String,
        /// When it is tried again.
        retry_at: Timestamp,
    },
    /// The gate stands open without the image: no agent, or the pull took longer than it may and still moves.
    Open,
}

/// Whether images are pulled ahead of a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreDownload {
    /// For sets that have one of the settings.
    #[default]
    BySettings,
    /// For every set that qualifies.
    Always,
    /// Never, and nothing is cleaned up.
    Never,
}

/// Feature gates that change decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// CloneSetPartitionRollback: a raised partition moves pods back.
    pub partition_rollback: bool,
    /// CloneSetShortHash: the revision label of pods has the hash alone.
    pub short_hash: bool,
    /// RecreatePodWhenChangeVCTInCloneSetGate: another claim template cannot be had in place.
    pub recreate_on_claim_change: bool,
    /// InPlaceUpdateEnvFromMetadata: a container whose variable comes from a label or annotation is restarted in place.
    pub env_from_metadata: bool,
    /// InPlaceWorkloadVerticalScaling: cpu and memory are changed in place.
    pub vertical_scaling: bool,
    /// PreDownloadImageForInPlaceUpdate.
    pub pre_download: PreDownload,
    /// InPlacePullGate: a pod goes on serving until its new images are on its node. Says whether the caller is to look after that; the planner goes by
    /// [`CloneSetSnapshot::pulls`].
    pub pull_gate: bool,
    /// KruiseDaemon: containers are restarted in place by requests.
    pub restarts: bool,
    /// Flag `--cloneset-scaling-exclude-preparing-delete`.
    pub exclude_preparing_delete: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            partition_rollback: false,
            short_hash: false,
            recreate_on_claim_change: false,
            env_from_metadata: true,
            vertical_scaling: false,
            pre_download: PreDownload::BySettings,
            pull_gate: true,
            restarts: true,
            exclude_preparing_delete: false,
        }
    }
}
