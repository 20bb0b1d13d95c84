//! Objects of one namespace and of which set they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kruise_planner::cloneset::{ClaimView, Gates, JobView, PodView, RecreateView, RevisionView};

use super::objects::{Object, Owned, SetObject};
use super::store::{Kept, Store, Told};

/// Objects of one namespace.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) sets: Store<SetObject>,
    pub(super) pods: Store<PodView>,
    pub(super) claims: Store<ClaimView>,
    pub(super) revisions: Store<RevisionView>,
    pub(super) jobs: Store<Owned<JobView>>,
    pub(super) requests: Store<RecreateView>,
    /// Names of pods by the UID of their controller; those without one under the empty text.
    by_controller: BTreeMap<String, BTreeSet<String>>,
}

/// Whom news concern.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Concerned {
    /// UIDs of sets.
    pub(super) uids: BTreeSet<String>,
    /// Objects without a controller: any set of the namespace may want them.
    pub(super) all: bool,
}

impl Concerned {
    fn controller(&mut self, uid: Option<&str>) {
        match uid {
            Some(uid) => drop(self.uids.insert(uid.to_owned())),
            None => self.all = true,
        }
    }
}

impl Space {
    /// News of the watch, or what an own write made.
    pub(super) fn put(&mut self, object: Object, own_since: Option<Duration>) -> Concerned {
        let mut concerned = Concerned::default();
        match object {
            Object::Set(set) => {
                let uid = set.uid().to_owned();
                if let Told::New(_) = put(&mut self.sets, *set, own_since) {
                    concerned.uids.insert(uid);
                }
            }
            Object::Pod(pod) => self.put_pod(*pod, own_since, &mut concerned),
            Object::Claim(claim) => {
                if let Told::New(_) = put(&mut self.claims, claim, own_since) {
                    // A pod may own it; claims change seldom enough to ask everybody.
                    concerned.all = true;
                }
            }
            Object::Revision(revision) => {
                let controller = revision.controller.clone();
                if let Told::New(_) = put(&mut self.revisions, *revision, own_since) {
                    concerned.controller(controller.as_deref());
                }
            }
            Object::Job(job) => {
                let owner = job.controller.clone();
                if let Told::New(_) = put(&mut self.jobs, job, own_since) {
                    concerned.controller(owner.as_deref());
                }
            }
            Object::Request(request) => {
                let pod = request.pod.clone();
                if let Told::New(_) = put(&mut self.requests, *request, own_since) {
                    self.concerns_pod(&pod, &mut concerned);
                }
            }
        }
        concerned
    }

    /// News about a pod's request. Of a pod that is nobody's, or not there, nobody needs to know.
    fn concerns_pod(&self, pod: &str, concerned: &mut Concerned) {
        let controller = self.pods.get(pod).and_then(|pod| pod.controller.clone());
        concerned.uids.extend(controller);
    }

    fn put_pod(&mut self, pod: PodView, own_since: Option<Duration>, concerned: &mut Concerned) {
        let (name, controller) = (pod.name.clone(), pod.controller.clone());
        let Told::New(old) = put(&mut self.pods, pod, own_since) else {
            return;
        };
        if let Some(old) = old
            && old.controller != controller
        {
            self.unlist(&old);
            concerned.controller(old.controller.as_deref());
        }
        concerned.controller(controller.as_deref());
        let key = controller.unwrap_or_default();
        self.by_controller.entry(key).or_default().insert(name);
    }

    fn unlist(&mut self, pod: &PodView) {
        let key = pod.controller.as_deref().unwrap_or_default();
        if let Some(names) = self.by_controller.get_mut(key) {
            names.remove(&pod.name);
            if names.is_empty() {
                self.by_controller.remove(key);
            }
        }
    }

    /// An object is gone: the watch says so, or an own write or a single read found out.
    pub(super) fn gone(&mut self, kind: Kind, name: &str, uid: &str, by_watch: bool) -> Concerned {
        let mut concerned = Concerned::default();
        match kind {
            Kind::Set => {
                if let Some(set) = gone(&mut self.sets, name, uid, by_watch) {
                    concerned.uids.insert(set.uid().to_owned());
                }
            }
            Kind::Pod => {
                if let Some(pod) = gone(&mut self.pods, name, uid, by_watch) {
                    self.pod_went(&pod, &mut concerned);
                }
            }
            Kind::Claim => {
                if gone(&mut self.claims, name, uid, by_watch).is_some() {
                    concerned.all = true;
                }
            }
            Kind::Revision => {
                if let Some(revision) = gone(&mut self.revisions, name, uid, by_watch) {
                    concerned.controller(revision.controller.as_deref());
                }
            }
            Kind::Job => {
                if let Some(job) = gone(&mut self.jobs, name, uid, by_watch) {
                    concerned.controller(job.controller.as_deref());
                }
            }
            Kind::Request => {
                if let Some(request) = gone(&mut self.requests, name, uid, by_watch) {
                    self.concerns_pod(&request.pod, &mut concerned);
                }
            }
        }
        concerned
    }

    fn pod_went(&mut self, pod: &PodView, concerned: &mut Concerned) {
        self.unlist(pod);
        concerned.controller(pod.controller.as_deref());
    }

    /// A list of a kind begins.
    pub(super) fn begin(&mut self, kind: Kind) {
        match kind {
            Kind::Set => self.sets.begin(),
            Kind::Pod => self.pods.begin(),
            Kind::Claim => self.claims.begin(),
            Kind::Revision => self.revisions.begin(),
            Kind::Job => self.jobs.begin(),
            Kind::Request => self.requests.begin(),
        }
    }

    /// A list of a kind is complete. All sets of the namespace are looked at again after it, so nobody is told whom it concerns.
    pub(super) fn complete(&mut self, kind: Kind) {
        match kind {
            Kind::Set => drop(self.sets.complete()),
            Kind::Pod => {
                for pod in self.pods.complete() {
                    self.pod_went(&pod, &mut Concerned::default());
                }
            }
            Kind::Claim => drop(self.claims.complete()),
            Kind::Revision => drop(self.revisions.complete()),
            Kind::Job => drop(self.jobs.complete()),
            Kind::Request => drop(self.requests.complete()),
        }
    }

    /// Pods that bear on a set: its own, those of nobody, and those that hold a name which a pod of it could have.
    pub(super) fn pods_for<'a>(&'a self, set: &SetObject) -> Vec<&'a PodView> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for key in [set.uid(), ""] {
            let listed = self.by_controller.get(key).into_iter().flatten();
            names.extend(listed.map(String::as_str));
        }
        let prefix = format!("{}-", set.name());
        names.extend(self.pods.with_prefix(&prefix).map(|pod| pod.name.as_str()));
        names.into_iter().filter_map(|name| self.pods.get(name)).collect()
    }
}

/// Kinds of objects that the controller follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// CloneSets.
    Set,
    /// Pods.
    Pod,
    /// PersistentVolumeClaims.
    Claim,
    /// ControllerRevisions.
    Revision,
    /// ImagePullJobs of sets.
    Job,
    /// ContainerRecreateRequests of runs.
    Request,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Set,
        Self::Pod,
        Self::Claim,
        Self::Revision,
        Self::Job,
        Self::Request,
    ];

    /// As the API calls it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Set => "CloneSet",
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Revision => "ControllerRevision",
            Self::Job => "ImagePullJob",
            Self::Request => "ContainerRecreateRequest",
        }
    }

    /// Those that are followed: requests only where containers are restarted by them.
    pub(crate) fn followed(gates: &Gates) -> impl Iterator<Item = Self> + use<> {
        let restarts = gates.restarts;
        Self::ALL
            .into_iter()
            .filter(move |kind| restarts || *kind != Self::Request)
    }
}

fn put<T: Kept>(store: &mut Store<T>, object: T, own_since: Option<Duration>) -> Told<T> {
    match own_since {
        Some(now) => store.wrote(object, now),
        None => store.told(object),
    }
}

fn gone<T: Kept>(store: &mut Store<T>, name: &str, uid: &str, by_watch: bool) -> Option<T> {
    if by_watch {
        store.deleted(name, uid)
    } else {
        store.removed(name, uid)
    }
}

impl Space {
    /// Revisions that bear on a set: its own, those of nobody, and those with a name that one of it could have.
    pub(super) fn revisions_for<'a>(&'a self, set: &SetObject) -> Vec<&'a RevisionView> {
        let prefix = kruise_planner::revision::name(set.name(), "");
        self.revisions
            .iter()
            .filter(|revision| match revision.controller.as_deref() {
                Some(uid) => uid == set.uid() || revision.name.starts_with(&prefix),
                None => true,
            })
            .collect()
    }

    /// Jobs whose controller is the set.
    pub(super) fn jobs_for<'a>(&'a self, set: &SetObject) -> Vec<&'a JobView> {
        self.jobs
            .iter()
            .filter(|job| job.controller.as_deref() == Some(set.uid()))
            .map(|job| &job.object)
            .collect()
    }

    /// Requests about pods whose controller is the set.
    pub(super) fn requests_for<'a>(&'a self, set: &SetObject) -> Vec<&'a RecreateView> {
        let of_set = |request: &&RecreateView| {
            let pod = self.pods.get(&request.pod);
            pod.is_some_and(|pod| pod.controller.as_deref() == Some(set.uid()))
        };
        self.requests.iter().filter(of_set).collect()
    }

    /// UID of an object.
    pub(super) fn uid(&self, kind: Kind, name: &str) -> Option<String> {
        let uid = match kind {
            Kind::Set => self.sets.get(name)?.uid(),
            Kind::Pod => self.pods.get(name)?.uid(),
            Kind::Claim => self.claims.get(name)?.uid(),
            Kind::Revision => self.revisions.get(name)?.uid(),
            Kind::Job => self.jobs.get(name)?.uid(),
            Kind::Request => self.requests.get(name)?.uid(),
        };
        Some(uid.to_owned())
    }

    /// Own writes that the watch should have told of by now.
    pub(super) fn unconfirmed(&self, now: Duration) -> Vec<(Kind, String)> {
        let mut late = Vec::new();
        let mut add = |kind, names: Vec<String>| late.extend(names.into_iter().map(|name| (kind, name)));
        add(Kind::Set, self.sets.unconfirmed(now));
        add(Kind::Pod, self.pods.unconfirmed(now));
        add(Kind::Claim, self.claims.unconfirmed(now));
        add(Kind::Revision, self.revisions.unconfirmed(now));
        add(Kind::Job, self.jobs.unconfirmed(now));
        add(Kind::Request, self.requests.unconfirmed(now));
        late
    }

    /// Whether there are own writes that the watch has not told.
    pub(super) fn has_unconfirmed(&mut self) -> bool {
        // Each has to look, since each forgets what was told meanwhile.
        let any = [
            self.sets.has_unconfirmed(),
            self.pods.has_unconfirmed(),
            self.claims.has_unconfirmed(),
            self.revisions.has_unconfirmed(),
            self.jobs.has_unconfirmed(),
            self.requests.has_unconfirmed(),
        ];
        any.contains(&true)
    }

    /// A single read has shown how an object is now.
    pub(super) fn confirm(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Set => self.sets.confirm(name),
            Kind::Pod => self.pods.confirm(name),
            Kind::Claim => self.claims.confirm(name),
            Kind::Revision => self.revisions.confirm(name),
            Kind::Job => self.jobs.confirm(name),
            Kind::Request => self.requests.confirm(name),
        }
    }
}
