//! Reports of a played cluster.

use kruise_proto::inspect::{Agent, SyncState};
use serde_json::{Value, json};

use super::report::Manager;
use super::*;
use crate::fake::{self, Script};

fn agent(node: &str, state: SyncState) -> Agent {
    Agent {
        node_name: node.into(),
        sync_state: state.into(),
        ..Default::default()
    }
}

async fn look(agents: Vec<Agent>, jobs: Value) -> Report {
    let script = Script {
        agents,
        jobs,
        serving: true,
        ..Default::default()
    };
    gather(&fake::cluster(script).await.unwrap()).await.unwrap()
}

fn job(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"image": "app:1"}, "status": status,
    })
}

#[tokio::test]
async fn agents_that_lag_and_jobs_that_run_are_named() {
    let jobs = json!([
        job(
            "over",
            &json!({"completionTime": "2026-01-01T00:00:00Z", "desired": 3, "succeeded": 3})
        ),
        job(
            "runs",
            &json!({"desired": 3, "active": 1, "succeeded": 1, "failed": 1})
        ),
    ]);
    let agents = vec![
        agent("node1", SyncState::Synced),
        agent("node2", SyncState::Stale),
        agent("node3", SyncState::NotSent),
    ];
    let report = look(agents, jobs).await;
    assert!(!report.in_sync() && !report.is_well());
    assert_eq!(
        report.not_in_sync(),
        "1 agents stale, 1 not attached: node2, node3"
    );
    let text = report.text();
    for line in [
        "agents:    1 synced, 1 stale, 1 not attached",
        "           node2 Stale",
        "           node3 NotSent",
        "jobs:      1 in progress",
        "           default/runs: 2/3 nodes done, 1 active, 1 failed",
        "not seen:  managers: only the one at --server was asked",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn what_may_not_be_seen_is_said_and_nothing_else_is_hidden() {
    let report = look(vec![agent("node1", SyncState::Synced)], Value::Null).await;
    assert!(report.is_well());
    assert!(report.jobs.is_none());
    assert!(
        report
            .text()
            .contains("not seen:  jobs: cannot list ImagePullJobs"),
        "{}",
        report.text()
    );
}

#[test]
fn a_replica_that_does_not_answer_is_not_well() {
    let manager = |answers, ready| Manager {
        pod: "m-1".into(),
        leads: false,
        ready,
        answers,
        problem: if answers { String::new() } else { "no route".into() },
    };
    let report = |managers| Report {
        managers: Some(managers),
        ..Report::default()
    };
    assert!(report(vec![manager(true, true)]).is_well());
    let down = report(vec![manager(true, true), manager(false, true)]);
    assert!(!down.is_well() && down.in_sync());
    assert!(
        down.text()
            .contains("managers:  1 of 2 answer\n           m-1: no route"),
        "{}",
        down.text()
    );
    assert!(!report(vec![manager(true, false)]).is_well());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_in_sync_or_in_time() {
    let args = |timeout| StatusArgs {
        wait: true,
        timeout: Duration::from_secs(timeout),
        output: ResultFormat::Json,
    };
    let cluster = |state| {
        fake::cluster(Script {
            agents: vec![agent("node1", state)],
            serving: true,
            ..Default::default()
        })
    };
    let synced = cluster(SyncState::Synced).await.unwrap();
    assert_eq!(wait(&synced, &args(60)).await.unwrap(), Code::Success);
    let stale = cluster(SyncState::Stale).await.unwrap();
    assert_eq!(wait(&stale, &args(3)).await.unwrap(), Code::TimedOut);
    let nobody = fake::cluster(Script::default()).await.unwrap();
    assert_eq!(wait(&nobody, &args(3)).await.unwrap(), Code::TimedOut);
}
