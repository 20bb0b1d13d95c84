//! Who is passed over, who is asked first, and what the caps leave.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kruise_api::image_pull_job::options;

use super::world::{World, names};
use crate::job::*;

fn note(world: &mut World, key: &str, value: &str) {
    world.annotations.insert(key.to_owned(), value.to_owned());
}

#[test]
fn a_node_in_trouble_is_passed_over_without_a_slot_or_a_clock() {
    let troubles = [
        (NodeTrouble::NotReady, "node1: not Ready"),
        (NodeTrouble::DiskPressure, "node1: short of disk"),
        (
            NodeTrouble::NetworkUnavailable,
            "node1: its network is not set up",
        ),
    ];
    for (trouble, text) in troubles {
        let mut world = World::new(2, "{}");
        world.node("node1").trouble = Some(trouble);
        let plan = world.step();
        assert_eq!(names(&plan), ["node2"]);
        assert_eq!(plan.waiting.last().expect("waits").to_string(), text);
        assert_eq!(plan.status.deferred, 1);
        world.pass(3600);
        assert_eq!(
            world.step().counters.failed,
            0,
            "ten minutes are for agents that are away"
        );
        world.succeed("node2");
        world.node("node1").trouble = None;
        assert_eq!(names(&world.step()), ["node1"]);
    }
}

#[test]
fn cordoned_nodes_are_served_unless_the_job_says_otherwise() {
    let mut world = World::new(2, "{}");
    world.node("node1").cordoned = true;
    assert_eq!(names(&world.clone().step()), ["node1"]);
    note(&mut world, options::DEFER_CORDONED, "true");
    let plan = world.step();
    assert_eq!(names(&plan), ["node2"]);
    assert_eq!(plan.waiting[0].word(), "NodeCordoned");
}

#[test]
fn a_node_gets_its_turn_when_it_is_old_enough() {
    let mut world = World::new(1, "{}");
    note(&mut world, options::MIN_NODE_AGE, "10m");
    world.node("node1").created = Timestamp::from_second(1_000_000 - 60).expect("a time");
    let plan = world.step();
    assert_eq!((plan.assign.len(), plan.waiting[0].word()), (0, "NodeTooYoung"));
    assert_eq!(plan.wake, Some(world.now + SignedDuration::from_secs(540)));
    world.pass(540);
    assert_eq!(names(&world.step()), ["node1"]);
}

#[test]
fn nodes_wait_for_the_pods_that_the_job_names() {
    let mut world = World::new(3, r#"{"parallelism":3}"#);
    world.ready_pods = Some(BTreeSet::from(["node2".into()]));
    let plan = world.step();
    assert_eq!(names(&plan), ["node2"]);
    assert_eq!(
        plan.waiting.last().expect("waits").to_string(),
        "node1 and 1 more: none of the pods that the job waits for is Ready there"
    );
}

#[test]
fn an_annotation_with_a_slip_stops_the_job_and_mending_it_lets_it_go_on() {
    let mut world = World::new(1, "{}");
    note(&mut world, options::PRIORITY, "high");
    let plan = world.step();
    assert!(plan.assign.is_empty());
    let condition = &world.status().conditions[0];
    assert_eq!(condition.reason, "InvalidSpec");
    assert!(condition.message.contains("pull.kruise.io/priority") && condition.message.contains("0 to 90"));
    world.annotations.clear();
    let plan = world.step();
    assert_eq!((plan.assign.len(), plan.write), (1, Some(WriteReason::Edited)));
    assert_eq!(world.status().conditions[0].reason, "Pulling");
}

#[test]
fn a_busy_node_comes_after_the_others() {
    let mut world = World::new(3, r#"{"parallelism":2}"#);
    world.node("node1").busy = true;
    assert_eq!(names(&world.step()), ["node2", "node3"]);
    world.succeed("node2");
    assert_eq!(names(&world.step()), ["node1"], "but it has its turn");
}

#[test]
fn images_that_are_there_need_no_slot() {
    let mut world = World::new(4, "{}");
    for name in ["node1", "node2", "node3", "node4"] {
        world.node(name).answers_probes = name != "node4";
    }
    let plan = world.step();
    assert_eq!(names(&plan), ["node1"]);
    assert_eq!(
        plan.probe,
        ["node2".into(), "node3".into()],
        "in the order of the line"
    );
    assert!(world.step().probe.is_empty(), "each is asked once");
    world.answer("node2", true);
    world.answer("node3", false);
    let plan = world.step();
    assert_eq!((plan.counters.succeeded, plan.counters.active), (1, 1));
    assert!(plan.assign.is_empty());
    world.pass(30);
    assert!(world.step().write.is_some(), "what was heard is stored in time");
    world.memory = JobMemory::default();
    assert_eq!(world.step().counters.succeeded, 1, "and a new leader knows it");
}

#[test]
fn nobody_is_asked_when_the_registry_must_be_or_the_job_is_paused() {
    for spec in [r#"{"imagePullPolicy":"Always"}"#, r#"{"parallelism":0}"#] {
        let mut world = World::new(2, spec);
        world.node("node2").answers_probes = true;
        assert!(world.step().probe.is_empty(), "{spec}");
    }
}

#[test]
fn an_answer_of_another_round_or_node_counts_for_nothing() {
    let mut world = World::new(2, "{}");
    world.node("node2").answers_probes = true;
    world.step();
    world.answer("node2", true);
    let mut edited = world.clone();
    edited.spec.image = "nginx:2".into();
    assert_eq!(edited.plan().counters.succeeded, 0);
    world.node("node2").uid = "another".into();
    assert_eq!(world.plan().counters.succeeded, 0);
    assert_eq!(
        world.plan().probe,
        ["node2".into()],
        "the new one is asked itself"
    );
}

#[test]
fn an_answer_about_an_image_that_was_never_stored_counts_for_that_image_only() {
    let mut world = World::new(2, "{}");
    world.node("node2").answers_probes = true;
    world.step();
    world.answer("node2", true);
    // The write was lost, so that the edit begins no other round.
    world.status = None;
    world.spec.image = "nginx:2".into();
    let plan = world.plan();
    assert_eq!((plan.round, plan.counters.succeeded), (1, 0));
}

#[test]
fn many_nodes_are_asked_little_by_little() {
    let mut world = World::new(400, "{}");
    for node in world.nodes.values_mut() {
        node.answers_probes = true;
    }
    assert_eq!(world.step().probe.len(), 256);
    assert!(world.step().probe.is_empty());
    let asked: Vec<_> = world
        .memory
        .probes
        .keys()
        .take(10)
        .map(ToString::to_string)
        .collect();
    for name in asked {
        world.answer(&name, false);
    }
    assert_eq!(world.step().probe.len(), 10);
}

#[test]
fn the_caps_of_the_cluster_keep_orders_back_and_say_so() {
    let mut world = World::new(4, r#"{"parallelism":3}"#);
    world.room = Some(Room {
        orders: 1,
        cap: "20 pulls".into(),
    });
    let plan = world.step();
    assert_eq!((plan.assign.len(), plan.capped), (1, 2));
    assert_eq!(
        plan.waiting[0].to_string(),
        "the cluster allows 20 pulls at once, 2 waiting for their turn"
    );
}

#[test]
fn whoever_asks_is_told_where_each_node_stands() {
    let mut world = World::new(5, "{}");
    world.node("node2").trouble = Some(NodeTrouble::NotReady);
    world.agent("node3", AgentView::Away);
    world.step();
    world.succeed("node1");
    world.step();
    world.pass(60);
    let told = explain(&world.snapshot());
    let told: Vec<_> = told
        .iter()
        .map(|node| (node.node.as_str(), node.state, node.place))
        .collect();
    assert_eq!(
        told,
        [
            ("node1", "Succeeded", 0),
            ("node2", "NodeNotReady", 0),
            ("node3", "AgentAway", 0),
            ("node4", "Pulling", 0),
            ("node5", "Pending", 1),
        ]
    );
}
