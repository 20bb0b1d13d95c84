//! States the promises of a plan, knowing nothing of how it is made.

use std::collections::BTreeSet;

use kruise_api::ids::NodeName;
use kruise_api::intstr;

use super::snapshot::{AgentView, JobSnapshot, TaskState};
use super::{JobPlan, WriteReason};

/// Panics with the broken promise.
pub(super) fn check(snapshot: &JobSnapshot<'_>, plan: &JobPlan) {
    let c = &plan.counters;
    assert!(
        c.succeeded + c.failed + c.active <= c.desired,
        "arithmetic: {c:?}"
    );
    let assigned: BTreeSet<_> = plan.assign.iter().collect();
    assert_eq!(assigned.len(), plan.assign.len(), "a node got two orders");
    for node in &plan.assign {
        assert_eq!(
            snapshot.nodes[node].agent,
            AgentView::Attached,
            "{node} got an order without an agent"
        );
        let holds = snapshot
            .tasks
            .get(node)
            .is_some_and(|task| !matches!(task.state, TaskState::Ended(_)));
        assert!(!holds, "{node} has a task already");
        assert!(snapshot.nodes[node].trouble.is_none(), "{node} is in trouble");
    }
    probes(snapshot, plan, &assigned);
    let room = snapshot.room.as_ref().map_or(usize::MAX, |room| room.orders);
    assert!(plan.assign.len() <= room, "the cluster's caps");
    for (node, _) in &plan.cancel {
        assert!(
            matches!(snapshot.tasks[node].state, TaskState::InFlight { .. }),
            "{node} holds no order"
        );
    }
    let held = snapshot
        .tasks
        .values()
        .filter(|task| matches!(task.state, TaskState::InFlight { .. } | TaskState::Cancelling))
        .count();
    let allowed = intstr::parallelism(snapshot.spec.parallelism.as_ref()).unwrap_or(0) as usize;
    assert!(
        plan.assign.is_empty() || held + plan.assign.len() <= allowed,
        "window: {held} + {} > {allowed}",
        plan.assign.len()
    );
    if snapshot
        .status
        .is_some_and(|status| status.completion_time.is_some())
        || snapshot.deleting
    {
        assert!(
            plan.assign.is_empty() && plan.write.is_none(),
            "a job that is over was touched"
        );
    }
    if plan.complete && plan.write == Some(WriteReason::Completed) {
        assert_eq!(c.succeeded + c.failed, c.desired, "complete with nodes left");
        assert!(plan.status.completion_time.is_some());
    }
    if let Some(wake) = plan.wake {
        assert!(wake > snapshot.now, "wakes in the past would spin");
    }
}

/// A probe goes to a node that waits, and never a second time.
fn probes(snapshot: &JobSnapshot<'_>, plan: &JobPlan, assigned: &BTreeSet<&NodeName>) {
    let image = plan.image.as_ref().map(|image| image.canonical().to_owned());
    let probed = (plan.round, image.unwrap_or_default());
    for node in &plan.probe {
        let view = &snapshot.nodes[node];
        assert!(view.answers_probes && view.agent == AgentView::Attached);
        assert!(!assigned.contains(node), "{node} got an order and a question");
        let memory = snapshot.memory;
        let asked = memory.probes.get(node).is_some_and(|probe| probe.uid == view.uid);
        assert!(!asked || memory.probed != probed, "{node} is asked twice");
    }
}
