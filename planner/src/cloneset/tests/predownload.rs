//! Pre-download: the examples of the rules, with the better behaviour where it differs.

use serde_json::{Value, json};

use super::line::rolling;
use super::world::{World, template};
use crate::cloneset::*;
use kruise_api::clone_set::names;

fn change(image: &str, edit: impl Fn(&mut Value)) -> Value {
    let mut template = template(image);
    edit(&mut template);
    template
}

/// What it shows, fields of rollingUpdate, replicas, the new template, images of the jobs, and whether they count as made.
type Case = (&'static str, Value, i32, Value, Vec<&'static str>, bool);

pub(super) fn cases() -> Vec<Case> {
    let next = || template("app:2");
    let field = |key: &str, value: Value| json!({"inPlaceUpdateStrategy": {key: value}});
    vec![
        ("1: four pods", json!({}), 4, next(), vec!["app:2"], true),
        ("2: three pods", json!({}), 3, next(), vec![], false),
        (
            "3: all at once",
            json!({"maxUnavailable": "100%"}),
            4,
            next(),
            vec![],
            false,
        ),
        (
            "4: all at once but one",
            json!({"maxUnavailable": "100%", "partition": 1}),
            4,
            next(),
            vec!["app:2"],
            true,
        ),
        (
            "5: nearly all, rounded as the rollout does",
            json!({"maxUnavailable": "90%"}),
            4,
            next(),
            vec![],
            false,
        ),
        (
            "5: nearly all with surge",
            json!({"maxUnavailable": "90%", "maxSurge": 1}),
            4,
            next(),
            vec!["app:2"],
            true,
        ),
        (
            "6: recreated",
            json!({"podUpdatePolicy": "ReCreate"}),
            10,
            next(),
            vec![],
            false,
        ),
        (
            "7: a variable changed too",
            json!({}),
            10,
            change("app:2", |it| {
                it["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
            }),
            vec![],
            false,
        ),
        (
            "8: a label alone",
            json!({}),
            10,
            change("app:1", |it| it["metadata"]["labels"]["tier"] = json!("b")),
            vec![],
            true,
        ),
        (
            "10: parallelism",
            field("imagePreDownloadParallelism", json!(2)),
            10,
            next(),
            vec!["app:2"],
            true,
        ),
        (
            "11: not before one is ready",
            json!({"partition": "90%", "inPlaceUpdateStrategy": {"imagePreDownloadMinUpdatedReadyPods": 1}}),
            10,
            next(),
            vec![],
            false,
        ),
        ("paused", json!({"paused": true}), 10, next(), vec!["app:2"], true),
        (
            "20: a container more",
            json!({}),
            10,
            change("app:1", |it| {
                let containers = it["spec"]["containers"].as_array_mut().expect("list");
                containers.push(json!({"name": "b", "image": "b:1"}));
            }),
            vec![],
            false,
        ),
    ]
}

fn world(fields: Value, replicas: i32, template: Value) -> World {
    let mut world = World::new(rolling(replicas, fields));
    world.play.gates.pre_download = PreDownload::Always;
    world.play.set.spec.template = template;
    for index in 0..replicas {
        world.pod(&format!("web-p{index:02}"), 0);
    }
    world
}

fn jobs(plan: &CloneSetPlan) -> Vec<&JobContent> {
    plan.actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateImagePullJob { content, .. } => Some(content.as_ref()),
            _ => None,
        })
        .collect()
}

fn is_made(plan: &CloneSetPlan) -> bool {
    let made = |action: &Action| matches!(action, Action::PatchRevision { labels, .. } if labels.contains_key(names::PREDOWNLOAD_CREATED));
    plan.actions.iter().any(made)
}

fn dropped(plan: &CloneSetPlan) -> usize {
    plan.actions
        .iter()
        .filter(|action| matches!(action, Action::DeleteImagePullJob { .. }))
        .count()
}

#[test]
fn examples() {
    for (name, fields, replicas, template, images, made) in cases() {
        let plan = world(fields, replicas, template).plan();
        let found: Vec<&str> = jobs(&plan).iter().map(|job| job.image.as_str()).collect();
        assert_eq!(found, images, "{name}");
        assert_eq!(is_made(&plan), made, "{name}");
    }
}

#[test]
fn what_a_job_says() {
    let mut world = world(json!({}), 4, template("app:2"));
    world.play.set.spec.template["spec"]["imagePullSecrets"] = json!([{"name": "login"}]);
    let plan = world.plan();
    // The secret makes it another change: it cannot be had in place.
    assert!(jobs(&plan).is_empty());
    world.play.set.spec.template = template("app:2");
    let plan = world.plan();
    let job = jobs(&plan)[0];
    let hash = plan.update_revision.rsplit('-').next().unwrap();
    assert_eq!(job.labels.get("app").map(String::as_str), Some("web"));
    assert_eq!(
        job.labels.get(names::REVISION_HASH).map(String::as_str),
        Some(hash)
    );
    assert_eq!(
        (
            job.parallelism,
            job.timeout_seconds,
            job.backoff_limit,
            job.ttl_seconds_after_finished
        ),
        (1, 300, 1, 600)
    );
    let rule = &job.pod_selector.match_expressions.as_ref().unwrap()[0];
    assert_eq!(
        rule.values,
        Some(vec![plan.update_revision.clone(), hash.to_owned()])
    );
}

#[test]
fn settings_are_read_from_fields_and_annotations() {
    for (annotations, fields, wanted) in [
        (json!({}), json!({}), (1, 300)),
        (
            json!({"apps.kruise.io/image-predownload-parallelism": "2"}),
            json!({}),
            (2, 300),
        ),
        (
            json!({"apps.kruise.io/image-predownload-parallelism": "2"}),
            json!({"imagePreDownloadParallelism": 3}),
            (3, 300),
        ),
        (
            json!({"apps.kruise.io/image-predownload-parallelism": "50%"}),
            json!({}),
            (1, 300),
        ),
        (
            json!({"apps.kruise.io/image-predownload-parallelism": "0"}),
            json!({}),
            (0, 300),
        ),
        (
            json!({"apps.kruise.io/image-predownload-timeout-seconds": "60"}),
            json!({}),
            (1, 60),
        ),
        (
            json!({"apps.kruise.io/image-predownload-timeout-seconds": "soon"}),
            json!({}),
            (1, 300),
        ),
    ] {
        let mut world = world(json!({"inPlaceUpdateStrategy": fields}), 10, template("app:2"));
        world.play.set.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        let plan = world.plan();
        let job = jobs(&plan)[0];
        assert_eq!((job.parallelism, job.timeout_seconds), wanted, "{annotations}");
    }
}

#[test]
fn a_share_of_updated_pods_is_waited_for() {
    let mut world = world(json!({"maxUnavailable": 1}), 10, template("app:2"));
    let annotations = json!({"apps.kruise.io/image-predownload-min-updated-ready-pods": "20%"});
    world.play.set.metadata.annotations = serde_json::from_value(annotations).unwrap();
    for ready in [0, 1, 2] {
        world.play.set.status.as_mut().unwrap().updated_ready_replicas = ready;
        assert_eq!(jobs(&world.plan()).len(), usize::from(ready == 2), "{ready}");
    }
}

#[test]
fn the_settings_or_the_gate_switch_it_on() {
    for (gate, setting, jobs_made) in [
        (PreDownload::BySettings, false, 0),
        (PreDownload::BySettings, true, 1),
        (PreDownload::Always, false, 1),
        (PreDownload::Never, true, 0),
    ] {
        let fields = if setting {
            json!({"imagePreDownloadParallelism": 1})
        } else {
            json!({})
        };
        let mut world = world(json!({"inPlaceUpdateStrategy": fields}), 10, template("app:2"));
        world.play.gates.pre_download = gate;
        assert_eq!(jobs(&world.plan()).len(), jobs_made, "{gate:?} {setting}");
    }
}

#[test]
fn a_course_of_rollouts() {
    // 13: jobs go when all pods are there.
    let mut world = world(json!({}), 4, template("app:2"));
    world.step();
    assert_eq!(world.play.jobs.len(), 1);
    assert!(jobs(&world.plan()).is_empty(), "made once");
    // 17: a third template comes; the jobs of the second are not wanted any more.
    world.play.set.spec.template = template("app:3");
    let plan = world.plan();
    assert_eq!((dropped(&plan), jobs(&plan).len()), (1, 1));
    world.settle();
    assert!(world.play.jobs.is_empty());
    // 14 and 15: back, and forward again.
    world.play.set.spec.template = template("app:4");
    world.step();
    assert_eq!(world.play.jobs.len(), 1);
    world.play.set.spec.template = template("app:3");
    world.step();
    assert!(world.play.jobs.is_empty());
    world.play.set.spec.template = template("app:4");
    assert_eq!(jobs(&world.plan()).len(), 1);
}

#[test]
fn a_set_that_grows_during_the_rollout_gets_its_jobs() {
    let mut world = world(json!({"paused": true}), 3, template("app:2"));
    world.step();
    assert!(world.play.jobs.is_empty());
    world.play.set.spec.replicas = Some(10);
    world.settle();
    assert_eq!(world.play.jobs.len(), 1);
}

#[test]
fn jobs_of_others_are_left_alone() {
    let mut world = World::settled(rolling(1, json!({})));
    world.play.jobs.push(JobView {
        name: "by-hand".to_owned(),
        ..JobView::default()
    });
    assert_eq!(dropped(&world.plan()), 0);
}

#[test]
fn a_label_of_the_time_before_counts_for_the_rollout_that_is_going_on() {
    let mut world = world(json!({}), 10, template("app:2"));
    let labels = &mut world.play.revisions[1].labels;
    labels.insert(names::PREDOWNLOAD_CREATED.to_owned(), "true".to_owned());
    assert!(jobs(&world.plan()).is_empty());
    let mut ignored = world.clone();
    ignored.play.revisions[1]
        .labels
        .remove(names::PREDOWNLOAD_CREATED);
    ignored.play.revisions[1]
        .labels
        .insert(names::PREDOWNLOAD_IGNORED.to_owned(), "true".to_owned());
    assert_eq!(jobs(&ignored.plan()).len(), 1, "ignored is not remembered");
}
