//! What happens without a leader, and over restarts.

use kruise_proto::dispatch::{Refusal, ResultAck, attach_response};
use tonic::Status;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_short_silence_stops_nothing() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", APP)]).await;
    conn.report(|task| phase(task) == Phase::Pulling).await;
    world.pipes.close(SERVICE);
    conn.end(Status::unavailable("going down")).await;
    world
        .until(|view| view.contact == node::Contact::Connecting)
        .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.count(|event| *event == Event::Pulled(APP.into())), 1);

    let mut manager = world.manager(SERVICE);
    let (_, hello) = manager.attach(8).await;
    assert_eq!(hello.tasks.len(), 1);
    assert_eq!(phase(&hello.tasks[0]), Phase::Succeeded);
    assert_eq!(hello.highest_epoch, 7);
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_pulls_stop_and_go_on_with_one() {
    let (world, mut manager) = World::new();
    let slow = Image {
        layers: vec![MIB; 300],
        rate: MIB,
        ..Image::default()
    };
    world.fake.image(APP, slow);
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", APP)]).await;
    conn.report(|task| phase(task) == Phase::Pulling).await;
    conn.stamped().await;
    let answered = Duration::from_nanos(conn.stamp);
    // Cut off without a word: the stream stays open, nothing is answered.
    conn.answers = false;
    world.pipes.close(SERVICE);
    world
        .until(|view| view.contact == node::Contact::Connecting)
        .await;
    assert_eq!(world.count(|event| *event == Event::Dropped(APP.into())), 0);
    world.until(|view| view.contact == node::Contact::Lost).await;
    let board = world
        .agent
        .puller()
        .board()
        .wait_for(|board| board.0.values().all(|status| phase(status) == Phase::Suspended))
        .await
        .map(|board| board.clone());
    assert_eq!(board.expect("suspended").0.len(), 1);
    let lost = world.agent.view().borrow().last_contact.expect("was attached");
    assert_eq!(lost, answered);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.count(|event| *event == Event::Dropped(APP.into())), 1);
    assert_eq!(world.fake.held().len(), 1, "its bytes are kept");

    let mut manager = world.manager(SERVICE);
    let (mut conn, hello) = manager.attach(8).await;
    assert_eq!(phase(&hello.tasks[0]), Phase::Suspended);
    assert_eq!(world.began(), 1, "nothing starts before the set says so");
    assert_eq!(
        conn.set(1, &[order("t", APP)]).await.refusal(),
        Refusal::Unspecified
    );
    let end = conn.report(|task| phase(task).is_final()).await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 2));
    assert!(
        end.pull_time.expect("measured").seconds < 345,
        "no byte twice: {:?}",
        end.pull_time
    );
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_not_acknowledged_survives_the_agent() {
    let (mut world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", "reg:5000/none@bad")]).await;
    conn.report(|task| phase(task) == Phase::Failed).await;
    world.restart();
    let (conn, hello) = manager.attach(7).await;
    assert_eq!(hello.highest_epoch, 7);
    assert_eq!(phase(&hello.tasks[0]), Phase::Failed);
    conn.send(attach_response::Message::ResultAck(ResultAck {
        task_ids: vec!["t".into()],
    }))
    .await;
    world
        .agent
        .puller()
        .board()
        .wait_for(|board| board.0.is_empty())
        .await
        .expect("forgotten");
    world.agent.puller().ping().await;
    world.restart();
    let (_, hello) = manager.attach(7).await;
    assert_eq!(hello.tasks, []);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_killed_goes_on_with_the_same_lease() {
    let (mut world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    conn.set(1, &[order("t", APP)]).await;
    conn.report(|task| task.progress.unwrap_or_default().bytes_done > 4 * MIB)
        .await;
    let leases = world.fake.held();
    world.restart();
    let (mut conn, hello) = manager.attach(7).await;
    assert_eq!(
        (phase(&hello.tasks[0]), hello.tasks[0].attempts),
        (Phase::Waiting, 1)
    );
    conn.set(1, &[order("t", APP)]).await;
    let end = conn.report(|task| phase(task).is_final()).await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 2));
    let same = world.count(|event| matches!(event, Event::Began(_, Some(lease)) if leases.contains(lease)));
    assert_eq!(same, 2);
    assert!(
        end.pull_time.expect("measured").seconds <= 11,
        "{:?}",
        end.pull_time
    );
}
