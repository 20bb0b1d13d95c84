//! Whom a new leader waits for, and what it does about agents that have obeyed somebody else.

use jiff::SignedDuration;
use kruise_api::ids::Epoch;
use kruise_proto::task::Phase;
use serde_json::json;

use super::adoption::{after_failover, of};
use super::world::*;
use crate::engine::event::AttachRefused;
use crate::engine::objects::Ready;

/// node1 has not been ready for some time when the leader changes, and its agent does not attach.
fn unready_for(seconds: i64) -> World {
    let mut world = after_failover();
    let node = world.nodes.get_mut(&"node1".into()).expect("listed");
    node.ready = Some(Ready {
        is_true: false,
        since: world.now.wall - SignedDuration::from_secs(seconds),
    });
    world.fail_over();
    world.attach("node2");
    world
}

#[test]
fn a_node_that_is_not_ready_since_lately_keeps_its_slot() {
    let mut world = unready_for(112);
    world.pass_alive(112);
    assert!(world.orders("node2").is_empty());
    world.pass_alive(1);
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_node_that_was_not_ready_for_long_is_waited_for_in_the_grace_only() {
    let mut world = unready_for(113);
    world.pass_alive(9);
    assert!(
        world.orders("node2").is_empty(),
        "perhaps only its kubelet is gone"
    );
    world.pass_alive(1);
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_node_that_left_the_selection_is_waited_for_in_the_grace_only() {
    let mut world = after_failover();
    world.edit("a", |job| {
        job.spec.selector = serde_json::from_value(json!({"names": ["node2"]})).expect("a selector");
    });
    world.attach("node2");
    assert!(world.orders("node2").is_empty(), "node1 may still be pulling");
    let waiting = &world.summary().waiting_on[0];
    assert!(waiting.contains("not yet attached"), "{waiting}");
    world.pass_alive(10);
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_pull_on_a_node_that_left_the_selection_holds_its_slot_until_it_has_stopped() {
    let mut world = after_failover();
    world.edit("a", |job| {
        job.spec.selector = serde_json::from_value(json!({"names": ["node2"]})).expect("a selector");
    });
    world.attach("node2");
    world
        .try_attach("node1", "uid-node1", vec![of("node1", Phase::Pulling)])
        .expect("let in");
    assert!(world.orders("node2").is_empty(), "node1 has not stopped yet");
    world.ack("node1");
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn agents_that_have_obeyed_a_higher_epoch_are_not_let_in_and_most_of_them_make_the_leader_go() {
    let epoch = |millis: u64| Epoch(2_000_000_000_000 + millis);
    let mut world = World::new(3, &json!({}));
    world.list();
    assert_eq!(
        world.attach_after("node1", epoch(5)),
        Err(AttachRefused::OldEpoch)
    );
    assert_eq!(world.state.outrun(), None, "others may still come");
    world.pass(10);
    assert_eq!(world.state.outrun(), Some(epoch(5)));
    world.attach("node2");
    assert_eq!(world.state.outrun(), None, "one of two proves nothing");
    assert_eq!(
        world.attach_after("node3", epoch(7)),
        Err(AttachRefused::OldEpoch)
    );
    assert_eq!(world.state.outrun(), Some(epoch(7)));
    world.attach("node3");
    assert_eq!(world.state.outrun(), None);
    world.attach("node1");
    for node in ["node1", "node2", "node3"] {
        world.detach(node);
        assert_eq!(
            world.attach_after(node, epoch(u64::from(u32::MAX))),
            Err(AttachRefused::OldEpoch)
        );
    }
    assert_eq!(world.state.outrun(), None, "no clock has ever shown that");
}
