//! How pods of one revision come to another: in place, or only by making them again.

use std::collections::{BTreeMap, BTreeSet};

use kruise_api::clone_set::{UpdatePolicy, names};

use serde_json::Value;

use super::facts::Facts;
use super::revisions::Revisions;
use crate::inplace::{Change, Decision, decide_revisions};
use crate::revision::short_hash as short;

/// How pods of one revision come to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In place.
    InPlace {
        /// Nothing restarts: labels and annotations alone differ, and no container reads them.
        metadata_only: bool,
        /// Images that the pod will run and does not run now, without those that are never pulled.
        images: Vec<String>,
    },
    /// Only by making the pod again.
    Impossible {
        /// Which field stands against it.
        why: String,
    },
}

/// The ways between the revisions of a set that matter now.
#[derive(Debug, Default)]
pub(super) struct Ways(BTreeMap<(String, String), Way>);

static UNKNOWN: std::sync::LazyLock<Way> = std::sync::LazyLock::new(|| Way::Impossible {
    why: "the revision that the pod is on is not known".to_owned(),
});

impl Ways {
    /// Works out the way from each revision that a pod is on to where it may have to go.
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let mut ways = BTreeMap::new();
        if !facts.policy.is_in_place() {
            return Self(ways);
        }
        let revisions = &facts.revisions;
        let old = facts.members.iter().filter(|member| !member.updated);
        let mut from: BTreeSet<&str> = old
            .filter_map(|member| member.view.revision.as_deref())
            .map(short)
            .collect();
        if !revisions.is_settled() {
            from.insert(short(&revisions.current));
        }
        for from in from {
            let way = way(facts, from, &revisions.update);
            ways.insert((from.to_owned(), revisions.update.clone()), way);
        }
        if !facts.one_way() {
            let way = way(facts, &revisions.update, &revisions.current);
            let key = (short(&revisions.update).to_owned(), revisions.current.clone());
            ways.insert(key, way);
        }
        Self(ways)
    }

    /// The way of a pod with this revision label to a revision.
    pub(super) fn get(&self, label: Option<&str>, to: &str) -> &Way {
        // Few revisions are alive at a time.
        let from = label.map(short);
        let found = self
            .0
            .iter()
            .find(|((a, b), _)| Some(a.as_str()) == from && b == to);
        found.map_or(&UNKNOWN, |(_, way)| way)
    }
}

fn way(facts: &Facts<'_>, from: &str, to: &str) -> Way {
    let revisions = &facts.revisions;
    let (Some(old), Some(new)) = (revisions.data(from), revisions.data(to)) else {
        return UNKNOWN.clone();
    };
    let gates = &facts.snapshot.gates;
    if gates.recreate_on_claim_change
        && facts.policy != UpdatePolicy::InPlaceOnly
        && claims_differ(revisions, from, to)
    {
        return Way::Impossible {
            why: "spec.volumeClaimTemplates".to_owned(),
        };
    }
    match decide_revisions(old, new, gates.in_place()) {
        Decision::Impossible(obstacle) => Way::Impossible {
            why: obstacle.to_string(),
        },
        Decision::InPlace(change) => Way::InPlace {
            metadata_only: change.is_metadata_only(),
            images: pulled_images(&change, new),
        },
    }
}

/// New images that somebody has to pull: the kubelet never does for containers that say so.
fn pulled_images(change: &Change, new: &Value) -> Vec<String> {
    let containers = new
        .pointer("/spec/template/spec/containers")
        .and_then(Value::as_array);
    let never = |name: &str| {
        let named = containers
            .into_iter()
            .flatten()
            .find(|container| container["name"] == name);
        named.is_some_and(|container| container["imagePullPolicy"] == "Never")
    };
    let pulled = change.images.iter().filter(|(container, _)| !never(container));
    pulled.map(|(_, image)| image.clone()).collect()
}

/// Whether both revisions know their claim templates and these differ.
fn claims_differ(revisions: &Revisions<'_>, from: &str, to: &str) -> bool {
    let hash = |name: &str| match revisions.of_label(Some(name)) {
        Some(view) => view.annotations.get(names::CLAIM_TEMPLATE_HASH),
        None => Some(&revisions.claim_template_hash),
    };
    matches!((hash(from), hash(to)), (Some(a), Some(b)) if a != b)
}
