//! What becomes of the tasks that an agent brings along when it attaches.

use kruise_proto::dispatch::Hello;
use kruise_proto::task::{Phase, TaskStatus};
use serde_json::json;

use super::world::*;
use crate::engine::event::{AttachRefused, Event};

pub(super) fn of(node: &str, phase: Phase) -> TaskStatus {
    status(task_id(node, "nginx:1", 1).as_str(), phase)
}

/// Two nodes by one, node1 pulling, status written; then the leader dies.
pub(super) fn after_failover() -> World {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    world.finish_writes();
    world.fail_over();
    world
}

#[test]
fn a_new_leader_keeps_a_slot_for_whoever_has_not_attached() {
    let mut world = after_failover();
    world.attach("node2");
    assert!(world.orders("node2").is_empty());
    assert!(
        world.summary().waiting_on[0].contains("not yet attached"),
        "{:?}",
        world.summary().waiting_on
    );
    world.pass_alive(112);
    assert!(world.orders("node2").is_empty());
    world.pass_alive(1);
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn what_runs_is_adopted_once_and_counted_once() {
    let mut world = after_failover();
    world
        .attach_with("node1", vec![of("node1", Phase::Pulling)])
        .expect("let in");
    world.attach("node2");
    assert_eq!(world.pulling(), ["node1"]);
    assert_eq!(world.told("node1").sets, 1);
    world.report("node1", Phase::Succeeded);
    world.report_task("node1", of("node1", Phase::Succeeded));
    world.report("node2", Phase::Succeeded);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 2);
    assert!(world.status().completion_time.is_some());
}

#[test]
fn a_result_brought_along_is_saved_and_then_acknowledged() {
    let mut world = after_failover();
    world
        .attach_with("node1", vec![of("node1", Phase::Succeeded)])
        .expect("let in");
    world.attach("node2");
    assert!(world.told("node1").saved.is_empty(), "not before it is stored");
    assert_eq!(
        world.orders("node1").len(),
        1,
        "in the set, so that the agent keeps it"
    );
    world.pass_alive(30);
    world.finish_writes();
    assert_eq!(world.told("node1").saved.len(), 1);
    assert_eq!(world.status().succeeded, 1);
}

#[test]
fn a_result_that_is_stored_or_of_a_job_that_is_over_is_acknowledged_at_once() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.report("node1", Phase::Succeeded);
    world.finish_writes();
    world.fail_over();
    world
        .attach_with("node1", vec![of("node1", Phase::Succeeded)])
        .expect("let in");
    assert_eq!(world.told("node1").saved.len(), 1);
    assert!(world.orders("node1").is_empty());
    assert!(world.writes.is_empty());
}

#[test]
fn tasks_of_nobody_are_not_in_the_set() {
    let mut world = World::new(1, &json!({"parallelism": 0}));
    let tasks = vec![
        status("pull/gone/uid-node1/0/1", Phase::Pulling),
        status(task_id("node1", "nginx:9", 1).as_str(), Phase::Pulling),
        status(task_id("node2", "nginx:1", 1).as_str(), Phase::Pulling),
        status(task_id("node1", "nginx:1", 2).as_str(), Phase::Succeeded),
        status("nonsense", Phase::Failed),
    ];
    world.attach_with("node1", tasks).expect("let in");
    assert!(world.orders("node1").is_empty());
    assert_eq!(world.slots(), 0);
}

#[test]
fn a_suspended_task_has_no_slot_with_a_new_leader_but_may_get_one() {
    let mut world = after_failover();
    world.pass(200);
    world.attach("node2");
    assert_eq!(world.pulling(), ["node2"]);
    world
        .attach_with("node1", vec![of("node1", Phase::Suspended)])
        .expect("let in");
    assert_eq!(world.pulling(), ["node2"]);
    world.report("node2", Phase::Succeeded);
    assert_eq!(world.orders("node1").len(), 1);
}

#[test]
fn a_suspended_task_whose_turn_it_is_stays_in_the_set_so_that_its_bytes_are_of_use() {
    let mut world = after_failover();
    world.pass(200);
    world
        .attach_with("node1", vec![of("node1", Phase::Suspended)])
        .expect("let in");
    assert_eq!(
        world.told("node1").generation,
        1,
        "in the very set that follows the Hello"
    );
    assert_eq!(world.orders("node1").len(), 1);
}

#[test]
fn a_slot_that_this_leader_still_holds_survives_a_lost_stream() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    world.detach("node1");
    world.pass(60);
    world
        .attach_with("node1", vec![of("node1", Phase::Suspended)])
        .expect("let in");
    assert_eq!(world.pulling(), ["node1"]);
    world.pass_alive(120);
    assert_eq!(
        world.pulling(),
        ["node1"],
        "the lease of the old stream means nothing now"
    );
}

#[test]
fn a_pull_whose_slot_was_given_up_is_not_adopted() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    world.detach("node1");
    world.pass_alive(113);
    assert_eq!(
        world.pulling(),
        ["node1", "node2"],
        "node1's stream is gone, its agent has stopped by itself"
    );
    world
        .attach_with("node1", vec![of("node1", Phase::Pulling)])
        .expect("let in");
    assert_eq!(world.pulling(), ["node2"]);
}

#[test]
fn an_order_that_never_arrived_goes_out_again() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.detach("node1");
    world.attach("node1");
    assert_eq!(world.orders("node1").len(), 1);
}

#[test]
fn a_cancelled_task_that_the_agent_does_not_name_frees_its_slot() {
    let mut world = World::new(2, &json!({"selector": {"names": ["node1", "node2"]}}));
    world.attach("node1");
    world.attach("node2");
    world.finish_writes();
    world.detach("node1");
    world.edit("a", |job| {
        job.spec.selector.as_mut().expect("set").names = Some(vec!["node2".into()]);
    });
    assert!(world.orders("node2").is_empty(), "node1 may still be pulling");
    world.attach("node1");
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_node_without_an_agents_pod_holds_nothing() {
    let mut world = after_failover();
    world.attach("node2");
    assert!(world.orders("node2").is_empty());
    world.event(Event::AgentNodes(["node2".into()].into()));
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn where_no_agent_runs_nobody_waits() {
    let mut world = World::new(2, &json!({}));
    world.attach("node2");
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_result_that_its_agent_has_lost_counts_and_is_no_new_order() {
    let mut world = World::new(5, &json!({}));
    for node in ["node1", "node2", "node3", "node4", "node5"] {
        world.attach(node);
    }
    world.finish_writes();
    world.report("node1", Phase::Succeeded);
    assert!(
        world.writes.is_empty(),
        "a fifth of the nodes is no reason to write"
    );
    assert_eq!(world.orders("node2").len(), 1, "the slot has gone on");
    // The agent starts again without a journal.
    world.attach("node1");
    assert!(
        world.orders("node1").is_empty(),
        "naming it would make the agent pull without a slot"
    );
    world.pass_alive(30);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 1);
}

#[test]
fn a_result_of_a_pull_that_had_no_slot_left_is_kept() {
    let mut world = after_failover();
    world.attach("node2");
    world.pass_alive(113);
    assert_eq!(world.orders("node2").len(), 1, "the slot of node1 was given up");
    world
        .try_attach("node1", "uid-node1", vec![of("node1", Phase::Pulling)])
        .expect("let in");
    assert!(world.orders("node1").is_empty(), "it shall stop");
    world
        .attach_with("node1", vec![of("node1", Phase::Succeeded)])
        .expect("let in");
    assert_eq!(world.orders("node1").len(), 1, "it keeps its result");
    world.report("node2", Phase::Succeeded);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 2);
}

/// A Hello as of a moment of the agent's clock since its boot.
fn stamped(boot: &str, stamp: u64, tasks: Vec<TaskStatus>) -> Hello {
    Hello {
        node_name: "node1".into(),
        boot_id: boot.into(),
        stamp,
        tasks,
        ..Hello::default()
    }
}

#[test]
fn a_hello_that_was_overtaken_changes_nothing() {
    let mut world = World::new(2, &json!({}));
    world.attach("node2");
    world
        .say_hello("uid-node1", stamped("boot", 20, vec![]))
        .expect("let in");
    let session = world.session("node1");
    let done = vec![of("node1", Phase::Succeeded)];
    for stamp in [19, 20] {
        let refused = world.say_hello("uid-node1", stamped("boot", stamp, done.clone()));
        assert_eq!(refused, Err(AttachRefused::Overtaken), "{stamp}");
    }
    assert_eq!(world.session("node1"), session, "the later stream goes on");
    assert_eq!(world.summary().succeeded, 0);
    world
        .say_hello("uid-node1", stamped("boot", 21, vec![]))
        .expect("a later stream");
}

#[test]
fn another_boot_or_node_has_another_clock() {
    let mut world = World::new(1, &json!({}));
    let again = |world: &mut World, boot: &str, stamp| {
        world
            .say_hello("uid-node1", stamped(boot, stamp, vec![]))
            .expect("let in");
    };
    again(&mut world, "first", 20);
    again(&mut world, "second", 5);
    // An older agent does not say, and a node whose kernel has no boot id cannot be told apart.
    again(&mut world, "second", 0);
    again(&mut world, "", 9);
    again(&mut world, "", 3);
}
