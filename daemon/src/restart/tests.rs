use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_planner::restart::facts::{Step, TaskFacts};
use kruise_proto::convert::to_duration;
use kruise_proto::dispatch::{RestartContainers, restart_containers};
use kruise_proto::restart::task_facts;
use tokio::sync::watch;

use super::{Deps, Order, Restarter};
use crate::clock::Clock;
use crate::puller::board::Board;
use crate::puller::{Refused, Welcome};
use crate::runtime::Link;
use crate::runtime::fake::Fake;
use crate::runtime::fake_pods::{Behaviour, Deed, FakePods};

const GRACE: Duration = Duration::from_secs(10);
const WELCOME: Welcome = Welcome(1);

struct Node {
    restarter: Restarter,
    board: watch::Receiver<Board>,
    _link: watch::Sender<Link>,
}

/// An agent over these containers that starts with the file in `directory`.
fn agent(fake: &Arc<Fake>, clock: &Clock, directory: Option<&std::path::Path>) -> Node {
    let (sender, link) = watch::channel(fake.link());
    let (shows, board) = watch::channel(Board::default());
    let deps = Deps {
        clock: clock.clone(),
        link,
        board: shows,
    };
    Node {
        restarter: Restarter::spawn(directory, deps),
        board,
        _link: sender,
    }
}

fn world() -> (Arc<Fake>, FakePods, Clock) {
    let clock = Clock::tokio();
    let fake = Fake::new(clock.clone());
    let pods = fake.pods().clone();
    (fake, pods, clock)
}

fn order(id: &str, targets: &[(&str, &str)], change: impl FnOnce(&mut RestartContainers)) -> Order {
    let target = |(name, id): &(&str, &str)| restart_containers::Target {
        name: (*name).to_owned(),
        id: (*id).to_owned(),
        restart_count: 0,
        force: false,
    };
    let mut message = RestartContainers {
        requested_by: "ns/r".to_owned(),
        pod: "ns/p".to_owned(),
        pod_uid: "u1".to_owned(),
        runtime: "fake".to_owned(),
        grace: Some(to_duration(GRACE)),
        fail_fast: true,
        released: u32::MAX,
        targets: targets.iter().map(target).collect(),
        ..RestartContainers::default()
    };
    change(&mut message);
    Order {
        id: TaskId::new(format!("restart/{id}")),
        message,
    }
}

async fn until(node: &mut Node, id: &str, what: impl Fn(&TaskFacts) -> bool) -> TaskFacts {
    let id = TaskId::new(format!("restart/{id}"));
    let wait = async {
        loop {
            let facts = {
                let board = node.board.borrow_and_update();
                board.0.get(&id).and_then(|status| task_facts(status))
            };
            if let Some(facts) = facts.filter(|facts| what(facts)) {
                return facts;
            }
            node.board.changed().await.expect("the restarter lives");
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait)
        .await
        .expect("in time")
}

fn all_run(facts: &TaskFacts) -> bool {
    !facts.containers.is_empty() && facts.containers.iter().all(|facts| facts.step == Step::Running)
}

#[tokio::test(start_paused = true)]
async fn containers_are_stopped_one_after_the_other_and_seen_to_come_back() {
    let (fake, pods, clock) = world();
    pods.start("u1", "web", Behaviour::default());
    pods.start("u1", "agent", Behaviour::default());
    let mut node = agent(&fake, &clock, None);
    let orders = vec![order("r", &[("web", "web-0"), ("agent", "agent-0")], |_| {})];
    node.restarter
        .replace(WELCOME, orders.clone())
        .await
        .expect("taken");
    node.restarter
        .replace(WELCOME, orders)
        .await
        .expect("the same again is nothing new");
    let facts = until(&mut node, "r", all_run).await;
    assert_eq!(pods.stopped(), ["web-0", "agent-0"]);
    for facts in &facts.containers {
        assert!(facts.killed && !facts.elsewhere);
        assert_eq!(facts.exit.expect("ended").code, 137);
        assert_eq!(facts.successor.as_ref().expect("back").restart_count, 1);
    }
    assert_eq!(facts.containers[0].successor.as_ref().expect("back").id, "web-1");
}

#[tokio::test(start_paused = true)]
async fn what_has_been_restarted_already_is_left_alone_unless_forced() {
    for force in [false, true] {
        let (fake, pods, clock) = world();
        pods.start("u1", "web", Behaviour::default());
        let mut node = agent(&fake, &clock, None);
        let order = order("r", &[("web", "older")], |message| {
            message.targets[0].force = force;
        });
        node.restarter.replace(WELCOME, vec![order]).await.expect("taken");
        let facts = until(&mut node, "r", all_run).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(
            pods.stopped().len(),
            usize::from(force),
            "once at most, however long it is held"
        );
        assert_eq!(facts.containers[0].elsewhere, !force);
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_of_which_nothing_is_released_tells_when_an_instance_ended_and_the_next_began() {
    let (fake, pods, clock) = world();
    let back = Some(Duration::from_secs(3));
    pods.start(
        "u1",
        "web",
        Behaviour {
            back,
            ..Behaviour::default()
        },
    );
    pods.crash("u1", "web");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut node = agent(&fake, &clock, None);
    let question = order("r", &[("web", "web-0")], |message| message.released = 0);
    node.restarter
        .replace(WELCOME, vec![question])
        .await
        .expect("taken");
    let facts = until(&mut node, "r", all_run).await;
    let web = &facts.containers[0];
    assert!(web.elsewhere && !web.killed);
    assert!(web.exit.expect("the runtime still has it").finished_at.is_some());
    assert!(web.successor.as_ref().expect("runs").started_at.is_some());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(pods.stopped().is_empty(), "a question stops nothing");
}

#[tokio::test(start_paused = true)]
async fn only_what_is_released_is_begun() {
    let (fake, pods, clock) = world();
    pods.start("u1", "web", Behaviour::default());
    pods.start("u1", "agent", Behaviour::default());
    let mut node = agent(&fake, &clock, None);
    let targets = [("web", "web-0"), ("agent", "agent-0")];
    let with = |released| order("r", &targets, |message| message.released = released);
    node.restarter
        .replace(WELCOME, vec![with(1)])
        .await
        .expect("taken");
    until(&mut node, "r", |facts| facts.containers[0].step == Step::Running).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(pods.stopped(), ["web-0"]);
    node.restarter
        .change(WELCOME, vec![with(2)], &[])
        .await
        .expect("taken");
    until(&mut node, "r", all_run).await;
    assert_eq!(pods.stopped(), ["web-0", "agent-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_is_told_and_ends_the_work_or_not() {
    for fail_fast in [true, false] {
        let (fake, pods, clock) = world();
        let broken = Behaviour {
            error: Some("device busy".to_owned()),
            ..Behaviour::default()
        };
        pods.start("u1", "web", broken);
        pods.start("u1", "agent", Behaviour::default());
        let mut node = agent(&fake, &clock, None);
        let targets = [("web", "web-0"), ("agent", "agent-0")];
        let order = order("r", &targets, |message| message.fail_fast = fail_fast);
        node.restarter.replace(WELCOME, vec![order]).await.expect("taken");
        let facts = until(&mut node, "r", |facts| facts.containers[0].step == Step::Failed).await;
        assert!(facts.containers[0].error.contains("device busy"));
        tokio::time::sleep(Duration::from_secs(10)).await;
        let stopped = pods.stopped();
        assert_eq!(stopped.contains(&"agent-0".to_owned()), !fail_fast, "{stopped:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_takes_of_the_grace_and_runs_once_over_restarts_of_the_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fake, pods, clock) = world();
    let slow = Behaviour {
        pre_stop: Some(r#"{"exec":{"command":["bye"]}}"#.to_owned()),
        exec: Duration::from_secs(5),
        ..Behaviour::default()
    };
    pods.start("u1", "web", slow);
    let mut node = agent(&fake, &clock, Some(folder.path()));
    node.restarter
        .replace(WELCOME, vec![order("r", &[("web", "web-0")], |_| {})])
        .await
        .expect("taken");
    until(&mut node, "r", |facts| facts.containers[0].step == Step::Hook).await;
    // The agent ends in the middle of the hook: another one goes on by the file, with nobody leading.
    let mut node = agent(&fake, &clock, Some(folder.path()));
    let facts = until(&mut node, "r", |facts| facts.containers[0].killed).await;
    assert!(facts.containers[0].hook_began.is_some());
    let hooks = pods
        .deeds()
        .iter()
        .filter(|deed| matches!(deed, Deed::Exec(_)))
        .count();
    assert_eq!(hooks, 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_taken_back_is_forgotten_or_carried_through() {
    let folder = tempfile::tempdir().expect("a folder");
    let (fake, pods, clock) = world();
    let slow = Behaviour {
        stop: Duration::from_secs(5),
        ..Behaviour::default()
    };
    pods.start("u1", "web", slow);
    pods.start("u1", "agent", Behaviour::default());
    let mut node = agent(&fake, &clock, Some(folder.path()));
    let id = TaskId::new("restart/r");
    let targets = [("web", "web-0"), ("agent", "agent-0")];
    node.restarter
        .replace(WELCOME, vec![order("r", &targets, |_| {})])
        .await
        .expect("taken");
    until(&mut node, "r", |facts| facts.containers[0].step == Step::Stopping).await;
    node.restarter
        .change(WELCOME, Vec::new(), std::slice::from_ref(&id))
        .await
        .expect("taken");
    until(&mut node, "r", |facts| facts.containers[0].killed).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(pods.stopped(), ["web-0"], "what has not begun is not begun");
    // The same order again, with the instance forced by now: what was bound stays bound.
    let again = order("r", &targets, |message| message.targets[0].force = true);
    let mut node = agent(&fake, &clock, Some(folder.path()));
    node.restarter.replace(WELCOME, vec![again]).await.expect("taken");
    until(&mut node, "r", all_run).await;
    assert_eq!(pods.stopped(), ["web-0", "agent-0"]);
    node.restarter.acknowledge(std::slice::from_ref(&id)).await;
    let gone = async {
        while node.board.borrow_and_update().0.contains_key(&id) {
            node.board.changed().await.expect("lives");
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone)
        .await
        .expect("a result that is stored is forgotten");
}

#[tokio::test(start_paused = true)]
async fn without_contact_nothing_new_begins() {
    let (fake, pods, clock) = world();
    let slow = Behaviour {
        stop: Duration::from_secs(5),
        ..Behaviour::default()
    };
    pods.start("u1", "web", slow);
    pods.start("u1", "agent", Behaviour::default());
    let mut node = agent(&fake, &clock, None);
    let targets = [("web", "web-0"), ("agent", "agent-0")];
    node.restarter
        .replace(WELCOME, vec![order("r", &targets, |_| {})])
        .await
        .expect("taken");
    until(&mut node, "r", |facts| facts.containers[0].step == Step::Stopping).await;
    node.restarter.suspend(WELCOME).await;
    until(&mut node, "r", |facts| facts.containers[0].step == Step::Running).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(pods.stopped(), ["web-0"], "what had begun was carried through");
    let late = node.restarter.replace(WELCOME, Vec::new()).await;
    assert_eq!(
        late,
        Err(Refused::ContactLost),
        "orders of before the loss count no more"
    );
    node.restarter
        .replace(Welcome(2), vec![order("r", &targets, |_| {})])
        .await
        .expect("taken");
    until(&mut node, "r", all_run).await;
    assert_eq!(pods.stopped(), ["web-0", "agent-0"]);
}

#[tokio::test(start_paused = true)]
async fn ids_of_another_runtime_are_refused() {
    let (fake, pods, clock) = world();
    pods.start("u1", "web", Behaviour::default());
    let mut node = agent(&fake, &clock, None);
    let order = order("r", &[("web", "web-0")], |message| {
        message.runtime = "docker".to_owned();
    });
    node.restarter.replace(WELCOME, vec![order]).await.expect("taken");
    let facts = until(&mut node, "r", |facts| !facts.refused.is_empty()).await;
    assert!(
        facts.refused.starts_with("failed to find runtime service"),
        "{}",
        facts.refused
    );
    assert!(pods.stopped().is_empty());
}
