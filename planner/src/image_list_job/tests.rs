//! A list with its jobs, step by step.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::{JobUid, ObjectKey};
use kruise_api::image_list_pull_job::{ImageListPullJobSpec, ImageListPullJobStatus};

use super::*;

struct World {
    uid: JobUid,
    key: ObjectKey,
    generation: i64,
    spec: ImageListPullJobSpec,
    annotations: BTreeMap<String, String>,
    status: Option<ImageListPullJobStatus>,
    children: Vec<ChildView>,
    memory: ListMemory,
    deleting: bool,
    gate: Option<&'static str>,
    now: Timestamp,
}

impl World {
    fn new(spec: &str) -> Self {
        Self {
            uid: "list-uid".into(),
            key: ObjectKey::new("ns", "list"),
            generation: 1,
            spec: serde_json::from_str(spec).expect("a spec"),
            annotations: BTreeMap::new(),
            status: None,
            children: Vec::new(),
            memory: ListMemory::default(),
            deleting: false,
            gate: None,
            now: Timestamp::from_second(1_000_000).expect("time"),
        }
    }

    fn snapshot(&self) -> ListSnapshot<'_> {
        ListSnapshot {
            uid: &self.uid,
            key: &self.key,
            generation: self.generation,
            deleting: self.deleting,
            legacy_finalizer: false,
            annotations: &self.annotations,
            spec: &self.spec,
            status: self.status.as_ref(),
            children: &self.children,
            memory: &self.memory,
            switched_off: self.gate,
            now: self.now,
        }
    }

    /// Plans and does what the plan says, as the manager would.
    fn step(&mut self) -> ListPlan {
        let made = plan(&self.snapshot());
        assert_eq!(
            plan(&self.snapshot()),
            made,
            "the same snapshot gives the same plan"
        );
        self.children
            .retain(|child| !made.delete.iter().any(|(uid, _)| *uid == child.uid));
        for new in &made.create {
            self.children.push(ChildView {
                uid: new.name.as_str().into(),
                name: new.name.clone(),
                deleting: false,
                created: self.now,
                annotations: new.annotations.clone(),
                spec: new.spec.clone(),
                progress: None,
            });
        }
        for patch in &made.patch {
            let child = self.children.iter_mut().find(|child| child.uid == patch.uid);
            let child = child.expect("a child");
            child.spec = patch.spec.clone();
            for (key, value) in &patch.annotations {
                match value {
                    Some(value) => child.annotations.insert(key.clone(), value.clone()),
                    None => child.annotations.remove(key),
                };
            }
        }
        if made.write.is_some() {
            self.status = Some(made.status.clone());
            self.memory.last_write = Some(self.now);
        }
        made
    }

    fn edit(&mut self, spec: &str) {
        self.spec = serde_json::from_str(spec).expect("a spec");
        self.generation += 1;
    }

    fn progress(&mut self, image: &str, complete: bool, counts: [i32; 4]) {
        let [desired, active, succeeded, failed] = counts;
        let child = self.children.iter_mut().find(|child| child.spec.image == image);
        child.expect("a child").progress = Some(ChildProgress {
            complete,
            desired,
            active,
            succeeded,
            failed,
        });
    }

    fn images(&self) -> Vec<&str> {
        let mut images: Vec<_> = self
            .children
            .iter()
            .map(|child| child.spec.image.as_str())
            .collect();
        images.sort_unstable();
        images
    }

    fn counters(&self) -> [i32; 4] {
        let status = self.status.as_ref().expect("written");
        [status.desired, status.active, status.completed, status.succeeded]
    }

    fn condition(&self, kind: &str) -> (String, String) {
        let conditions = &self.status.as_ref().expect("written").conditions;
        let condition = conditions.iter().find(|condition| condition.type_ == kind);
        let condition = condition.expect("there");
        (condition.status.clone(), condition.reason.clone())
    }

    fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

#[test]
fn one_job_per_image_until_all_are_done() {
    let mut world = World::new(r#"{"images":["a:1","b:1"],"parallelism":2}"#);
    let first = world.step();
    assert_eq!((first.create.len(), first.write), (2, Some(ListWrite::Start)));
    assert_eq!(world.images(), ["a:1", "b:1"]);
    assert_eq!(first.create[0].spec, world.spec.child("a:1"));
    assert!(first.create[0].name.starts_with("list-"));
    assert_eq!(
        world.step(),
        ListPlan {
            status: world.status.clone().expect("written"),
            ..ListPlan::default()
        }
    );
    world.progress("a:1", false, [3, 2, 1, 0]);
    assert_eq!(world.step().write, None, "progress waits ten seconds");
    world.pass(10);
    assert_eq!(world.step().write, Some(ListWrite::Progress));
    assert_eq!(world.counters(), [2, 1, 0, 0]);
    world.progress("a:1", true, [3, 0, 3, 0]);
    world.progress("b:1", true, [3, 0, 2, 1]);
    let last = world.step();
    assert_eq!(last.write, Some(ListWrite::Completed));
    assert_eq!(world.counters(), [2, 0, 2, 1]);
    assert_eq!(world.condition("Complete").0, "True");
    assert_eq!(world.condition("Failed"), ("True".into(), "ImagesFailed".into()));
    let failed = &world.status.as_ref().expect("written").failed_image_statuses;
    assert_eq!((failed.len(), failed[0].name.as_str()), (1, "b:1"));
    assert!(
        failed[0]
            .message
            .contains(&format!("kubectl get ImagePullJob {}", failed[0].image_pull_job))
    );
}

#[test]
fn row_05_a_list_whose_jobs_are_refused_says_so_and_goes_on_after_an_edit() {
    let mut world = World::new(
        r#"{"images":["a:1"],"completionPolicy":{"type":"Always","activeDeadlineSeconds":5},"pullPolicy":{"timeoutSeconds":60}}"#,
    );
    assert_eq!(world.step().create.len(), 1);
    world.children.clear();
    let refusal = Refusal {
        generation: 1,
        message: "activeDeadlineSeconds must not be less than timeoutSeconds".into(),
        until: world.now + SignedDuration::from_secs(60),
    };
    world
        .memory
        .refused
        .insert("docker.io/library/a:1".into(), refusal);
    let plan = world.step();
    assert!(
        plan.create.is_empty() && plan.write == Some(ListWrite::Standing),
        "{plan:?}"
    );
    assert_eq!(
        world.condition("Progressing"),
        ("False".into(), "ChildRefused".into())
    );
    assert_eq!(plan.wake, Some(world.now + SignedDuration::from_secs(60)));
    world.edit(r#"{"images":["a:1"]}"#);
    assert_eq!(world.step().create.len(), 1, "an edit is tried at once");
    assert_eq!(world.condition("Progressing").0, "True");
}

#[test]
fn row_06_two_spellings_of_an_image_make_one_job() {
    let mut world = World::new(r#"{"images":["nginx","nginx:latest","docker.io/library/nginx"]}"#);
    assert_eq!(world.step().create.len(), 1);
    assert_eq!(world.counters()[0], 1);
    world.progress("nginx", true, [1, 0, 1, 0]);
    assert_eq!(world.step().write, Some(ListWrite::Completed));
}

#[test]
fn row_17_failed_images_come_in_the_order_of_the_spec() {
    let mut world = World::new(r#"{"images":["c:1","a:1","b:1"]}"#);
    world.step();
    world.children.reverse();
    for image in ["a:1", "b:1", "c:1"] {
        world.progress(image, true, [1, 0, 0, 1]);
    }
    world.step();
    let failed = &world.status.as_ref().expect("written").failed_image_statuses;
    let names: Vec<_> = failed.iter().map(|failed| failed.name.as_str()).collect();
    assert_eq!(names, ["c:1", "a:1", "b:1"]);
}

#[test]
fn row_18_an_image_that_is_done_gets_no_job_again_when_its_own_has_expired() {
    let text = r#"{"images":["a:1","b:1"],"completionPolicy":{"type":"Always","ttlSecondsAfterFinished":0}}"#;
    let mut world = World::new(text);
    world.step();
    world.progress("a:1", true, [1, 0, 1, 0]);
    // The manager sees it go before any write.
    let gone = world.children.remove(
        world
            .children
            .iter()
            .position(|child| child.spec.image == "a:1")
            .expect("a child"),
    );
    let outcome = outcome_of(&world.spec, &world.annotations, &gone).expect("it was over");
    world.memory.ended.push(outcome);
    world.pass(10);
    let plan = world.step();
    assert!(plan.create.is_empty() && plan.write.is_some());
    // A new leader knows it from the status.
    world.memory = ListMemory::default();
    assert!(world.step().create.is_empty());
    assert_eq!(world.counters(), [2, 0, 1, 1]);
    world.progress("b:1", true, [1, 0, 1, 0]);
    assert_eq!(world.step().write, Some(ListWrite::Completed));
    assert!(world.step().expire);
    // Under another template what was done before does not count.
    world.status.as_mut().expect("written").completion_time = None;
    world.edit(r#"{"images":["a:1","b:1"],"selector":{"names":["n"]}}"#);
    let plan = world.step();
    assert_eq!(plan.create.len(), 2, "{plan:?}");
}

#[test]
fn images_come_and_go() {
    let mut world = World::new(r#"{"images":["a:1","b:1"]}"#);
    world.step();
    world.edit(r#"{"images":["b:1","c:1"]}"#);
    let plan = world.step();
    assert_eq!(
        (plan.create.len(), plan.delete.len(), plan.patch.len()),
        (1, 1, 0)
    );
    assert_eq!(world.images(), ["b:1", "c:1"]);
}

#[test]
fn an_edit_reaches_running_jobs_without_starting_them_anew() {
    let mut world = World::new(r#"{"images":["a:1","b:1"],"parallelism":1}"#);
    world.step();
    world.progress("b:1", true, [1, 0, 1, 0]);
    world.edit(r#"{"images":["a:1","b:1"],"parallelism":5}"#);
    world
        .annotations
        .insert("pull.kruise.io/priority".into(), "60".into());
    world.annotations.insert("other".into(), "x".into());
    let plan = world.step();
    assert_eq!(plan.patch.len(), 1, "the running one is changed");
    assert_eq!(
        (plan.delete.len(), plan.create.len()),
        (1, 1),
        "of one that is over nothing changes: another takes its place"
    );
    assert!(world.children.iter().all(|child| child.annotations.len() == 1));
    assert_ne!(plan.create[0].name, plan.delete[0].1);
    let quiet = world.step();
    assert!(quiet.patch.is_empty() && quiet.create.is_empty() && quiet.delete.is_empty());
    world.edit(r#"{"images":["a:1","b:1"],"parallelism":5,"pullSecrets":["s"]}"#);
    let plan = world.step();
    assert_eq!((plan.patch.len(), plan.create.len()), (0, 2), "secrets are fixed");
}

#[test]
fn a_list_that_never_completes_keeps_its_jobs() {
    let mut world = World::new(r#"{"images":["a:1"],"completionPolicy":{"type":"Never"}}"#);
    world.step();
    world.progress("a:1", false, [2, 0, 2, 0]);
    world.pass(60);
    assert_eq!(world.step().write, Some(ListWrite::Progress));
    assert_eq!(world.counters(), [1, 0, 1, 1]);
    assert_eq!(world.condition("Complete").0, "False");
}

#[test]
fn a_list_that_is_over_or_leaving_is_left_alone() {
    let mut world = World::new(r#"{"images":["a:1"]}"#);
    world.step();
    world.progress("a:1", true, [1, 0, 1, 0]);
    world.step();
    world.edit(r#"{"images":["a:1","b:1"]}"#);
    let plan = world.step();
    assert!(plan.create.is_empty() && plan.write.is_none());
    let mut world = World::new(r#"{"images":["a:1"]}"#);
    world.deleting = true;
    assert_eq!(world.step(), ListPlan::default());
}

#[test]
fn a_gate_that_is_off_is_named() {
    let mut world = World::new(r#"{"images":["a:1"]}"#);
    world.gate = Some("ImagePullJobGate");
    assert!(world.step().create.is_empty());
    assert_eq!(world.condition("Progressing").1, "FeatureGateDisabled");
    assert_eq!(world.step().write, None);
}
