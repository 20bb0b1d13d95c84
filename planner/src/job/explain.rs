//! Where each node of a job stands, for people who ask.

use kruise_api::ids::NodeName;

use super::facts::{Facts, Stand};
use super::snapshot::{JobSnapshot, TaskState};
use super::times::until;
use crate::task::Phase;

/// One node of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    /// Which.
    pub node: NodeName,
    /// A word that does not change.
    pub state: &'static str,
    /// For people.
    pub message: String,
    /// Place in the line, from 1 on; 0 for one that is not in it.
    pub place: usize,
    /// Whether nothing more will happen to it in this round.
    pub ended: bool,
}

/// Every selected node, in the order of its turn. Empty when the spec cannot be acted on, or the job is over.
#[must_use]
pub fn explain(snapshot: &JobSnapshot<'_>) -> Vec<NodeStanding> {
    let over = snapshot
        .status
        .is_some_and(|status| status.completion_time.is_some());
    if over || snapshot.deleting {
        return Vec::new();
    }
    let Ok(mut facts) = Facts::gather(snapshot) else {
        return Vec::new();
    };
    let ordered = facts.fill(snapshot);
    let mut place = 0;
    facts
        .nodes
        .iter()
        .map(|(node, stand)| {
            let (state, message) = describe(&facts, snapshot, node, stand, ordered.contains(node));
            let in_line = *stand == Stand::Pending;
            place += usize::from(in_line);
            NodeStanding {
                node: node.clone(),
                state,
                message,
                place: if in_line { place } else { 0 },
                ended: matches!(stand, Stand::Succeeded | Stand::Failed(_)),
            }
        })
        .collect()
}

fn describe(
    facts: &Facts,
    snapshot: &JobSnapshot<'_>,
    node: &NodeName,
    stand: &Stand,
    ordered_now: bool,
) -> (&'static str, String) {
    match stand {
        Stand::Succeeded => ("Succeeded", "the image is present".to_owned()),
        Stand::Failed(Some(failure)) => ("Failed", format!("{}: {}", failure.reason, failure.message)),
        Stand::Failed(None) => (
            "Failed",
            "failed earlier in this round; status.failures has the reasons".to_owned(),
        ),
        Stand::InFlight if ordered_now => ("Ordered", "gets its order now".to_owned()),
        Stand::InFlight => match snapshot.tasks.get(node).map(|task| &task.state) {
            Some(TaskState::InFlight {
                phase: Phase::Waiting,
                ..
            }) => (
                "Queued",
                "waits on its node, for a worker or between attempts".to_owned(),
            ),
            Some(TaskState::InFlight {
                phase: Phase::Unpacking,
                ..
            }) => ("Unpacking", "all bytes are there".to_owned()),
            Some(TaskState::InFlight {
                phase: Phase::Suspended,
                ..
            }) => (
                "Suspended",
                "stopped for want of a leader; its bytes are kept".to_owned(),
            ),
            _ => ("Pulling", "the runtime fetches".to_owned()),
        },
        Stand::Cancelling => (
            "Cancelling",
            "an earlier order is being taken back and holds a slot until its agent says so".to_owned(),
        ),
        Stand::Pending => ("Pending", "waits for a slot of the window".to_owned()),
        Stand::Deferred(why) => (why.word(), why.text().to_owned()),
        Stand::Away => {
            let since = facts.deferred_since.get(node);
            let since = since.map_or(0, |since| until(*since, snapshot.now).as_secs());
            let patience = snapshot.clocks.silent_node.as_secs();
            (
                "AgentAway",
                format!("no agent attached for {since} s; counts as failed after {patience} s"),
            )
        }
        Stand::MayHold => (
            "Reserved",
            "its agent may still be pulling for an earlier leader; a slot is kept for it".to_owned(),
        ),
    }
}
