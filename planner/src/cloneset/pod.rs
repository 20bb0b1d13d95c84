//! A pod as far as decisions about it are concerned.

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::names;
use serde::Serialize;

use super::labels::Labels;
use crate::inplace::Run;
use crate::revision::short_hash;

/// A pod as far as decisions about it are concerned. Made once per version of the pod, so that a pass over ten thousand of them reads
/// no JSON and looks up next to no label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version that was read.
    pub resource_version: String,
    /// Its labels. Change them with [`PodView::set_label`], which keeps what is read from them true.
    pub labels: Labels,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// UID of its controller.
    pub controller: Option<String>,
    /// UIDs of all owners, the controller's included.
    pub owners: Vec<String>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Phase.
    pub phase: Phase,
    /// Node that it is assigned to.
    pub node: Option<String>,
    /// Condition Ready.
    pub ready: Readiness,
    /// Whether all containers are ready.
    pub containers_ready: bool,
    /// Whether it has the readiness gate InPlaceUpdateReady.
    pub in_place_gate: bool,
    /// Condition InPlaceUpdateReady.
    pub in_place_ready: Option<bool>,
    /// Whether it has the readiness gate KruisePodReady.
    pub kruise_gate: bool,
    /// Condition KruisePodReady.
    pub kruise_ready: Option<bool>,
    /// Who holds it not ready, from the message of condition KruisePodReady.
    pub not_ready_keys: Vec<NotReadyKey>,
    /// Highest restart count of a container.
    pub restarts: i32,
    /// Highest restart count of an init container that goes on running.
    pub sidecar_restarts: i32,
    /// Deletion cost, 0 when unset or unreadable.
    pub deletion_cost: i32,
    /// Number of its instance id.
    pub instance_seq: Option<i64>,
    /// Its change in place, if one is going on.
    pub in_place: InPlaceView,
    /// From the labels: state of its life.
    pub state: LifecycleState,
    /// From the labels: whether it is marked for deletion.
    pub marked: bool,
    /// From the labels: its revision, by name or by hash.
    pub revision: Option<String>,
    /// From the labels: the hash of its revision as a number, so that pods are told apart at a glance.
    pub revision_key: Option<RevisionKey>,
    /// From the labels: its instance id.
    pub instance_id: Option<String>,
    /// From the labels: whether the hash of its template is there.
    pub has_template_hash: bool,
}

/// The hash in a revision's name, as a number. Long and short labels of one revision have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RevisionKey(u64);

impl RevisionKey {
    /// That of a name or of a label.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(super::ids::fnv1a(short_hash(name).as_bytes()))
    }
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not all containers have been started, or nobody has said anything yet.
    #[default]
    Pending,
    /// Its node does not answer.
    Unknown,
    /// At least one container runs.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly, or evicted.
    Failed,
}

/// Condition Ready of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// There is no such condition.
    #[default]
    Absent,
    /// False or unknown.
    NotReady,
    /// True.
    Ready {
        /// Since when.
        since: Option<Timestamp>,
    },
}

impl Readiness {
    /// Whether the condition is True.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Ready { .. })
    }
}

/// One who holds a pod not ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotReadyKey {
    /// Program.
    pub user_agent: String,
    /// Its reason.
    pub key: String,
}

impl NotReadyKey {
    /// Of the lifecycle hook before deletion.
    #[must_use]
    pub fn pre_delete() -> Self {
        Self::lifecycle("preDeleteHook")
    }

    /// Of the lifecycle hook before an update in place.
    #[must_use]
    pub fn pre_update() -> Self {
        Self::lifecycle("preUpdateHook")
    }

    fn lifecycle(key: &str) -> Self {
        Self {
            user_agent: "Lifecycle".to_owned(),
            key: key.to_owned(),
        }
    }
}

/// State of a pod's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum LifecycleState {
    /// No label: as good as Normal.
    #[default]
    Unset,
    /// Made, but not yet normal.
    PreparingNormal,
    /// In service.
    Normal,
    /// Held by a hook before a change in place.
    PreparingUpdate,
    /// Being changed in place.
    Updating,
    /// Changed in place, waiting for its hook to be put back.
    Updated,
    /// Held by a hook before its deletion.
    PreparingDelete,
    /// A value that nobody here wrote.
    Other,
}

impl LifecycleState {
    /// Reads the label.
    #[must_use]
    pub fn read(label: Option<&str>) -> Self {
        use names::state;
        match label {
            None | Some("") => Self::Unset,
            Some(state::PREPARING_NORMAL) => Self::PreparingNormal,
            Some(state::NORMAL) => Self::Normal,
            Some(state::PREPARING_UPDATE) => Self::PreparingUpdate,
            Some(state::UPDATING) => Self::Updating,
            Some(state::UPDATED) => Self::Updated,
            Some(state::PREPARING_DELETE) => Self::PreparingDelete,
            Some(_) => Self::Other,
        }
    }

    /// Value of the label; empty for what is not written.
    #[must_use]
    pub const fn label(self) -> &'static str {
        use names::state;
        match self {
            Self::Unset | Self::Other => "",
            Self::PreparingNormal => state::PREPARING_NORMAL,
            Self::Normal => state::NORMAL,
            Self::PreparingUpdate => state::PREPARING_UPDATE,
            Self::Updating => state::UPDATING,
            Self::Updated => state::UPDATED,
            Self::PreparingDelete => state::PREPARING_DELETE,
        }
    }
}

/// How far a pod's change in place is. Empty for a pod that was never changed, and as good as empty for one that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InPlaceView {
    /// A change that is written down and waits for its grace period.
    pub grace: Option<GraceView>,
    /// Containers that the kubelet has not brought to their new state.
    pub unfinished: Vec<String>,
    /// A batch of containers that comes after the present one.
    pub next: Option<NextBatch>,
    /// Instances of its containers, while it is out of service for the change.
    pub runs: Vec<Run>,
}

/// A change that waits for its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraceView {
    /// Revision that it leads to.
    pub revision: String,
    /// When it may be made.
    pub ends: Timestamp,
}

/// A batch of containers that comes after the present one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextBatch {
    /// Containers that must be ready before and are not.
    pub waits_for: Vec<String>,
}

impl InPlaceView {
    /// Whether nothing of the change is left to do.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.grace.is_none() && self.unfinished.is_empty() && self.next.is_none()
    }
}

impl PodView {
    /// Sets or takes away a label.
    pub fn set_label(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.labels.insert(key, value),
            None => self.labels.remove(key),
        }
        self.read_labels();
    }

    /// Reads again what is kept from the labels.
    pub fn read_labels(&mut self) {
        let label = |key: &str| {
            self.labels
                .get(key)
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        self.state = LifecycleState::read(self.labels.get(names::LIFECYCLE_STATE));
        self.marked = self.labels.contains_key(names::SPECIFIED_DELETE);
        self.instance_id = label(names::INSTANCE_ID);
        self.has_template_hash = label(names::TEMPLATE_HASH).is_some();
        self.revision = label(names::REVISION);
        self.revision_key = self.revision.as_deref().map(RevisionKey::of);
    }

    /// Whether it runs or may still run: neither ended nor being deleted.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        !self.terminating && !matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether there may be something to keep up: a state that leads to another, a condition or label that is missing, a change in place.
    pub(super) const fn needs_upkeep(&self) -> bool {
        !matches!(self.state, LifecycleState::Unset | LifecycleState::Normal)
            || !self.has_template_hash
            || (self.in_place_gate && !matches!(self.in_place_ready, Some(true)))
            || (self.kruise_gate && self.kruise_ready.is_none())
            || !self.in_place.is_finished()
    }

    /// Ready as a CloneSet counts it, for more than so many seconds.
    #[must_use]
    pub fn is_ready_for(&self, seconds: i64, now: Timestamp) -> bool {
        let Readiness::Ready { since } = self.ready else {
            return false;
        };
        self.phase == Phase::Running
            && self.in_place_ready != Some(false)
            && (seconds <= 0
                || since.is_some_and(|since| now.duration_since(since) > SignedDuration::from_secs(seconds)))
    }

    /// Ready for more than so many seconds and in normal life.
    #[must_use]
    pub fn is_available(&self, seconds: i64, now: Timestamp) -> bool {
        matches!(self.state, LifecycleState::Unset | LifecycleState::Normal)
            && self.is_ready_for(seconds, now)
    }
}
