//! Who belongs to the set, and what happens to claims.

use serde_json::{Value, json};

use super::line::{line, rolling};
use super::world::{UID, World, pods_of, told, waits};
use crate::cloneset::*;

fn with_claims(replicas: i32, reuse: bool) -> Value {
    let mut spec = rolling(replicas, json!({}));
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    spec["scaleStrategy"] = json!({"enablePVCReuse": reuse});
    spec
}

fn claim(world: &mut World, id: &str) -> usize {
    world.play.claims.push(ClaimView {
        name: format!("data-web-{id}"),
        instance_id: Some(id.to_owned()),
        owners: vec![UID.to_owned()],
        ..ClaimView::default()
    });
    world.play.claims.len() - 1
}

/// What happened to the pod, whether claims are reused, how it happened, and what is done with the claim.
type Case = (&'static str, bool, fn(&mut World), &'static str);

pub(super) fn cases() -> Vec<Case> {
    fn shrink(world: &mut World) {
        world.play.set.spec.replicas = Some(0);
    }
    fn gone(world: &mut World) {
        world.play.pods.clear();
        world.play.set.spec.replicas = Some(0);
    }
    fn failed(world: &mut World) {
        world.play.pods[0].phase = Phase::Failed;
        world.play.set.spec.replicas = Some(0);
    }
    fn released(world: &mut World) {
        world.play.pods[0].set_label("app", None);
        world.play.set.spec.replicas = Some(0);
    }
    fn released_before(world: &mut World) {
        released(world);
        world.play.pods[0].controller = None;
        world.play.pods[0].owners.clear();
    }
    vec![
        (
            "deleted by the set",
            false,
            shrink,
            "DeletePod web-p00, DeleteClaim data-web-p00",
        ),
        (
            "deleted by the set",
            true,
            shrink,
            "DeletePod web-p00, DeleteClaim data-web-p00",
        ),
        ("vanished", false, gone, "DeleteClaim data-web-p00"),
        ("vanished", true, gone, ""),
        ("failed", false, failed, "PatchClaim data-web-p00"),
        ("failed", true, failed, ""),
        (
            "relabelled",
            false,
            released,
            "PatchPod web-p00, PatchClaim data-web-p00",
        ),
        (
            "relabelled",
            true,
            released,
            "PatchPod web-p00, PatchClaim data-web-p00",
        ),
        (
            "relabelled before",
            false,
            released_before,
            "PatchClaim data-web-p00",
        ),
        (
            "relabelled before",
            true,
            released_before,
            "PatchClaim data-web-p00",
        ),
    ]
}

#[test]
fn what_happens_to_claims() {
    for (name, reuse, change, does) in cases() {
        let mut world = World::settled(with_claims(1, reuse));
        line(&mut world, "n");
        claim(&mut world, "p00");
        change(&mut world);
        let plan = world.plan();
        assert_eq!(
            told(&plan)
                .join(", ")
                .replace("DeleteClaim web-p00", "DeleteClaim data-web-p00"),
            does,
            "{name}, reuse {reuse}"
        );
    }
}

#[test]
fn freed_ids_come_first_in_order() {
    let mut world = World::settled(with_claims(3, true));
    claim(&mut world, "zzzzz");
    claim(&mut world, "bbbbb");
    let plan = world.plan();
    let created = pods_of(&plan, "CreatePod");
    assert!(created.contains(&"web-bbbbb".to_owned()) && created.contains(&"web-zzzzz".to_owned()));
    assert_eq!(
        plan.actions
            .iter()
            .filter(|action| matches!(action, Action::CreateClaim { .. }))
            .count(),
        1
    );
    assert!(created.is_sorted());
}

#[test]
fn an_id_is_not_free_while_anybody_holds_it() {
    // An evicted pod still holds its name; a fresh id is taken and the claim waits.
    let mut world = World::settled(with_claims(1, true));
    line(&mut world, "nF");
    claim(&mut world, "p00");
    assert_ne!(pods_of(&world.plan(), "CreatePod"), ["web-p00"]);
    world.play.pods.clear();
    assert_eq!(pods_of(&world.plan(), "CreatePod"), ["web-p00"]);
    // A claim that is being deleted cannot be used.
    world.play.claims[0].terminating = true;
    assert_ne!(pods_of(&world.plan(), "CreatePod"), ["web-p00"]);
}

#[test]
fn an_id_of_which_one_claim_is_going_waits() {
    let mut spec = with_claims(1, true);
    spec["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "logs"}}]);
    let mut world = World::settled(spec);
    claim(&mut world, "p00");
    let index = claim(&mut world, "p00");
    world.play.claims[index].name = "logs-web-p00".to_owned();
    world.play.claims[index].terminating = true;
    let plan = world.plan();
    assert_ne!(pods_of(&plan, "CreatePod"), ["web-p00"]);
    assert!(waits(&plan, Reason::TerminatingClaims).is_some());
}

#[test]
fn claims_are_kept_and_used_again() {
    let mut world = World::settled(with_claims(3, true));
    world.settle();
    assert_eq!(world.play.claims.len(), 3);
    let gone = world.play.pods.remove(1);
    world.settle();
    assert!(world.play.pods.iter().any(|pod| pod.name == gone.name));
    assert_eq!(world.play.claims.len(), 3);
}

#[test]
fn orphans_without_a_reference_are_never_taken() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "n n");
    world.play.pods[1].controller = None;
    world.play.pods[1].owners.clear();
    let plan = world.plan();
    assert!(plan.actions.is_empty());
    assert_eq!(plan.status.replicas, 1);
}

#[test]
fn a_pod_with_a_reference_is_taken() {
    let mut world = World::settled(rolling(2, json!({})));
    line(&mut world, "n n");
    world.play.pods[1].controller = None;
    let plan = world.plan();
    assert!(
        matches!(&plan.actions[..], [Action::PatchPod { patch, .. }] if patch.owners == Some(OwnerChange::Claim))
    );
    assert_eq!(plan.status.replicas, 2);
}

#[test]
fn pods_of_others_are_never_touched() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "n nm n");
    for pod in &mut world.play.pods[1..] {
        pod.controller = Some("other".to_owned());
    }
    assert!(world.plan().actions.is_empty());
}

#[test]
fn a_relabelled_pod_is_replaced_under_another_name() {
    let mut world = World::settled(rolling(1, json!({})));
    line(&mut world, "n");
    world.play.pods[0].set_label("app", Some("other"));
    world.settle();
    assert_eq!(world.play.pods.len(), 2);
    assert!(world.play.pods[0].owners.is_empty() && !world.play.pods[0].terminating);
    assert_ne!(world.play.pods[1].name, "web-p00");
}
