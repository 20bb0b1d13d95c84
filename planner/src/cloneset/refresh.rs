//! Upkeep of every pod, also when updates are paused: conditions, later batches of a change, and the state of its life.

use kruise_api::clone_set::names;

use super::action::{Action, PodConditionPatch, PodPatch};
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::lifecycle::is_all_hooked;
use super::pod::{LifecycleState, NotReadyKey, RevisionKey};
use super::reason::Reason;
use crate::revision::short_hash as short;

/// What upkeep has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Upkeep {
    /// A label that others go by is to be written: nothing is updated in this pass.
    pub(super) labels_written: bool,
}

impl Facts<'_> {
    /// Upkeep of every pod. `is_next` says whether a pod that has prepared for an update is still to be updated.
    pub(super) fn refresh(&self, is_next: impl Fn(usize) -> bool, draft: &mut Draft) -> Upkeep {
        let mut upkeep = Upkeep::default();
        for (index, member) in self.members.iter().enumerate() {
            if !member.upkeep {
                continue;
            }
            if let Some(hold) = self
                .snapshot
                .writes
                .held
                .get(&member.view.name)
                .filter(|hold| hold.until > self.now)
            {
                draft.pod_waits(Reason::WriteFailed, &member.view.name, hold.message.clone());
                draft.wake_at(hold.until);
                continue;
            }
            let mut patch = PodPatch::default();
            let finished = self.refresh_in_place(member, &mut patch, draft);
            self.refresh_state(member, finished, is_next(index), &mut patch, draft);
            if !member.view.has_template_hash
                && let Some(revision) = member.view.revision.as_deref()
            {
                patch.set_label(names::TEMPLATE_HASH, short(revision));
            }
            patch.begin_ready(member.view);
            upkeep.labels_written |= !patch.labels.is_empty();
            if !patch.is_empty() {
                let pod = member.view.name.clone();
                let reason = "Upkeep";
                draft.keep_up(&member.view.name, Action::PatchPod { pod, patch, reason });
            }
        }
        upkeep
    }

    /// Brings a change in place forward; answers whether nothing of it is left.
    fn refresh_in_place(&self, member: &Member<'_>, patch: &mut PodPatch, draft: &mut Draft) -> bool {
        let pod = member.view;
        if let Some(grace) = &pod.in_place.grace {
            if pod.revision_key != Some(RevisionKey::of(&grace.revision)) {
                // Another revision came in between; the change that waited is void.
                for key in [names::IN_PLACE_GRACE, names::IN_PLACE_GRACE_OLD] {
                    patch.annotations.insert(key.to_owned(), None);
                }
            } else if grace.ends > self.now {
                draft.pod_waits(
                    Reason::GracePeriod,
                    &pod.name,
                    "out of service before its containers are changed",
                );
                draft.wake_at(grace.ends);
            } else {
                self.next_batch(member, "GracePeriodOver", draft);
            }
            return false;
        }
        if !pod.in_place.unfinished.is_empty() {
            let containers = pod.in_place.unfinished.join(", ");
            draft.pod_waits(
                Reason::ContainerRestart,
                &pod.name,
                format!("containers {containers}"),
            );
            return false;
        }
        if let Some(next) = &pod.in_place.next {
            if next.waits_for.is_empty() {
                self.next_batch(member, "NextBatch", draft);
            } else {
                let containers = next.waits_for.join(", ");
                draft.pod_waits(
                    Reason::ContainerBatch,
                    &pod.name,
                    format!("waits for {containers} to be ready"),
                );
            }
            return false;
        }
        if pod.in_place_gate && pod.in_place_ready != Some(true) {
            patch.conditions.push(PodConditionPatch {
                kind: names::IN_PLACE_READY,
                status: "True",
                reason: "",
                message: String::new(),
            });
        }
        true
    }

    fn next_batch(&self, member: &Member<'_>, reason: &'static str, draft: &mut Draft) {
        let action = Action::UpdateInPlace {
            pod: member.view.name.clone(),
            revision: member.view.revision.clone().unwrap_or_default(),
            from: None,
            lifecycle_state: None,
            grace_seconds: 0,
            reason,
        };
        draft.keep_up(&member.view.name, action);
    }

    fn refresh_state(
        &self,
        member: &Member<'_>,
        finished: bool,
        is_next: bool,
        patch: &mut PodPatch,
        draft: &mut Draft,
    ) {
        let pod = member.view;
        let to = match pod.state {
            LifecycleState::PreparingNormal => self.after_creation(member, draft),
            LifecycleState::PreparingUpdate if !is_next => Some(self.after_update(member)),
            LifecycleState::Updating if finished => Some(self.after_update(member)),
            LifecycleState::Updated => self.after_hook(member, draft),
            _ => None,
        };
        let Some(to) = to else { return };
        if pod.state != LifecycleState::PreparingNormal {
            patch.let_ready(pod, &NotReadyKey::pre_update());
        }
        patch.state(to, &self.stamp);
    }

    fn after_creation(&self, member: &Member<'_>, draft: &mut Draft) -> Option<LifecycleState> {
        let Some(hook) = self.hook(|lifecycle| &lifecycle.pre_normal) else {
            return member.view.node.is_some().then_some(LifecycleState::Normal);
        };
        if is_all_hooked(Some(hook), member.view) {
            return Some(LifecycleState::Normal);
        }
        draft.pod_waits(
            Reason::PreNormalHook,
            &member.view.name,
            "waits for lifecycle.preNormal",
        );
        None
    }

    /// Where a pod goes when its update is done or not wanted any more.
    pub(super) fn after_update(&self, member: &Member<'_>) -> LifecycleState {
        let hook = self.hook(|lifecycle| &lifecycle.in_place_update);
        if self.lifecycle().is_some() && !is_all_hooked(hook, member.view) {
            LifecycleState::Updated
        } else {
            LifecycleState::Normal
        }
    }

    fn after_hook(&self, member: &Member<'_>, draft: &mut Draft) -> Option<LifecycleState> {
        let hook = self.hook(|lifecycle| &lifecycle.in_place_update);
        if hook.is_none() || is_all_hooked(hook, member.view) {
            return Some(LifecycleState::Normal);
        }
        let text = "updated; waits for lifecycle.inPlaceUpdate to be put back";
        draft.pod_waits(Reason::InPlaceUpdateHookReturn, &member.view.name, text);
        None
    }
}
