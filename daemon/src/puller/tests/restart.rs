//! What survives the agent.

use std::path::PathBuf;

use super::*;

fn journal_text(directory: &Path) -> String {
    std::fs::read_to_string(directory.join("state.json")).expect("readable")
}

/// State directory of a life, with the file as the life before it left it at this moment. That one may still be writing to its own.
fn life(directory: &Path, number: u32) -> PathBuf {
    let path = |number: u32| directory.join(number.to_string());
    std::fs::create_dir(path(number)).expect("made");
    if number > 1 {
        std::fs::copy(
            path(number - 1).join("state.json"),
            path(number).join("state.json"),
        )
        .expect("copied");
    }
    path(number)
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_until_it_is_acknowledged() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Fake::new(Clock::tokio());
    fake.image(APP, image(1));
    let before = {
        let bench = Bench::with_journal(&fake, &life(directory.path(), 1));
        bench.order(&[order("t", APP)]).await;
        bench.end("t").await
    };
    let bench = Bench::with_journal(&fake, &life(directory.path(), 2));
    assert_eq!(
        bench.status("t"),
        Some(before),
        "told in the next Hello as it was"
    );
    bench.puller.acknowledge(vec!["t".into(), "other".into()]).await;
    bench.puller.ping().await;
    assert_eq!(bench.status("t"), None);
    let bench = Bench::with_journal(&fake, &life(directory.path(), 3));
    assert_eq!(bench.status("t"), None);
    assert_eq!(bench.began().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_results_can_be_acknowledged() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(5));
    bench.order(&[order("t", APP)]).await;
    bench.puller.acknowledge(vec!["t".into()]).await;
    assert_eq!(phase(&bench.end("t").await), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_was_killed_goes_on_under_its_lease_with_the_attempts_that_are_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Fake::new(Clock::tokio());
    let failures = vec![(Code::Other, "odd".to_owned()), (Code::Other, "odd".to_owned())];
    fake.image(
        APP,
        Image {
            failures,
            ..image(10)
        },
    );
    let mut wanted = order_of(
        "t",
        PullImage {
            backoff_limit: 2,
            ..pull(APP)
        },
    );
    wanted.credentials = vec![user("a")];
    {
        let bench = Bench::with_journal(&fake, &life(directory.path(), 1));
        bench.order(std::slice::from_ref(&wanted)).await;
        bench.until("t", |status| done(status) > 5 * MIB).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let text = journal_text(&directory.path().join("1"));
    assert!(text.contains(APP) && !text.contains("secret-of"), "{text}");

    let bench = Bench::with_journal(&fake, &life(directory.path(), 2));
    let held = bench.status("t").expect("remembered");
    assert_eq!(
        (phase(&held), held.attempts, reason(&held)),
        (Phase::Waiting, 3, Some(Reason::Unknown))
    );
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.began().len(), 3, "nothing starts before a leader wants it");
    assert_eq!(
        bench.fake.held().len(),
        1,
        "its lease is not taken for one of nobody"
    );

    bench.order(&[wanted]).await;
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 4));
    assert_eq!(end.bytes_fetched, 10 * MIB + 2);
    let leases: Vec<_> = bench.began().into_iter().map(|(_, lease)| lease).collect();
    assert!(leases.windows(2).all(|pair| pair[0] == pair[1]), "{leases:?}");
    assert!(
        end.pull_time.expect("measured").seconds <= 12,
        "{:?}",
        end.pull_time
    );
}

#[tokio::test(start_paused = true)]
async fn attempts_that_failed_before_a_restart_count() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Fake::new(Clock::tokio());
    fake.image(APP, failing(9, "toomanyrequests"));
    let wanted = order_of(
        "t",
        PullImage {
            backoff_limit: 1,
            ..pull(APP)
        },
    );
    {
        let bench = Bench::with_journal(&fake, &life(directory.path(), 1));
        bench.order(std::slice::from_ref(&wanted)).await;
        bench.until("t", |status| status.retry_in.is_some()).await;
    }
    let bench = Bench::with_journal(&fake, &life(directory.path(), 2));
    bench.order(&[wanted]).await;
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, reason(&end)),
        (Phase::Failed, 2, Some(Reason::Throttled))
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_came_while_the_agent_was_away_is_a_success() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Fake::new(Clock::tokio());
    fake.image(APP, image(10));
    {
        let bench = Bench::with_journal(&fake, &life(directory.path(), 1));
        bench.order(&[order("t", APP)]).await;
        bench.until("t", |status| done(status) > MIB).await;
    }
    fake.present(APP);
    let bench = Bench::with_journal(&fake, &life(directory.path(), 2));
    bench.order(&[order("t", APP)]).await;
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, end.already_present),
        (Phase::Succeeded, 1, false)
    );
}

#[tokio::test(start_paused = true)]
async fn stopping_keeps_bytes_and_epoch() {
    let directory = tempfile::tempdir().expect("a directory");
    let fake = Fake::new(Clock::tokio());
    fake.image(APP, image(10));
    let bench = Bench::with_journal(&fake, &life(directory.path(), 1));
    bench.puller.remember(Epoch(9)).await;
    bench.puller.remember(Epoch(7)).await;
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| done(status) > MIB).await;
    bench.puller.stop().await;
    assert!(!bench.puller.ping().await);
    assert!(fake.events().contains(&Event::Dropped(APP.into())));
    assert_eq!(fake.held().len(), 1);
    let (_, state) = Journal::open(&directory.path().join("1"));
    assert_eq!(state.highest_epoch, Epoch(9));
    assert_eq!(state.tasks.len(), 1);
    assert!(state.tasks[0].pull_time > Duration::from_secs(1));
}
