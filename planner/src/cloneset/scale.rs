//! Adds and takes away pods.

use super::action::{Action, PodPatch};
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::lifecycle::is_hooked;
use super::numbers::Numbers;
use super::pod::{LifecycleState, NotReadyKey};
use super::reason::Reason;

impl Facts<'_> {
    /// Adds and takes away pods; answers whether anything is to be written, after which nothing is updated in this pass.
    pub(super) fn scale(&self, numbers: &Numbers, draft: &mut Draft) -> bool {
        if self.take_back(draft) || self.grow(numbers, draft) {
            return true;
        }
        if self.delete_leaving(draft) {
            return true;
        }
        let mut budget = self.deletion_budget(numbers);
        if self.delete_marked(&mut budget, draft) {
            return true;
        }
        numbers.scale_down_num > 0 && self.shrink(numbers, budget, draft)
    }

    /// Pods that are held before their deletion are wanted again. Not those that were made not ready for it.
    fn take_back(&self, draft: &mut Draft) -> bool {
        let marks = |hook: Option<&kruise_api::clone_set::LifecycleHook>| {
            hook.is_some_and(|hook| hook.mark_pod_not_ready)
        };
        if marks(self.hook(|lifecycle| &lifecycle.pre_delete))
            || marks(self.hook(|lifecycle| &lifecycle.in_place_update))
        {
            return false;
        }
        let going = self.members.iter().filter(|member| !member.stays()).count();
        let short = self.limits.replicas - length(self.members.len()) + length(going);
        let wanted = usize::try_from(short).unwrap_or(0);
        let back = self.members.iter().filter(|member| {
            member.leaving && !self.is_asked_to_go(member) && !self.is_held(&member.view.name)
        });
        let before = draft.actions.len();
        for member in back.take(wanted) {
            let mut patch = PodPatch::default();
            patch.let_ready(member.view, &NotReadyKey::pre_delete());
            patch.state(LifecycleState::PreparingNormal, &self.stamp);
            draft.act(Action::PatchPod {
                pod: member.view.name.clone(),
                patch,
                reason: "TakenBack",
            });
        }
        draft.actions.len() > before
    }

    /// Whether somebody wants just this pod gone.
    fn is_asked_to_go(&self, member: &Member<'_>) -> bool {
        member.view.marked
            || self
                .spec
                .scale_strategy
                .pods_to_delete
                .contains(&member.view.name)
    }

    fn grow(&self, numbers: &Numbers, draft: &mut Draft) -> bool {
        if numbers.scale_up_num > numbers.scale_up_limit {
            let text = format!(
                "{} pods are missing and {} may be created now, as scaleStrategy.maxUnavailable asks",
                numbers.scale_up_num, numbers.scale_up_limit
            );
            draft.warn("ScaleUpLimited", text.clone());
            draft.wait(Reason::ScaleMaxUnavailable, text);
        }
        if numbers.scale_up_limit == 0 {
            return false;
        }
        if let Some(hold) = self
            .snapshot
            .writes
            .creation
            .as_ref()
            .filter(|hold| hold.until > self.now)
        {
            draft.wait(Reason::CreationFailed, hold.message.clone());
            draft.wake_at(hold.until);
            return false;
        }
        self.create(numbers, draft);
        true
    }

    /// Pods that no hook holds any more.
    fn delete_leaving(&self, draft: &mut Draft) -> bool {
        let mut changed = false;
        for member in self.members.iter().filter(|member| member.leaving) {
            changed |= self.delete(member, "HookGone", draft);
        }
        changed
    }

    /// Ready pods that may be deleted now. A marked pod that is down is in no count of unavailable pods, so it is taken off here.
    fn deletion_budget(&self, numbers: &Numbers) -> i64 {
        let down = self
            .members
            .iter()
            .filter(|member| member.marked && !member.available)
            .count();
        (numbers.delete_ready_limit - length(down)).max(0)
    }

    fn delete_marked(&self, budget: &mut i64, draft: &mut Draft) -> bool {
        let mut changed = false;
        for member in self.members.iter().filter(|member| member.marked) {
            if member.serves() {
                if *budget == 0 {
                    self.budget_used_up(member, draft);
                    continue;
                }
                *budget -= 1;
            }
            changed |= self.delete(member, "SpecifiedDelete", draft);
        }
        changed
    }

    fn budget_used_up(&self, member: &Member<'_>, draft: &mut Draft) {
        let limit = self.limits.max_unavailable;
        draft.pod_waits(
            Reason::DeletionBudget,
            &member.view.name,
            format!("one more would be more than maxUnavailable ({limit})"),
        );
    }

    /// Surplus pods go whatever their age, as long as the ready ones that are left are not fewer than wanted.
    fn shrink(&self, numbers: &Numbers, mut budget: i64, draft: &mut Draft) -> bool {
        let staying_ready = self
            .members
            .iter()
            .filter(|member| member.stays() && member.ready)
            .count();
        let mut left = length(staying_ready);
        let mut changed = false;
        for member in self.choose_to_shrink(numbers) {
            if member.ready {
                let free = !member.available && left > self.limits.replicas;
                if !free && budget == 0 {
                    self.budget_used_up(member, draft);
                    continue;
                }
                budget -= i64::from(!free);
                left -= 1;
            }
            changed |= self.delete(member, "ScaleDown", draft);
        }
        changed
    }

    /// Deletes a pod and its claims, or holds it for its hook. Answers whether that is a change.
    fn delete(&self, member: &Member<'_>, reason: &'static str, draft: &mut Draft) -> bool {
        let pod = member.view;
        if self.is_held(&pod.name) {
            return false;
        }
        let hook = self.hook(|lifecycle| &lifecycle.pre_delete);
        if is_hooked(hook, pod) {
            draft.pod_waits(Reason::PreDeleteHook, &pod.name, "held by lifecycle.preDelete");
            return self.hold_before_deletion(
                member,
                hook.is_some_and(|hook| hook.mark_pod_not_ready),
                draft,
            );
        }
        draft.act(Action::DeletePod {
            pod: pod.name.clone(),
            reason,
        });
        let id = self.id_of(pod);
        for (claim, _) in self.own_claims().filter(|(_, of)| Some(*of) == id) {
            draft.act(Action::DeleteClaim {
                claim: claim.name.clone(),
                pod: Some(pod.name.clone()),
                reason: "WithPod",
            });
        }
        true
    }

    fn hold_before_deletion(&self, member: &Member<'_>, mark: bool, draft: &mut Draft) -> bool {
        let mut patch = PodPatch::default();
        if mark {
            patch.hold_not_ready(member.view, NotReadyKey::pre_delete());
        }
        if !member.leaving {
            patch.state(LifecycleState::PreparingDelete, &self.stamp);
        }
        if patch.is_empty() {
            return false;
        }
        draft.act(Action::PatchPod {
            pod: member.view.name.clone(),
            patch,
            reason: "PreDeleteHook",
        });
        true
    }
}

pub(super) fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
