//! How long containers were down.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::super::*;
use super::pod;
use crate::restart::facts::{ContainerFacts, Exit, Step, Successor, TaskFacts};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn run(id: &str, restart_count: i32) -> Run {
    Run {
        name: "main".to_owned(),
        id: format!("containerd://{id}"),
        restart_count,
        ..Run::default()
    }
}

/// The new instance as the kubelet tells it.
fn after(last: &str, restart_count: i32) -> Run {
    Run {
        started_at: Some(time("2026-01-01T00:00:05Z")),
        last: Some((format!("containerd://{last}"), time("2026-01-01T00:00:03Z"))),
        ..run("new", restart_count)
    }
}

#[test]
fn instances_are_read_from_the_status() {
    let pod = pod(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "main"}]},
        "status": {"containerStatuses": [
            {"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 1, "containerID": "containerd://new",
             "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}},
             "lastState": {"terminated": {"exitCode": 0, "containerID": "containerd://old", "finishedAt": "2026-01-01T00:00:03Z"}}},
            {"name": "unborn", "image": "", "imageID": "", "ready": false, "restartCount": 0},
        ]},
    }));
    assert_eq!(runs(&pod), [after("old", 1)]);
}

#[test]
fn only_an_instance_that_came_directly_after_the_other_tells_a_gap() {
    for (before, now, gap, unclear) in [
        // The same instance: not restarted.
        (run("new", 0), after("old", 1), None, false),
        (run("old", 0), after("old", 1), Some(2), false),
        // Restarted twice in between, and one whose predecessor is another.
        (run("old", 0), after("other", 2), None, true),
        (run("old", 0), after("other", 1), None, true),
        (run("old", 3), after("old", 4), Some(2), false),
        (run("old", i32::MAX), after("old", 0), None, true),
    ] {
        let found = swaps(std::slice::from_ref(&before), std::slice::from_ref(&now));
        let by_status = found.direct.first().and_then(|swap| swap.by_status);
        assert_eq!(by_status, gap.map(Duration::from_secs), "{before:?} {now:?}");
        assert_eq!(!found.unclear.is_empty(), unclear, "{before:?} {now:?}");
    }
    let added = swaps(&[], &[after("old", 1)]);
    assert!(added.is_empty(), "what was not seen before is not measured");
}

#[test]
fn a_clock_that_was_set_back_gives_no_number() {
    let mut now = after("old", 1);
    now.started_at = Some(time("2026-01-01T00:00:02Z"));
    let found = swaps(&[run("old", 0)], &[now]);
    assert_eq!(found.direct[0].by_status, None);
    assert_eq!(Downtime::of(&found, None).unknown, ["main"]);
}

fn facts(bound: &str, new: &str) -> TaskFacts {
    let mut facts = ContainerFacts::new("main");
    facts.bound = Some(bound.to_owned());
    facts.step = Step::Running;
    facts.exit = Some(Exit {
        code: 0,
        finished_at: Some(time("2026-01-01T00:00:03.9Z")),
    });
    facts.successor = Some(Successor {
        id: new.to_owned(),
        restart_count: 1,
        started_at: Some(time("2026-01-01T00:00:05.15Z")),
        settled: true,
    });
    TaskFacts {
        containers: vec![facts],
        refused: String::new(),
    }
}

#[test]
fn the_runtime_knows_better_if_it_speaks_of_the_same_instances() {
    let found = swaps(&[run("old", 0)], &[after("old", 1)]);
    let of = |facts: &TaskFacts| {
        let downtime = Downtime::of(&found, Some(facts));
        let longest = downtime.longest().unwrap();
        (longest.span, longest.source)
    };
    assert_eq!(
        of(&facts("old", "new")),
        (Duration::from_millis(1250), Source::Runtime)
    );
    let by_status = (Duration::from_secs(2), Source::Status);
    assert_eq!(of(&facts("other", "new")), by_status);
    assert_eq!(of(&facts("old", "third")), by_status);
    let mut no_end = facts("old", "new");
    no_end.containers[0].exit = None;
    assert_eq!(of(&no_end), by_status);
    assert!(
        is_answered(&found, &no_end),
        "the agent does not know, and will not"
    );
}

#[test]
fn an_agent_has_answered_when_the_new_instance_runs_or_never_will() {
    let found = swaps(&[run("old", 0)], &[after("old", 1)]);
    let mut waits = facts("old", "new");
    waits.containers[0].successor = None;
    waits.containers[0].step = Step::Waiting;
    assert!(!is_answered(&found, &waits));
    waits.containers[0].step = Step::Missing;
    assert!(is_answered(&found, &waits));
    let refused = TaskFacts {
        refused: "no runtime".to_owned(),
        ..TaskFacts::default()
    };
    assert!(is_answered(&found, &refused));
}

#[test]
fn a_question_stops_nothing() {
    let found = swaps(&[run("old", 4)], &[after("old", 5)]);
    let order = question("n1", "u1", &found).unwrap();
    assert_eq!(order.released, 0);
    assert_eq!(
        (order.runtime.as_str(), order.pod_uid.as_str()),
        ("containerd", "u1")
    );
    let target = &order.targets[0];
    assert_eq!(
        (target.id.as_str(), target.restart_count, target.force),
        ("old", 4, false)
    );
    assert!(is_swap_task(&swap_task_id("u1", &found)));
    assert_eq!(question("n1", "u1", &Swaps::default()), None);
}

#[test]
fn people_are_told_how_exact_it_is() {
    let found = swaps(&[run("old", 0)], &[after("old", 1)]);
    let told = Downtime::of(&found, Some(&facts("old", "new"))).text();
    assert_eq!(told, "main was down for 1.250 s");
    let told = Downtime::of(&found, None).text();
    assert_eq!(
        told,
        "main was down for 2 s, give or take one: only whole seconds are known"
    );
    let told = Downtime::of(&swaps(&[run("old", 0)], &[after("old", 2)]), None).text();
    assert_eq!(told, "nobody can say how long main was down");
}

#[test]
fn percentiles_are_values_that_were_measured() {
    let spans: Vec<Duration> = (1..=10).map(Duration::from_secs).collect();
    let of = |hundredths| percentile(&spans, hundredths).map(|span| span.as_secs());
    assert_eq!((of(50), of(90), of(100)), (Some(5), Some(9), Some(10)));
    assert_eq!(percentile(&spans[..1], 50), Some(spans[0]));
    assert_eq!(percentile(&[], 50), None);
}
