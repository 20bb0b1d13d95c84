//! What an attached leader may say, and what it hears.

use kruise_proto::dispatch::{DesiredSet, Refusal, ResultAck, attach_response};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_agent_says_who_it_is() {
    let (world, mut manager) = World::new();
    let mut conn = manager.accept().await;
    assert_eq!(conn.bearer, "Bearer token-1");
    let hello = conn.hello().await;
    assert_eq!(
        (
            hello.node_name.as_str(),
            hello.boot_id.as_str(),
            hello.max_workers
        ),
        ("node1", "boot", 3)
    );
    assert_eq!((hello.highest_epoch, hello.tasks.len()), (0, 0));
    assert_eq!(hello.runtime.expect("up").name, "fake");
    assert_eq!(world.agent.view().borrow().contact, node::Contact::Connecting);
    conn.welcome(7).await;
    let view = world.until(|view| view.contact == node::Contact::Attached).await;
    assert_eq!(
        (view.epoch, view.manager.as_str(), view.last_error.as_str()),
        (7, SERVICE, "")
    );
    conn.stamped().await;
    let first = conn.stamp;
    assert!(
        conn.idle(Duration::from_secs(60)).await,
        "attached for as long as it is answered"
    );
    assert!(conn.stamp > first + 50_000_000_000);
}

#[tokio::test(start_paused = true)]
async fn from_order_to_acknowledged_result() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    let ack = conn.set(1, &[order("t", APP)]).await;
    assert_eq!(
        (ack.epoch, ack.generation, ack.refusal()),
        (7, 1, Refusal::Unspecified)
    );
    let begin = tokio::time::Instant::now();
    let pulling = conn.report(|task| phase(task) == Phase::Pulling).await;
    assert_eq!(pulling.attempts, 1);
    let mut reports = 0;
    let end = loop {
        reports += 1;
        let task = conn.report(|_| true).await;
        if phase(&task).is_final() {
            break task;
        }
    };
    assert_eq!(phase(&end), Phase::Succeeded);
    let seconds = begin.elapsed().as_secs();
    assert!(
        (8..=u64::try_from(reports).expect("few") + 2).contains(&seconds),
        "{reports} reports in {seconds} s"
    );
    assert!(reports <= 16, "about one a second: {reports}");

    conn.send(attach_response::Message::ResultAck(ResultAck {
        task_ids: vec!["t".into()],
    }))
    .await;
    conn.idle(Duration::from_secs(1)).await;
    assert!(world.agent.puller().board().borrow().0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn deltas_add_and_cancel() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[]).await;
    conn.stamped().await;
    assert_eq!(
        conn.delta(2, &[order("t", APP)], &[]).await.refusal(),
        Refusal::Unspecified
    );
    conn.report(|task| phase(task) == Phase::Pulling).await;
    assert_eq!(conn.delta(3, &[], &["t"]).await.refusal(), Refusal::Unspecified);
    conn.idle(Duration::from_secs(1)).await;
    assert_eq!(world.count(|event| *event == Event::Dropped(APP.into())), 1);
    assert!(world.fake.held().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_same_set_again_changes_nothing() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", APP)]).await;
    conn.report(|task| phase(task) == Phase::Pulling).await;
    assert_eq!(
        conn.set(2, &[order("t", APP)]).await.refusal(),
        Refusal::Unspecified
    );
    conn.report(|task| phase(task) == Phase::Succeeded).await;
    assert_eq!(
        conn.set(3, &[order("t", APP)]).await.refusal(),
        Refusal::Unspecified
    );
    conn.report(|task| phase(task) == Phase::Succeeded).await;
    assert_eq!(world.began(), 1, "and its result is told again");
}

#[tokio::test(start_paused = true)]
async fn what_an_attached_leader_may_not_say() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", APP)]).await;
    conn.stamped().await;
    assert_eq!(
        conn.delta(3, &[order("gap", APP)], &[]).await.refusal(),
        Refusal::Gap
    );
    assert_eq!(conn.set(1, &[order("again", APP)]).await.refusal(), Refusal::Gap);
    let conflict = conn.set(4, &[order("t", "reg:5000/app:2")]).await;
    assert_eq!(conflict.refusal(), Refusal::Conflict);
    assert!(conflict.message.contains("task t"), "{}", conflict.message);
    let old = DesiredSet {
        epoch: 6,
        generation: 5,
        stamp: conn.stamp,
        orders: vec![order("old", APP)],
    };
    conn.send(attach_response::Message::DesiredSet(old)).await;
    assert_eq!(conn.ack().await.refusal(), Refusal::OldEpoch);
    let held: Vec<String> = world
        .agent
        .puller()
        .board()
        .borrow()
        .0
        .keys()
        .map(ToString::to_string)
        .collect();
    assert_eq!(held, ["t"]);
    assert_eq!(
        conn.set(6, &[]).await.refusal(),
        Refusal::Unspecified,
        "a new set mends it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_slept_commands_nobody() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[]).await;
    conn.stamped().await;
    let before = conn.stamp;
    conn.idle(Duration::from_secs(20)).await;
    let fresh = std::mem::replace(&mut conn.stamp, before);
    let ack = conn.delta(2, &[order("t", APP)], &[]).await;
    assert_eq!(ack.refusal(), Refusal::Stale, "{}", ack.message);
    conn.stamp = 0;
    assert_eq!(
        conn.set(2, &[order("t", APP)]).await.refusal(),
        Refusal::Stale,
        "without a stamp only first"
    );
    conn.stamp = fresh + 3_600_000_000_000;
    assert_eq!(
        conn.set(2, &[order("t", APP)]).await.refusal(),
        Refusal::Stale,
        "never sent"
    );
    conn.idle(Duration::from_secs(5)).await;
    assert_eq!(world.began(), 0);
    assert_eq!(
        conn.set(2, &[order("t", APP)]).await.refusal(),
        Refusal::Unspecified
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_set_that_was_held_back_is_refused() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    conn.stamp = 0;
    let set = DesiredSet {
        epoch: 7,
        generation: 1,
        stamp: 0,
        orders: vec![order("t", APP)],
    };
    conn.send(attach_response::Message::DesiredSet(set)).await;
    assert_eq!(conn.ack().await.refusal(), Refusal::Stale);
    assert_eq!(world.began(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_reads_nothing_is_left() {
    let (world, mut manager) = World::new();
    let (conn, _) = manager.attach(7).await;
    world.until(|view| view.contact == node::Contact::Attached).await;
    let left = world.until(|view| view.contact != node::Contact::Attached).await;
    assert!(
        left.last_error.contains("no heartbeat was answered"),
        "{}",
        left.last_error
    );
    drop(conn);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_for_each_image_and_starts_nothing() {
    use kruise_proto::dispatch::{Probe, attach_request, probe_answer::Presence};
    let (world, mut manager) = World::new();
    let (mut conn, hello) = manager.attach(7).await;
    assert!(hello.answers_probes);
    conn.set(1, &[order("t", APP)]).await;
    conn.report(|task| phase(task) == Phase::Succeeded).await;
    let images = vec![
        APP.to_owned(),
        "docker.io/library/other:1".into(),
        "No Image".into(),
    ];
    conn.send(attach_response::Message::Probe(Probe { images })).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = conn
            .find(|message| match message {
                attach_request::Message::ProbeAnswer(answer) => Some(answer),
                _ => None,
            })
            .await;
        told.push((answer.image.clone(), answer.presence()));
    }
    assert_eq!(
        told,
        [
            (APP.to_owned(), Presence::Present),
            ("docker.io/library/other:1".into(), Presence::Absent),
            ("No Image".into(), Presence::Unspecified),
        ]
    );
    assert_eq!(
        world.agent.puller().board().borrow().0.len(),
        1,
        "no task came of it"
    );
}
