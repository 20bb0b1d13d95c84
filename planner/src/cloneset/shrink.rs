//! Which pods to take away, so that those that stay are spread well.

use super::compare::{Key, Rules};
use super::facts::{Facts, Member};
use super::ids::fnv1a;
use super::numbers::Numbers;

const HOSTNAME: &str = "kubernetes.io/hostname";

impl<'a> Facts<'a> {
    /// Pods to take away, old and new ones as the partition asks for. Pods that are marked or held are not among them.
    pub(super) fn choose_to_shrink(&self, numbers: &Numbers) -> Vec<&Member<'a>> {
        let ranked = self.ranked();
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let wanted = count(numbers.scale_down_num);
        let old = count(numbers.scale_down_num_old_revision).min(wanted);
        let mut chosen = first(&ranked, |member| !member.new, old);
        chosen.extend(first(&ranked, |member| member.new, wanted - old));
        chosen
    }

    /// Pods that stay, with what decides about them: of several on one node or in one zone all but one are better taken away.
    fn ranked(&self) -> Vec<(&Member<'a>, Key)> {
        let staying: Vec<&Member<'a>> = self.members.iter().filter(|member| member.stays()).collect();
        // One look at each pod, in the order in which they lie in memory.
        let bases: Vec<Key> = staying
            .iter()
            .enumerate()
            .map(|(place, member)| Key::of(member, place, Rules::SHRINK))
            .collect();
        let on_nodes = node_ranks(&staying, &bases);
        let topology = self.topology_keys();
        let ranks = if topology.is_empty() {
            on_nodes
        } else {
            let mut sum = vec![0.0; staying.len()];
            for key in &topology {
                self.add_zone_ranks(&staying, &bases, key, &on_nodes, &mut sum);
            }
            sum
        };
        let keys = bases.into_iter().zip(ranks).map(|(base, rank)| base.ranked(rank));
        staying.into_iter().zip(keys).collect()
    }

    fn topology_keys(&self) -> Vec<&'a str> {
        let constraints = self.spec.template.pointer("/spec/topologySpreadConstraints");
        constraints
            .and_then(serde_json::Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|constraint| constraint.get("topologyKey")?.as_str())
            .collect()
    }

    fn add_zone_ranks(
        &self,
        staying: &[&Member<'a>],
        bases: &[Key],
        key: &str,
        on_nodes: &[f64],
        sum: &mut [f64],
    ) {
        let zone = |member: &Member<'a>| self.snapshot.nodes.get(member.view.node.as_deref()?)?.get(key);
        let zones = grouped(staying, |member| zone(member).map(String::as_str));
        let weight = number(zones.len() + 2).ln();
        for mut group in zones {
            let rank = |index: usize| if key == HOSTNAME { 0.0 } else { on_nodes[index] };
            group.sort_unstable_by_key(|index| bases[*index].among_neighbours().ranked(rank(*index)));
            for (place, index) in group.iter().enumerate() {
                sum[*index] += number(group.len() - place) * weight;
            }
        }
    }
}

/// On each node with several pods all but the best one get a rank, the worst the highest.
fn node_ranks(staying: &[&Member<'_>], bases: &[Key]) -> Vec<f64> {
    let mut ranks = vec![0.0; staying.len()];
    for mut group in grouped(staying, |member| member.view.node.as_deref()) {
        group.sort_unstable_by_key(|index| bases[*index].among_neighbours());
        group.pop();
        for (place, index) in group.iter().enumerate() {
            ranks[*index] = number(group.len() - place);
        }
    }
    ranks
}

/// Pods that have the same, as indices. They are told apart by a hash, which is quicker than by many texts, and a mistake would only rank two
/// pods as if they shared a node.
fn grouped<'m, 'a>(
    staying: &[&'m Member<'a>],
    key: impl Fn(&'m Member<'a>) -> Option<&'m str>,
) -> Vec<Vec<usize>> {
    let hashed = |(index, member): (usize, &&'m Member<'a>)| Some((fnv1a(key(member)?.as_bytes()), index));
    let mut all: Vec<(u64, usize)> = staying.iter().enumerate().filter_map(hashed).collect();
    all.sort_unstable();
    let groups = all.chunk_by(|a, b| a.0 == b.0);
    groups
        .map(|group| group.iter().map(|(_, index)| *index).collect())
        .collect()
}

fn first<'m, 'a>(
    ranked: &[(&'m Member<'a>, Key)],
    side: impl Fn(&Member<'a>) -> bool,
    count: usize,
) -> Vec<&'m Member<'a>> {
    if count == 0 {
        return Vec::new();
    }
    let mut group: Vec<(Key, &'m Member<'a>)> = ranked
        .iter()
        .filter(|(member, _)| side(member))
        .map(|(member, key)| (*key, *member))
        .collect();
    if count < group.len() {
        group.sort_unstable_by_key(|(key, _)| *key);
    }
    group.into_iter().take(count).map(|(_, member)| member).collect()
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pods")]
const fn number(count: usize) -> f64 {
    count as f64
}
