//! Restarts of all pods by annotation.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kruise_api::clone_set::{RestartStatus, names};
use serde_json::json;

use super::world::{World, pods_of, template, waits};
use crate::cloneset::*;
use crate::restart::bulk::Came;

const KIND: &str = "CreateContainerRecreateRequest";

/// A settled set of these pods with the annotations of a run named `r`.
fn world(pods: &[&str], annotations: &[(&str, &str)]) -> World {
    let mut world = World::settled(json!({"replicas": pods.len(), "template": template("app:2")}));
    for pod in pods {
        world.pod(pod, 1);
    }
    annotate(&mut world, &[&[(names::RESTART, "r")], annotations].concat());
    world
}

fn annotate(world: &mut World, annotations: &[(&str, &str)]) {
    let pairs = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    world.play.set.metadata.annotations = Some(pairs.collect());
}

fn stored(world: &World) -> RestartStatus {
    let status = world.play.set.status.as_ref();
    status
        .and_then(|status| status.restart.clone())
        .expect("a run is stored")
}

/// Plans and carries out, without a kubelet.
fn turn(world: &mut World) -> CloneSetPlan {
    let plan = world.plan();
    world.play.carry_out(&plan);
    plan
}

/// Pods whose requests the plan makes.
fn begun(plan: &CloneSetPlan) -> Vec<String> {
    let pods = plan.actions.iter().filter_map(|action| match action {
        Action::CreateContainerRecreateRequest { pod, .. } => Some(pod.clone()),
        _ => None,
    });
    pods.collect()
}

fn end(world: &mut World, pod: &str, came: Came) {
    let mut requests = world.play.requests.iter_mut();
    requests
        .find(|request| request.pod == pod && request.came.is_running())
        .expect("its request runs")
        .came = came;
}

fn down(world: &mut World, pod: &str) {
    world.get(pod).ready = Readiness::NotReady;
    world.get(pod).containers_ready = false;
}

fn up(world: &mut World, pod: &str) {
    let now = world.play.now;
    world.get(pod).ready = Readiness::Ready { since: Some(now) };
    world.get(pod).containers_ready = true;
}

fn told(plan: &CloneSetPlan) -> Vec<&'static str> {
    plan.events.iter().map(|event| event.reason).collect()
}

#[test]
fn one_after_the_other_each_once_and_then_never_again() {
    let mut world = world(&["web-a", "web-b", "web-c"], &[]);
    let first = turn(&mut world);
    assert_eq!((begun(&first).len(), told(&first)), (0, vec!["RestartBegan"]));
    assert_eq!((stored(&world).run, stored(&world).total), ("r".to_owned(), 3));
    for (index, pod) in ["web-a", "web-b", "web-c"].into_iter().enumerate() {
        let plan = turn(&mut world);
        assert_eq!(begun(&plan), [pod]);
        assert_eq!(told(&plan), [""; 0]);
        let left = waits(&plan, Reason::RestartBudget).unwrap_or_default().len();
        assert_eq!(left, 2 - index);
        assert_eq!(begun(&turn(&mut world)), [""; 0], "its request runs");
        down(&mut world, pod);
        assert_eq!(begun(&turn(&mut world)), [""; 0], "it is down");
        end(&mut world, pod, Came::Succeeded);
        assert_eq!(begun(&turn(&mut world)), [""; 0], "it is not back");
        up(&mut world, pod);
    }
    let last = turn(&mut world);
    assert_eq!((begun(&last).len(), told(&last)), (0, vec!["RestartCompleted"]));
    let over = stored(&world);
    assert!(over.completed_at.is_some() && over.done == 3, "{over:?}");
    // The requests are deleted when their time is over, and the run is not made again, by whoever leads.
    world.play.requests.clear();
    world.pass(30 * 24 * 3600);
    let rest = turn(&mut world);
    assert_eq!(
        (rest.actions.len(), rest.write_status, told(&rest).len()),
        (0, false, 0)
    );
    assert_eq!(rest.waiting, []);
    // The annotation goes and comes back.
    annotate(&mut world, &[]);
    assert_eq!(turn(&mut world).actions, []);
    annotate(&mut world, &[(names::RESTART, "r")]);
    assert_eq!(turn(&mut world).actions, []);
    annotate(&mut world, &[(names::RESTART, "s")]);
    assert_eq!(told(&turn(&mut world)), ["RestartBegan"]);
    assert_eq!(begun(&turn(&mut world)), ["web-a"]);
}

#[test]
fn how_many_at_once() {
    let four = ["web-a", "web-b", "web-c", "web-d"];
    for (limit, unready, expected) in [
        ("1", vec![], vec!["web-a"]),
        ("2", vec![], vec!["web-a", "web-b"]),
        ("50%", vec![], vec!["web-a", "web-b"]),
        ("30%", vec![], vec!["web-a", "web-b"]),
        ("1%", vec![], vec!["web-a"]),
        // Who is down anyway goes first and takes the place of the others.
        ("1", vec!["web-c"], vec!["web-c"]),
        ("2", vec!["web-c"], vec!["web-c", "web-a"]),
        ("1", vec!["web-c", "web-d"], vec!["web-c"]),
        ("9", vec![], four.to_vec()),
    ] {
        let mut world = world(&four, &[(names::RESTART_MAX_UNAVAILABLE, limit)]);
        turn(&mut world);
        for pod in &unready {
            down(&mut world, pod);
        }
        assert_eq!(begun(&turn(&mut world)), expected, "{limit}, {unready:?} down");
    }
    // A pod that is ready, and not yet for minReadySeconds, is not available.
    let mut world = world(&four, &[]);
    world.play.set.spec.min_ready_seconds = 60;
    up(&mut world, "web-d");
    turn(&mut world);
    assert_eq!(begun(&turn(&mut world)), ["web-d"]);
}

#[test]
fn a_request_of_kruisectl_counts_as_one_of_the_budget() {
    let mut world = world(&["web-a", "web-b"], &[]);
    turn(&mut world);
    let request = |run: &str, pod: &str, came| RecreateView {
        name: format!("{pod}-{run}"),
        uid: format!("uid-{run}-{pod}"),
        resource_version: String::new(),
        run: Some(run.to_owned()),
        pod: pod.to_owned(),
        pod_uid: Some(format!("uid-of-{pod}")),
        came,
    };
    world.play.requests = vec![request("other", "web-b", Came::Runs(String::new()))];
    assert_eq!(begun(&turn(&mut world)), [""; 0]);
    // One of this very run is as good as our own.
    world.play.requests = vec![request("r", "web-a", Came::Succeeded)];
    assert_eq!(begun(&turn(&mut world)), ["web-b"]);
}

#[test]
fn pods_that_were_made_later_need_no_restart() {
    let mut world = world(&["web-a", "web-b"], &[]);
    turn(&mut world);
    world.pass(5);
    let now = world.play.now;
    world.get("web-a").created = Some(now);
    assert_eq!(begun(&turn(&mut world)), ["web-b"]);
    end(&mut world, "web-b", Came::Succeeded);
    turn(&mut world);
    let over = stored(&world);
    assert_eq!((over.total, over.done), (1, 1));
    assert!(over.completed_at.is_some());
}

#[test]
fn a_failed_request_stops_the_run_until_the_value_is_another() {
    let mut world = world(
        &["web-a", "web-b", "web-c"],
        &[(names::RESTART_MAX_UNAVAILABLE, "2")],
    );
    turn(&mut world);
    assert_eq!(begun(&turn(&mut world)).len(), 2);
    end(&mut world, "web-a", Came::Failed("main: no".to_owned()));
    let plan = turn(&mut world);
    assert_eq!((begun(&plan).len(), told(&plan)), (0, vec!["RestartFailed"]));
    assert!(waits(&plan, Reason::RestartFailed).is_some());
    let stopped = stored(&world);
    assert_eq!(
        (stopped.failed, stopped.message.as_str()),
        (1, "pod web-a: main: no")
    );
    end(&mut world, "web-b", Came::Succeeded);
    world.play.requests.clear();
    let plan = turn(&mut world);
    assert_eq!((begun(&plan).len(), told(&plan).len()), (0, 0), "told once");
    assert!(
        waits(&plan, Reason::RestartFailed).is_some(),
        "and shown as long as it is so"
    );
    annotate(&mut world, &[(names::RESTART, "s")]);
    turn(&mut world);
    assert_eq!(begun(&turn(&mut world)), ["web-a"]);
}

#[test]
fn what_holds_a_run() {
    for (name, reason, change) in [
        (
            "paused",
            Reason::RestartHeld,
            (|world| {
                let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"paused": true}});
                world.play.set.spec.update_strategy = serde_json::from_value(strategy).expect("a strategy");
            }) as fn(&mut World),
        ),
        ("no agents", Reason::RestartHeld, |world| {
            world.play.gates.restarts = false;
        }),
        ("another image", Reason::RestartUpdate, |world| {
            world.play.set.spec.template = template("app:3");
        }),
        ("a pod on its way", Reason::RestartUpdate, |world| {
            world.get("web-b").in_place.unfinished = vec!["main".to_owned()];
        }),
        ("a bad number", Reason::InvalidField, |world| {
            annotate(
                world,
                &[(names::RESTART, "r"), (names::RESTART_MAX_UNAVAILABLE, "0")],
            );
        }),
    ] {
        let mut world = world(&["web-a", "web-b"], &[]);
        turn(&mut world);
        let before = world.clone();
        change(&mut world);
        let plan = world.plan();
        assert_eq!(pods_of(&plan, KIND).len() + begun(&plan).len(), 0, "{name}");
        assert!(waits(&plan, reason).is_some(), "{name}: {:#?}", plan.waiting);
        assert_eq!(begun(&before.plan()), ["web-a"], "{name}: without it");
    }
    let mut gone = world(&["web-a", "web-b"], &[]);
    turn(&mut gone);
    annotate(&mut gone, &[]);
    assert_eq!(begun(&turn(&mut gone)), [""; 0], "the annotation was taken away");
}

#[test]
fn an_update_that_begins_counts_pods_that_are_being_restarted() {
    let mut world = world(&["web-a", "web-b", "web-c"], &[]);
    world.play.set.spec.update_strategy = serde_json::from_value(json!({"type": "RollingUpdate",
        "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}}))
    .expect("a strategy");
    turn(&mut world);
    assert_eq!(begun(&turn(&mut world)), ["web-a"]);
    world.play.set.spec.template = template("app:3");
    turn(&mut world);
    let plan = turn(&mut world);
    assert_eq!(
        pods_of(&plan, "UpdateInPlace"),
        [""; 0],
        "web-a is about to go down"
    );
    end(&mut world, "web-a", Came::Succeeded);
    assert_eq!(pods_of(&turn(&mut world), "UpdateInPlace").len(), 1);
}

#[test]
fn a_refused_request_is_not_tried_for_one_pod_after_the_other() {
    let mut world = world(&["web-a", "web-b"], &[]);
    turn(&mut world);
    let until = world.play.now + SignedDuration::from_secs(5);
    let hold = Hold {
        until,
        message: "container x not found in Pod".to_owned(),
    };
    world.play.writes.held = BTreeMap::from([("web-a".to_owned(), hold)]);
    let plan = turn(&mut world);
    assert_eq!(begun(&plan), [""; 0]);
    assert_eq!(waits(&plan, Reason::WriteFailed), Some(vec!["web-a".to_owned()]));
    assert_eq!(plan.wake, Some(until));
}

#[test]
fn a_run_does_not_outlive_its_requests() {
    let mut world = world(&["web-a", "web-b"], &[]);
    turn(&mut world);
    turn(&mut world);
    world.pass(7 * 24 * 3600 + 1);
    let plan = turn(&mut world);
    assert_eq!(told(&plan), ["RestartFailed"]);
    world.play.requests.clear();
    assert_eq!(begun(&turn(&mut world)), [""; 0]);
}

#[test]
fn progress_costs_no_writes_of_its_own() {
    let names: Vec<String> = (0..40).map(|index| format!("web-{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = world(&names, &[]);
    let plans = world.settle();
    let writes = plans.iter().filter(|plan| plan.write_status).count();
    let requests: usize = plans.iter().map(|plan| begun(plan).len()).sum();
    assert_eq!(requests, 40);
    // The first status, the beginning, three quarters, the end.
    assert!(writes <= 6, "{writes} writes");
    assert_eq!(stored(&world).done, 40);
}
