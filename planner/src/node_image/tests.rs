//! A NodeImage that people write by hand.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::NodeName;
use kruise_api::node_image::{NodeImageSpec, NodeImageStatus, TagStatus};

use super::*;
use crate::job::round_of;

struct World {
    spec: NodeImageSpec,
    status: Option<NodeImageStatus>,
    labels: BTreeMap<String, String>,
    answers: BTreeMap<(String, String), Answer>,
    node_gone: bool,
    last_write: Option<Timestamp>,
    now: Timestamp,
}

impl World {
    fn new(spec: &str) -> Self {
        Self {
            spec: serde_json::from_str(spec).expect("a spec"),
            status: None,
            labels: BTreeMap::new(),
            answers: BTreeMap::new(),
            node_gone: false,
            last_write: None,
            now: Timestamp::from_second(1_000_000).expect("a time"),
        }
    }

    fn step(&mut self) -> NodeImagePlan {
        let made = plan(&NodeImageSnapshot {
            labels: &self.labels,
            created: Timestamp::from_second(1_000_000).expect("a time"),
            spec: &self.spec,
            status: self.status.as_ref(),
            answers: &self.answers,
            node_gone: self.node_gone,
            last_write: self.last_write,
            now: self.now,
        });
        if made.write {
            self.status = Some(made.status.clone());
            self.last_write = Some(self.now);
        }
        if let Some(spec) = &made.spec {
            self.spec = spec.clone();
        }
        made
    }

    fn requests(&self) -> Vec<Request> {
        requests("uid", &NodeName::from("node1"), &self.spec, self.status.as_ref())
    }

    fn answer(&mut self, answer: Answer) {
        self.answers.insert(("nginx".into(), "1".into()), answer);
    }

    fn tag(&self) -> &TagStatus {
        &self.status.as_ref().expect("written").image_statuses["nginx"].tags[0]
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

const ONE: &str =
    r#"{"images":{"nginx":{"tags":[{"tag":"1","pullPolicy":{"ttlSecondsAfterFinished":60}}]}}}"#;

#[test]
fn from_request_to_answer_to_expiry() {
    let mut world = World::new(ONE);
    assert!(world.step().write, "that it was seen is told at once");
    assert_eq!((world.tag().phase.as_str(), world.tag().version), ("Waiting", 0));
    world.answer(Answer::Pulling { percent: 40 });
    assert!(!world.step().write, "progress waits");
    world.pass(30);
    assert!(world.step().write);
    assert_eq!(
        (world.tag().phase.as_str(), world.tag().progress),
        ("Pulling", 40)
    );
    world.pass(1);
    world.answer(Answer::Succeeded {
        image_id: "sha256:0f".into(),
    });
    let plan = world.step();
    assert!(plan.write, "an end does not wait");
    assert_eq!(plan.events.len(), 1);
    assert_eq!(plan.events[0].reason, "PullImageSucceed");
    assert_eq!(
        plan.events[0].message,
        "Image nginx:1 is present, elapsed time 31 s"
    );
    assert_eq!(
        (world.tag().image_id.as_str(), world.tag().progress),
        ("nginx@sha256:0f", 100)
    );
    let status = world.status.as_ref().expect("written");
    assert_eq!((status.desired, status.succeeded, status.waiting), (1, 1, 0));
    assert!(
        world.requests()[0].status.completion_time.is_some(),
        "nothing more is done for it"
    );
    let plan = world.step();
    assert!(!plan.write && plan.events.is_empty());
    assert_eq!(plan.wake, Some(world.now + SignedDuration::from_secs(60)));
    world.pass(60);
    assert!(world.step().spec.expect("changed").images.is_empty());
    assert!(world.step().write, "statuses of tags that are gone go too");
    assert_eq!(world.status, Some(NodeImageStatus::default()));
}

#[test]
fn another_version_is_another_request() {
    let mut world = World::new(ONE);
    world.step();
    world.answer(Answer::Failed {
        message: "NotFound: no such tag".into(),
    });
    let plan = world.step();
    assert_eq!(
        (plan.events[0].warning, plan.events[0].reason),
        (true, "PullImageFailed")
    );
    assert_eq!(plan.events[0].message, "Image nginx:1: NotFound: no such tag");
    let first = world.requests().remove(0);
    world.spec.images.get_mut("nginx").expect("there").tags[0].version = 7;
    world.answers.clear();
    let second = world.requests().remove(0);
    assert_eq!(first.job, second.job);
    assert!(second.status.completion_time.is_none());
    let image = kruise_api::reference::ImageRef::parse("nginx:1").expect("valid");
    assert_eq!(
        (
            round_of(&image, Some(&first.status)),
            round_of(&image, Some(&second.status))
        ),
        (1, 8)
    );
    assert!(world.step().write);
    assert_eq!((world.tag().version, world.tag().phase.as_str()), (7, "Waiting"));
}

#[test]
fn row_03_a_policy_that_is_left_out_is_what_the_field_says() {
    let mut world = World::new(ONE);
    assert_eq!(world.requests()[0].spec.image_pull_policy, "IfNotPresent");
    world.spec.images.get_mut("nginx").expect("there").tags[0].image_pull_policy = Some("Always".into());
    assert!(world.requests()[0].spec.always_pulls());
}

#[test]
fn row_14_each_image_has_its_own_sandbox_config_and_secrets() {
    let world = World::new(
        r#"{"images":{
            "a":{"tags":[{"tag":"1"}],"sandboxConfig":{"labels":{"k":"a"}},"pullSecrets":[{"namespace":"n","name":"s"}]},
            "b":{"tags":[{"tag":"1"}],"sandboxConfig":{"labels":{"k":"b"}}}}}"#,
    );
    let requests = world.requests();
    let label = |request: &Request| {
        let sandbox = request.spec.sandbox_config.clone().expect("given");
        sandbox.labels.expect("given")["k"].clone()
    };
    assert_eq!(
        (label(&requests[0]), label(&requests[1])),
        ("a".into(), "b".into())
    );
    assert_eq!(requests[0].secrets, [("n".to_owned(), "s".to_owned())]);
    assert!(requests[1].secrets.is_empty());
    assert_ne!(requests[0].job, requests[1].job);
}

#[test]
fn tags_that_jobs_own_are_the_jobs_business() {
    let mut world = World::new(
        r#"{"images":{"nginx":{"tags":[{"tag":"1","ownerReferences":[
            {"apiVersion":"apps.kruise.io/v1beta1","kind":"ImagePullJob","name":"j","uid":"u"}]}]}}}"#,
    );
    assert!(world.requests().is_empty());
    let plan = world.step();
    assert!(plan.status.image_statuses.is_empty());
    assert_eq!(plan.status.desired, 1);
}

#[test]
fn a_name_that_is_no_image_fails_and_harms_nobody_else() {
    let mut world =
        World::new(r#"{"images":{"NoImage":{"tags":[{"tag":"1"}]},"nginx":{"tags":[{"tag":"1"}]}}}"#);
    assert_eq!(world.requests().len(), 1);
    world.step();
    let bad = &world.status.as_ref().expect("written").image_statuses["NoImage"].tags[0];
    assert!(
        bad.phase == "Failed" && bad.message.contains("lower case"),
        "{bad:?}"
    );
    assert_eq!(world.tag().phase, "Waiting");
}

#[test]
fn a_node_image_goes_after_its_node_unless_it_is_a_fake_one() {
    let mut world = World::new(ONE);
    world.node_gone = true;
    assert!(!world.step().delete, "the node may be about to come");
    world.pass(600);
    assert!(world.step().delete);
    world
        .labels
        .insert("apps.kruise.io/fake-nodeimage".into(), String::new());
    assert!(!world.step().delete);
}
