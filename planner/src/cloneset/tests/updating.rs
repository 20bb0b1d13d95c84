//! Updates: how many, which way, and through which states.

use serde_json::{Value, json};

use super::line::{Row, hooked, line, rolling, row, run, short};
use super::world::{World, pods_of, template, told, waits};
use crate::cloneset::*;
use kruise_api::clone_set::names;

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

fn policy(name: &str, replicas: i32) -> Value {
    rolling(replicas, json!({"podUpdatePolicy": name, "maxUnavailable": 2}))
}

/// How many at a time.
pub(super) fn walk_cases() -> Vec<Row> {
    let two = |replicas| rolling(replicas, json!({"maxUnavailable": 2}));
    vec![
        row(
            "as many as may be down",
            two(5),
            "o o o o o",
            "UpdateInPlace 00 Updating, UpdateInPlace 01 Updating",
        ),
        row(
            "one is down already",
            two(5),
            "o o o o n!",
            "UpdateInPlace 00 Updating",
        ),
        row("as many are down as may be", two(5), "o o o n! n!", ""),
        row(
            "broken old pods cost nothing",
            two(5),
            "o! o! o o o",
            "UpdateInPlace 00 Updating, UpdateInPlace 01 Updating",
        ),
        row(
            "but no more of the target than may be down",
            two(5),
            "o! o! o! o o",
            "UpdateInPlace 00 Updating, UpdateInPlace 01 Updating",
        ),
        row(
            "a broken pod although one is missing",
            with(
                rolling(3, json!({"maxUnavailable": 1})),
                "scaleStrategy",
                json!({"maxUnavailable": 1}),
            ),
            "o o!",
            "UpdateInPlace 01 Updating",
        ),
        row(
            "a broken pod although none may be down",
            rolling(3, json!({"maxUnavailable": 0, "maxSurge": 1})),
            "o o o! n",
            "UpdateInPlace 02 Updating",
        ),
        row(
            "but not while the surge pod is not there",
            rolling(3, json!({"maxUnavailable": 0, "maxSurge": 1})),
            "o o o! n!",
            "",
        ),
        row(
            "the partition is kept",
            rolling(4, json!({"maxUnavailable": 4, "partition": 3})),
            "o o o o",
            "UpdateInPlace 00 Updating",
        ),
        row(
            "marked pods count as done",
            rolling(
                4,
                json!({"podUpdatePolicy": "ReCreate", "maxUnavailable": 4, "partition": 2}),
            ),
            "o o om! o!",
            "DeletePod 02",
        ),
        row("paused", rolling(3, json!({"paused": true})), "o o o", ""),
        row(
            "broken ones first",
            rolling(3, json!({})),
            "o o o!",
            "UpdateInPlace 02 Updating",
        ),
        row(
            "from two revisions forwards only",
            rolling(3, json!({"partition": 3})),
            "n n o",
            "",
        ),
    ]
}

/// Policies and states.
pub(super) fn policy_cases() -> Vec<Row> {
    let one = |name| rolling(2, json!({"podUpdatePolicy": name, "maxUnavailable": 1}));
    let hooks = || hooked(2, json!({"maxUnavailable": 1}));
    vec![
        row(
            "recreate marks",
            policy("ReCreate", 3),
            "o o o",
            "Recreate 00, Recreate 01",
        ),
        row(
            "absent means recreate",
            json!({"replicas": 2}),
            "o o",
            "Recreate 00",
        ),
        row(
            "in place",
            policy("InPlaceOnly", 3),
            "o o o",
            "UpdateInPlace 00 Updating, UpdateInPlace 01 Updating",
        ),
        row("a hook first", hooks(), "oU oU", "PatchPod 00 PreparingUpdate"),
        row("the hook holds", hooks(), "opU oU", ""),
        row("the hook is gone", hooks(), "op oU", "UpdateInPlace 00 Updating"),
        row("no hook on the pod", hooks(), "o o", "UpdateInPlace 00 Updating"),
        row(
            "a new pod that is still preparing",
            one("InPlaceIfPossible"),
            "ocxU o",
            "UpdateInPlace 00 Updating",
        ),
        row(
            "in the middle of a change",
            hooks(),
            "ou oU",
            "UpdateInPlace 00 Updating",
        ),
        row(
            "updated, hook not back",
            hooks(),
            "oe oU",
            "PatchPod 00 PreparingUpdate",
        ),
        row(
            "updated, hook back: normal first",
            hooks(),
            "oeU oU",
            "PatchPod 00 Normal",
        ),
        row(
            "leaving pods are left alone",
            hooks(),
            "olD o o!",
            "UpdateInPlace 02 Updating",
        ),
    ]
}

#[test]
fn walks() {
    run(walk_cases(), |_| {});
}

#[test]
fn policies() {
    run(policy_cases(), |_| {});
}

#[test]
fn on_delete_updates_nobody_and_keeps_up() {
    let mut world =
        World::new(json!({"replicas": 2, "updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}));
    line(&mut world, "o oc");
    let plan = world.plan();
    assert_eq!(short(&plan), "PatchPod 01 Normal");
    assert_eq!(waits(&plan, Reason::OnDelete).unwrap().len(), 2);
}

fn change_spec(world: &mut World) {
    let mut template = template("app:2");
    template["spec"]["nodeSelector"] = json!({"a": "b"});
    world.play.set.spec.template = template;
}

#[test]
fn not_possible_in_place() {
    for (name, does) in [("InPlaceIfPossible", vec!["web-p00"]), ("InPlaceOnly", vec![])] {
        let mut world = World::new(policy(name, 2));
        change_spec(&mut world);
        line(&mut world, "o o");
        let plan = world.plan();
        let marked: Vec<String> = pods_of(&plan, "Recreate");
        assert_eq!(
            marked.first().map(String::as_str),
            does.first().copied(),
            "{name}"
        );
        if name == "InPlaceOnly" {
            assert_eq!(waits(&plan, Reason::InPlaceImpossible).unwrap().len(), 2);
            let why = &plan
                .waiting
                .iter()
                .find(|waiting| waiting.reason == Reason::InPlaceImpossible)
                .unwrap()
                .message;
            assert!(why.contains("spec"), "{why}");
            assert!(
                plan.status
                    .conditions
                    .iter()
                    .any(|condition| condition.kind == "FailedUpdate" && condition.status == "True")
            );
        }
    }
}

#[test]
fn the_failure_goes_when_the_template_is_changed_back() {
    let mut world = World::new(policy("InPlaceOnly", 2));
    change_spec(&mut world);
    line(&mut world, "o o");
    world.settle();
    assert!(!world.play.set.status.as_ref().unwrap().conditions.is_empty());
    world.play.set.spec.template = template("app:2");
    world.settle();
    assert!(world.play.set.status.as_ref().unwrap().conditions.is_empty());
    assert!(
        world
            .play
            .pods
            .iter()
            .all(|pod| pod.revision.as_deref() == Some(&world.revision(1)))
    );
}

#[test]
fn a_change_of_metadata_takes_nobody_down() {
    let mut world = World::new(rolling(4, json!({"maxUnavailable": 0, "maxSurge": 2})));
    world.play.set.spec.template = template("app:1");
    world.play.set.spec.template["metadata"]["labels"]["tier"] = json!("back");
    line(&mut world, "o o o o");
    let plans = world.settle();
    assert!(
        plans.iter().all(|plan| pods_of(plan, "CreatePod").is_empty()),
        "no surge"
    );
    assert!(
        plans.iter().all(|plan| plan.status.available_replicas == 4),
        "nobody out of service"
    );
    assert!(world.play.pods.iter().all(|pod| pod.labels.has("tier", "back")));
}

#[test]
fn grace_comes_between() {
    let mut world = World::new(rolling(
        1,
        json!({"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}),
    ));
    line(&mut world, "o");
    let first = world.step();
    assert_eq!(told(&first.plan), ["UpdateInPlace web-p00 Updating"]);
    assert_eq!(first.plan.wake_after(first.at).unwrap().as_secs(), 30);
    let waiting = world.plan();
    assert!(waiting.actions.is_empty() && waits(&waiting, Reason::GracePeriod).is_some());
    world.pass(30);
    assert!(matches!(
        &world.plan().actions[0],
        Action::UpdateInPlace {
            reason: "GracePeriodOver",
            ..
        }
    ));
    world.settle();
    assert_eq!(
        world.play.set.status.as_ref().unwrap().updated_available_replicas,
        1
    );
}

#[test]
fn another_template_voids_what_waits_for_its_grace() {
    let mut world = World::new(rolling(
        1,
        json!({"inPlaceUpdateStrategy": {"gracePeriodSeconds": 30}}),
    ));
    line(&mut world, "o");
    world.step();
    world.play.pods[0].set_label(names::REVISION, Some("web-other"));
    let json = serde_json::to_value(&world.plan().actions[0]).unwrap();
    assert!(
        json["annotations"][names::IN_PLACE_GRACE].is_null()
            && json["annotations"].as_object().unwrap().len() == 2
    );
}

#[test]
fn batches_come_one_after_the_other() {
    let mut world = World::new(rolling(1, json!({})));
    line(&mut world, "n");
    let pod = world.get("web-p00");
    pod.set_label(names::LIFECYCLE_STATE, Some("Updating"));
    pod.in_place_ready = Some(false);
    pod.in_place.next = Some(NextBatch {
        waits_for: vec!["main".to_owned()],
    });
    assert!(waits(&world.plan(), Reason::ContainerBatch).is_some());
    world.get("web-p00").in_place.next = Some(NextBatch::default());
    assert!(matches!(
        &world.plan().actions[..],
        [Action::UpdateInPlace {
            reason: "NextBatch",
            lifecycle_state: None,
            ..
        }]
    ));
}

#[test]
fn a_write_that_failed_holds_nobody_up() {
    let mut world = World::new(rolling(3, json!({"maxUnavailable": 1})));
    line(&mut world, "o o o");
    let until = world.play.now + jiff::SignedDuration::from_secs(20);
    let hold = Hold {
        until,
        message: "denied by a webhook".to_owned(),
    };
    world.play.writes.held.insert("web-p00".to_owned(), hold);
    let plan = world.plan();
    assert_eq!(short(&plan), "UpdateInPlace 01 Updating");
    assert_eq!(
        waits(&plan, Reason::WriteFailed),
        Some(vec!["web-p00".to_owned()])
    );
    assert_eq!(plan.wake, Some(until));
}

#[test]
fn pods_keep_serving_until_their_image_is_there() {
    let mut world = World::new(rolling(3, json!({"maxUnavailable": 1})));
    line(&mut world, "o o o");
    let mut reports = std::collections::BTreeMap::new();
    let now = world.play.now;
    let revision = world.revision(1);
    let plan_with = |world: &World, reports: &std::collections::BTreeMap<String, PullReport>| {
        let mut snapshot = world.play.snapshot();
        snapshot.pulls = Some(reports);
        let made = plan(&snapshot);
        crate::cloneset::check::check(&snapshot, &made);
        made
    };
    let asked = plan_with(&world, &reports);
    assert!(asked.actions.is_empty());
    assert_eq!(asked.pulls.len(), 1, "one unit of budget, one pod");
    assert_eq!(asked.pulls[0].images, ["app:2"]);
    let pod = asked.pulls[0].pod.clone();
    let mut report = |state: PullState| {
        let revision = revision.clone();
        reports.insert(pod.clone(), PullReport { revision, state });
        plan_with(&world, &reports)
    };
    let pulling = report(PullState::Pulling {
        message: "30 of 100 MB".to_owned(),
    });
    assert_eq!(waits(&pulling, Reason::PullGate), Some(vec![pod.clone()]));
    let failed = report(PullState::Failed {
        message: "not found".to_owned(),
        retry_at: now + jiff::SignedDuration::from_secs(60),
    });
    assert_eq!(waits(&failed, Reason::PullFailed), Some(vec![pod.clone()]));
    assert_ne!(failed.pulls[0].pod, pod, "the next one gets its turn");
    let old = report(PullState::Present {
        at: now - jiff::SignedDuration::from_secs(61),
    });
    assert!(old.actions.is_empty() && old.pulls.len() == 1, "looked for again");
    assert_eq!(
        pods_of(&report(PullState::Open), "UpdateInPlace"),
        std::slice::from_ref(&pod)
    );
    assert_eq!(
        pods_of(&report(PullState::Present { at: now }), "UpdateInPlace"),
        [pod]
    );
}

#[test]
fn specification_short_list() {
    // 1: shares of a partition.
    for (partition, updated) in [("99%", 1), ("100%", 0), ("1%", 9)] {
        let mut world = World::new(rolling(10, json!({"partition": partition})));
        line(&mut world, "o o o o o o o o o o");
        let done = world.settle().pop().unwrap();
        assert_eq!(done.status.updated_replicas, updated, "{partition}");
    }
    // 7: an image under ReCreate: the pod is marked, goes, and name and id are new.
    let mut world = World::new(rolling(1, json!({"podUpdatePolicy": "ReCreate"})));
    line(&mut world, "o");
    world.settle();
    assert_eq!(world.play.pods.len(), 1);
    assert_ne!(world.play.pods[0].name, "web-p00");
    // 8: the template is changed back before the hook is taken away.
    let mut spec = hooked(1, json!({}));
    spec["lifecycle"]["inPlaceUpdate"]["markPodNotReady"] = json!(true);
    let mut world = World::new(spec);
    line(&mut world, "oU");
    world.step();
    assert_eq!(world.play.pods[0].state, LifecycleState::PreparingUpdate);
    assert!(!world.play.pods[0].ready.is_ready());
    world.play.set.spec.template = template("app:1");
    world.settle();
    assert_eq!(world.play.pods[0].state, LifecycleState::Normal);
    assert!(world.play.pods[0].ready.is_ready() && world.play.pods[0].not_ready_keys.is_empty());
}

#[test]
fn a_raised_partition_takes_back_who_has_only_prepared() {
    let mut world = World::new(hooked(2, json!({"maxUnavailable": 2})));
    line(&mut world, "oU oU");
    world.step();
    assert!(
        world
            .play
            .pods
            .iter()
            .all(|pod| pod.state == LifecycleState::PreparingUpdate)
    );
    world
        .play
        .set
        .spec
        .update_strategy
        .rolling_update
        .as_mut()
        .unwrap()
        .partition = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(2));
    world.settle();
    assert!(
        world
            .play
            .pods
            .iter()
            .all(|pod| pod.state == LifecycleState::Normal)
    );
}
