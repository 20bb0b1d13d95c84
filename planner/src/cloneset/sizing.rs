//! The two readings of the numbers: for scaling and for updating.

use super::candidates::Target;
use super::facts::Facts;
use super::numbers::{Differences, Numbers};
use super::pod::LifecycleState;
use super::way::Way;

impl Facts<'_> {
    /// Numbers for adding and taking away pods. A pod that has begun to prepare for its update counts as updated, so that a replacement of
    /// a lost pod comes up on the revision whose share is short.
    pub(super) fn scale_numbers(&self) -> Numbers {
        let counts = self.count(|member| member.new);
        let differences = Differences::of(&counts, &self.limits, self.one_way());
        let need = self.surge_need(differences);
        Numbers::of(&counts, &self.limits, differences, need, self.excludes_leaving())
    }

    /// Numbers for updating pods, which go by labels alone.
    pub(super) fn update_numbers(&self) -> Numbers {
        let counts = self.count(|member| member.updated);
        let differences = Differences::of(&counts, &self.limits, self.one_way());
        Numbers::of(&counts, &self.limits, differences, None, self.excludes_leaving())
    }

    /// Most pods that it is worth adding others for while they are updated: those that cannot change in place. Where no pod may be unavailable
    /// those that restart in place count too, and nobody stands in for one of which only metadata changes.
    fn surge_need(&self, differences: Differences) -> Option<i64> {
        if !self.policy.is_in_place() || self.limits.max_surge == 0 || differences.to_change() == 0 {
            return None;
        }
        let target = Target::of(differences.update_num());
        let needs = |index: &usize| {
            let member = &self.members[*index];
            let impossible = matches!(self.way(member, target), Way::Impossible { .. });
            impossible || (self.limits.max_unavailable == 0 && !self.keeps_serving(member, target))
        };
        let prepares = |index: &usize| self.members[*index].view.state == LifecycleState::PreparingUpdate;
        let candidates: Vec<usize> = (0..self.members.len())
            .filter(|index| self.is_candidate(&self.members[*index], target) && !prepares(index))
            .collect();
        let needy = candidates.iter().filter(|index| needs(index)).count();
        let first = usize::try_from(differences.to_change()).unwrap_or(usize::MAX);
        // The order matters only when pods differ in this.
        let needy = if needy == 0 || needy == candidates.len() {
            needy.min(first)
        } else {
            let order = self.ordered_candidates(target);
            order
                .iter()
                .filter(|index| !prepares(index))
                .take(first)
                .filter(|index| needs(index))
                .count()
        };
        Some(i64::try_from(needy).unwrap_or(i64::MAX))
    }
}
