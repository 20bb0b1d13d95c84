//! Pull secrets: read when used, missing ones told.

use kruise_api::ids::ObjectKey;
use kruise_proto::dispatch::Credential;
use kruise_proto::task::Phase;
use serde_json::json;

use super::world::*;
use crate::engine::event::SecretAnswer;

fn login() -> SecretAnswer {
    SecretAnswer::Ready(vec![Credential {
        username: "u".into(),
        password: "p".into(),
        ..Credential::default()
    }])
}

fn missing() -> SecretAnswer {
    SecretAnswer::Problem("pull secret ns/pull does not exist".into())
}

fn with_secret() -> World {
    World::new(2, &json!({"pullSecrets": ["pull"]}))
}

#[test]
fn secrets_are_read_for_each_hand_out_and_go_with_the_order() {
    let mut world = with_secret();
    world.attach("node1");
    world.attach("node2");
    assert!(world.pulling().is_empty());
    assert_eq!(world.secret_reads.len(), 1);
    assert_eq!(
        world.secret_reads[0][0].secrets,
        [ObjectKey::new("ns", "pull")],
        "of the job's own namespace"
    );
    world.answer_secrets(login);
    let order = world.told("node1").orders.values().next().expect("an order");
    assert_eq!(credentials(order), 1);
    world.report("node1", Phase::Succeeded);
    world.answer_secrets(login);
    assert_eq!(world.orders("node2").len(), 1);
    assert!(world.secret_reads.is_empty());
}

#[test]
fn a_missing_secret_is_shown_asked_for_again_and_never_pulled_without() {
    let mut world = with_secret();
    world.attach("node1");
    world.attach("node2");
    world.answer_secrets(missing);
    assert!(world.pulling().is_empty());
    assert_eq!(
        world.summary().waiting_on[0],
        "pull secret ns/pull does not exist"
    );
    assert_eq!(world.summary().active, 0);
    world.finish_writes();
    let condition = world
        .status()
        .conditions
        .iter()
        .find(|condition| condition.type_ == "SecretMissing");
    assert_eq!(condition.map(|condition| condition.status.as_str()), Some("True"));
    assert_eq!(world.status().active, 0);
    let mut asked = 0;
    for _ in 0..120 {
        world.pass_alive(1);
        while !world.secret_reads.is_empty() {
            asked += 1;
            world.answer_secrets(missing);
        }
    }
    assert_eq!(asked, 4, "after 5, 15, 35 and 75 s");
    assert!(world.writes.is_empty(), "it was said once");
    world.pass_alive(60);
    world.answer_secrets(login);
    assert_eq!(world.pulling(), ["node1"]);
}

#[test]
fn a_set_waits_for_its_secrets_and_a_secret_that_cannot_be_read_cancels_nothing() {
    let mut world = with_secret();
    world.attach("node1");
    world.answer_secrets(login);
    let held = status(&world.orders("node1")[0], Phase::Pulling);
    world.detach("node1");
    world.attach_with("node1", vec![held]).expect("let in");
    assert_eq!(world.told("node1").sets, 0);
    world.answer_secrets(|| SecretAnswer::Unavailable("the API server is away".into()));
    assert_eq!(world.told("node1").sets, 0);
    assert_eq!(world.slots(), 1);
    world.pass_alive(5);
    world.answer_secrets(login);
    assert_eq!(world.told("node1").sets, 1);
    assert_eq!(
        credentials(world.told("node1").orders.values().next().expect("an order")),
        1
    );
}

#[test]
fn a_secret_that_is_gone_ends_the_order_that_would_need_it_again() {
    let mut world = with_secret();
    world.attach("node1");
    world.answer_secrets(login);
    let held = status(&world.orders("node1")[0], Phase::Pulling);
    world.detach("node1");
    world.attach_with("node1", vec![held]).expect("let in");
    world.answer_secrets(missing);
    assert_eq!(world.told("node1").sets, 1);
    assert!(world.orders("node1").is_empty());
    assert_eq!(world.slots(), 0);
}

#[test]
fn an_ended_task_needs_no_secret_to_be_named() {
    let mut world = with_secret();
    world.attach("node1");
    world.answer_secrets(login);
    world.finish_writes();
    world.report("node1", Phase::Succeeded);
    let held = status(&world.orders("node1")[0], Phase::Succeeded);
    world.detach("node1");
    world.attach_with("node1", vec![held]).expect("let in");
    assert_eq!(world.told("node1").sets, 1);
    assert_eq!(world.orders("node1").len(), 1);
}
