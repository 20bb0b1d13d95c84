//! The directory as watches would fill it.

use std::time::Duration;

use super::*;

const S: fn(u64) -> Duration = Duration::from_secs;

fn pod(node: &str) -> Pod {
    Pod {
        name: "agent-x".into(),
        node: node.into(),
        ends: None,
        over: false,
    }
}

fn filled() -> Directory {
    let directory = Directory::default();
    {
        let mut tables = directory.tables();
        tables.pods.begin_list();
        tables.pods.apply("p-1".into(), pod("node1"));
        tables.pods.end_list();
        tables.nodes.begin_list();
        tables.nodes.apply("n-1".into(), "node1".into());
        tables.nodes.apply("n-2".into(), "node2".into());
        tables.nodes.end_list();
        tables.account.begin_list();
        tables.account.apply("a-1".into(), ());
        tables.account.end_list();
    }
    directory
}

const SUBJECT: Subject<'static> = Subject {
    pod_name: "agent-x",
    pod_uid: "p-1",
    node_name: "node1",
    node_uid: "n-1",
    account_uid: Some("a-1"),
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("in range")
}

/// One word about what a look says.
fn word(look: &Look) -> &'static str {
    match look {
        Look::Alive(_) => "alive",
        Look::Gone(error) => error.reason(),
        Look::Absent(_) => "absent",
        Look::Unsure => "unsure",
    }
}

#[test]
fn only_what_is_there_as_claimed_is_alive() {
    let directory = filled();
    let look = |subject: &Subject<'_>| word(&directory.look(subject, S(1), at(1)));
    assert_eq!(look(&SUBJECT), "alive");
    let account_uid = None;
    assert_eq!(
        look(&Subject {
            account_uid,
            ..SUBJECT
        }),
        "alive"
    );
    for (change, expected) in [
        (
            Subject {
                pod_uid: "p-2",
                ..SUBJECT
            },
            "absent",
        ),
        (
            Subject {
                node_uid: "n-9",
                ..SUBJECT
            },
            "absent",
        ),
        (
            Subject {
                account_uid: Some("a-0"),
                ..SUBJECT
            },
            "absent",
        ),
        (
            Subject {
                node_name: "node2",
                node_uid: "n-2",
                ..SUBJECT
            },
            "NODE_MISMATCH",
        ),
        (
            Subject {
                node_uid: "n-2",
                ..SUBJECT
            },
            "NODE_GONE",
        ),
        (
            Subject {
                pod_name: "agent-y",
                ..SUBJECT
            },
            "NODE_MISMATCH",
        ),
    ] {
        assert_eq!(look(&change), expected, "{change:?}");
    }
    assert_eq!(directory.has_node("node1", "n-1", S(1)), Some(true));
    assert_eq!(directory.has_node("node1", "n-2", S(1)), Some(false));
    assert_eq!(directory.has_node("node1", "n-9", S(1)), None);
}

#[test]
fn a_watch_that_has_not_listed_or_has_failed_is_no_witness() {
    assert_eq!(word(&Directory::default().look(&SUBJECT, S(1), at(1))), "unsure");
    let directory = filled();
    directory.tables().pods.doubt(S(10));
    assert_eq!(word(&directory.look(&SUBJECT, S(11), at(1))), "unsure");
    assert_eq!(word(&directory.look(&SUBJECT, S(70), at(1))), "alive");
    directory.tables().pods.doubt(S(80));
    directory.tables().pods.begin_list();
    directory.tables().pods.apply("p-1".into(), pod("node1"));
    directory.tables().pods.end_list();
    assert_eq!(
        word(&directory.look(&SUBJECT, S(81), at(1))),
        "alive",
        "it has listed again"
    );
}

#[test]
fn what_a_new_list_lacks_is_gone() {
    let directory = filled();
    directory.tables().nodes.begin_list();
    directory.tables().nodes.end_list();
    assert_eq!(word(&directory.look(&SUBJECT, S(1), at(1))), "absent");
}

/// Whether a subject that was alive is told to look again once `change` was done.
async fn tells(change: impl FnOnce(&mut Tables)) -> bool {
    let directory = filled();
    let Look::Alive(alive) = directory.look(&SUBJECT, S(1), at(1)) else {
        panic!("alive");
    };
    change(&mut directory.tables());
    tokio::time::timeout(S(3600), alive.changed(at(1))).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn each_change_that_matters_is_told_at_once_and_no_other() {
    assert!(tells(|tables| tables.pods.remove("p-1")).await);
    assert!(tells(|tables| tables.nodes.remove("n-1")).await);
    assert!(tells(|tables| tables.account.remove("a-1")).await);
    let leaving = Pod {
        ends: Some(at(30)),
        ..pod("node1")
    };
    assert!(tells(|tables| tables.pods.apply("p-1".into(), leaving)).await);
    assert!(!tells(|tables| tables.nodes.remove("n-2")).await);
    assert!(!tells(|tables| tables.pods.apply("p-1".into(), pod("node1"))).await);
    let relisted = |tables: &mut Tables| {
        tables.pods.begin_list();
        tables.pods.apply("p-1".into(), pod("node1"));
        tables.pods.end_list();
    };
    assert!(!tells(relisted).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_lives_to_the_end_of_its_grace() {
    let directory = filled();
    let leaving = Pod {
        ends: Some(at(30)),
        ..pod("node1")
    };
    directory.tables().pods.apply("p-1".into(), leaving.clone());
    let Look::Alive(alive) = directory.look(&SUBJECT, S(1), at(1)) else {
        panic!("alive");
    };
    let began = tokio::time::Instant::now();
    alive.changed(at(1)).await;
    assert_eq!(began.elapsed().as_secs(), 29);
    assert_eq!(word(&directory.look(&SUBJECT, S(1), at(30))), "TOKEN_INVALID");
    let over = Pod {
        over: true,
        ..pod("node1")
    };
    directory.tables().pods.apply("p-1".into(), over);
    assert_eq!(word(&directory.look(&SUBJECT, S(1), at(1))), "TOKEN_INVALID");
}
