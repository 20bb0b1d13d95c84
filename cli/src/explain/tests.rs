use kruise_proto::inspect::{
    ExplainJobResponse, FailureCount, JobSummary, NodeStanding, Settings, WaitingReason,
};

use super::*;

fn answer() -> ExplainJobResponse {
    ExplainJobResponse {
        waiting: vec![WaitingReason {
            reason: "WindowFull".into(),
            message: "window full (1 of 1 pulling), 1 waiting for their turn".into(),
            nodes: 1,
        }],
        settings: Some(Settings {
            image: "docker.io/library/nginx:1".into(),
            parallelism: 1,
            priority: 50,
            ..Settings::default()
        }),
        nodes: vec![NodeStanding {
            node_name: "node2".into(),
            state: "Pending".into(),
            message: "waits for a slot of the window".into(),
            place: 1,
        }],
        failures: vec![FailureCount {
            reason: "NotFound".into(),
            nodes: 1,
            example_node: "node1".into(),
            example_message: "manifest unknown".into(),
        }],
        ..ExplainJobResponse::default()
    }
}

fn explanation() -> Explanation {
    let job = JobSummary {
        job: "default/x".into(),
        desired: 3,
        active: 1,
        failed: 1,
        ..JobSummary::default()
    };
    Explanation::new(job, answer())
}

#[test]
fn people_read_numbers_first_then_reasons_then_nodes() {
    let text = explanation().text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "default/x: docker.io/library/nginx:1, IfNotPresent, parallelism 1, priority 50",
            "3 nodes: 0 have it, 1 failed, 1 at work, 1 to go",
            "WindowFull: window full (1 of 1 pulling), 1 waiting for their turn",
            "NotFound on 1 node(s), such as node1: manifest unknown",
        ]
    );
    assert!(
        text.contains("node2") && text.contains("waits for a slot"),
        "{text}"
    );
}

#[test]
fn tools_read_the_same() {
    let json: serde_json::Value =
        serde_json::from_str(&output::document(&explanation(), Format::Json).expect("writable"))
            .expect("json");
    assert_eq!(json["waiting"][0]["reason"], "WindowFull");
    assert_eq!(json["nodes"][0]["place"], 1);
    assert_eq!(json["attemptTimeoutSeconds"], 0);
}

#[test]
fn what_is_meant() {
    assert_eq!(job_of("job/x"), Some("x"));
    assert_eq!(job_of("imagepulljob/ns/x"), Some("ns/x"));
    for odd in ["x", "job/", "pod/x"] {
        assert_eq!(job_of(odd), None);
    }
}
