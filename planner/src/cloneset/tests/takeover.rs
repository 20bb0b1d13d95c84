//! Objects of a running OpenKruise: looking at them starts nothing that it would not do.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Pod;
use kruise_api::clone_set::CloneSet;
use serde::de::DeserializeOwned;

use super::world::told;
use crate::cloneset::check::check;
use crate::cloneset::*;

const SETS: &str = include_str!("../../../../api/fixtures/cloneset/sets-v1beta1.yaml");
const REVISIONS: &str = include_str!("../../../../api/fixtures/cloneset/revisions.yaml");

fn all<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_norway::Deserializer::from_str(text)
        .map(|document| T::deserialize(document).expect("readable"))
        .collect()
}

/// What is done about each set, by name.
fn plans(pods: &str) -> BTreeMap<String, CloneSetPlan> {
    let gates = Gates {
        short_hash: true,
        pre_download: PreDownload::Always,
        ..Gates::default()
    };
    let pods: Vec<PodView> = all::<Pod>(pods)
        .iter()
        .map(|pod| PodView::of(pod, &gates))
        .collect();
    let revisions: Vec<RevisionView> = all::<ControllerRevision>(REVISIONS)
        .iter()
        .map(RevisionView::of)
        .collect();
    let sets = all::<CloneSet>(SETS).into_iter().map(|set| {
        let play = Play {
            pods: pods.clone(),
            claims: Vec::new(),
            revisions: revisions.clone(),
            jobs: Vec::new(),
            requests: Vec::new(),
            nodes: BTreeMap::new(),
            writes: Writes::default(),
            gates,
            now: "2026-11-30T17:00:00Z".parse::<Timestamp>().expect("a time"),
            set,
        };
        let snapshot = play.snapshot();
        let made = plan(&snapshot);
        check(&snapshot, &made);
        (play.set.metadata.name.clone().unwrap_or_default(), made)
    });
    sets.collect()
}

#[test]
fn the_stages_of_an_update_with_a_hook() {
    for (pods, alpha, waits) in [
        (
            include_str!("../../../../api/fixtures/cloneset/pods-preparing-update.yaml"),
            "",
            Some(Reason::InPlaceUpdateHook),
        ),
        (
            include_str!("../../../../api/fixtures/cloneset/pods-updating.yaml"),
            "",
            Some(Reason::ContainerRestart),
        ),
        (
            include_str!("../../../../api/fixtures/cloneset/pods-updated.yaml"),
            "",
            Some(Reason::InPlaceUpdateHookReturn),
        ),
    ] {
        let plans = plans(pods);
        let plan = &plans["alpha"];
        assert_eq!(told(plan).join(", "), alpha);
        assert_eq!(plan.waiting.first().map(|waiting| waiting.reason), waits);
        // The other sets are settled, and their revisions are known again by their bytes.
        for name in ["plain", "rich"] {
            assert!(plans[name].actions.is_empty(), "{name}: {:?}", told(&plans[name]));
        }
    }
}
