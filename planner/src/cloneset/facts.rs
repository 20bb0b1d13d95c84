//! What is so about a set and its pods, worked out once per plan.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::clone_set::{CloneSetSpec, Lifecycle, LifecycleHook, UpdatePolicy, names};

use super::draft::Draft;
use super::labels::Selector;
use super::lifecycle::rfc3339;
use super::limits::Limits;
use super::numbers::Counts;
use super::pod::{LifecycleState, PodView};
use super::revisions::{Revisions, name_of};
use super::snapshot::{CloneSetSnapshot, RecreateView};
use super::way::Ways;
use crate::job::SelectError;

/// A pod of the set: controlled by it, matched by its selector, and active.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) view: &'a PodView,
    /// On the update revision, by its label.
    pub(super) updated: bool,
    /// Counted as on the update revision when the set is scaled: a pod that has begun to prepare is as good as there.
    pub(super) new: bool,
    /// Held before its deletion.
    pub(super) leaving: bool,
    /// Marked for deletion and not held.
    pub(super) marked: bool,
    /// Ready at this moment, in the sense of the set.
    pub(super) ready: bool,
    /// Ready for minReadySeconds and in normal life.
    pub(super) available: bool,
    /// A request to restart containers of it is not over. It is in service or not, and about to be out of it either way.
    pub(super) restarting: bool,
    /// There may be something to keep up about it. Most pods need nothing, which keeps a pass over many of them short.
    pub(super) upkeep: bool,
}

impl Member<'_> {
    /// Ready at this moment and in normal life: what minReadySeconds does not matter for.
    pub(super) fn serves(&self) -> bool {
        self.ready && matches!(self.view.state, LifecycleState::Unset | LifecycleState::Normal)
    }

    /// Neither marked nor held before its deletion.
    pub(super) const fn stays(&self) -> bool {
        !self.leaving && !self.marked
    }
}

/// What is so about a set and its pods.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub(super) snapshot: &'a CloneSetSnapshot<'a>,
    pub(super) spec: &'a CloneSetSpec,
    pub(super) uid: &'a str,
    pub(super) name: &'a str,
    pub(super) now: Timestamp,
    /// The same, as annotations have it.
    pub(super) stamp: String,
    pub(super) limits: Limits,
    pub(super) policy: UpdatePolicy,
    pub(super) revisions: Revisions<'a>,
    pub(super) ways: Ways,
    /// Pods of the set, by name.
    pub(super) members: Vec<Member<'a>>,
    /// Active pods that the set controls and its selector does not match.
    pub(super) released: Vec<&'a PodView>,
    /// Active pods that refer to the set without being controlled by anybody, and match: they are members from now on.
    pub(super) adopted: Vec<&'a PodView>,
    /// Pods of the set that have ended or are being deleted.
    pub(super) inactive: Vec<&'a PodView>,
    /// Requests to restart containers, by the name of their pod.
    pub(super) requests: BTreeMap<&'a str, Vec<&'a RecreateView>>,
    /// The highest number of an instance id that anybody knows of.
    pub(super) last_number: i64,
}

impl<'a> Facts<'a> {
    pub(super) fn gather(snapshot: &'a CloneSetSnapshot<'a>, draft: &mut Draft) -> Result<Self, SelectError> {
        let spec = &snapshot.set.spec;
        let selector = Selector::of(&spec.selector)?;
        let revisions = Revisions::find(snapshot, draft);
        let mut facts = Self {
            snapshot,
            spec,
            uid: snapshot.set.metadata.uid.as_deref().unwrap_or_default(),
            name: name_of(snapshot.set),
            now: snapshot.now,
            stamp: rfc3339(snapshot.now),
            limits: Limits::of(spec),
            policy: spec.update_strategy.policy(),
            ways: Ways::default(),
            revisions,
            members: Vec::with_capacity(snapshot.pods.len()),
            released: Vec::new(),
            adopted: Vec::new(),
            inactive: Vec::new(),
            requests: requests(snapshot),
            last_number: last_number(snapshot),
        };
        facts.sort_pods(&selector);
        facts.ways = Ways::of(&facts);
        Ok(facts)
    }

    /// Who belongs to the set. Pods without any reference to it are never taken, and pods of others never touched.
    fn sort_pods(&mut self, selector: &Selector<'_>) {
        let mut pods = self.snapshot.pods.clone();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        for pod in pods {
            self.last_number = self.last_number.max(pod.instance_seq.unwrap_or(0));
            let controlled = pod.controller.as_deref() == Some(self.uid);
            if !controlled && !pod.owners.iter().any(|owner| owner == self.uid) {
                continue;
            }
            if !pod.is_active() {
                self.inactive.push(pod);
                continue;
            }
            let matches = selector.matches(&pod.labels);
            match (controlled, matches) {
                (true, false) => self.released.push(pod),
                (true, true) => self.members.push(self.member(pod)),
                (false, true) if pod.controller.is_none() => {
                    self.adopted.push(pod);
                    self.members.push(self.member(pod));
                }
                (false, _) => {}
            }
        }
    }

    fn member(&self, view: &'a PodView) -> Member<'a> {
        let updated = view.revision_key == Some(self.revisions.update_key);
        let leaving = view.state == LifecycleState::PreparingDelete;
        let named = || self.spec.scale_strategy.pods_to_delete.contains(&view.name);
        Member {
            view,
            updated,
            new: updated || view.state == LifecycleState::PreparingUpdate,
            leaving,
            marked: !leaving && (view.marked || named()),
            ready: view.is_ready_for(0, self.now),
            available: view.is_available(self.min_ready(), self.now),
            restarting: self.requests.get(view.name.as_str()).is_some_and(|requests| {
                let of_pod =
                    |request: &&&RecreateView| request.pod_uid.as_ref().is_none_or(|uid| *uid == view.uid);
                requests
                    .iter()
                    .filter(of_pod)
                    .any(|request| request.came.is_running())
            }),
            upkeep: view.needs_upkeep() || self.snapshot.writes.held.contains_key(&view.name),
        }
    }

    pub(super) fn min_ready(&self) -> i64 {
        i64::from(self.spec.min_ready_seconds.max(0))
    }

    /// Counts the pods. `is_new` says which of them count as being on the update revision.
    pub(super) fn count(&self, is_new: impl Fn(&Member<'_>) -> bool) -> Counts {
        let mut counts = Counts::default();
        for member in &self.members {
            let old = i64::from(!is_new(member));
            counts.total += 1;
            counts.old += old;
            if member.leaving {
                counts.leaving += 1;
                counts.leaving_old += old;
                counts.unavailable += 1;
            } else if member.marked {
                counts.marked += 1;
                counts.marked_old += old;
                counts.marked_unavailable += i64::from(!member.available);
            } else if !member.available || member.restarting {
                counts.unavailable += 1;
            }
        }
        counts
    }

    /// Whether pods only ever move to the update revision.
    pub(super) fn one_way(&self) -> bool {
        self.revisions.is_settled() || !self.snapshot.gates.partition_rollback
    }

    /// Whether pods that are held before their deletion do not count as pods when the set is scaled.
    pub(super) fn excludes_leaving(&self) -> bool {
        let label = || {
            let labels = self.snapshot.set.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(names::EXCLUDE_PREPARING_DELETE))
        };
        self.spec.scale_strategy.exclude_preparing_delete
            || self.snapshot.gates.exclude_preparing_delete
            || label().is_some_and(|value| value == "true")
    }

    pub(super) fn lifecycle(&self) -> Option<&'a Lifecycle> {
        self.spec.lifecycle.as_ref()
    }

    pub(super) fn hook(
        &self,
        which: impl Fn(&Lifecycle) -> &Option<LifecycleHook>,
    ) -> Option<&'a LifecycleHook> {
        self.lifecycle().and_then(|lifecycle| which(lifecycle).as_ref())
    }

    /// Whether a pod is left alone because the last write to it failed.
    pub(super) fn is_held(&self, pod: &str) -> bool {
        self.snapshot
            .writes
            .held
            .get(pod)
            .is_some_and(|hold| hold.until > self.now)
    }

    /// Claims that the set owns and that are not being deleted, with their instance id.
    pub(super) fn own_claims(&self) -> impl Iterator<Item = (&'a super::snapshot::ClaimView, &'a str)> {
        let uid = self.uid;
        self.snapshot
            .claims
            .iter()
            .filter(move |claim| !claim.terminating && claim.owners.iter().any(|owner| owner == uid))
            .filter_map(|claim| Some((*claim, claim.instance_id.as_deref()?)))
    }

    /// Instance id of a pod: its label, or what its name says.
    pub(super) fn id_of<'p>(&self, pod: &'p PodView) -> Option<&'p str> {
        let named = || pod.name.strip_prefix(self.name)?.strip_prefix('-');
        pod.instance_id.as_deref().or_else(named)
    }
}

fn requests<'a>(snapshot: &CloneSetSnapshot<'a>) -> BTreeMap<&'a str, Vec<&'a RecreateView>> {
    let mut by_pod: BTreeMap<&str, Vec<&RecreateView>> = BTreeMap::new();
    for request in &snapshot.requests {
        by_pod.entry(&request.pod).or_default().push(request);
    }
    for requests in by_pod.values_mut() {
        requests.sort_by(|a, b| a.name.cmp(&b.name));
    }
    by_pod
}

/// The highest number of an instance id that the status or a claim knows of.
fn last_number(snapshot: &CloneSetSnapshot<'_>) -> i64 {
    let status = snapshot
        .set
        .status
        .as_ref()
        .and_then(|status| status.instance_seq);
    let claims = snapshot.claims.iter().map(|claim| claim.instance_seq);
    claims.chain([status]).flatten().max().unwrap_or(0).max(0)
}
