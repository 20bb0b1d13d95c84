//! Known defects of OpenKruise, by the numbers that the guide to pulling images gives them, and what holds here instead.

use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::NodeName;

use super::world::{World, names, pod};
use crate::job::*;
use crate::task::{Reason, pull_task_id};

#[test]
fn row_02_an_unknown_pull_policy_acts_as_always() {
    let world = |policy: &str| World::new(1, &format!(r#"{{"imagePullPolicy":"{policy}"}}"#));
    assert!(world("Never").spec.always_pulls());
    assert!(world("Always").spec.always_pulls());
    assert!(!world("IfNotPresent").spec.always_pulls() && !world("").spec.always_pulls());
}

#[test]
fn row_07_an_image_by_digest_keeps_its_digest() {
    let digest = format!("sha256:{}", "0f".repeat(32));
    for image in [
        format!("reg:5000/app@{digest}"),
        format!("reg:5000/app:1@{digest}"),
    ] {
        let plan = World::new(1, &format!(r#"{{"image":"{image}"}}"#)).step();
        let image = plan.image.expect("valid");
        assert_eq!(image.canonical(), format!("reg:5000/app@{digest}"));
        assert_eq!(names_of(&plan.assign), ["node1"]);
    }
}

fn names_of(nodes: &[NodeName]) -> Vec<&str> {
    nodes.iter().map(NodeName::as_str).collect()
}

#[test]
fn row_09_an_empty_list_of_names_is_no_node_even_after_a_round_trip() {
    let mut world = World::new(3, r#"{"selector":{"names":[]}}"#);
    let text = serde_json::to_string(&world.spec).expect("writable");
    world.spec = serde_json::from_str(&text).expect("readable");
    let plan = world.step();
    assert_eq!((plan.counters.desired, plan.complete), (0, true));
    let all = World::new(3, r#"{"selector":{}}"#).step();
    assert_eq!(all.counters.desired, 3, "an empty selector is every node");
}

#[test]
fn row_12_nodes_come_in_the_order_in_which_the_workload_replaces_its_pods() {
    let spec = r#"{"parallelism":9,"podSelector":{"matchLabels":{"app":"x"}}}"#;
    let mut world = World::new(4, spec);
    let young = Timestamp::from_second(900).expect("a time");
    world.pods = vec![
        pod("a", "node1"),
        PodView {
            created: young,
            ..pod("b", "node2")
        },
        PodView {
            deletion_cost: -5,
            ..pod("c", "node3")
        },
        PodView {
            ready: false,
            ..pod("d", "node4")
        },
    ];
    assert_eq!(
        names(&world.clone().step()),
        ["node1", "node2", "node3", "node4"],
        "of nobody: by name"
    );
    world.owner = Some(Owner::CloneSet);
    assert_eq!(names(&world.clone().step()), ["node4", "node3", "node2", "node1"]);
    world.owner = Some(Owner::StatefulSet);
    world.pods = vec![
        pod("s-0", "node1"),
        pod("s-10", "node2"),
        pod("s-9", "node3"),
        pod("odd", "node4"),
    ];
    assert_eq!(names(&world.step()), ["node2", "node3", "node1", "node4"]);
}

#[test]
fn row_16_after_the_deadline_every_node_counts_once() {
    let spec = r#"{"parallelism":2,"completionPolicy":{"type":"Always","activeDeadlineSeconds":700}}"#;
    let mut world = World::new(5, spec);
    world.agent("node5", AgentView::Away);
    world.step();
    world.succeed("node1");
    world.fail("node2", Reason::NotFound);
    world.step();
    world.pass(700);
    let plan = world.step();
    assert_eq!(
        (
            plan.counters.succeeded,
            plan.counters.failed,
            plan.counters.desired
        ),
        (1, 4, 5)
    );
    assert_eq!(
        plan.status.failed_nodes,
        ["node2", "node3", "node4", "node5"],
        "sorted, each once"
    );
    assert_eq!(
        plan.status.message.as_deref(),
        Some("job exceeds activeDeadlineSeconds")
    );
    assert_eq!(plan.cancel.len(), 2, "what runs is stopped");
}

#[test]
fn row_28_a_long_job_forgets_nobody() {
    let mut world = World::new(3, "{}");
    world.step();
    for _ in 0..3 {
        let running = |task: &TaskView| matches!(task.state, TaskState::InFlight { .. });
        let mut tasks = world.tasks.iter();
        let node = tasks
            .find(|(_, task)| running(task))
            .expect("one runs")
            .0
            .to_string();
        // Longer than any time to live of a tag in OpenKruise.
        world.pass(24 * 3600);
        world.succeed(&node);
        // A failover in the middle: all that is not in the status is gone.
        world.pass(31);
        world.step();
        world.memory = JobMemory::default();
    }
    let status = world.status();
    assert_eq!((status.succeeded, status.completion_time.is_some()), (3, true));
}

#[test]
fn row_1386_a_job_that_is_over_stays_as_it_is_whatever_is_edited() {
    let mut world = World::new(1, "{}");
    world.step();
    world.succeed("node1");
    world.step();
    let before = world.status().clone();
    world.spec.image = "nginx:2".into();
    world.generation = 2;
    let plan = world.step();
    assert!(plan.assign.is_empty() && plan.write.is_none() && plan.probe.is_empty());
    assert_eq!(*world.status(), before);
}

#[test]
fn row_2071_the_deadline_of_a_job_that_never_completes_leaves_time_for_all_attempts() {
    let deadline = |spec: &str| task_deadline(&World::new(1, spec).spec);
    assert_eq!(deadline("{}"), None);
    let never = |policy: &str| {
        deadline(&format!(
            r#"{{"completionPolicy":{{"type":"Never"}},"pullPolicy":{policy}}}"#
        ))
    };
    assert_eq!(
        never(r#"{"timeoutSeconds":60,"backoffLimit":1}"#),
        Some(Duration::from_secs(1_800))
    );
    // Four attempts of 1000 s, and 1 + 2 + 4 s between them.
    assert_eq!(
        never(r#"{"timeoutSeconds":1000,"backoffLimit":3}"#),
        Some(Duration::from_secs(4_007))
    );
    // Seven attempts, and 1 + 2 + 4 + 8 + 16 + 30.
    assert_eq!(
        never(r#"{"timeoutSeconds":600,"backoffLimit":6}"#),
        Some(Duration::from_secs(4_261))
    );
    assert!(never(r#"{"timeoutSeconds":2147483647,"backoffLimit":2147483647}"#).is_some());
}

#[test]
fn rows_2213_and_2214_results_last_as_long_as_their_job() {
    let spec = r#"{"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":1}}"#;
    let mut world = World::new(2, spec);
    world.step();
    world.succeed("node1");
    world.pass(31);
    world.step();
    world.succeed("node2");
    world.pass(3600);
    let plan = world.step();
    assert!(plan.assign.is_empty(), "node1 is not asked again");
    assert_eq!(plan.counters.succeeded, 2);
    world.pass(1);
    assert!(world.step().delete, "one second after completion");
}

#[test]
fn jobs_that_never_complete_ask_again_once_a_day() {
    let mut world = World::new(2, r#"{"parallelism":2,"completionPolicy":{"type":"Never"}}"#);
    world.step();
    world.succeed("node1");
    world.fail("node2", Reason::NotFound);
    world.pass(31);
    let plan = world.step();
    assert!(!plan.complete && plan.counters.ended() == 2);
    assert_eq!(
        world.status().message.as_deref(),
        Some("job is running, progress 100.0%")
    );
    assert!(matches!(plan.waiting.last(), Some(WaitingOn::NextRound { .. })));
    let next = world
        .status()
        .outcomes
        .as_ref()
        .expect("written")
        .next_round
        .clone()
        .expect("set");
    let after = next.0.duration_since(world.now).as_secs();
    assert!((85_700..=87_000).contains(&after), "{after}");
    assert_eq!(plan.wake, Some(next.0));
    // A new node is served in the running round.
    world.nodes.insert("node3".into(), super::world::node(3));
    assert_eq!(names(&world.step()), ["node3"]);
    world.now = next.0;
    assert_ne!(
        world.step().write,
        Some(WriteReason::Round),
        "node3 is still at it"
    );
    world.succeed("node3");
    world.pass(31);
    world.step();
    let plan = world.step();
    assert_eq!((plan.write, plan.assign.len()), (Some(WriteReason::Round), 0));
    assert_eq!(world.status().succeeded, 0);
    let plan = world.step();
    assert_eq!((plan.round, plan.assign.len()), (2, 2), "orders follow the write");
    let image = plan.image.expect("valid");
    let id = pull_task_id(&world.uid, &world.nodes[&NodeName::from("node1")].uid, &image, 2);
    assert_eq!(world.tasks[&NodeName::from("node1")].id, id);
}
