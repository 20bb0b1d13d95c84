//! NodeImages that people write by hand.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::node_image::TagStatus;
use kruise_proto::task::{Phase, Reason};
use serde_json::{Value, json};

use super::world::*;
use crate::engine::event::{Event, ImageWrite, SecretAnswer};
use crate::engine::objects::{Listing, NodeImageObject};
use crate::engine::ports::ApiFailure;

fn image(node: &str, spec: &Value) -> NodeImageObject {
    NodeImageObject {
        uid: format!("image-{node}").as_str().into(),
        name: node.into(),
        version: "1".into(),
        labels: BTreeMap::new(),
        created: Timestamp::from_second(1_999_999_990).expect("a time"),
        deleting: false,
        spec: serde_json::from_value(spec.clone()).expect("a spec"),
        status: None,
    }
}

fn one_tag() -> Value {
    json!({"images": {"nginx": {"tags": [{"tag": "1"}]}}})
}

impl World {
    /// One node, no jobs, and a NodeImage of it that the watch tells of.
    fn with_image(spec: &Value) -> Self {
        let mut world = Self::new(1, &json!({}));
        world.jobs.clear();
        world.list();
        world.attach("node1");
        world.writes.clear();
        world.apply_image(image("node1", spec));
        world
    }

    fn apply_image(&mut self, image: NodeImageObject) {
        self.images.insert(image.name.clone(), image.clone());
        self.event(Event::NodeImages(Listing::Applied(image)));
    }

    fn edit_image(&mut self, change: impl FnOnce(&mut NodeImageObject)) {
        let mut image = self.images[&"node1".into()].clone();
        change(&mut image);
        image.version = (image.version.parse::<u64>().expect("a number") + 1).to_string();
        self.apply_image(image);
    }

    /// Does all writes on NodeImages as the API server would, and says how many there were.
    fn finish_image_writes(&mut self) -> usize {
        let mut count = 0;
        while let Some((node, write)) = self.image_writes.pop_front() {
            count += 1;
            let mut image = self.images[&node].clone();
            match write {
                ImageWrite::Status {
                    version,
                    patch,
                    events,
                } => {
                    assert_eq!(version, image.version);
                    let mut status = serde_json::to_value(&image.status).expect("json");
                    merge(&mut status, &patch);
                    image.status = serde_json::from_value(status).expect("a status");
                    self.told_events
                        .extend(events.into_iter().map(|event| event.reason));
                }
                ImageWrite::Spec { body } => {
                    let mut spec = serde_json::to_value(&image.spec).expect("json");
                    merge(&mut spec, &body["spec"]);
                    image.spec = serde_json::from_value(spec).expect("a spec");
                }
                ImageWrite::Delete => {
                    self.images.remove(&node);
                    self.event(Event::ImageWritten {
                        node,
                        result: Ok(None),
                    });
                    continue;
                }
            }
            image.version = (image.version.parse::<u64>().expect("a number") + 1).to_string();
            self.images.insert(node.clone(), image.clone());
            self.event(Event::ImageWritten {
                node,
                result: Ok(Some(image)),
            });
        }
        count
    }

    fn tag(&self) -> TagStatus {
        let status = self.images[&"node1".into()].status.as_ref().expect("written");
        status.image_statuses["nginx"].tags[0].clone()
    }
}

#[test]
fn a_tag_written_by_hand_is_pulled_and_answered() {
    let mut world = World::with_image(&one_tag());
    let task = world.orders("node1").remove(0);
    assert!(task.starts_with("pull/nodeimage-image-node1-"), "{task}");
    world.finish_image_writes();
    assert_eq!(world.tag().phase, "Waiting");
    world.report("node1", Phase::Pulling);
    world.pass_alive(30);
    world.finish_image_writes();
    assert_eq!(world.tag().phase, "Pulling");
    let mut end = status(&task, Phase::Succeeded);
    end.image_id = "docker.io/library/nginx@sha256:0f".into();
    world.report_task("node1", end);
    assert!(world.told("node1").saved.is_empty(), "not before it is stored");
    world.finish_image_writes();
    let tag = world.tag();
    assert_eq!(
        (tag.phase.as_str(), tag.progress, tag.image_id.as_str()),
        ("Succeeded", 100, "nginx@sha256:0f")
    );
    assert_eq!(world.told("node1").saved, [task]);
    assert_eq!(world.told_events, ["PullImageSucceed"]);
    world.pass_alive(3_600);
    assert_eq!(world.finish_image_writes(), 0, "at rest nothing is written");
    assert!(
        world.writes.is_empty(),
        "nothing is written on jobs that do not exist"
    );
}

#[test]
fn another_version_is_pulled_again_and_a_tag_that_goes_is_stopped() {
    let mut world = World::with_image(&one_tag());
    world.finish_image_writes();
    world.fail("node1", Reason::NotFound);
    world.finish_image_writes();
    assert_eq!(
        (world.tag().phase.as_str(), world.tag().message.as_str()),
        ("Failed", "NotFound: why")
    );
    assert!(world.orders("node1").is_empty());
    world.edit_image(|image| image.spec.images.get_mut("nginx").expect("there").tags[0].version = 3);
    let task = world.orders("node1").remove(0);
    assert!(task.ends_with("/4"), "{task}");
    world.finish_image_writes();
    assert_eq!((world.tag().phase.as_str(), world.tag().version), ("Waiting", 3));
    world.ack("node1");
    world.edit_image(|image| image.spec.images.clear());
    assert_eq!(world.told("node1").cancels.len(), 1);
    world.finish_image_writes();
    assert!(
        world.images[&"node1".into()]
            .status
            .as_ref()
            .expect("written")
            .image_statuses
            .is_empty()
    );
}

#[test]
fn secrets_of_a_node_image_are_of_the_namespaces_that_it_names() {
    let mut world = World::with_image(&json!({"images": {"nginx": {
        "tags": [{"tag": "1"}], "pullSecrets": [{"namespace": "other", "name": "s"}]}}}));
    let secrets = world.secret_reads[0][0].secrets.clone();
    assert_eq!(secrets[0].to_string(), "other/s");
    let requests = world.secret_reads.pop_front().expect("asked");
    let answers = [(requests[0].job.clone(), SecretAnswer::Ready(Vec::new()))];
    world.event(Event::Secrets(answers.into()));
    assert_eq!(world.orders("node1").len(), 1);
}

#[test]
fn a_failover_adopts_the_pull_of_a_node_image() {
    let mut world = World::with_image(&one_tag());
    world.finish_image_writes();
    let task = world.orders("node1").remove(0);
    world.fail_over();
    let held = status(&task, Phase::Pulling);
    world.attach_with("node1", vec![held]).expect("let in");
    assert_eq!(world.orders("node1"), std::slice::from_ref(&task));
    world.report("node1", Phase::Succeeded);
    world.finish_image_writes();
    assert_eq!(world.tag().phase, "Succeeded");
    assert_eq!(world.told("node1").saved, [task]);
}

#[test]
fn a_fake_node_image_is_selected_like_a_node_and_fails_after_ten_minutes() {
    let mut world = World::new(1, &json!({"parallelism": 5}));
    let mut fake = image("ghost", &json!({}));
    fake.labels
        .insert("apps.kruise.io/fake-nodeimage".into(), "true".into());
    world.apply_image(fake);
    world.attach("node1");
    world.finish_writes();
    world.pass_alive(31);
    world.finish_writes();
    assert_eq!(world.status().desired, 2);
    world.report("node1", Phase::Succeeded);
    world.pass_alive(601);
    world.finish_writes();
    let status = world.status();
    assert_eq!((status.succeeded, status.failed), (1, 1));
    assert_eq!(
        status.failures[0].message,
        "node has not responded for a long time"
    );
    // A list of the real nodes does not drop it, and it goes with its NodeImage.
    let mut world = World::new(1, &json!({"parallelism": 0}));
    let mut fake = image("ghost", &json!({}));
    fake.labels
        .insert("apps.kruise.io/fake-nodeimage".into(), String::new());
    world.apply_image(fake);
    world.finish_writes();
    world.list();
    world.pass_alive(31);
    world.finish_writes();
    assert_eq!(world.status().desired, 2);
    world.images.clear();
    world.event(Event::NodeImages(Listing::Deleted("image-ghost".into())));
    world.pass_alive(31);
    world.finish_writes();
    assert_eq!(world.status().desired, 1);
}

#[test]
fn a_request_for_a_node_without_an_agent_is_answered_after_ten_minutes() {
    let mut world = World::new(1, &json!({}));
    world.jobs.clear();
    world.list();
    world.apply_image(image("node1", &one_tag()));
    world.finish_image_writes();
    assert_eq!(world.tag().phase, "Waiting");
    for _ in 0..11 {
        world.pass(60);
        world.finish_image_writes();
    }
    assert_eq!(world.tag().phase, "Failed");
    assert!(
        world
            .tag()
            .message
            .contains("node has not responded for a long time")
    );
}

#[test]
fn a_tag_goes_when_its_time_to_live_is_over() {
    let mut world = World::with_image(&json!({"images": {"nginx": {
        "tags": [{"tag": "1", "pullPolicy": {"ttlSecondsAfterFinished": 30}}]}}}));
    world.finish_image_writes();
    world.report("node1", Phase::Succeeded);
    world.finish_image_writes();
    world.pass_alive(31);
    world.finish_image_writes();
    assert!(world.images[&"node1".into()].spec.images.is_empty());
}

#[test]
fn a_write_that_met_a_conflict_is_made_again_without_further_news() {
    let mut world = World::with_image(&one_tag());
    let (node, _) = world.image_writes.pop_front().expect("the status");
    world.event(Event::ImageWritten {
        node,
        result: Err(ApiFailure::Conflict),
    });
    assert!(world.image_writes.is_empty(), "not at once");
    world.pass_alive(10);
    assert_eq!(world.finish_image_writes(), 1);
    assert_eq!(world.tag().phase, "Waiting");
}
