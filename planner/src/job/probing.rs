//! Nodes that may have the image already are asked, so that they need no slot.
//!
//! A probe is a question and no order: it takes no slot, starts nothing, and its answer counts only while no order is out. How many are under way is
//! bounded; those that wait in the window's line are asked in its order.

use kruise_api::ids::NodeName;

use super::facts::{Facts, Stand};
use super::snapshot::{JobSnapshot, NodeView, ProbeAnswer};

/// Most questions of one job that are under way.
const MOST_ASKED: usize = 256;

impl Facts {
    /// Whether a node has said, in this round, that the image is there.
    pub(super) fn is_present(&self, snapshot: &JobSnapshot<'_>, name: &NodeName, node: &NodeView) -> bool {
        !snapshot.spec.always_pulls()
            && self.is_probed(snapshot)
            && snapshot
                .memory
                .probes
                .get(name)
                .is_some_and(|probe| probe.uid == node.uid && matches!(probe.answer, ProbeAnswer::Present(_)))
    }

    /// Whether the probes that are remembered are about what is pulled now.
    fn is_probed(&self, snapshot: &JobSnapshot<'_>) -> bool {
        let (round, image) = &snapshot.memory.probed;
        *round == self.round && image == self.image.canonical()
    }

    /// Nodes to ask now: those that wait for a slot and have not been asked in this round.
    pub(super) fn probe(&self, snapshot: &JobSnapshot<'_>) -> Vec<NodeName> {
        if snapshot.spec.always_pulls() || self.parallelism == 0 {
            return Vec::new();
        }
        let memory = snapshot.memory;
        let same_round = self.is_probed(snapshot);
        let under_way = memory
            .probes
            .values()
            .filter(|probe| same_round && probe.answer == ProbeAnswer::Asked)
            .count();
        let unasked = |name: &NodeName| {
            let node = snapshot.nodes.get(name);
            node.is_some_and(|node| {
                let asked = memory
                    .probes
                    .get(name)
                    .is_some_and(|probe| same_round && probe.uid == node.uid);
                node.answers_probes && !asked
            })
        };
        self.nodes
            .iter()
            .filter(|(name, stand)| *stand == Stand::Pending && unasked(name))
            .map(|(name, _)| name.clone())
            .take(MOST_ASKED.saturating_sub(under_way))
            .collect()
    }
}
