//! Which pods are to be updated, in which order.

use kruise_api::clone_set::{OrderPriority, PriorityStrategy};

use super::compare::{Key, Rules};
use super::facts::{Facts, Member};
use super::labels::Selector;
use super::pod::{LifecycleState, RevisionKey};
use super::scatter::spread;
use super::way::Way;

/// Which way pods move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To the revision of the template.
    Update,
    /// Back to the revision that the pods come from.
    Current,
}

impl Target {
    pub(super) const fn of(update_num: i64) -> Self {
        if update_num < 0 {
            Self::Current
        } else {
            Self::Update
        }
    }

    /// Whether a pod is on the revision that is aimed at.
    pub(super) const fn is_reached(self, member: &Member<'_>) -> bool {
        match self {
            Self::Update => member.updated,
            Self::Current => !member.updated,
        }
    }
}

impl<'a> Facts<'a> {
    pub(super) fn target_name(&self, target: Target) -> &str {
        match target {
            Target::Update => &self.revisions.update,
            Target::Current => &self.revisions.current,
        }
    }

    fn target_key(&self, target: Target) -> RevisionKey {
        match target {
            Target::Update => self.revisions.update_key,
            Target::Current => RevisionKey::of(&self.revisions.current),
        }
    }

    /// How a pod comes to the target.
    pub(super) fn way(&self, member: &Member<'_>, target: Target) -> &Way {
        self.ways.get(member.view.revision_key, self.target_key(target))
    }

    /// Whether a pod is one to be updated: neither there already, nor going away, nor waiting for the grace period of an earlier change.
    pub(super) fn is_candidate(&self, member: &Member<'_>, target: Target) -> bool {
        let in_grace = member.view.in_place.grace.is_some() && member.view.state != LifecycleState::Updated;
        !target.is_reached(member) && member.stays() && !in_grace
    }

    /// Pods to be updated, as indices of the members, in the order in which they get their turn. Whatever is asked of a pod is asked once, in
    /// the order in which they lie in memory; sorting then looks at no pod.
    pub(super) fn ordered_candidates(&self, target: Target) -> Vec<usize> {
        let members = &self.members;
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let strategy = rolling.and_then(|rolling| rolling.priority_strategy.as_ref());
        let priority = strategy.map(Priority::of);
        let mut keys: Vec<(Key, usize)> = Vec::new();
        let mut turns = vec![0_u8; members.len()];
        let mut ranks = vec![(0, 0); if priority.is_some() { members.len() } else { 0 }];
        for (index, member) in members.iter().enumerate() {
            if !self.is_candidate(member, target) {
                continue;
            }
            keys.push((Key::of(member, index, Rules::UPDATE), index));
            turns[index] = self.turn(member, target);
            if let Some(priority) = &priority {
                ranks[index] = priority.rank(member);
            }
        }
        keys.sort_unstable();
        let mut order: Vec<usize> = keys.into_iter().map(|(_, index)| index).collect();
        if priority.is_some() {
            order.sort_by_key(|index| ranks[*index]);
        }
        order = self.scattered(order);
        order.sort_by_key(|index| turns[*index]);
        order
    }

    /// Those that have begun go on first; those that nothing can be done for now come last and hold nobody up.
    fn turn(&self, member: &Member<'_>, target: Target) -> u8 {
        if self.is_deferred(member, target) {
            3
        } else if member.view.state == LifecycleState::PreparingUpdate {
            0
        } else if self.pull_has_begun(member, target) {
            1
        } else {
            2
        }
    }

    fn scattered(&self, mut order: Vec<usize>) -> Vec<usize> {
        let rolling = self.spec.update_strategy.rolling_update.as_ref();
        let terms = rolling
            .map(|rolling| rolling.scatter_strategy.as_slice())
            .unwrap_or_default();
        let mut counted: Vec<(usize, Vec<bool>)> = terms
            .iter()
            .map(|term| {
                let has = |member: &Member<'_>| member.view.labels.has(&term.key, &term.value);
                let matching: Vec<bool> = self.members.iter().map(has).collect();
                (order.iter().filter(|index| matching[**index]).count(), matching)
            })
            .filter(|(count, _)| *count > 0)
            .collect();
        counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        for (_, matching) in counted {
            let all = matching.iter().filter(|matches| **matches).count();
            order = spread(&order, |index| matching[index], all, matching.len());
        }
        order
    }
}

/// A priority strategy whose selectors have been looked at. One that is not readable matches nothing.
enum Priority<'a> {
    Weights(Vec<(i64, Selector<'a>)>),
    Keys(&'a [OrderPriority]),
}

impl<'a> Priority<'a> {
    fn of(strategy: &'a PriorityStrategy) -> Self {
        if strategy.weight_priority.is_empty() {
            return Self::Keys(&strategy.order_priority);
        }
        let terms = strategy.weight_priority.iter();
        let readable =
            terms.filter_map(|term| Some((i64::from(term.weight), Selector::of(&term.match_selector).ok()?)));
        Self::Weights(readable.collect())
    }

    /// The smaller one goes first.
    fn rank(&self, member: &Member<'_>) -> (i64, i64) {
        match self {
            Self::Keys(keys) => place(keys, member),
            Self::Weights(terms) => {
                let matching = terms
                    .iter()
                    .filter(|(_, selector)| selector.matches(&member.view.labels));
                (-matching.map(|(weight, _)| weight).sum::<i64>(), 0)
            }
        }
    }
}

/// Place of the first listed key that the pod has, then the number at the end of its value, higher first. A pod with none comes last.
fn place(keys: &[OrderPriority], member: &Member<'_>) -> (i64, i64) {
    let found = keys.iter().enumerate().find_map(|(place, key)| {
        let value = member.view.labels.get(&key.ordered_key)?;
        Some((i64::try_from(place).unwrap_or(i64::MAX), -number_at_end(value)))
    });
    found.unwrap_or((i64::MAX, 0))
}

fn number_at_end(value: &str) -> i64 {
    let digits = value.len()
        - value
            .trim_end_matches(|letter: char| letter.is_ascii_digit())
            .len();
    value[value.len() - digits..].parse().unwrap_or(0)
}
