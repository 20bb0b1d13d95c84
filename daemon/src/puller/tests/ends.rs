//! Failures, retries and ends.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_after_a_pause() {
    let bench = Bench::new(Some(1));
    bench.fake.image(
        APP,
        failing(
            2,
            "unexpected status code http://reg/v2/app/manifests/1: 503 Service Unavailable",
        ),
    );
    bench.order(&[order("t", APP)]).await;
    let waiting = bench.until("t", |status| status.retry_in.is_some()).await;
    assert_eq!(
        (phase(&waiting), reason(&waiting)),
        (Phase::Waiting, Some(Reason::RegistryError))
    );
    assert!(waiting.message.contains("503"));
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, reason(&end)),
        (Phase::Succeeded, 3, None)
    );
    let page = bench.metrics.encode().expect("encodes");
    assert!(
        page.contains("failures_total{reason=\"RegistryError\"} 2"),
        "{page}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_does_not_exist_fails_at_once() {
    let bench = Bench::new(Some(1));
    bench.order(&[order("t", "reg:5000/none:1")]).await;
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, reason(&end)),
        (Phase::Failed, 1, Some(Reason::NotFound))
    );
    assert!(end.message.contains("reg:5000/none:1: not found") && end.finish_time.is_some());
    bench.settle().await;
    assert!(bench.fake.held().is_empty());
}

#[tokio::test(start_paused = true)]
async fn retries_are_used_up() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, failing(9, "something odd"));
    bench.order(&[order("t", APP)]).await;
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, reason(&end)),
        (Phase::Failed, 4, Some(Reason::Unknown))
    );
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_pulled_at_all_fails_without_a_call() {
    let bench = Bench::new(Some(1));
    let unknown: Order = dispatch::Order {
        task_id: "newer".into(),
        work: None,
    }
    .into();
    bench.order(&[order("bad", "UPPER CASE"), unknown]).await;
    let bad = bench.end("bad").await;
    assert_eq!((reason(&bad), bad.attempts), (Some(Reason::InvalidReference), 0));
    let newer = bench.end("newer").await;
    assert_eq!(reason(&newer), Some(Reason::Unsupported));
    assert!(newer.message.contains("older than the manager"));
    assert_eq!(bench.began(), []);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_while_bytes_come_costs_no_retry() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(50));
    let short = PullImage {
        attempt_timeout: seconds(7),
        backoff_limit: 0,
        ..pull(APP)
    };
    bench.order(&[order_of("t", short)]).await;
    let end = bench.end("t").await;
    assert_eq!(phase(&end), Phase::Succeeded, "{end:?}");
    assert!(end.attempts > 6);
    assert!(
        end.pull_time.expect("measured").seconds < 60,
        "every attempt went on where the last one stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_hangs_is_stopped() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, Image { rate: 0, ..image(2) });
    bench
        .order(&[order_of(
            "t",
            PullImage {
                backoff_limit: 1,
                ..pull(APP)
            },
        )])
        .await;
    let begin = tokio::time::Instant::now();
    let end = bench.end("t").await;
    assert_eq!((reason(&end), end.attempts), (Some(Reason::Stalled), 2));
    assert!(begin.elapsed() < Duration::from_secs(70), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_it_whatever_it_waits_for() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(1000));
    let deadline = |image| PullImage {
        deadline: seconds(30),
        ..pull(image)
    };
    bench
        .order(&[
            order_of("pulling", deadline(APP)),
            order_of("waiting", deadline("reg:5000/other:1")),
        ])
        .await;
    let begin = tokio::time::Instant::now();
    let (pulling, waiting) = (bench.end("pulling").await, bench.end("waiting").await);
    assert!(
        begin.elapsed() <= Duration::from_secs(31),
        "{:?}",
        begin.elapsed()
    );
    for end in [&pulling, &waiting] {
        assert_eq!(
            (phase(end), reason(end)),
            (Phase::Failed, Some(Reason::DeadlineExceeded)),
            "{end:?}"
        );
    }
    assert_eq!((pulling.attempts, waiting.attempts), (1, 0));
    assert!(waiting.message.contains("30 s"));
}

#[tokio::test(start_paused = true)]
async fn spoilt_downloads_are_thrown_away() {
    let bench = Bench::new(Some(1));
    bench.fake.image(
        APP,
        failing(
            1,
            "failed commit on ref \"x\": unexpected commit digest a, expected b",
        ),
    );
    bench.order(&[order("t", APP)]).await;
    assert_eq!(phase(&bench.end("t").await), Phase::Succeeded);
    assert!(bench.fake.events().contains(&Event::Discarded));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_given_its_bytes_back_between_attempts() {
    let bench = Bench::new(Some(1));
    bench.fake.image(
        APP,
        failing(1, "write /var/lib/containerd/x: no space left on device"),
    );
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| status.retry_in.is_some()).await;
    assert!(bench.fake.held().is_empty());
    assert_eq!(phase(&bench.end("t").await), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn log_ins_are_tried_in_turn_and_never_shown() {
    let bench = Bench::new(Some(1));
    bench.fake.image(
        APP,
        Image {
            users: vec!["b".into()],
            ..image(1)
        },
    );
    let mut order = order("t", APP);
    order.credentials = vec![user("a"), user("b"), user("c")];
    bench.order(std::slice::from_ref(&order)).await;
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 1));
    assert_eq!(bench.began().len(), 2, "refused once, then let in");
    assert!(!format!("{order:?}").contains("secret-of"));

    let leak = "unexpected: Basic YTpzZWNyZXQtb2YtYQ== https://a:secret-of-a@reg/?token=x for secret-of-a";
    bench.fake.image("reg:5000/leak:1", failing(9, leak));
    let mut leaking = order_of(
        "l",
        PullImage {
            backoff_limit: 0,
            ..pull("reg:5000/leak:1")
        },
    );
    leaking.credentials = vec![user("a")];
    bench.order(&[leaking]).await;
    let end = bench.end("l").await;
    assert_eq!(end.message, "unexpected: Basic … https://…@reg/?… for …");
}

#[tokio::test(start_paused = true)]
async fn fresh_log_ins_are_used_for_the_next_attempt() {
    let bench = Bench::new(Some(1));
    let slow = vec![(Code::Other, "429 Too Many Requests: toomanyrequests".to_owned())];
    bench.fake.image(
        APP,
        Image {
            users: vec!["new".into()],
            failures: slow,
            ..image(1)
        },
    );
    let with = |name| Order {
        credentials: vec![user(name)],
        ..order("t", APP)
    };
    bench.order(&[with("old")]).await;
    bench.until("t", |status| status.retry_in.is_some()).await;
    bench.order(&[with("new")]).await;
    assert_eq!(phase(&bench.end("t").await), Phase::Succeeded);
}
