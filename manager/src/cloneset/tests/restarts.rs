//! Restarts of all pods by annotation, with an agent that takes its time.

use std::collections::BTreeMap;
use std::time::Duration;

use kruise_api::clone_set::names;
use kruise_api::container_recreate_request::keys;
use serde_json::{Value, json};

use super::super::space::Kind;
use super::server::{Fate, Server};
use super::world::{DOWN, World, is_ready, set, text};

/// The agents and the controller of requests: each request takes its pod down for a while.
struct Agents(tokio::task::JoinHandle<()>);

impl Drop for Agents {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Agents {
    fn of(world: &World) -> Self {
        let server = world.server.clone();
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(400)).await;
                for request in server.all(Kind::Request) {
                    work(&server, &request);
                }
            }
        }))
    }
}

fn work(server: &Server, request: &Value) {
    let (name, pod) = (
        text(&request["metadata"]["name"]),
        text(&request["spec"]["podName"]),
    );
    match request["status"]["phase"].as_str() {
        None => {
            let uid = server.get(Kind::Pod, &pod).expect("the pod")["metadata"]["uid"].clone();
            server.change(Kind::Pod, &pod, |pod| {
                let count = pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
                pod["status"]["containerStatuses"][0]["restartCount"] = (count.expect("a count") + 1).into();
                pod["metadata"]["annotations"][DOWN] = "true".into();
            });
            server.change(Kind::Request, &name, |request| {
                request["metadata"]["labels"][keys::POD_UID] = uid;
                request["status"] = json!({"phase": "Recreating"});
            });
        }
        Some("Recreating") => {
            server.change(Kind::Pod, &pod, |pod| {
                let annotations = pod["metadata"]["annotations"].as_object_mut();
                annotations.expect("a map").remove(DOWN);
            });
            server.change(Kind::Request, &name, |request| {
                request["status"] = json!({"phase": "Completed", "completionTime": "2025-06-15T15:06:40Z",
                    "containerRecreateStates": [{"name": "main", "phase": "Succeeded"}]});
            });
        }
        Some(_) => {}
    }
}

fn restarts(world: &World) -> BTreeMap<String, i64> {
    let pods = world.pods().into_iter().map(|pod| {
        let count = pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
        (text(&pod["metadata"]["name"]), count.expect("a count"))
    });
    pods.collect()
}

fn ask(world: &World, annotations: &Value) {
    world.server.change(Kind::Set, "web", |set| {
        set["metadata"]["annotations"] = annotations.clone();
    });
}

fn one_down_at_most(world: &World) {
    let down = world.pods().iter().filter(|pod| !is_ready(pod)).count();
    assert!(down <= 1, "{down} pods down");
}

fn is_complete(world: &World) -> bool {
    world.status()["restart"]["completedAt"].is_string()
}

async fn four() -> World {
    let world = World::new();
    world.server.put(Kind::Set, set(4, "a:1", &json!({})));
    world.settled(4, |_| {}).await;
    world
}

#[tokio::test(start_paused = true)]
async fn every_pod_once_and_one_at_a_time() {
    let world = four().await;
    let _agents = Agents::of(&world);
    let (names, writes) = (world.names(), world.server.log().len());
    ask(
        &world,
        &json!({names::RESTART: "2026-12-01T12:00:00Z", names::RESTART_ORDERED: "true"}),
    );
    world
        .until("the run is complete", is_complete, one_down_at_most)
        .await;
    assert_eq!(world.names(), names);
    assert!(restarts(&world).values().all(|count| *count == 1));
    let run = world.status()["restart"].clone();
    assert_eq!(
        (&run["total"], &run["done"], &run["failed"]),
        (&json!(4), &json!(4), &json!(0))
    );
    for request in world.server.all(Kind::Request) {
        assert_eq!(request["spec"]["containers"][0]["name"], "main");
        assert_eq!(request["spec"]["strategy"]["orderedRecreate"], true);
    }
    let log = world.server.log();
    let of_pods: Vec<&String> = log[writes..]
        .iter()
        .filter(|line| !line.contains(" Set "))
        .collect();
    assert_eq!(
        of_pods.len(),
        4,
        "the request is the one write for a pod: {of_pods:#?}"
    );
    let told = world.server.told();
    let count = |reason: &str| told.iter().filter(|event| event.reason == reason).count();
    assert_eq!((count("RestartBegan"), count("RestartCompleted")), (1, 1));
    // The requests go by their time-to-live, and another leader begins.
    for request in world.server.all(Kind::Request) {
        world
            .server
            .remove(Kind::Request, &text(&request["metadata"]["name"]));
    }
    let mut world = world;
    world.lead();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.server.all(Kind::Request).is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_leader_and_lost_answers_restart_nothing_twice() {
    let mut world = four().await;
    let _agents = Agents::of(&world);
    let mut turn = 0;
    world.server.fate(move |what| {
        turn += 1;
        match what.starts_with("create Request") {
            true if turn % 3 == 0 => Fate::Lost,
            true if turn % 2 == 0 => Fate::DoneUnanswered,
            _ => Fate::Fine,
        }
    });
    ask(&world, &json!({names::RESTART: "r"}));
    for done in 1..=4 {
        let some = move |world: &World| restarts(world).values().sum::<i64>() >= done;
        world.until("another restart", some, one_down_at_most).await;
        world.lead();
    }
    world
        .until("the run is complete", is_complete, one_down_at_most)
        .await;
    assert!(restarts(&world).values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_told_and_shown() {
    let world = four().await;
    let refused = "container x not found in Pod";
    world
        .server
        .fate(move |what| match what.starts_with("create Request") {
            true => Fate::Refused(refused),
            false => Fate::Fine,
        });
    let before = world.server.log().len();
    ask(
        &world,
        &json!({names::RESTART: "r", names::RESTART_CONTAINERS: "x"}),
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    let log = world.server.log();
    let tries: Vec<&String> = log[before..]
        .iter()
        .filter(|line| line.starts_with("create Request"))
        .collect();
    assert!((3..=8).contains(&tries.len()), "{tries:#?}");
    let told = world.server.told();
    let told = told
        .iter()
        .find(|event| event.reason == "FailedRestart")
        .expect("an event");
    assert!(told.message.contains(refused), "{told:?}");
}
