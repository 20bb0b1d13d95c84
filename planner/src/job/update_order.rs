//! The order in which a workload will replace its pods, so that images are where they are needed first.
//!
//! CloneSet: as its base order (phase, readiness, deletion cost, age), without the priorities and the scattering of its spec, which nothing here reads.
//! StatefulSet: from the highest ordinal down. Others: by name.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::snapshot::{Owner, PodView};

pub(super) fn in_update_order(owner: Option<Owner>, pods: &[PodView]) -> Vec<PodView> {
    let mut pods = pods.to_vec();
    match owner {
        Some(Owner::CloneSet) => pods.sort_by(|a, b| clone_set_key(a).cmp(&clone_set_key(b))),
        Some(Owner::StatefulSet) => pods.sort_by_key(|pod| (Reverse(ordinal(&pod.name)), pod.name.clone())),
        Some(Owner::Other) | None => {}
    }
    pods
}

type Key<'a> = (
    super::snapshot::PodPhase,
    bool,
    i32,
    Reverse<Option<Timestamp>>,
    Reverse<i32>,
    Reverse<Timestamp>,
    &'a str,
);

/// Those that are of least use are replaced first: not running, not ready, cheap, ready since lately, restarted often, young.
fn clone_set_key(pod: &PodView) -> Key<'_> {
    (
        pod.phase,
        pod.ready,
        pod.deletion_cost,
        Reverse(pod.ready_since.filter(|_| pod.ready)),
        Reverse(pod.restarts),
        Reverse(pod.created),
        &pod.name,
    )
}

/// The number behind the last dash; none for a name without one, which comes last.
fn ordinal(name: &str) -> Option<u64> {
    name.rsplit_once('-')?.1.parse().ok()
}
