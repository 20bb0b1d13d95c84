//! How pods of one revision come to another: in place, or only by making them again.

use std::collections::BTreeSet;

use kruise_api::clone_set::{UpdatePolicy, names};

use serde_json::Value;

use super::facts::Facts;
use super::pod::RevisionKey;
use super::revisions::Revisions;
use crate::inplace::{Change, Decision, decide_revisions};

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

/// The ways between the revisions of a set that matter now. There are few, so they are looked through.
#[derive(Debug, Default)]
pub(super) struct Ways(Vec<(RevisionKey, RevisionKey, Way)>);

static UNKNOWN: std::sync::LazyLock<Way> = std::sync::LazyLock::new(|| Way::Impossible {
    why: "the revision that the pod is on is not known".to_owned(),
});

impl Ways {
    /// Works out the way from each revision that a pod is on to where it may have to go.
    pub(super) fn of(facts: &Facts<'_>) -> Self {
        let mut ways = Self::default();
        if !facts.policy.is_in_place() {
            return ways;
        }
        let revisions = &facts.revisions;
        let (current, update) = (RevisionKey::of(&revisions.current), revisions.update_key);
        let old = facts.members.iter().filter(|member| !member.updated);
        let mut from: BTreeSet<RevisionKey> = old.filter_map(|member| member.view.revision_key).collect();
        if !revisions.is_settled() {
            from.insert(current);
        }
        for from in from {
            ways.0.push((from, update, way(facts, from, update)));
        }
        if !facts.one_way() {
            ways.0.push((update, current, way(facts, update, current)));
        }
        ways
    }

    /// The way from one revision to another.
    pub(super) fn get(&self, from: Option<RevisionKey>, to: RevisionKey) -> &Way {
        let found = self.0.iter().find(|(a, b, _)| Some(*a) == from && *b == to);
        found.map_or(&UNKNOWN, |(_, _, way)| way)
    }
}

fn way(facts: &Facts<'_>, from: RevisionKey, to: RevisionKey) -> Way {
    let revisions = &facts.revisions;
    let (Some(old), Some(new)) = (revisions.data(from), revisions.data(to)) else {
        return UNKNOWN.clone();
    };
    let gates = &facts.snapshot.gates;
    let by_claims = gates.recreate_on_claim_change && facts.policy != UpdatePolicy::InPlaceOnly;
    if by_claims && claims_differ(revisions, from, to) {
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

/// Whether both revisions know their claim templates and these differ. One that is yet to be created will know them.
fn claims_differ(revisions: &Revisions<'_>, from: RevisionKey, to: RevisionKey) -> bool {
    let hash = |key: RevisionKey| match revisions.of_key(key) {
        Some(view) => view.annotations.get(names::CLAIM_TEMPLATE_HASH),
        None => Some(&revisions.claim_template_hash),
    };
    matches!((hash(from), hash(to)), (Some(a), Some(b)) if a != b)
}
