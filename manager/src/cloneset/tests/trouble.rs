//! Writes that go wrong, watches that lag, leaders that change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kruise_planner::task::fnv64;
use serde_json::json;

use super::super::space::Kind;
use super::server::Fate;
use super::world::{World, image_of, is_ready, set};

#[tokio::test(start_paused = true)]
async fn a_silent_watch_makes_no_second_set_of_pods() {
    let world = World::new();
    world.server.put(Kind::Set, set(1, "a:1", &json!({})));
    world.settled(1, |_| {}).await;
    world.change_spec(&json!({"replicas": 8}));
    // The watch has told of the change; of what follows from it, it tells nothing for a while.
    world
        .until("a second pod", |world| world.pods().len() > 1, |_| {})
        .await;
    world.server.silence(true);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.pods().len(), 8);
    world.server.silence(false);
    world.settled(8, |world| assert!(world.pods().len() <= 8)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_creation_is_told_and_tried_ever_more_seldom() {
    let world = World::new();
    world.server.fate(|what| {
        if what.starts_with("create Pod") {
            Fate::Refused("exceeded quota")
        } else {
            Fate::Fine
        }
    });
    world.server.put(Kind::Set, set(10, "a:1", &json!({})));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries = world
        .server
        .log()
        .iter()
        .filter(|line| line.starts_with("create Pod"))
        .count();
    assert!((4..=8).contains(&tries), "{tries} tries in a minute");
    let conditions = world.status()["conditions"].clone();
    let failed = conditions
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "FailedScale");
    let failed = failed.expect("the condition says so");
    assert_eq!(failed["status"], "True");
    assert!(
        failed["message"].to_string().contains("exceeded quota"),
        "{failed}"
    );
    world.server.fate(|_| Fate::Fine);
    world.settled(10, |_| {}).await;
    let status = world.status();
    let still = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "FailedScale");
    assert!(still.is_none_or(|one| one["status"] == "False"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn writes_without_an_answer_are_looked_up_before_anything_is_decided() {
    let world = World::new();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    // A fixed sequence without a rhythm: one that comes round with the controller's own would hit the same write each time.
    world.server.fate(move |_| {
        let number = counter.fetch_add(1, Ordering::Relaxed) as u64;
        match fnv64(&number.to_le_bytes()) % 8 {
            0 | 1 => Fate::DoneUnanswered,
            2 | 3 => Fate::Lost,
            _ => Fate::Fine,
        }
    });
    world.server.put(Kind::Set, set(6, "a:1", &json!({})));
    world.settled(6, |world| assert!(world.pods().len() <= 6)).await;
    let mut changed = set(6, "a:2", &json!({}));
    world.change_spec(&changed["spec"].take());
    let one_down = |world: &World| {
        let ready = world.pods().iter().filter(|pod| is_ready(pod)).count();
        assert!(ready >= 5, "two down at once");
    };
    world.settled(6, one_down).await;
    assert!(world.pods().iter().all(|pod| image_of(pod) == "a:2"));
    assert!(count.load(Ordering::Relaxed) > 20);
}

#[tokio::test(start_paused = true)]
async fn another_leader_goes_on_in_the_middle_of_a_rollout() {
    let mut world = World::new();
    world.server.put(Kind::Set, set(9, "a:1", &json!({})));
    world.settled(9, |_| {}).await;
    let names = world.names();
    let mut changed = set(9, "a:2", &json!({}));
    world.change_spec(&changed["spec"].take());
    for updated in 1..9 {
        let enough = |world: &World| {
            let new = world.pods().iter().filter(|pod| image_of(pod) == "a:2").count();
            new >= updated
        };
        world.until("some updated", enough, |_| {}).await;
        world.lead();
    }
    let one_down = |world: &World| {
        let ready = world.pods().iter().filter(|pod| is_ready(pod)).count();
        assert!(ready >= 8, "two down at once");
    };
    world.settled(9, one_down).await;
    assert_eq!(world.names(), names);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_answers_nothing_is_not_stormed() {
    let world = World::new();
    world.server.put(Kind::Set, set(3, "a:1", &json!({})));
    world.settled(3, |_| {}).await;
    let before = world.server.log().len();
    world.server.fate(|_| Fate::Lost);
    let mut changed = set(5, "a:2", &json!({}));
    world.change_spec(&changed["spec"].take());
    tokio::time::sleep(Duration::from_secs(120)).await;
    let writes = world.server.log().len() - before;
    assert!(
        (3..60).contains(&writes),
        "{writes} writes in two minutes: {:#?}",
        &world.server.log()[before..][..20]
    );
    world.server.fate(|_| Fate::Fine);
    world.settled(5, |_| {}).await;
}
