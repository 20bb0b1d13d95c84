//! Which containers of a change come first.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use kruise_api::clone_set::names;

use super::change::Change;

/// Containers of the next batch: those without a place in the order of starts, those of the highest priority among the rest, and
/// whoever reads a label or annotation that a chosen one reads, since it can be changed only once.
pub(super) fn choose(pod: &Pod, change: &Change) -> BTreeSet<String> {
    let priorities: BTreeMap<&str, i64> = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .filter_map(|container| Some((container.name.as_str(), priority(container)?)))
        .collect();
    let planned = change.containers();
    let highest = planned.iter().filter_map(|name| priorities.get(name)).max();
    let mut chosen: BTreeSet<&str> = planned
        .iter()
        .copied()
        .filter(|name| {
            priorities
                .get(name)
                .is_none_or(|priority| Some(priority) == highest)
        })
        .collect();
    loop {
        let keys: BTreeSet<_> = chosen
            .iter()
            .filter_map(|name| change.ref_metadata.get(*name))
            .flat_map(|refs| refs.keys())
            .collect();
        let sharing = change
            .ref_metadata
            .iter()
            .filter(|(_, refs)| refs.keys().iter().any(|key| keys.contains(key)))
            .map(|(name, _)| name.as_str());
        let before = chosen.len();
        chosen.extend(sharing);
        if chosen.len() == before {
            return chosen.into_iter().map(str::to_owned).collect();
        }
    }
}

/// A container's place in the order of starts: the number in the key that its barrier waits for.
fn priority(container: &Container) -> Option<i64> {
    let barrier = container
        .env
        .iter()
        .flatten()
        .find(|variable| variable.name == names::CONTAINER_BARRIER)?;
    let key = &barrier.value_from.as_ref()?.config_map_key_ref.as_ref()?.key;
    key.strip_prefix("p_")?.parse().ok()
}
