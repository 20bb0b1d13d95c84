//! From order to result.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_image_is_pulled_and_reported() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(4));
    bench.order(&[order("t", APP)]).await;
    let pulling = bench.until("t", |status| done(status) > MIB).await;
    assert_eq!((phase(&pulling), pulling.attempts), (Phase::Pulling, 1));
    let progress = pulling.progress.expect("told");
    assert_eq!((progress.bytes_total, progress.layers_total), (4 * MIB + 2, 4));
    assert!(
        progress.bytes_per_second > MIB / 2 && progress.bytes_per_second < 2 * MIB,
        "{progress:?}"
    );

    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, end.already_present),
        (Phase::Succeeded, 1, false)
    );
    assert_eq!((done(&end), end.bytes_fetched), (4 * MIB + 2, 4 * MIB + 2));
    assert!(end.image_id.starts_with("sha256:") && end.message.is_empty());
    assert!(end.pull_time.expect("measured").seconds >= 4);
    bench.settle().await;
    assert!(bench.fake.held().is_empty(), "the lease ends with the task");
    let page = bench.metrics.encode().expect("encodes");
    assert!(page.contains("kruise_image_pull_duration_seconds_count{size=\"under 10 MB\"} 1"));
    assert!(page.contains("kruise_image_pulls_total{result=\"succeeded\",reason=\"\"} 1"));
    assert!(page.contains(&format!("kruise_image_pull_bytes_total {}", 4 * MIB + 2)));
}

#[tokio::test(start_paused = true)]
async fn what_is_unpacked_is_said_to_be_so() {
    let bench = Bench::new(None);
    bench.fake.image(
        APP,
        Image {
            unpack: Duration::from_secs(100),
            ..image(1)
        },
    );
    bench.order(&[order("t", APP)]).await;
    let unpacking = bench.until("t", |status| phase(status) == Phase::Unpacking).await;
    assert_eq!(done(&unpacking), MIB + 2);
    assert_eq!(
        phase(&bench.end("t").await),
        Phase::Succeeded,
        "no stall while it unpacks for 100 s"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_there_is_not_fetched() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(1));
    bench.fake.present(APP);
    bench.order(&[order("t", APP)]).await;
    let end = bench.end("t").await;
    assert_eq!(
        (phase(&end), end.attempts, end.already_present),
        (Phase::Succeeded, 0, true)
    );
    assert_eq!(bench.fake.events(), []);

    let mut always = pull(APP);
    always.set_policy(pull_image::Policy::Always);
    bench.order(&[order_of("u", always)]).await;
    let end = bench.end("u").await;
    assert_eq!(
        (phase(&end), end.attempts, end.already_present),
        (Phase::Succeeded, 1, false)
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_order_twice_is_one_task() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(3));
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| done(status) > 0).await;
    bench.order(&[order("t", APP), order("t", APP)]).await;
    bench
        .puller
        .change(bench.welcome, vec![order("t", "reg:5000/app:1")], vec![])
        .await
        .expect("taken");
    bench.end("t").await;
    bench.order(&[order("t", APP)]).await;
    bench.settle().await;
    assert_eq!(bench.began().len(), 1, "{:?}", bench.fake.events());
    assert_eq!(
        phase(&bench.status("t").expect("held until it is acknowledged")),
        Phase::Succeeded
    );
}

#[tokio::test(start_paused = true)]
async fn two_tasks_for_one_image_make_one_call() {
    let bench = Bench::new(None);
    bench.fake.image(APP, image(2));
    bench
        .order(&[order("a", APP), order("b", "reg:5000/app:1")])
        .await;
    let (a, b) = (bench.end("a").await, bench.end("b").await);
    assert_eq!((phase(&a), phase(&b)), (Phase::Succeeded, Phase::Succeeded));
    assert_eq!(bench.began().len(), 1);
    for end in [&a, &b] {
        assert_eq!(
            (end.attempts, end.already_present),
            (1, false),
            "they share the call"
        );
        assert_eq!(done(end), 2 * MIB + 2);
    }
    let page = bench.metrics.encode().expect("encodes");
    let bytes = format!("kruise_image_pull_bytes_total {}\n", 2 * MIB + 2);
    assert!(page.contains(&bytes), "each byte is counted once: {page}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_task_is_gone_without_a_failure() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(100));
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| done(status) > 0).await;
    bench
        .puller
        .change(bench.welcome, vec![], vec!["t".into()])
        .await
        .expect("taken");
    bench.settle().await;
    assert_eq!(bench.status("t"), None);
    let events = bench.fake.events();
    assert!(events.contains(&Event::Dropped(APP.into())), "{events:?}");
    assert!(bench.fake.held().is_empty());
    assert!(
        !bench
            .metrics
            .encode()
            .expect("encodes")
            .contains("failures_total{")
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_not_in_the_set_is_cancelled_or_forgotten() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(100));
    bench
        .order(&[
            order("running", APP),
            order("ended", "reg:5000/none:1"),
            order("kept", APP),
        ])
        .await;
    bench.end("ended").await;
    bench.order(&[order("kept", APP)]).await;
    assert_eq!((bench.status("running"), bench.status("ended")), (None, None));
    assert!(bench.status("kept").is_some());
}

#[tokio::test(start_paused = true)]
async fn one_id_with_two_images_is_refused_as_a_whole() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(3));
    bench.order(&[order("t", APP)]).await;
    let orders = vec![order("new", APP), order("t", "reg:5000/app:2")];
    let refused = bench.puller.replace(bench.welcome, orders).await;
    assert_eq!(refused, Err(Refused::Conflict("t".into())));
    assert_eq!(bench.status("new"), None);
    assert_eq!(
        phase(&bench.end("t").await),
        Phase::Succeeded,
        "what runs goes on"
    );
    let many = (0..=MAX_TASKS).map(|i| order(&i.to_string(), APP)).collect();
    assert_eq!(
        bench.puller.replace(bench.welcome, many).await,
        Err(Refused::TooMany(MAX_TASKS + 1))
    );
}

#[tokio::test(start_paused = true)]
async fn pulls_stop_without_a_leader_and_go_on_where_they_were() {
    let mut bench = Bench::new(Some(3));
    bench.fake.image(APP, image(10));
    bench.order(&[order("t", APP)]).await;
    let before = bench.until("t", |status| done(status) > 5 * MIB).await;
    bench.puller.suspend(bench.welcome).await;
    let suspended = bench.until("t", |status| phase(status) == Phase::Suspended).await;
    assert!(done(&suspended) >= done(&before));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(bench.began().len(), 1, "nothing starts");
    let late = bench.puller.replace(bench.welcome, vec![order("t", APP)]).await;
    assert_eq!(late, Err(Refused::ContactLost), "an order from before the loss");

    bench.welcome = Welcome(2);
    bench.order(&[order("t", APP)]).await;
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 2));
    let began = bench.began();
    assert_eq!(began[0].1, began[1].1, "the same lease");
    assert!(
        end.pull_time.expect("measured").seconds <= 11,
        "no byte twice: {:?}",
        end.pull_time
    );
    bench.puller.suspend(Welcome(1)).await;
    bench.order(&[order("t", APP)]).await;
    assert_eq!(phase(&bench.status("t").expect("held")), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_is_older_than_the_welcome_stops_nothing() {
    let mut bench = Bench::new(Some(3));
    bench.fake.image(APP, image(10));
    bench.welcome = Welcome(2);
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| done(status) > 0).await;
    bench.puller.suspend(Welcome(1)).await;
    assert_eq!(phase(&bench.end("t").await), Phase::Succeeded);
    assert_eq!(bench.began().len(), 1);
}
