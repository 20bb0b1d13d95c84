//! Finding the leader, and keeping out those who were.

use kruise_proto::dispatch::{HeartbeatReply, attach_response};
use tonic::Status;

use super::manager::not_leader;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_named_is_dialled_at_once() {
    let (world, manager) = World::new();
    let mut leader = world.manager("10.0.0.7:9877");
    manager.refuse(not_leader(Some("10.0.0.7:9877")));
    let begin = tokio::time::Instant::now();
    let _attached = leader.attach(7).await;
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let view = world.until(|view| view.contact == node::Contact::Attached).await;
    assert_eq!(view.manager, "10.0.0.7:9877");
}

#[tokio::test(start_paused = true)]
async fn a_named_leader_that_is_gone_sends_the_agent_back() {
    let (_world, mut manager) = World::new();
    manager.refuse(not_leader(Some("10.0.0.7:9877")));
    manager.refuse(not_leader(None));
    let begin = tokio::time::Instant::now();
    manager.attach(7).await;
    assert!(
        begin.elapsed() <= Duration::from_secs(10),
        "two pauses of at most 5 s: {:?}",
        begin.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn two_followers_that_name_each_other_are_not_dialled_without_pause() {
    let (world, manager) = World::new();
    let other = world.manager("10.0.0.8:9877");
    for _ in 0..50 {
        manager.refuse(not_leader(Some("10.0.0.8:9877")));
        other.refuse(not_leader(Some(SERVICE)));
    }
    let begin = tokio::time::Instant::now();
    let mut last = manager;
    last.accept().await;
    assert!(begin.elapsed() > Duration::from_secs(60), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_of_an_older_epoch_is_left_also_after_a_restart() {
    let (mut world, mut manager) = World::new();
    let (conn, _) = manager.attach(9).await;
    world.until(|view| view.contact == node::Contact::Attached).await;
    world.restart();
    drop(conn);
    let (mut old, hello) = manager.attach(8).await;
    assert_eq!(hello.highest_epoch, 9);
    assert!(!old.idle(Duration::from_secs(1)).await, "the agent left");
    let view = world.until(|view| view.last_error.contains("epoch 8")).await;
    assert_ne!(view.contact, node::Contact::Attached);
    let _attached = manager.attach(9).await;
    world.until(|view| view.contact == node::Contact::Attached).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_another_epoch_ends_the_stream() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(9).await;
    conn.stamped().await;
    let reply = HeartbeatReply {
        stamp: conn.stamp,
        epoch: 8,
    };
    conn.send(attach_response::Message::HeartbeatReply(reply)).await;
    assert!(!conn.idle(Duration::from_secs(1)).await);
    world.until(|view| view.last_error.contains("epoch 8")).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_steps_down_is_left_for_the_next() {
    let (world, mut manager) = World::new();
    let mut leader = world.manager("10.0.0.7:9877");
    let (conn, _) = manager.attach(7).await;
    world.until(|view| view.contact == node::Contact::Attached).await;
    conn.end(not_leader(Some("10.0.0.7:9877"))).await;
    let begin = tokio::time::Instant::now();
    leader.attach(8).await;
    assert!(begin.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_shown_and_tried_again() {
    let (world, mut manager) = World::new();
    manager.refuse(Status::unauthenticated("the token has ended"));
    let view = world.until(|view| !view.last_error.is_empty()).await;
    assert!(
        view.last_error.contains("the token has ended"),
        "{}",
        view.last_error
    );
    manager.attach(7).await;
}

#[tokio::test(start_paused = true)]
async fn each_stream_says_hello_with_a_higher_stamp() {
    let (_world, mut manager) = World::new();
    let mut last = 0;
    for epoch in 7..10 {
        let (conn, hello) = manager.attach(epoch).await;
        assert!(hello.stamp > last, "{} after {last}", hello.stamp);
        last = hello.stamp;
        drop(conn);
    }
}
