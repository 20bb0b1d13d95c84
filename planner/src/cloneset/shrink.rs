//! Which pods to take away, so that those that stay are spread well.

use std::collections::BTreeMap;

use super::compare::{Rules, compare};
use super::facts::{Facts, Member};
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

    /// Pods that stay, with their ranks: of several on one node or in one zone all but one are better taken away.
    fn ranked(&self) -> Vec<(&Member<'a>, f64)> {
        let staying: Vec<&Member<'a>> = self.members.iter().filter(|member| member.stays()).collect();
        let on_nodes = node_ranks(&staying);
        let keys = self.topology_keys();
        let ranks = if keys.is_empty() {
            on_nodes
        } else {
            let mut sum = vec![0.0; staying.len()];
            for key in &keys {
                self.add_zone_ranks(&staying, key, &on_nodes, &mut sum);
            }
            sum
        };
        staying.into_iter().zip(ranks).collect()
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

    fn add_zone_ranks(&self, staying: &[&Member<'a>], key: &str, on_nodes: &[f64], sum: &mut [f64]) {
        let zone = |member: &Member<'a>| self.snapshot.nodes.get(member.view.node.as_deref()?)?.get(key);
        let zones = grouped(staying, |member| zone(member).map(String::as_str));
        let weight = number(zones.len() + 2).ln();
        for mut group in zones.into_values() {
            let rank = |index: usize| if key == HOSTNAME { 0.0 } else { on_nodes[index] };
            group.sort_by(|a, b| compare(staying[*a], staying[*b], Rules::RANK, (rank(*a), rank(*b))));
            for (place, index) in group.iter().enumerate() {
                sum[*index] += number(group.len() - place) * weight;
            }
        }
    }
}

/// On each node with several pods all but the best one get a rank, the worst the highest.
fn node_ranks(staying: &[&Member<'_>]) -> Vec<f64> {
    let mut ranks = vec![0.0; staying.len()];
    for mut group in grouped(staying, |member| member.view.node.as_deref()).into_values() {
        group.sort_by(|a, b| compare(staying[*a], staying[*b], Rules::RANK, (0.0, 0.0)));
        group.pop();
        for (place, index) in group.iter().enumerate() {
            ranks[*index] = number(group.len() - place);
        }
    }
    ranks
}

fn grouped<'m, 'a>(
    staying: &[&'m Member<'a>],
    key: impl Fn(&'m Member<'a>) -> Option<&'m str>,
) -> BTreeMap<&'m str, Vec<usize>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, member) in staying.iter().enumerate() {
        if let Some(key) = key(member) {
            groups.entry(key).or_default().push(index);
        }
    }
    groups
}

fn first<'m, 'a>(
    ranked: &[(&'m Member<'a>, f64)],
    side: impl Fn(&Member<'a>) -> bool,
    count: usize,
) -> Vec<&'m Member<'a>> {
    if count == 0 {
        return Vec::new();
    }
    let mut group: Vec<_> = ranked.iter().filter(|(member, _)| side(member)).collect();
    if count < group.len() {
        group.sort_by(|a, b| compare(a.0, b.0, Rules::SHRINK, (a.1, b.1)));
    }
    group.into_iter().take(count).map(|(member, _)| *member).collect()
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pods")]
const fn number(count: usize) -> f64 {
    count as f64
}
