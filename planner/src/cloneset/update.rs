//! Brings pods to the revision that is wanted, within the budget.

use std::collections::BTreeSet;

use kruise_api::clone_set::UpdatePolicy;

use super::action::{Action, PodPatch};
use super::candidates::Target;
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::lifecycle::is_hooked;
use super::numbers::Numbers;
use super::pod::{LifecycleState, NotReadyKey};
use super::reason::Reason;
use super::scale::length;
use super::way::Way;

impl Facts<'_> {
    /// Upkeep of all pods, then updates as far as the budget goes.
    pub(super) fn update(&self, numbers: &Numbers, draft: &mut Draft) {
        let target = Target::of(numbers.update_num);
        let on_delete = self.spec.update_strategy.is_on_delete();
        let order = if numbers.update_num == 0 || on_delete {
            Vec::new()
        } else {
            self.ordered_candidates(target)
        };
        let wanted = usize::try_from(numbers.update_num.abs()).unwrap_or(0);
        let next: BTreeSet<usize> = order
            .iter()
            .copied()
            .take(wanted)
            .filter(|index| self.members[*index].view.state == LifecycleState::PreparingUpdate)
            .collect();
        let upkeep = self.refresh(|index| next.contains(&index), draft);
        self.explain_rest(numbers, target, draft);
        if upkeep.labels_written || on_delete || self.limits.paused {
            return;
        }
        self.walk(&order, numbers, target, draft);
    }

    /// Why pods stay on their revision, apart from the budget.
    fn explain_rest(&self, numbers: &Numbers, target: Target, draft: &mut Draft) {
        let old = self
            .members
            .iter()
            .filter(|member| member.stays() && !member.updated);
        if self.spec.update_strategy.is_on_delete() {
            let names = old.map(|member| member.view.name.clone());
            return draft.pods_wait(
                Reason::OnDelete,
                names,
                "updated when somebody deletes them".to_owned(),
            );
        }
        if numbers.update_num != 0 && self.limits.paused {
            draft.wait(
                Reason::Paused,
                format!("{} pods are to be updated", numbers.update_num.abs()),
            );
        }
        let staying = length(old.clone().count());
        let held = if target == Target::Update {
            staying - numbers.update_num
        } else {
            staying
        };
        if held > 0 && self.limits.partition > 0 {
            let text = format!(
                "{held} pods stay on their revision (partition {})",
                self.limits.partition
            );
            draft.wait(Reason::Partition, text);
        }
    }

    /// Whether a pod stays in service while it is updated: nothing but metadata changes, and no hook holds it.
    pub(super) fn keeps_serving(&self, member: &Member<'_>, target: Target) -> bool {
        let hook = self.hook(|lifecycle| &lifecycle.in_place_update);
        self.policy.is_in_place()
            && matches!(
                self.way(member, target),
                Way::InPlace {
                    metadata_only: true,
                    ..
                }
            )
            && matches!(member.view.state, LifecycleState::Unset | LifecycleState::Normal)
            && !is_hooked(hook, member.view)
            && self.after_update(member) == LifecycleState::Normal
    }

    /// Takes pods in order. Pods of the target that are not available never exceed the budget; a pod that serves is taken out of service
    /// only while the unavailable ones of the whole set are fewer than it; one that goes on serving only paces the passes. The walk stops, it
    /// does not skip.
    fn walk(&self, order: &[usize], numbers: &Numbers, target: Target, draft: &mut Draft) {
        let limit = numbers.update_max_unavailable;
        let for_broken = limit.max(self.limits.max_unavailable).max(1);
        let down = |member: &&Member<'_>| !member.available || member.restarting;
        let mut unavailable = length(self.members.iter().filter(down).count());
        let pending = |member: &&Member<'_>| !member.available && target.is_reached(member);
        let mut on_the_way = length(self.members.iter().filter(pending).count());
        let (deferred, ready): (Vec<usize>, Vec<usize>) = order
            .iter()
            .take(self.walk_length(numbers, target))
            .partition(|index| self.is_deferred(&self.members[**index], target));
        for index in deferred {
            self.explain_deferred(&self.members[index], target, draft);
        }
        for (place, index) in ready.iter().enumerate() {
            let member = &self.members[*index];
            let free = !member.available || self.keeps_serving(member, target);
            let stop = if free {
                on_the_way >= for_broken
            } else {
                on_the_way >= limit || unavailable >= limit
            };
            if stop {
                return self.explain_budget(&ready[place..], unavailable, draft);
            }
            unavailable += i64::from(!free);
            on_the_way += 1;
            self.update_pod(member, target, draft);
        }
    }

    /// Pods that are marked will be replaced anyway; to count them among those to be updated too would replace more and more.
    fn walk_length(&self, numbers: &Numbers, target: Target) -> usize {
        let marked = |member: &&Member<'_>| member.marked && !target.is_reached(member);
        let marked = self.members.iter().filter(marked).count();
        usize::try_from(numbers.update_num.abs() - length(marked)).unwrap_or(0)
    }

    fn explain_budget(&self, rest: &[usize], unavailable: i64, draft: &mut Draft) {
        let limit = self.limits.max_unavailable;
        let text = format!("{unavailable} pods are unavailable or about to be, maxUnavailable is {limit}");
        // By name, which is also how they lie in memory.
        let mut rest = rest.to_vec();
        rest.sort_unstable();
        let names = rest.iter().map(|index| self.members[*index].view.name.clone());
        draft.pods_wait(Reason::MaxUnavailable, names, text);
    }

    fn update_pod(&self, member: &Member<'_>, target: Target, draft: &mut Draft) {
        let way = self.way(member, target);
        match (self.policy, way) {
            (UpdatePolicy::ReCreate, _) | (UpdatePolicy::InPlaceIfPossible, Way::Impossible { .. }) => {
                let action = Action::Recreate {
                    pod: member.view.name.clone(),
                    revision: self.target_name(target).to_owned(),
                    reason: if self.policy == UpdatePolicy::ReCreate {
                        "PolicyReCreate"
                    } else {
                        "NotPossibleInPlace"
                    },
                };
                draft.update(&member.view.name, action);
            }
            // Such pods are deferred.
            (UpdatePolicy::InPlaceOnly, Way::Impossible { .. }) => {}
            (_, Way::InPlace { metadata_only, .. }) => {
                self.update_in_place(member, target, *metadata_only, draft);
            }
        }
    }

    fn update_in_place(&self, member: &Member<'_>, target: Target, metadata_only: bool, draft: &mut Draft) {
        let pod = member.view;
        if !self.is_gate_open(member, target, draft) {
            return;
        }
        let hook = self.hook(|lifecycle| &lifecycle.in_place_update);
        let hooked = is_hooked(hook, pod);
        match pod.state {
            LifecycleState::Unset | LifecycleState::PreparingNormal | LifecycleState::Normal if hooked => {
                self.prepare(member, false, draft);
            }
            LifecycleState::PreparingUpdate if hooked => {
                self.prepare(member, false, draft);
                draft.pod_waits(
                    Reason::InPlaceUpdateHook,
                    &pod.name,
                    "held by lifecycle.inPlaceUpdate",
                );
            }
            LifecycleState::Updated => {
                // Without the hook upkeep makes it Normal first.
                if hook.is_some() {
                    self.prepare(member, true, draft);
                }
            }
            LifecycleState::Other => {
                let text = format!("{} has a lifecycle state that nobody here wrote", pod.name);
                draft.update_problem.get_or_insert(text.clone());
                draft.pod_waits(Reason::WriteFailed, &pod.name, text);
            }
            LifecycleState::PreparingDelete => {}
            _ => self.change(member, target, metadata_only, draft),
        }
    }

    /// Holds a pod for its hook before its containers are touched.
    fn prepare(&self, member: &Member<'_>, put_back: bool, draft: &mut Draft) {
        let pod = member.view;
        let mut patch = PodPatch::default();
        let Some(hook) = self.hook(|lifecycle| &lifecycle.in_place_update) else {
            return;
        };
        if hook.mark_pod_not_ready {
            patch.hold_not_ready(pod, NotReadyKey::pre_update());
        }
        if put_back {
            patch.put_back(hook, pod);
        }
        if pod.state != LifecycleState::PreparingUpdate {
            patch.state(LifecycleState::PreparingUpdate, &self.stamp);
        }
        if !patch.is_empty() {
            let action = Action::PatchPod {
                pod: pod.name.clone(),
                patch,
                reason: "InPlaceUpdateHook",
            };
            draft.update(&pod.name, action);
        }
    }

    fn change(&self, member: &Member<'_>, target: Target, metadata_only: bool, draft: &mut Draft) {
        let grace_seconds = if metadata_only {
            0
        } else {
            self.spec.update_strategy.grace_period_seconds()
        };
        // A change of metadata restarts nothing: its own write finishes it, and the pod never leaves service.
        let state = if metadata_only {
            self.after_update(member)
        } else {
            LifecycleState::Updating
        };
        if grace_seconds > 0 {
            draft.wake_in(self.now, i64::from(grace_seconds));
        }
        let action = Action::UpdateInPlace {
            pod: member.view.name.clone(),
            revision: self.target_name(target).to_owned(),
            from: member.view.revision.clone(),
            lifecycle_state: Some(state.label()),
            grace_seconds,
            reason: if metadata_only {
                "MetadataOnly"
            } else {
                "NewRevision"
            },
        };
        draft.update(&member.view.name, action);
    }
}
