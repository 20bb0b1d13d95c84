//! Who gets an order, when, and with what.

use kruise_proto::dispatch::Refusal;
use kruise_proto::task::{Phase, Reason};
use serde_json::json;

use super::extras::pod;
use super::world::*;
use crate::engine::event::{AttachRefused, CloseReason, Event};
use crate::engine::objects::Listing;

#[test]
fn nobody_attaches_before_the_lists_are_complete() {
    let mut world = World::empty();
    assert_eq!(
        world.try_attach("node1", "uid-node1", Vec::new()),
        Err(AttachRefused::NotReady)
    );
    let node = node_object("node1");
    world.nodes.insert(node.name.clone(), node);
    world.list();
    assert_eq!(
        world.try_attach("node1", "other", Vec::new()),
        Err(AttachRefused::UnknownNode)
    );
    assert_eq!(
        world.try_attach("node2", "uid-node2", Vec::new()),
        Err(AttachRefused::UnknownNode)
    );
    assert_eq!(world.try_attach("node1", "uid-node1", Vec::new()), Ok(()));
}

#[test]
fn three_nodes_by_two_and_every_order_before_its_write() {
    let mut world = World::new(3, &json!({"parallelism": 2}));
    for node in ["node1", "node2", "node3"] {
        world.attach(node);
    }
    assert_eq!(world.pulling(), ["node1", "node2"]);
    world.finish_writes();
    world.order_of_effects.clear();
    world.fail("node1", Reason::NotFound);
    assert_eq!(
        world.order_of_effects,
        ["delta", "write"],
        "the order to node3 goes first"
    );
    assert_eq!(
        world.pulling(),
        ["node1", "node2", "node3"],
        "node1 keeps its result until it is stored"
    );
    world.ack("node3");
    world.finish_write();
    assert_eq!(world.pulling(), ["node2", "node3"]);
    assert_eq!(
        world.told("node1").saved,
        [task_id("node1", "nginx:1", 1).to_string()]
    );
    world.report("node2", Phase::Succeeded);
    world.report("node3", Phase::Succeeded);
    world.finish_writes();
    let status = world.status();
    assert_eq!(
        (status.desired, status.succeeded, status.failed, status.active),
        (3, 2, 1, 0)
    );
    assert!(status.completion_time.is_some());
    assert!(world.pulling().is_empty());
    let reasons: Vec<_> = world.events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["PullImageFailed", "PullImageFailed"]);
    world.pass_alive(120);
    assert!(world.writes.is_empty(), "a job that is over is left alone");
}

#[test]
fn deleting_a_job_takes_its_orders_back() {
    let mut world = World::new(2, &json!({"parallelism": 2}));
    world.attach("node1");
    world.attach("node2");
    world.delete("a");
    assert!(world.pulling().is_empty());
    assert_eq!(world.told("node1").cancels[0].reason, "job deleted");
    assert_eq!(world.slots(), 0);
}

#[test]
fn another_image_is_another_round_and_waits_for_the_old_pull_to_stop() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.finish_writes();
    assert_eq!(
        world.orders("node1"),
        [task_id("node1", "nginx:1", 1).to_string()]
    );
    world.edit("a", |job| job.spec.image = "nginx:2".into());
    assert_eq!(world.told("node1").cancels[0].reason, "superseded");
    assert!(world.orders("node1").is_empty(), "the old pull holds the slot");
    world.finish_writes();
    world.ack("node1");
    assert_eq!(
        world.orders("node1"),
        [task_id("node1", "nginx:2", 2).to_string()]
    );
}

#[test]
fn a_result_of_an_older_round_counts_for_nothing() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.finish_write();
    world.edit("a", |job| job.spec.image = "nginx:2".into());
    // The agent had finished before it heard of the cancel.
    world.report_task(
        "node1",
        status(task_id("node1", "nginx:1", 1).as_str(), Phase::Succeeded),
    );
    assert_eq!(
        world.orders("node1"),
        [task_id("node1", "nginx:2", 2).to_string()]
    );
    world.finish_writes();
    assert_eq!(world.status().succeeded, 0);
}

#[test]
fn a_lost_node_keeps_its_slot_until_its_lease_has_run_out() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    world.report("node1", Phase::Pulling);
    world.detach("node1");
    world.pass(112);
    assert_eq!(world.slots(), 1);
    assert!(world.orders("node2").is_empty());
    world.pass(1);
    assert_eq!(
        world.orders("node2"),
        [task_id("node2", "nginx:1", 1).to_string()]
    );
}

#[test]
fn a_lost_node_without_a_task_delays_nobody() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    world.finish_writes();
    world.detach("node2");
    world.report("node1", Phase::Succeeded);
    assert!(
        world.summary().waiting_on[0].contains("node2: no agent attached"),
        "{:?}",
        world.summary().waiting_on
    );
    world.pass(599);
    assert!(world.status().completion_time.is_none());
    world.finish_writes();
    world.pass(2);
    world.finish_writes();
    assert_eq!(world.status().failed, 1);
    assert_eq!(world.status().failures[0].reason, "NodeUnreachable");
}

#[test]
fn a_silent_agent_gets_nothing_new() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    world.attach("node2");
    let session = world.session("node2");
    world.event(Event::Stale { session, stale: true });
    world.report("node1", Phase::Succeeded);
    assert!(world.orders("node2").is_empty());
    world.event(Event::Stale {
        session,
        stale: false,
    });
    assert_eq!(world.orders("node2").len(), 1);
}

#[test]
fn a_second_stream_of_a_node_takes_over_with_a_whole_set() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    let first = world.session("node1");
    let held = status(&world.orders("node1")[0], Phase::Pulling);
    world.attach_with("node1", vec![held]).expect("let in");
    assert_eq!(world.told[&first].closed, Some(CloseReason::Replaced));
    assert_eq!(world.orders("node1").len(), 1);
    // What the old stream still says is for nobody.
    world.event(Event::Detached { session: first });
    world.report("node1", Phase::Succeeded);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 1);
}

#[test]
fn a_refused_delta_is_followed_by_a_whole_set_after_a_pause_that_grows() {
    let mut world = World::new(2, &json!({}));
    world.attach("node1");
    assert_eq!(world.told("node1").sets, 1);
    world.ack_with("node1", Refusal::Gap);
    assert_eq!(world.told("node1").sets, 1);
    world.pass_alive(1);
    assert_eq!(world.told("node1").sets, 2);
    assert_eq!(world.orders("node1").len(), 1);
    world.ack_with("node1", Refusal::Stale);
    world.ack_with("node1", Refusal::Stale);
    world.pass_alive(1);
    assert_eq!(world.told("node1").sets, 3, "one set for all refusals before it");
    world.ack_with("node1", Refusal::OldEpoch);
    assert_eq!(world.told("node1").closed, Some(CloseReason::OldEpoch));
}

#[test]
fn a_node_made_again_is_a_stranger_and_waits_for_the_old_ones_lease() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    let mut again = node_object("node1");
    again.uid = "second".into();
    world.event(Event::Nodes(Listing::Applied(again)));
    assert_eq!(world.told("node1").closed, Some(CloseReason::NodeGone));
    world.try_attach("node1", "second", Vec::new()).expect("let in");
    world.ack("node1");
    assert!(
        world.orders("node1").is_empty(),
        "the machine of the old one may still be pulling"
    );
    world.pass_alive(113);
    world.ack("node1");
    assert_eq!(world.orders("node1").len(), 1);
    assert!(world.orders("node1")[0].contains("/second/"));
}

#[test]
fn a_selection_by_pods_is_planned_once_the_pods_are_known() {
    let mut world = World::new(
        3,
        &json!({"parallelism": 3, "podSelector": {"matchLabels": {"app": "x"}}}),
    );
    for node in ["node1", "node2", "node3"] {
        world.attach(node);
    }
    assert!(world.pulling().is_empty() && world.writes.is_empty());
    let (job, watch, selector) = world.pod_watches[0].clone();
    assert_eq!(selector, "app=x");
    world.event(Event::Pods {
        job: job.clone(),
        watch,
        pods: vec![pod("a", "node3"), pod("b", "node1"), pod("c", "node3")],
    });
    assert_eq!(world.pulling(), ["node1", "node3"]);
    world.event(Event::Pods {
        job,
        watch: watch + 1,
        pods: Vec::new(),
    });
    assert_eq!(
        world.pulling(),
        ["node1", "node3"],
        "a watch that was replaced says nothing any more"
    );
    world.report("node1", Phase::Succeeded);
    world.report("node3", Phase::Succeeded);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 2);
    assert!(world.pod_watches.is_empty());
}

#[test]
fn orders_say_what_the_job_says() {
    use kruise_proto::dispatch::{order, pull_image};
    let mut world = World::new(
        1,
        &json!({
            "imagePullPolicy": "Always",
            "pullPolicy": {"timeoutSeconds": 7, "backoffLimit": 2},
            "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 100},
            "sandboxConfig": {"labels": {"l": "1"}, "annotations": {"a": "2"}}
        }),
    );
    world.finish_writes();
    world.pass(40);
    world.attach("node1");
    let order = world
        .told("node1")
        .orders
        .values()
        .next()
        .cloned()
        .expect("one order");
    let Some(order::Work::PullImage(pull)) = order.work else {
        panic!("a pull")
    };
    assert_eq!(pull.image, "docker.io/library/nginx:1");
    assert_eq!(pull.policy(), pull_image::Policy::Always);
    assert_eq!(pull.attempt_timeout.expect("set").seconds, 7);
    assert_eq!(pull.backoff_limit, 2);
    assert_eq!(pull.deadline.expect("set").seconds, 60);
    assert_eq!(
        (
            pull.sandbox_labels["l"].as_str(),
            pull.sandbox_annotations["a"].as_str()
        ),
        ("1", "2")
    );
    assert_eq!(pull.requested_by, "ns/a");
}

#[test]
fn a_job_of_many_nodes_rests_a_moment_between_plans() {
    let mut world = World::new(200, &json!({"parallelism": 2}));
    world.attach("node1");
    assert!(
        world.orders("node1").is_empty(),
        "it was planned at this very instant"
    );
    let wake = world.state.next_wake(world.now).expect("it waits");
    let rest = wake.saturating_sub(world.now.mono);
    assert!(
        !rest.is_zero() && rest <= std::time::Duration::from_millis(100),
        "{rest:?}"
    );
    world.now.mono = wake;
    world.settle();
    assert_eq!(world.orders("node1").len(), 1);
}
