//! Known defects of OpenKruise, by the numbers that the guide to pulling images gives them, and what holds here instead.

use kruise_api::ids::NodeName;
use kruise_proto::dispatch::{PullImage, order};
use kruise_proto::task::{Phase, Reason};
use serde_json::json;

use super::world::*;
use crate::engine::event::{Event, SecretAnswer};
use crate::engine::objects::Listing;
use crate::engine::ports::ApiFailure;

fn pull(world: &World, node: &str, job: &str) -> PullImage {
    let orders = world.told(node).orders.values();
    let mut found = orders.rev().filter_map(|order| match &order.work {
        Some(order::Work::PullImage(pull)) if order.task_id.contains(&format!("/uid-{job}/")) => {
            Some(pull.clone())
        }
        _ => None,
    });
    found.next().expect("an order")
}

fn second_job(world: &mut World, spec: &serde_json::Value) {
    let job = job_object("b", spec);
    world.jobs.insert(job.uid.clone(), job.clone());
    world.event(Event::Jobs(Listing::Applied(job)));
}

#[test]
fn row_08_a_job_with_an_empty_selector_is_woken_by_new_nodes() {
    let mut world = World::new(1, &json!({"selector": {}, "parallelism": 5}));
    world.attach("node1");
    let node = node_object("node2");
    world.nodes.insert(node.name.clone(), node.clone());
    world.event(Event::Nodes(Listing::Applied(node)));
    world.attach("node2");
    assert_eq!(world.pulling(), ["node1", "node2"]);
}

#[test]
fn row_10_a_watch_that_lags_stops_no_hand_out() {
    let mut world = World::new(3, &json!({"parallelism": 1}));
    for node in ["node1", "node2", "node3"] {
        world.attach(node);
    }
    // The watch never tells of our own writes, for hours.
    for node in ["node1", "node2", "node3"] {
        world.pass_alive(3_600);
        world.report(node, Phase::Succeeded);
        world.finish_writes();
    }
    assert!(world.status().completion_time.is_some());
}

#[test]
fn row_11_one_node_whose_orders_are_refused_holds_up_nobody_else() {
    let mut world = World::new(3, &json!({"parallelism": 2}));
    for node in ["node1", "node2", "node3"] {
        world.attach(node);
    }
    world.ack_with("node1", kruise_proto::dispatch::Refusal::Conflict);
    world.report("node2", Phase::Succeeded);
    world.report("node3", Phase::Succeeded);
    world.pass_alive(40);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 2);
    // Neither does a server that refuses the status of one job.
    second_job(&mut world, &json!({"image": "other:1", "parallelism": 3}));
    world.fail_write(ApiFailure::Refused("no".into()));
    assert!(world.pulling().contains(&"node2".to_owned()));
}

#[test]
fn row_13_a_second_job_for_the_same_image_stops_nothing() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.report("node1", Phase::Pulling);
    let before = world.orders("node1");
    second_job(&mut world, &json!({}));
    assert!(world.told("node1").cancels.is_empty());
    let after = world.orders("node1");
    assert!(before.iter().all(|task| after.contains(task)) && after.len() == 2);
    assert_eq!(
        world.told("node1").sets,
        1,
        "the running task was not even named again"
    );
}

#[test]
fn row_14_each_task_has_the_sandbox_config_of_its_own_job() {
    let sandbox = |value: &str| json!({"sandboxConfig": {"labels": {"k": value}}});
    let mut world = World::new(1, &sandbox("a"));
    world.attach("node1");
    second_job(&mut world, &sandbox("b"));
    assert_eq!(pull(&world, "node1", "a").sandbox_labels["k"], "a");
    assert_eq!(pull(&world, "node1", "b").sandbox_labels["k"], "b");
}

#[test]
fn row_15_a_missing_secret_takes_no_slot_and_is_used_as_soon_as_it_is_there() {
    let mut world = World::new(2, &json!({"pullSecrets": ["pull"]}));
    world.attach("node1");
    world.attach("node2");
    world.answer_secrets(|| SecretAnswer::Problem("pull secret ns/pull does not exist".into()));
    assert!(world.pulling().is_empty());
    world.finish_writes();
    assert_eq!(world.status().active, 0);
    world.pass_alive(6);
    world.answer_secrets(|| SecretAnswer::Ready(vec![Default::default()]));
    assert_eq!(world.pulling(), ["node1"]);
    assert_eq!(pull(&world, "node1", "a").credentials.len(), 1);
}

#[test]
fn row_24_a_task_that_was_taken_back_reports_to_nobody() {
    let mut world = World::new(1, &json!({}));
    world.attach("node1");
    world.finish_writes();
    let old = world.orders("node1").remove(0);
    world.edit("a", |job| job.spec.image = "nginx:2".into());
    world.report_task("node1", status(&old, Phase::Failed));
    world.ack("node1");
    world.finish_writes();
    assert_eq!((world.status().failed, world.status().succeeded), (0, 0));
    assert!(world.events.is_empty(), "{:?}", world.events);
}

#[test]
fn row_27_nothing_but_the_job_itself_is_needed_to_end_or_delete_it() {
    let mut world = World::new(1, &json!({"pullSecrets": ["pull"]}));
    world.finish_writes();
    world.edit("a", |job| {
        job.finalizers = vec!["apps.kruise.io/deletion-protection".into()];
    });
    world.finish_writes();
    assert!(
        world.job("a").finalizers.is_empty(),
        "the old finalizer goes, and none of ours comes"
    );
    world.edit("a", |job| job.deleting = true);
    world.attach("node1");
    assert!(world.pulling().is_empty());
}

#[test]
fn row_2221_an_edit_of_the_policy_reaches_pulls_that_run() {
    let mut world = World::new(
        2,
        &json!({"parallelism": 2, "pullPolicy": {"timeoutSeconds": 60}}),
    );
    world.attach("node1");
    world.attach("node2");
    world.report("node1", Phase::Pulling);
    let before = world.orders("node1");
    world.finish_writes();
    world.edit("a", |job| {
        job.spec.pull_policy.timeout_seconds = Some(900);
        job.spec.pull_policy.backoff_limit = Some(9);
        job.spec.image_pull_policy = "Always".into();
    });
    world.ack("node1");
    assert_eq!(world.orders("node1"), before, "the same task");
    let order = pull(&world, "node1", "a");
    assert_eq!(
        (order.attempt_timeout.expect("set").seconds, order.backoff_limit),
        (900, 9)
    );
    assert_eq!(
        order.policy(),
        kruise_proto::dispatch::pull_image::Policy::IfNotPresent,
        "whether to ask the registry is settled once a pull runs"
    );
    let sets = world.told("node1").sets;
    world.edit("a", |job| {
        job.spec.parallelism = serde_json::from_value(json!(1)).expect("a number");
    });
    assert_eq!(
        world.told("node1").sets,
        sets,
        "an edit that is no business of the task does not reach its node"
    );
}

#[test]
fn row_2483_a_result_touches_its_own_job_and_node_only() {
    let mut world = World::new(2, &json!({"parallelism": 2}));
    world.attach("node1");
    world.attach("node2");
    second_job(&mut world, &json!({"image": "other:1", "parallelism": 2}));
    world.ack("node1");
    world.ack("node2");
    world.finish_writes();
    world.order_of_effects.clear();
    world.report("node1", Phase::Succeeded);
    assert!(
        world.order_of_effects.iter().all(|effect| *effect != "set"),
        "{:?}",
        world.order_of_effects
    );
    assert!(world.writes.len() <= 1);
}

#[test]
fn a_node_in_trouble_gets_nothing_new_until_it_is_well() {
    let mut world = World::new(2, &json!({}));
    let trouble = |pressure| {
        let mut node = node_object("node1");
        node.pressure = pressure;
        Event::Nodes(Listing::Applied(node))
    };
    world.event(trouble(Some(kruise_planner::job::NodeTrouble::DiskPressure)));
    world.attach("node1");
    world.attach("node2");
    assert_eq!(world.pulling(), ["node2"]);
    world.event(trouble(None));
    world.report("node2", Phase::Succeeded);
    assert_eq!(
        world.pulling(),
        ["node1", "node2"],
        "node2's result waits for its write"
    );
}

#[test]
fn a_cap_of_the_cluster_is_shared_and_freed_slots_are_used_at_once() {
    let mut world = World::new(4, &json!({"parallelism": 4}));
    world.cap(2);
    for i in 1..=4 {
        world.attach(&format!("node{i}"));
    }
    assert_eq!(world.pulling().len(), 2);
    second_job(&mut world, &json!({"image": "other:1", "parallelism": 4}));
    world.report("node1", Phase::Succeeded);
    let of_second = |world: &World| {
        (1..=4)
            .flat_map(|i| world.orders(&format!("node{i}")))
            .filter(|task| task.contains("/uid-b/"))
            .count()
    };
    assert_eq!(of_second(&world), 1, "the job with the fewest pulls comes first");
    let waiting = &world
        .state
        .explain(&world.job("b").key.clone(), None, world.now)
        .expect("known")
        .waiting;
    assert_eq!(waiting[0].reason, "Capped");
    assert!(waiting[0].message.contains("2 pulls"), "{waiting:?}");
}

#[test]
fn questions_are_asked_once_and_answers_settle_without_a_slot() {
    let mut world = World::new(3, &json!({}));
    world.probing = true;
    for i in 1..=3 {
        world.attach(&format!("node{i}"));
    }
    assert_eq!(world.pulling(), ["node1"]);
    assert_eq!(world.told("node2").probes, ["docker.io/library/nginx:1"]);
    world.answer("node2", true);
    world.answer("node3", false);
    world.finish_writes();
    world.pass_alive(31);
    world.finish_writes();
    let status = world.status();
    assert_eq!((status.succeeded, status.active), (1, 1));
    assert_eq!(world.told("node3").probes.len(), 1);
    // A stream that breaks loses the question, not the node.
    world.detach("node3");
    world.attach("node3");
    world.report("node1", Phase::Succeeded);
    assert!(world.pulling().contains(&"node3".to_owned()));
    world.report("node3", Phase::Succeeded);
    world.finish_writes();
    assert_eq!(world.status().succeeded, 3);
}

#[test]
fn people_are_told_why_a_job_waits() {
    let mut world = World::new(3, &json!({"pullPolicy": {"timeoutSeconds": 60}}));
    world.attach("node1");
    world.attach("node2");
    let key = world.job("a").key.clone();
    let told = world.state.explain(&key, None, world.now).expect("known");
    let reasons: Vec<_> = told
        .waiting
        .iter()
        .map(|waiting| waiting.reason.as_str())
        .collect();
    assert_eq!(reasons, ["WindowFull", "AgentAway"]);
    let nodes: Vec<_> = told
        .nodes
        .iter()
        .map(|node| (node.node_name.as_str(), node.state.as_str(), node.place))
        .collect();
    assert_eq!(
        nodes,
        [
            ("node1", "Queued", 0),
            ("node2", "Pending", 1),
            ("node3", "AgentAway", 0)
        ]
    );
    let settings = told.settings.expect("set");
    assert_eq!(
        (settings.parallelism, settings.priority, settings.round),
        (1, 50, 1)
    );
    let one = world
        .state
        .explain(&key, Some(&NodeName::from("node2")), world.now)
        .expect("known");
    assert_eq!(one.nodes.len(), 1);
    world.fail("node1", Reason::NotFound);
    world.finish_writes();
    let told = world.state.explain(&key, None, world.now).expect("known");
    assert_eq!(
        (told.failures[0].reason.as_str(), told.failures[0].nodes),
        ("NotFound", 1)
    );
}
