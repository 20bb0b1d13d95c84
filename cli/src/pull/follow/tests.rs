use kruise_proto::inspect::Task;
use kruise_proto::task::{self, TaskStatus};
use serde_json::{Value, json};

use super::*;
use crate::fake::{self, Script};
use crate::pull::board::Change;

#[derive(Default)]
struct Recorder {
    notes: Vec<String>,
    changes: usize,
}

impl View for Recorder {
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn changed(&mut self, _: &Board, _: &Change) {
        self.changes += 1;
    }

    fn close(&mut self) {}
}

fn task(node: &str, phase: task::Phase, reason: task::Reason) -> Event {
    let status = TaskStatus {
        task_id: format!("pull/{node}"),
        phase: phase.into(),
        reason: reason.into(),
        message: "no such tag".into(),
        ..Default::default()
    };
    Event::Task(Task {
        node_name: node.into(),
        status: Some(status),
        attached: true,
        ..Default::default()
    })
}

fn over(failed: &[&str]) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"image": "app:1"},
        "status": {
            "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z",
            "desired": 2, "succeeded": 2 - failed.len(), "failed": failed.len(), "failedNodes": failed,
        },
    })
}

async fn follow(script: Script, limit: Option<Duration>) -> (Result<Ending>, Recorder) {
    let cluster = fake::cluster(script).await.unwrap();
    let key = ObjectKey::new("default", "x");
    let mut view = Recorder::default();
    let ending = Follower {
        cluster: &cluster,
        key: &key,
        limit,
    }
    .run(&mut view)
    .await;
    (ending, view)
}

#[tokio::test]
async fn the_stream_tells_what_the_status_does_not() {
    let events = vec![
        task("a", task::Phase::Pulling, task::Reason::Unspecified),
        task("a", task::Phase::Failed, task::Reason::NotFound),
        task("b", task::Phase::Succeeded, task::Reason::Unspecified),
    ];
    let (ending, view) = follow(
        Script {
            events,
            job: over(&["a"]),
            serving: true,
            ..Default::default()
        },
        None,
    )
    .await;
    let Ending::Over(outcome) = ending.unwrap() else {
        panic!("the job is over")
    };
    assert!(!outcome.all_well());
    let text = outcome.text();
    assert!(
        text.contains("NotFound") && text.contains("no such tag"),
        "{text}"
    );
    assert_eq!((view.changes, view.notes), (3, Vec::new()));
}

#[tokio::test]
async fn without_the_service_the_status_is_enough() {
    let (ending, view) = follow(
        Script {
            job: over(&[]),
            ..Default::default()
        },
        None,
    )
    .await;
    let Ending::Over(outcome) = ending.unwrap() else {
        panic!("the job is over")
    };
    assert!(outcome.all_well());
    assert_eq!(view.notes.len(), 1);
    assert!(
        view.notes[0].contains("status is shown instead"),
        "{:?}",
        view.notes
    );
}

#[tokio::test]
async fn a_job_that_goes_on_is_left_when_the_time_is_up() {
    let mut job = over(&[]);
    job["status"]["completionTime"] = Value::Null;
    let script = Script {
        job,
        serving: true,
        ..Default::default()
    };
    let (ending, _) = follow(script, Some(Duration::from_millis(300))).await;
    assert!(matches!(ending.unwrap(), Ending::TimedOut));
}

#[tokio::test]
async fn a_deleted_job_ends_it() {
    let (ending, _) = follow(
        Script {
            serving: true,
            ..Default::default()
        },
        None,
    )
    .await;
    assert!(matches!(ending.unwrap(), Ending::Gone));
}

#[tokio::test]
async fn a_job_that_was_deleted_when_it_was_over_is_over() {
    let summary = JobSummary {
        desired: 1,
        succeeded: 1,
        complete: true,
        ..Default::default()
    };
    let script = Script {
        events: vec![Event::Job(summary)],
        serving: true,
        ..Default::default()
    };
    let (ending, _) = follow(script, None).await;
    let Ending::Over(outcome) = ending.unwrap() else {
        panic!("the job is over")
    };
    assert!(outcome.all_well());
}
