//! Which pods go first.

use jiff::SignedDuration;
use serde_json::json;

use super::line::rolling;
use super::world::{World, pods_of};
use crate::cloneset::*;

type Change = fn(&mut World);

/// What it shows, and what is special about pod `web-b` of `web-a`, `web-b`, `web-c`, which then goes.
pub(super) fn cases() -> Vec<(&'static str, Change)> {
    vec![
        ("no node", |world| {
            world.get("web-b").node = None;
        }),
        ("pending", |world| world.get("web-b").phase = Phase::Pending),
        ("unknown", |world| world.get("web-b").phase = Phase::Unknown),
        ("not available", |world| {
            world.play.set.spec.min_ready_seconds = 60;
            let since = Some(world.play.now);
            world.get("web-b").ready = Readiness::Ready { since };
        }),
        ("not ready", |world| {
            world.get("web-b").ready = Readiness::NotReady;
        }),
        ("low cost", |world| world.get("web-b").deletion_cost = -1),
        ("higher cost of the others", |world| {
            world.get("web-a").deletion_cost = 1;
            world.get("web-c").deletion_cost = 1;
        }),
        ("shares a node", |world| {
            world.get("web-b").node = Some("node-of-web-c".to_owned());
            world.get("web-b").restarts = 1;
        }),
        ("ready last", |world| {
            let since = Some(world.play.now - SignedDuration::from_secs(5));
            world.get("web-b").ready = Readiness::Ready { since };
        }),
        ("restarted", |world| world.get("web-b").restarts = 3),
        ("sidecar restarted", |world| {
            world.get("web-b").sidecar_restarts = 3;
        }),
        ("made last", |world| {
            world.get("web-b").created = Some(world.play.now);
        }),
        ("made at no known time", |world| world.get("web-b").created = None),
        ("in a crowded zone", |world| {
            world.play.set.spec.template["spec"]["topologySpreadConstraints"] =
                json!([{"topologyKey": "zone"}]);
            for (pod, zone) in [("web-a", "1"), ("web-b", "2"), ("web-c", "2")] {
                let labels = [("zone".to_owned(), zone.to_owned())].into();
                world.play.nodes.insert(format!("node-of-{pod}"), labels);
            }
            world.get("web-b").restarts = 1;
        }),
        ("node goes before phase", |world| {
            world.get("web-b").node = None;
            world.get("web-a").phase = Phase::Pending;
        }),
        ("phase goes before readiness", |world| {
            world.get("web-b").phase = Phase::Pending;
            world.get("web-a").ready = Readiness::NotReady;
        }),
        ("readiness goes before cost", |world| {
            world.get("web-b").ready = Readiness::NotReady;
            world.get("web-a").deletion_cost = -5;
        }),
        ("cost goes before rank", |world| {
            world.get("web-b").deletion_cost = -5;
            world.get("web-c").node = Some("node-of-web-a".to_owned());
        }),
    ]
}

#[test]
fn what_goes_first() {
    for (name, change) in cases() {
        let mut world = World::settled(rolling(2, json!({"maxUnavailable": 3})));
        for pod in ["web-a", "web-b", "web-c"] {
            world.pod(pod, 1);
        }
        change(&mut world);
        // The template may have changed; what matters is who goes.
        assert_eq!(pods_of(&world.plan(), "DeletePod"), ["web-b"], "{name}");
    }
}

#[test]
fn zones_are_kept_full_across_revisions() {
    let mut world = World::new(rolling(4, json!({"partition": 2})));
    world.play.set.spec.template["spec"]["topologySpreadConstraints"] = json!([{"topologyKey": "zone"}]);
    // Zone 1 has one old pod, zone 2 three pods of both revisions; one old pod is surplus.
    for (pod, revision, zone) in [
        ("web-a", 0, "1"),
        ("web-b", 0, "2"),
        ("web-c", 0, "3"),
        ("web-d", 1, "2"),
        ("web-e", 1, "3"),
    ] {
        world.pod(pod, revision);
        let labels = [("zone".to_owned(), zone.to_owned())].into();
        world.play.nodes.insert(format!("node-of-{pod}"), labels);
    }
    let gone = pods_of(&world.plan(), "DeletePod");
    assert_eq!(gone.len(), 1);
    assert_ne!(gone[0], "web-a", "the only pod of its zone stays");
}
