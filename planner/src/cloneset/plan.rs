//! The plan itself: what to do, and in which order it is decided.

use std::time::Duration;

use jiff::Timestamp;
use kruise_api::clone_set::CloneSetStatus;

use super::action::Action;
use super::draft::Draft;
use super::facts::Facts;
use super::numbers::Numbers;
use super::pod::LifecycleState;
use super::reason::{Reason, Waiting};
use super::snapshot::CloneSetSnapshot;

/// What to do for a set now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CloneSetPlan {
    /// Revision that the pods come from.
    pub current_revision: String,
    /// Revision of the template.
    pub update_revision: String,
    /// How many pods to add, to take away and to update.
    pub numbers: Numbers,
    /// What to write, first things first.
    pub actions: Vec<Action>,
    /// What the status says of the pods as they are now.
    pub status: CloneSetStatus,
    /// Whether to write it.
    pub write_status: bool,
    /// Why nothing more is done.
    pub waiting: Vec<Waiting>,
    /// When to plan again if nothing happens before.
    pub wake: Option<Timestamp>,
    /// Images to have on nodes before pods are changed.
    pub pulls: Vec<PullWish>,
    /// To be told. The same event again says nothing new.
    pub events: Vec<PlanEvent>,
}

/// Images of a pod's next revision that are wanted on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullWish {
    /// Pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// Revision that they belong to.
    pub revision: String,
    /// References, as the template writes them.
    pub images: Vec<String>,
}

/// An event on the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanEvent {
    /// Warning rather than Normal.
    pub warning: bool,
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl CloneSetPlan {
    /// How long to wait until the next plan, rounded up to whole seconds.
    #[must_use]
    pub fn wake_after(&self, now: Timestamp) -> Option<Duration> {
        let left = self.wake?.duration_since(now);
        let seconds = left.as_secs() + i64::from(left.subsec_nanos() > 0);
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }
}

/// Decides what to do for a set now. Pure: the same snapshot gives the same plan, whatever the order of the objects in it.
///
/// Promises: no pod is deleted or taken out of service by this while as many are unavailable as maxUnavailable allows; no pod is both deleted and
/// updated; of the pods on older revisions so many stay as the partition says; no name is given out that anybody in view holds.
#[must_use]
pub fn plan(snapshot: &CloneSetSnapshot<'_>) -> CloneSetPlan {
    let mut draft = Draft::default();
    match Facts::gather(snapshot, &mut draft) {
        Ok(facts) => facts.plan(draft),
        Err(error) => {
            draft.wait(Reason::InvalidField, format!("spec.selector: {error}"));
            CloneSetPlan {
                status: snapshot.set.status.clone().unwrap_or_default(),
                waiting: draft.waiting(),
                ..CloneSetPlan::default()
            }
        }
    }
}

impl Facts<'_> {
    fn plan(&self, mut draft: Draft) -> CloneSetPlan {
        let scale = self.scale_numbers();
        let update = self.update_numbers();
        let numbers = Numbers {
            update_num: update.update_num,
            update_max_unavailable: update.update_max_unavailable,
            ..scale
        };
        self.report_fields(&mut draft);
        let writes = self.snapshot.writes;
        if self.snapshot.set.metadata.deletion_timestamp.is_some() {
            draft.actions.clear();
            draft.wait(Reason::Deleting, "the garbage collector takes the pods");
        } else if writes.unseen.is_empty() {
            self.act(&numbers, &update, &mut draft);
        } else {
            draft.actions.clear();
            let names = writes.unseen.iter().cloned();
            draft.pods_wait(
                Reason::Expectations,
                names,
                "own writes are not visible yet".to_owned(),
            );
        }
        self.explain_pods(&mut draft);
        let status = self.status(&mut draft);
        CloneSetPlan {
            current_revision: self.revisions.current.clone(),
            update_revision: self.revisions.update.clone(),
            numbers,
            write_status: self.snapshot.set.status.as_ref() != Some(&status),
            status,
            waiting: draft.waiting(),
            wake: draft.wake(self.now),
            actions: draft.actions(),
            pulls: draft.pulls,
            events: draft.events,
        }
    }

    fn act(&self, numbers: &Numbers, update: &Numbers, draft: &mut Draft) {
        self.settle_ownership(draft);
        if !self.adopted.is_empty() {
            // One write per pod: what else is to be done with them comes when they are the set's.
            return;
        }
        self.pre_download(draft);
        if !self.scale(numbers, draft) {
            self.update(update, draft);
            self.restart(update, draft);
        }
        self.clear_pods_to_delete(draft);
        let pods = self.members.iter().map(|member| member.view.revision_key);
        self.revisions.trim(self.spec.history_limit(), pods, draft);
    }

    fn report_fields(&self, draft: &mut Draft) {
        for problem in &self.limits.unreadable {
            draft.wait(
                Reason::InvalidField,
                format!("{}: {}", problem.field, problem.message),
            );
        }
    }

    /// Names of pods that are not there have been dealt with, or never were.
    fn clear_pods_to_delete(&self, draft: &mut Draft) {
        let names = &self.spec.scale_strategy.pods_to_delete;
        let there = |name: &&String| {
            let by_name = |member: &super::facts::Member<'_>| member.view.name.as_str().cmp(name.as_str());
            self.members.binary_search_by(by_name).is_ok()
        };
        let left: Vec<String> = names.iter().filter(there).cloned().collect();
        if left.len() < names.len() {
            draft.act(Action::PatchCloneSet {
                pods_to_delete: left,
                reason: "PodsToDeleteDone",
            });
        }
    }

    /// Why pods do not count as available, and which ones have yet to go.
    fn explain_pods(&self, draft: &mut Draft) {
        for member in self
            .members
            .iter()
            .filter(|member| member.stays() && !member.available)
        {
            let pod = member.view;
            let in_service = matches!(
                pod.state,
                LifecycleState::Unset | LifecycleState::Normal | LifecycleState::PreparingNormal
            );
            if member.ready && matches!(pod.state, LifecycleState::Unset | LifecycleState::Normal) {
                let text = format!("ready, but not yet for {} s", self.min_ready());
                draft.pod_waits(Reason::MinReadySeconds, &pod.name, text);
            } else if !member.ready && in_service && pod.in_place.is_finished() {
                let text = if pod.node.is_some() {
                    "not ready"
                } else {
                    "has no node yet"
                };
                draft.pod_waits(Reason::NotReady, &pod.name, text);
            }
        }
        let ending = self.inactive.iter().filter(|pod| pod.terminating);
        let names = ending.map(|pod| pod.name.clone());
        draft.pods_wait(Reason::Terminating, names, "being deleted".to_owned());
    }
}
