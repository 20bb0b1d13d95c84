//! Objects as the controller keeps them.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kruise_api::clone_set::CloneSet;
use kruise_api::container_recreate_request::ContainerRecreateRequest;
use kruise_api::image_pull_job::ImagePullJob;
use kruise_planner::cloneset::{ClaimView, Gates, JobView, PodView, RecreateView, RevisionView};

use super::space::Kind;
use super::store::Kept;

/// A CloneSet.
#[derive(Clone, Debug)]
pub(crate) struct SetObject {
    /// As stored.
    pub(crate) set: CloneSet,
    version: u64,
}

impl SetObject {
    pub(super) fn new(set: CloneSet) -> Self {
        let version = number(set.metadata.resource_version.as_deref().unwrap_or_default());
        Self { set, version }
    }

    /// Whether the template spreads its pods by labels of nodes.
    pub(super) fn spreads_pods(&self) -> bool {
        let constraints = self.set.spec.template.pointer("/spec/topologySpreadConstraints");
        constraints.is_some_and(|constraints| constraints.as_array().is_some_and(|list| !list.is_empty()))
    }
}

/// Something of a set's that does not say itself whose it is.
#[derive(Clone, Debug)]
pub(crate) struct Owned<T> {
    pub(super) object: T,
    /// UID of its controller.
    pub(super) controller: Option<String>,
    uid: String,
    version: u64,
}

/// An object of any kind that the controller follows.
#[derive(Clone, Debug)]
pub(crate) enum Object {
    /// A CloneSet.
    Set(Box<SetObject>),
    /// A pod.
    Pod(Box<PodView>),
    /// A claim.
    Claim(ClaimView),
    /// A revision.
    Revision(Box<RevisionView>),
    /// A pre-download job.
    Job(Owned<JobView>),
    /// A request of a run.
    Request(Box<RecreateView>),
}

impl Object {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Set(_) => Kind::Set,
            Self::Pod(_) => Kind::Pod,
            Self::Claim(_) => Kind::Claim,
            Self::Revision(_) => Kind::Revision,
            Self::Job(_) => Kind::Job,
            Self::Request(_) => Kind::Request,
        }
    }

    pub(super) fn uid(&self) -> &str {
        match self {
            Self::Set(set) => set.uid(),
            Self::Pod(pod) => &pod.uid,
            Self::Claim(claim) => &claim.uid,
            Self::Revision(revision) => &revision.uid,
            Self::Job(job) => &job.uid,
            Self::Request(request) => &request.uid,
        }
    }
}

impl From<CloneSet> for Object {
    fn from(set: CloneSet) -> Self {
        Self::Set(Box::new(SetObject::new(set)))
    }
}

impl From<PersistentVolumeClaim> for Object {
    fn from(claim: PersistentVolumeClaim) -> Self {
        Self::Claim(ClaimView::of(&claim))
    }
}

impl From<ControllerRevision> for Object {
    fn from(revision: ControllerRevision) -> Self {
        Self::Revision(Box::new(RevisionView::of(&revision)))
    }
}

impl From<ImagePullJob> for Object {
    fn from(job: ImagePullJob) -> Self {
        let meta = &job.metadata;
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        Self::Job(Owned {
            controller: controller.map(|owner| owner.uid.clone()),
            object: JobView::of(&job),
            uid: meta.uid.clone().unwrap_or_default(),
            version: number(meta.resource_version.as_deref().unwrap_or_default()),
        })
    }
}

impl From<ContainerRecreateRequest> for Object {
    fn from(request: ContainerRecreateRequest) -> Self {
        Self::Request(Box::new(RecreateView::of(&request)))
    }
}

impl Object {
    /// A pod, whose change in place is read by these gates.
    pub(super) fn pod(pod: &Pod, gates: &Gates) -> Self {
        Self::Pod(Box::new(PodView::of(pod, gates)))
    }
}

/// A resourceVersion as a number: they are comparable within a kind (KEP-5504). A text that is none counts as the oldest.
fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

impl Kept for SetObject {
    fn name(&self) -> &str {
        self.set.metadata.name.as_deref().unwrap_or_default()
    }
    fn uid(&self) -> &str {
        self.set.metadata.uid.as_deref().unwrap_or_default()
    }
    fn version(&self) -> u64 {
        self.version
    }
}

impl<T> Kept for Owned<T>
where
    T: AsName,
{
    fn name(&self) -> &str {
        self.object.as_name()
    }
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        self.version
    }
}

/// Something with a name.
pub(super) trait AsName {
    fn as_name(&self) -> &str;
}

impl AsName for JobView {
    fn as_name(&self) -> &str {
        &self.name
    }
}

macro_rules! kept {
    ($($view:ty),*) => {$(
        impl Kept for $view {
            fn name(&self) -> &str {
                &self.name
            }
            fn uid(&self) -> &str {
                &self.uid
            }
            fn version(&self) -> u64 {
                number(&self.resource_version)
            }
        }
    )*};
}

kept!(PodView, ClaimView, RevisionView, RecreateView);
