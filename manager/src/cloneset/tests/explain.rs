//! The controller is asked why a set does not move.

use kruise_api::ids::ObjectKey;
use serde_json::json;

use super::super::handle::Answer;
use super::super::space::Kind;
use super::server::{Fate, NAMESPACE};
use super::world::{World, set};
use crate::engine::EngineGone;

async fn ask(world: &World, name: &str) -> Result<Answer, EngineGone> {
    world.handle.explain(ObjectKey::new(NAMESPACE, name)).await
}

async fn reasons(world: &World) -> Vec<String> {
    match ask(world, "web").await {
        Ok(Answer::Explained(told)) => told.waiting.into_iter().map(|one| one.reason).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_stands_still_says_why() {
    let world = World::new();
    world.server.put(Kind::Set, set(3, "a:1", &json!({})));
    world.settled(3, |_| {}).await;
    assert_eq!(reasons(&world).await, Vec::<String>::new());
    let paused = json!({"updateStrategy": {"rollingUpdate": {"paused": true}}});
    world.change_spec(&set(3, "a:2", &paused)["spec"]);
    let observed = |world: &World| world.status()["observedGeneration"] == 2;
    world.until("the change is seen", observed, |_| {}).await;
    assert_eq!(reasons(&world).await, ["Paused"]);
    let Ok(Answer::Explained(told)) = ask(&world, "web").await else {
        panic!("it is known");
    };
    let counts = told.counts.expect("set");
    assert_eq!((counts.pods, counts.updated, counts.expected_updated), (3, 0, 3));
    assert_eq!(told.states["Normal"], 3);
    assert!(told.settings.expect("set").paused);
    assert_eq!(ask(&world, "another").await, Ok(Answer::Unknown));
}

#[tokio::test(start_paused = true)]
async fn failed_writes_of_its_own_are_among_the_reasons() {
    let world = World::new();
    world.server.fate(|what| match what.starts_with("create Pod") {
        true => Fate::Refused("exceeded quota"),
        false => Fate::Fine,
    });
    world.server.put(Kind::Set, set(2, "a:1", &json!({})));
    let tried = |world: &World| {
        world
            .server
            .log()
            .iter()
            .any(|line| line.starts_with("create Pod"))
    };
    world.until("a try", tried, |_| {}).await;
    let told = |world: &World| world.status()["conditions"].is_array();
    world.until("the failure is told", told, |_| {}).await;
    assert_eq!(reasons(&world).await, ["CreationFailed"]);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_does_not_answer() {
    let mut world = World::new();
    world.server.put(Kind::Set, set(1, "a:1", &json!({})));
    world.settled(1, |_| {}).await;
    world.follow();
    assert_eq!(ask(&world, "web").await, Err(EngineGone::NotLeading));
}
