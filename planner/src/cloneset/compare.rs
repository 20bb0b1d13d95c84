//! Which of two pods goes first when some are taken away or updated.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::facts::Member;
use super::pod::{Phase, Readiness};

/// What else decides besides what is always looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Pods that are not available go first.
    pub(super) availability: bool,
    /// Pods of lower deletion cost go first.
    pub(super) cost: bool,
}

impl Rules {
    /// For updates.
    pub(super) const UPDATE: Self = Self {
        availability: false,
        cost: false,
    };
    /// For taking pods away.
    pub(super) const SHRINK: Self = Self {
        availability: true,
        cost: true,
    };
}

/// What decides about a pod, most important first: the smaller key goes first. It is made once per pod, so that sorting looks at no pod. The
/// place among the pods by name decides last, so that the order is the same whatever order they came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    has_node: bool,
    phase: u8,
    available: bool,
    ready: bool,
    cost: i32,
    rank: Reverse<u64>,
    ready_since: YoungestFirst,
    restarts: Reverse<i32>,
    sidecar_restarts: Reverse<i32>,
    created: YoungestFirst,
    place: usize,
}

impl Key {
    /// `place` is that of the pod by name.
    pub(super) fn of(member: &Member<'_>, place: usize, rules: Rules) -> Self {
        let pod = member.view;
        Self {
            has_node: pod.node.is_some(),
            phase: phase(pod.phase),
            available: rules.availability && member.available,
            ready: pod.ready.is_ready(),
            cost: if rules.cost { pod.deletion_cost } else { 0 },
            rank: Reverse(0),
            ready_since: YoungestFirst::of(ready_since(pod.ready)),
            restarts: Reverse(pod.restarts),
            sidecar_restarts: Reverse(pod.sidecar_restarts),
            created: YoungestFirst::of(pod.created),
            place,
        }
    }

    /// With a rank, which is not negative: a pod of higher rank goes first.
    pub(super) const fn ranked(mut self, rank: f64) -> Self {
        // The bits of floats that are not negative are ordered as the floats are.
        self.rank = Reverse(rank.to_bits());
        self
    }

    /// As pods of one node or zone are compared: whether they are available does not matter.
    pub(super) const fn among_neighbours(mut self) -> Self {
        self.available = false;
        self
    }
}

/// Those without a time, then the later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct YoungestFirst(Option<Reverse<i64>>);

impl YoungestFirst {
    fn of(time: Option<Timestamp>) -> Self {
        Self(time.map(|time| Reverse(time.as_microsecond())))
    }
}

const fn phase(phase: Phase) -> u8 {
    match phase {
        Phase::Pending | Phase::Succeeded | Phase::Failed => 0,
        Phase::Unknown => 1,
        Phase::Running => 2,
    }
}

const fn ready_since(ready: Readiness) -> Option<Timestamp> {
    match ready {
        Readiness::Ready { since } => since,
        Readiness::Absent | Readiness::NotReady => None,
    }
}
