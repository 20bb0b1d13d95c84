//! What people do with sets when nothing goes wrong.

use std::collections::BTreeSet;

use kruise_api::ids::ObjectKey;
use serde_json::json;

use super::super::handle::Answer;
use super::super::space::Kind;
use super::server::NAMESPACE;
use super::world::{World, image_of, is_ready, set, text};

fn ready(world: &World) -> usize {
    world.pods().iter().filter(|pod| is_ready(pod)).count()
}

#[tokio::test(start_paused = true)]
async fn pods_are_added_and_taken_away() {
    let world = World::new();
    world.server.put(Kind::Set, set(5, "a:1", &json!({})));
    world.settled(5, |_| {}).await;
    assert_eq!(world.server.all(Kind::Revision).len(), 1);
    for pod in world.pods() {
        assert_eq!(image_of(&pod), "a:1");
        assert_eq!(pod["metadata"]["labels"]["app"], "web");
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "CloneSet");
        assert_eq!(
            pod["spec"]["readinessGates"][0]["conditionType"],
            "InPlaceUpdateReady"
        );
    }
    world.change_spec(&json!({"replicas": 2}));
    world.settled(2, |_| {}).await;
    let created = world
        .server
        .log()
        .iter()
        .filter(|line| line.starts_with("create Pod"))
        .count();
    assert_eq!(created, 5, "never one too many");
    let told = world.server.told();
    let count = |reason: &str| told.iter().filter(|event| event.reason == reason).count();
    assert_eq!((count("SuccessfulCreate"), count("SuccessfulDelete")), (5, 3));
}

#[tokio::test(start_paused = true)]
async fn how_long_containers_were_down_is_told_once_per_pod_and_kept_by_revision() {
    let world = World::new();
    world.server.put(Kind::Set, set(3, "a:1", &json!({})));
    world.settled(3, |_| {}).await;
    world.change_spec(&set(3, "a:2", &json!({}))["spec"]);
    world.settled(3, |_| {}).await;
    let told = world.server.told();
    let updated = told.iter().filter(|event| event.reason == "InPlaceUpdated");
    let texts: BTreeSet<&str> = updated.clone().map(|event| event.message.as_str()).collect();
    assert_eq!(updated.count(), 3, "one for each pod: {told:#?}");
    assert!(
        texts
            .iter()
            .all(|text| text.ends_with("only whole seconds are known")),
        "{texts:?}"
    );
    let asked = world.handle.explain(ObjectKey::new(NAMESPACE, "web")).await;
    let Ok(Answer::Explained(told)) = asked else {
        panic!("{asked:?}");
    };
    let [measured] = &told.in_place[..] else {
        panic!("pods that were created are not measured: {:?}", told.in_place);
    };
    assert_eq!(measured.revision, told.update_revision);
    assert_eq!(
        (
            measured.pods,
            measured.pods_in_whole_seconds,
            measured.pods_not_known
        ),
        (3, 3, 0)
    );
    assert_eq!(measured.slowest.len(), 3);
    assert!(measured.p50.is_some() && measured.longest.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_image_changes_in_place_within_the_budget() {
    let world = World::new();
    world.server.put(Kind::Set, set(6, "a:1", &json!({})));
    world.settled(6, |_| {}).await;
    let (names, writes) = (world.names(), world.server.log().len());
    let mut changed = set(
        6,
        "a:2",
        &json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}),
    );
    world.change_spec(&changed["spec"].take());
    world
        .settled(6, |world| {
            assert!(ready(world) >= 4, "more than two down at once");
        })
        .await;
    assert_eq!(world.names(), names, "the same pods");
    for pod in world.pods() {
        assert_eq!(image_of(&pod), "a:2");
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
        assert_eq!(
            pod["metadata"]["labels"]["lifecycle.apps.kruise.io/state"],
            "Normal"
        );
    }
    let log = world.server.log();
    let pod_writes = log[writes..].iter().filter(|line| line.contains(" Pod ")).count();
    assert!(pod_writes <= 6 * 4, "{pod_writes} writes for 6 pods: {log:#?}");
}

#[tokio::test(start_paused = true)]
async fn pods_are_made_again_where_a_change_is_not_possible_in_place() {
    let world = World::new();
    world.server.put(Kind::Set, set(3, "a:1", &json!({})));
    world.settled(3, |_| {}).await;
    let before: BTreeSet<String> = world.names().into_iter().collect();
    let spec = json!({"template": {"spec": {"hostname": "other"}}});
    world.change_spec(&spec);
    world.settled(3, |world| assert!(ready(world) >= 1)).await;
    let after: BTreeSet<String> = world.names().into_iter().collect();
    assert!(before.is_disjoint(&after));
}

#[tokio::test(start_paused = true)]
async fn a_partition_keeps_pods_and_a_named_pod_is_replaced() {
    let world = World::new();
    world.server.put(Kind::Set, set(4, "a:1", &json!({})));
    world.settled(4, |_| {}).await;
    let mut changed = set(
        4,
        "a:2",
        &json!({"updateStrategy": {"rollingUpdate": {"partition": 3}}}),
    );
    world.change_spec(&changed["spec"].take());
    let one_updated = |world: &World| {
        world.status()["updatedReadyReplicas"] == 1 && world.status()["availableReplicas"] == 4
    };
    world.until("one pod updated", one_updated, |_| {}).await;
    let old = world
        .pods()
        .into_iter()
        .find(|pod| image_of(pod) == "a:1")
        .expect("three are left");
    let name = text(&old["metadata"]["name"]);
    world.change_spec(&json!({"scaleStrategy": {"podsToDelete": [name]}}));
    let replaced = |world: &World| {
        let set = world.server.get(Kind::Set, "web").expect("the set");
        !world.names().contains(&name)
            && set["spec"]["scaleStrategy"]["podsToDelete"].is_null()
            && set["status"]["availableReplicas"] == 4
    };
    world.until("the named pod replaced", replaced, |_| {}).await;
    let old = world.pods().iter().filter(|pod| image_of(pod) == "a:1").count();
    assert_eq!(old, 3, "its replacement is of the old revision too");
}

#[tokio::test(start_paused = true)]
async fn claims_come_before_their_pod_and_go_with_it() {
    let world = World::new();
    let templates = json!({"volumeClaimTemplates": [{
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }]});
    world.server.put(Kind::Set, set(2, "a:1", &templates));
    world.settled(2, |_| {}).await;
    assert_eq!(world.server.all(Kind::Claim).len(), 2);
    for pod in world.pods() {
        let id = text(&pod["metadata"]["labels"]["apps.kruise.io/cloneset-instance-id"]);
        let claim = text(&pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]);
        assert_eq!(claim, format!("data-web-{id}"));
    }
    world.change_spec(&json!({"replicas": 1}));
    world.settled(1, |_| {}).await;
    world
        .until(
            "the claim gone",
            |world| world.server.all(Kind::Claim).len() == 1,
            |_| {},
        )
        .await;
}
