//! Which of two pods goes first when some are taken away or updated.

use std::cmp::Ordering;

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
    /// For ranks among the pods of a node or a zone.
    pub(super) const RANK: Self = Self {
        availability: false,
        cost: true,
    };
}

/// Less means: goes first. `ranks` are those of the two pods; a higher one goes first. The name decides last, so that the order is the same
/// whatever order the pods came in.
pub(super) fn compare(a: &Member<'_>, b: &Member<'_>, rules: Rules, ranks: (f64, f64)) -> Ordering {
    let (x, y) = (a.view, b.view);
    let by = |enabled: bool, order: fn(&Member<'_>, &Member<'_>) -> Ordering| {
        if enabled { order(a, b) } else { Ordering::Equal }
    };
    x.node
        .is_some()
        .cmp(&y.node.is_some())
        .then_with(|| phase(x.phase).cmp(&phase(y.phase)))
        .then_with(|| by(rules.availability, |a, b| a.available.cmp(&b.available)))
        .then_with(|| x.ready.is_ready().cmp(&y.ready.is_ready()))
        .then_with(|| by(rules.cost, |a, b| a.view.deletion_cost.cmp(&b.view.deletion_cost)))
        .then_with(|| ranks.1.total_cmp(&ranks.0))
        .then_with(|| youngest_first(ready_since(x.ready), ready_since(y.ready)))
        .then_with(|| y.restarts.cmp(&x.restarts))
        .then_with(|| y.sidecar_restarts.cmp(&x.sidecar_restarts))
        .then_with(|| youngest_first(x.created, y.created))
        .then_with(|| x.name.cmp(&y.name))
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

/// Those without a time, then the later ones.
fn youngest_first(a: Option<Timestamp>, b: Option<Timestamp>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => b.cmp(&a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}
