//! Requests from their creation to their end.

use kruise_api::container_recreate_request::{Phase, keys};
use kruise_planner::restart::task_id;
use serde_json::{Value, json};

use super::super::cluster::event_for_tests;
use super::world::*;
use crate::kubeapi::ApiFailure;

#[test]
fn a_restart_from_request_to_report_in_three_writes() {
    let mut world = World::new();
    assert!(world.ready, "without requests no pod is read");
    world.create("r", |_| {});
    let order = world.order("r").expect("ordered at once");
    assert_eq!((order.targets[0].id.as_str(), order.released), ("w1", 1));
    assert_eq!(world.writes, ["admit"]);
    world.report("r", taken("w1"));
    world.report("r", stopped("w1"));
    world.wait(1500);
    world.report("r", back("w1", "w2"));
    world.kubelet("w2", 1, false);
    assert_eq!(world.writes, ["admit"], "not ready yet");
    world.wait(500);
    world.kubelet("w2", 1, true);
    assert_eq!(world.writes, ["admit", "status", "clean"]);
    assert_eq!(world.phase("r"), "Completed");
    assert!(world.order("r").is_none(), "the agent may forget it");
    assert_eq!(
        world.events,
        ["Stopping container web by ContainerRecreateRequest r"]
    );
    let annotations = world.stored["r"]
        .metadata
        .annotations
        .as_ref()
        .expect("annotations");
    let report: Value = serde_json::from_str(&annotations[keys::RESTART_REPORT]).expect("json");
    assert_eq!(
        report,
        json!([{"name": "web", "oldID": "w1", "newID": "w2", "stopSeconds": 1.0, "downSeconds": 1.0, "notReadySeconds": 2.0}])
    );
    world.wait(3_600_000);
    assert_eq!(world.writes.len(), 3, "at rest nothing is written");
}

#[test]
fn a_hook_that_fell_back_to_http_is_told_once_in_the_kubelets_words() {
    let mut world = World::new();
    world.create("r", |_| {});
    let mut facts = stopped("w1");
    facts.hook_fallback = "10.0.0.7:443".to_owned();
    world.report("r", facts.clone());
    world.report("r", facts);
    let words = "request to HTTPS lifecycle hook 10.0.0.7:443 got HTTP response, retry with HTTP succeeded";
    let told = world.events.iter().filter(|event| *event == words);
    assert_eq!(told.count(), 1, "{:?}", world.events);
}

#[test]
fn a_slow_restart_shows_that_it_runs() {
    let mut world = World::new();
    world.create("r", |_| {});
    world.report("r", stopped("w1"));
    world.wait(9_000);
    assert_eq!(world.writes, ["admit"]);
    world.wait(1_000);
    assert_eq!(world.phase("r"), "Recreating");
    assert_eq!(world.writes, ["admit", "status"]);
}

/// As a webhook lets it in.
fn admitted(json: &mut Value) {
    json["metadata"]["labels"] = json!({keys::POD_UID: "u1", keys::NODE_NAME: "node1", keys::ACTIVE: "true"});
    json["spec"]["containers"][0]["statusContext"] =
        json!({"containerID": "containerd://w1", "restartCount": 0});
}

#[test]
fn three_writes_whether_the_watch_or_the_answer_is_first() {
    for watch_is_first in [false, true] {
        let mut world = World::new();
        world.watch_is_first = watch_is_first;
        world.create("r", admitted);
        assert_eq!(world.writes, ["status"]);
        world.report("r", taken("w1"));
        world.report("r", stopped("w1"));
        world.wait(1_500);
        world.report("r", back("w1", "w2"));
        world.kubelet("w2", 1, false);
        assert_eq!(world.writes, ["status"], "watch first: {watch_is_first}");
        world.kubelet("w2", 1, true);
        assert_eq!(world.writes, ["status", "status", "clean"]);
    }
}

#[test]
fn another_leader_writes_no_more_than_the_first_would_have() {
    let mut world = World::new();
    world.create("r", admitted);
    world.lead();
    world.report("r", stopped("w1"));
    world.wait(1_500);
    world.report("r", back("w1", "w2"));
    world.kubelet("w2", 1, true);
    assert_eq!(world.writes, ["status", "status", "clean"]);
}

#[test]
fn three_requests_together_all_complete_in_order() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.create(name, |_| {});
    }
    for (name, next) in [("a", Some("b")), ("b", Some("c")), ("c", None)] {
        assert!(world.order(name).is_some(), "{name} has its turn");
        assert_eq!(world.orders.len(), 1);
        if name == "a" {
            world.report(name, back("w1", "w2"));
            world.kubelet("w2", 1, true);
        } else {
            // Made before the first restart, they find it done.
            world.report(name, back("w1", "w2"));
        }
        world.wait(10);
        assert_eq!(world.phase(name), "Completed");
        if let Some(next) = next {
            assert!(world.order(next).is_some(), "released in the same step");
        }
    }
}

#[test]
fn a_node_whose_clock_is_wrong_by_half_a_minute_restarts_like_any_other() {
    for skew in [-30, 30] {
        let mut world = World::new();
        world.create("r", |json| json["spec"]["activeDeadlineSeconds"] = json!(10));
        world.report("r", skewed(stopped("w1"), skew));
        world.wait(2_000);
        world.report("r", skewed(back("w1", "w2"), skew));
        world.kubelet("w2", 1, true);
        let status = world.stored["r"].status.as_ref().expect("a status");
        assert_eq!(
            status.container_recreate_states[0].phase,
            Phase::Succeeded,
            "{skew} s"
        );
        assert_eq!(
            status.container_status_snapshot[0].container_id,
            "containerd://w2"
        );
        let annotations = world.stored["r"]
            .metadata
            .annotations
            .as_ref()
            .expect("annotations");
        let report: Value = serde_json::from_str(&annotations[keys::RESTART_REPORT]).expect("json");
        assert_eq!(
            (&report[0]["stopSeconds"], &report[0]["downSeconds"]),
            (&json!(1.0), &json!(1.0)),
            "both ends of a span are by the same clock"
        );
    }
}

#[test]
fn another_leader_takes_up_what_the_agent_holds() {
    let mut world = World::new();
    world.create("r", |_| {});
    world.report("r", stopped("w1"));
    // The first leader is gone before anything but the labels was stored.
    world.lead();
    assert!(world.ready);
    let order = world.order("r").expect("ordered again");
    assert_eq!(
        order.targets[0].id, "w1",
        "the instance is the one of the first leader"
    );
    world.report("r", back("w1", "w2"));
    world.kubelet("w2", 1, true);
    assert_eq!(world.phase("r"), "Completed");
    let writes = world.writes.len();
    world.lead();
    assert_eq!(world.writes.len(), writes, "what is over is left alone");
    assert!(world.orders.is_empty());
}

#[test]
fn agents_attach_only_once_their_orders_are_known() {
    let mut world = World::new();
    world.create("r", |_| {});
    world.lead();
    assert!(world.order("r").is_some() && world.ready);
}

#[test]
fn a_conflict_is_read_again_and_an_answer_that_never_came_is_asked_for_again() {
    let mut world = World::new();
    world.failures = vec![
        ApiFailure::Unsure {
            detail: "time-out".to_owned(),
            retry_after: None,
        },
        ApiFailure::Conflict,
    ];
    world.create("r", |_| {});
    assert!(world.writes.is_empty());
    for _ in 0..8 {
        world.wait(100);
    }
    assert_eq!(world.writes, ["admit"]);
    assert!(world.order("r").is_some(), "the work does not wait for it");
}

#[test]
fn an_api_server_that_is_away_for_half_a_minute_changes_nothing_in_the_end() {
    let mut world = World::new();
    world.create("r", |_| {});
    world.failures = vec![
        ApiFailure::Unsure {
            detail: "connection refused".to_owned(),
            retry_after: None,
        };
        7
    ];
    world.report("r", back("w1", "w2"));
    world.kubelet("w2", 1, true);
    for _ in 0..60 {
        assert!(
            world.order("r").is_some() || world.phase("r") == "Completed",
            "held until its end is stored"
        );
        world.wait(1000);
    }
    assert_eq!(world.phase("r"), "Completed");
    assert!(world.order("r").is_none());
}

#[test]
fn a_request_that_is_deleted_is_taken_back() {
    let mut world = World::new();
    world.create("r", |_| {});
    world.report("r", taken("w1"));
    world.delete("r");
    assert!(world.orders.is_empty());
    assert!(!world.node.tasks.contains_key(&task_id("r")));
    // An agent that comes back with it is told to forget it.
    world.report("r", stopped("w1"));
    assert!(!world.node.tasks.contains_key(&task_id("r")));
}

#[test]
fn the_deadline_freezes_first_and_then_ends() {
    let mut world = World::new();
    world.create("r", |json| json["spec"]["activeDeadlineSeconds"] = json!(3));
    world.report("r", taken("w1"));
    world.failures = vec![ApiFailure::Unsure {
        detail: "away".to_owned(),
        retry_after: None,
    }];
    world.wait(3_000);
    assert_eq!(
        world.order("r").expect("held until its end is stored").released,
        0
    );
    world.wait(1_000);
    assert_eq!(world.phase("r"), "Completed");
    assert!(world.order("r").is_none());
}

#[test]
fn what_cannot_be_is_refused_by_the_leader_in_the_words_of_a_webhook() {
    let mut world = World::new();
    world.create("r", |json| json["spec"]["containers"][0]["name"] = json!("nope"));
    world.wait(3_000);
    let status = world.stored["r"].status.as_ref().expect("a status");
    assert_eq!(status.message.as_deref(), Some("container nope not found in Pod"));
    assert!(world.orders.is_empty());
}

#[test]
fn events_are_as_openkruise_has_them() {
    let mut world = World::new();
    world.create("r", |_| {});
    let note = kruise_planner::restart::EventNote {
        container: Some("web".to_owned()),
        reason: "Killing",
        warning: false,
        message: "Stopping container web by ContainerRecreateRequest r".to_owned(),
    };
    let event = event_for_tests(&world.stored["r"], note);
    assert_eq!(event.involved_object.kind.as_deref(), Some("Pod"));
    assert_eq!(
        event.involved_object.field_path.as_deref(),
        Some("spec.containers{web}")
    );
    let source = event.source.expect("a source");
    assert_eq!(source.component.as_deref(), Some("kruise-daemon-crr"));
    assert_eq!(source.host.as_deref(), Some("node1"));
    assert!(event.metadata.name.expect("a name").starts_with("p."));
}
