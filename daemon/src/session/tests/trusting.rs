//! Trust, and tokens that change.

use kruise_proto::dispatch::attach_request;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_manager_of_another_authority_is_not_spoken_to() {
    let world = World::with(Authority::new(), tempfile::tempdir().expect("a directory"));
    let mut foreign = Manager::listen(&world.pipes, &Authority::new(), SERVICE);
    let view = world.until(|view| !view.last_error.is_empty()).await;
    assert!(view.last_error.contains("certificate"), "{}", view.last_error);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(foreign.nobody_dials(), "no stream, so no token was sent");
}

#[tokio::test(start_paused = true)]
async fn without_anybody_to_trust_the_agent_ends() {
    let nobody = Authority {
        ca: String::new(),
        ..Authority::new()
    };
    let mut world = World::with(nobody, tempfile::tempdir().expect("a directory"));
    let begin = tokio::time::Instant::now();
    let error = (&mut world.run)
        .await
        .expect("no panic")
        .expect_err("nobody to trust");
    assert!(error.to_string().contains("kruise-manager-ca"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_token_is_sent_while_attached_and_used_for_the_next_dial() {
    let (world, mut manager) = World::new();
    let (mut conn, _) = manager.attach(7).await;
    std::fs::write(world.directory.path().join("token"), "token-2\n").expect("written");
    let renewed = conn.find(|message| match message {
        attach_request::Message::TokenRenewal(renewal) => Some(renewal.token),
        _ => None,
    });
    assert_eq!(renewed.await, "token-2");
    drop(conn);
    assert_eq!(manager.accept().await.bearer, "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_there_yet_is_waited_for() {
    let (mut world, mut manager) = World::new();
    std::fs::remove_file(world.directory.path().join("token")).expect("removed");
    world.restart();
    let view = world.until(|view| view.last_error.contains("token")).await;
    assert!(view.last_error.contains("No such file"), "{}", view.last_error);
    std::fs::write(world.directory.path().join("token"), "token-3").expect("written");
    loop {
        if manager.accept().await.bearer == "Bearer token-3" {
            return;
        }
    }
}
