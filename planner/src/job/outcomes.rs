//! Who has ended: a compact set in the status, so that a failover forgets nobody.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kruise_api::ids::NodeUid;
use kruise_api::image_pull_job::ImagePullJobStatus;
use kruise_api::reference::ImageRef;

use crate::task::fnv64;

/// Set of nodes by the 64-bit hash of their UIDs: 8 bytes a node, so 10,000 nodes fit well into an object.
///
/// Two of 10,000 random UIDs share a hash with probability 3e-12.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(BTreeSet<u64>);

impl NodeSet {
    /// Reads the text of a status. A text that nobody could have written counts as empty: the nodes are asked again, which is cheap, instead of
    /// the job being stuck.
    #[must_use]
    pub fn decode(text: &str) -> Self {
        let bytes = STANDARD.decode(text).unwrap_or_default();
        let (hashes, _) = bytes.as_chunks::<8>();
        Self(hashes.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect())
    }

    /// Text for a status.
    #[must_use]
    pub fn encode(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    }

    /// Adds a node.
    pub fn insert(&mut self, node: &NodeUid) {
        self.0.insert(fnv64(node.as_str().as_bytes()));
    }

    /// Whether a node is in it.
    #[must_use]
    pub fn contains(&self, node: &NodeUid) -> bool {
        self.0.contains(&fnv64(node.as_str().as_bytes()))
    }
}

/// Present round of a job: the stored one as long as the image is the same, else the next.
#[must_use]
pub fn round_of(image: &ImageRef, status: Option<&ImagePullJobStatus>) -> u32 {
    match status.and_then(|status| status.outcomes.as_ref()) {
        Some(outcomes) => {
            let round = u32::try_from(outcomes.round).unwrap_or(1).max(1);
            if outcomes.image == image.canonical() {
                round
            } else {
                round.saturating_add(1)
            }
        }
        None => 1,
    }
}

/// Stored sets of the present round; empty when the image has changed since.
pub(super) fn stored(image: &ImageRef, status: Option<&ImagePullJobStatus>) -> (NodeSet, NodeSet) {
    match status.and_then(|status| status.outcomes.as_ref()) {
        Some(outcomes) if outcomes.image == image.canonical() => (
            NodeSet::decode(&outcomes.succeeded),
            NodeSet::decode(&outcomes.failed),
        ),
        _ => (NodeSet::default(), NodeSet::default()),
    }
}
