use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName, TaskId};
use kruise_planner::cloneset::{PullState, PullWish};
use kruise_planner::task::{Phase, Reason};
use kruise_proto::convert::reason_number;
use kruise_proto::task::{self, TaskStatus};
use prometheus_client::metrics::histogram::Histogram;

use super::super::event::{Effect, Now, PullAsk};
use super::{Pulls, Setting, Wish};
use crate::engine::guests::GuestNode;

const SETTING: Setting<'_> = Setting {
    namespace: "shop",
    name: "web",
    timeout: Duration::from_secs(600),
    traceparent: String::new(),
};

fn at(second: i64) -> Now {
    Now {
        mono: Duration::from_secs(u64::try_from(second).expect("positive")),
        wall: Timestamp::from_second(1_000_000 + second).expect("a time"),
    }
}

fn wish(pod: &str, image: &str) -> Wish {
    Wish {
        wish: PullWish {
            pod: pod.to_owned(),
            node: "node1".to_owned(),
            revision: "web-2".to_owned(),
            images: vec![image.to_owned()],
        },
        always: BTreeMap::from([(image.to_owned(), false)]),
        behind: Vec::new(),
    }
}

fn asks(pulls: &mut Pulls, wishes: Vec<Wish>, now: Now) -> Vec<PullAsk> {
    let mut effects = Vec::new();
    pulls.wish("uid", &SETTING, wishes, now, &mut effects);
    let ask = |effect| match effect {
        Effect::Ask(ask) => ask,
        other => panic!("{other:?}"),
    };
    effects.into_iter().map(ask).collect()
}

fn says(pulls: &mut Pulls, task: &TaskId, phase: Phase, reason: Option<Reason>, now: Now) {
    let status = TaskStatus {
        task_id: task.to_string(),
        phase: task::Phase::from(phase).into(),
        reason: reason_number(reason),
        ..TaskStatus::default()
    };
    let node = GuestNode {
        attached: true,
        tasks: BTreeMap::from([(task.clone(), status)]),
    };
    pulls.agent(&NodeName::from("node1"), &node, now);
}

fn state(pulls: &Pulls, pod: &str, now: Now) -> Option<PullState> {
    pulls.reports("uid", now).remove(pod).map(|report| report.state)
}

fn released(pulls: &mut Pulls) -> Vec<TaskId> {
    let task = |effect| match effect {
        Effect::Release { task, .. } => task,
        other => panic!("{other:?}"),
    };
    pulls.take_unwanted().into_iter().map(task).collect()
}

#[test]
fn pods_of_a_node_share_a_question_and_it_is_asked_once() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let both = || vec![wish("a", "app:2"), wish("b", "app:2")];
    let asked = asks(&mut pulls, both(), at(0));
    assert_eq!(asked.len(), 1);
    assert!(asks(&mut pulls, both(), at(1)).is_empty());
    says(&mut pulls, &asked[0].task, Phase::Succeeded, None, at(2));
    let present = PullState::Present { at: at(2).wall };
    assert_eq!(state(&pulls, "a", at(3)), Some(present.clone()));
    assert_eq!(state(&pulls, "b", at(3)), Some(present));
}

#[test]
fn an_answer_that_is_a_minute_old_is_asked_for_again() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let first = asks(&mut pulls, vec![wish("a", "app:2")], at(0)).remove(0).task;
    says(&mut pulls, &first, Phase::Succeeded, None, at(1));
    assert!(asks(&mut pulls, vec![wish("a", "app:2")], at(30)).is_empty());
    let second = asks(&mut pulls, vec![wish("a", "app:2")], at(62)).remove(0).task;
    assert_ne!(first, second);
    assert_eq!(released(&mut pulls), [first]);
    assert!(matches!(
        state(&pulls, "a", at(62)),
        Some(PullState::Pulling { .. })
    ));
}

#[test]
fn what_failed_keeps_its_pause_although_the_pod_is_passed_over_meanwhile() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let first = asks(&mut pulls, vec![wish("a", "app:2")], at(0)).remove(0).task;
    says(&mut pulls, &first, Phase::Failed, Some(Reason::NotFound), at(1));
    assert!(matches!(
        state(&pulls, "a", at(1)),
        Some(PullState::Failed { .. })
    ));
    assert!(asks(&mut pulls, Vec::new(), at(2)).is_empty());
    assert!(asks(&mut pulls, vec![wish("a", "app:2")], at(5)).is_empty());
    let second = asks(&mut pulls, vec![wish("a", "app:2")], at(12)).remove(0).task;
    says(&mut pulls, &second, Phase::Failed, Some(Reason::NotFound), at(13));
    let Some(PullState::Failed { retry_at, .. }) = state(&pulls, "a", at(13)) else {
        panic!("it failed");
    };
    assert_eq!(retry_at, at(33).wall, "the pause grows");
}

#[test]
fn what_nobody_wishes_is_taken_back() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let task = asks(&mut pulls, vec![wish("a", "app:2")], at(0)).remove(0).task;
    asks(&mut pulls, vec![wish("a", "app:3")], at(1));
    assert_eq!(released(&mut pulls), [task]);
    pulls.keep_sets(|_| false);
    assert_eq!(released(&mut pulls).len(), 1);
    assert_eq!(pulls.count(), 0);
}

#[test]
fn the_question_is_sent_again_when_its_job_is_over_and_nothing_has_begun() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let mut behind = wish("a", "app:2");
    behind.behind = vec![JobUid::from("job")];
    assert_eq!(asks(&mut pulls, vec![behind.clone()], at(0)).len(), 1);
    assert!(asks(&mut pulls, vec![behind], at(1)).is_empty());
    let again = asks(&mut pulls, vec![wish("a", "app:2")], at(2));
    assert!(again[0].behind.is_empty());
}

#[test]
fn an_image_that_is_never_pulled_is_not_waited_for() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let mut never = wish("a", "app:2");
    never.always.clear();
    let mut effects = Vec::new();
    assert!(pulls.wish("uid", &SETTING, vec![never], at(0), &mut effects));
    assert!(effects.is_empty());
    assert_eq!(state(&pulls, "a", at(0)), Some(PullState::Open));
}

#[test]
fn what_agents_still_hold_of_an_earlier_leader_is_taken_back() {
    let mut pulls = Pulls::new(Histogram::new([1.0]));
    let old = TaskId::new("gate/uid/1/1");
    says(&mut pulls, &old, Phase::Pulling, None, at(0));
    assert_eq!(released(&mut pulls), [old]);
}
