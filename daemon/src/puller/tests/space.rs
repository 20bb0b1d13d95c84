//! Images that are too large, disks that are full, and pins.

use kruise_proto::dispatch::DiskGuard;
use kruise_proto::task::Pin;

use super::*;

const GUARD: DiskGuard = DiskGuard {
    min_free_bytes: 10 * MIB,
    min_free_percent: 0,
    unpack_percent: 100,
};

#[tokio::test(start_paused = true)]
async fn an_image_that_is_too_large_is_stopped_at_once() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(50));
    let small = PullImage {
        max_size_bytes: 20 * MIB,
        ..pull(APP)
    };
    bench.order(&[order_of("t", small)]).await;
    let begin = tokio::time::Instant::now();
    let end = bench.end("t").await;
    assert_eq!((reason(&end), end.attempts), (Some(Reason::TooLarge), 1));
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(end.message.contains(&(20 * MIB).to_string()), "{}", end.message);
    bench.settle().await;
    assert!(bench.fake.held().is_empty());
    let large = PullImage {
        max_size_bytes: 60 * MIB,
        ..pull(APP)
    };
    bench.order(&[order_of("u", large)]).await;
    assert_eq!(phase(&bench.end("u").await), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_would_break_the_reserve_waits_for_space() {
    let bench = Bench::new(Some(2));
    bench.fake.image(APP, image(10));
    bench.fake.image("reg:5000/small:1", image(1));
    bench.fake.space(29 * MIB, 1000 * MIB);
    let guarded = |image| PullImage {
        disk_guard: Some(GUARD),
        backoff_limit: 0,
        ..pull(image)
    };
    bench.order(&[order_of("t", guarded(APP))]).await;
    let waiting = bench.until("t", |status| status.retry_in.is_some()).await;
    assert_eq!(reason(&waiting), Some(Reason::NoSpace));
    assert!(
        waiting.message.contains("left free") && waiting.bytes_fetched < MIB,
        "{waiting:?}"
    );
    bench
        .change(vec![order_of("small", guarded("reg:5000/small:1"))], &[])
        .await;
    assert_eq!(
        phase(&bench.end("small").await),
        Phase::Succeeded,
        "what fits is pulled"
    );
    tokio::time::sleep(Duration::from_secs(600)).await;
    let still = bench.status("t").expect("held");
    assert!(
        !phase(&still).is_final() && still.attempts > 2,
        "it costs no retry"
    );
    bench.fake.space(500 * MIB, 1000 * MIB);
    assert_eq!(
        phase(&bench.end("t").await),
        Phase::Succeeded,
        "without a restart"
    );
}

#[tokio::test(start_paused = true)]
async fn running_pulls_have_been_promised_their_space() {
    let bench = Bench::new(Some(2));
    bench.fake.otherwise(image(10));
    bench.fake.space(45 * MIB, 1000 * MIB);
    bench.order(&[order("first", "reg:5000/first:1")]).await;
    bench.until("first", |status| done(status) > 0).await;
    let guarded = PullImage {
        disk_guard: Some(GUARD),
        ..pull(APP)
    };
    bench.change(vec![order_of("t", guarded)], &[]).await;
    let waiting = bench.until("t", |status| status.retry_in.is_some()).await;
    assert_eq!(
        reason(&waiting),
        Some(Reason::NoSpace),
        "20 MiB and the reserve fit, but not beside the other"
    );
    assert_eq!(
        phase(&bench.end("t").await),
        Phase::Succeeded,
        "once the other has ended"
    );
}

#[tokio::test(start_paused = true)]
async fn space_that_is_not_known_stops_nothing() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(3));
    let guarded = PullImage {
        disk_guard: Some(GUARD),
        ..pull(APP)
    };
    bench.order(&[order_of("t", guarded)]).await;
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_fails_where_nobody_asked_to_wait() {
    let bench = Bench::new(Some(1));
    bench.fake.image(
        APP,
        Image {
            needs: 100,
            ..image(1)
        },
    );
    bench.fake.image("reg:5000/small:1", image(1));
    let once = PullImage {
        backoff_limit: 1,
        ..pull(APP)
    };
    bench.order(&[order_of("t", once)]).await;
    let failed = bench.until("t", |status| reason(status).is_some()).await;
    assert_eq!(reason(&failed), Some(Reason::NoSpace));
    bench.change(vec![order("small", "reg:5000/small:1")], &[]).await;
    assert_eq!(phase(&bench.end("small").await), Phase::Succeeded);
    let end = bench.end("t").await;
    assert_eq!((reason(&end), end.attempts), (Some(Reason::NoSpace), 2));
}

#[tokio::test(start_paused = true)]
async fn pins_begin_with_the_end_of_the_task_and_end_in_time() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(1));
    bench.fake.present("reg:5000/there:1");
    let pinned = |image, seconds: i64| PullImage {
        pin_for: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..pull(image)
    };
    let orders = [
        order_of("t", pinned(APP, 3600)),
        order_of("u", pinned("reg:5000/there:1", 3600)),
        order("none", APP),
    ];
    bench.order(&orders).await;
    for (id, want) in [("t", Pin::Pinned), ("u", Pin::Pinned), ("none", Pin::Unspecified)] {
        assert_eq!(bench.end(id).await.pin(), want, "{id}");
    }
    assert_eq!(bench.fake.pins().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn pins_of_an_earlier_life_end_too() {
    let fake = Fake::new(Clock::tokio());
    let link = fake.link();
    let content = link.runtime().expect("up").content().expect("there");
    let over = Clock::tokio()
        .now_wall()
        .saturating_sub(Duration::from_secs(1))
        .expect("a time");
    let image = kruise_api::reference::ImageRef::parse(APP).expect("an image");
    content.pin(&image, over).await.expect("pinned");
    let bench = Bench::on(fake, Some(1), (Journal::none(), State::default()));
    bench.settle().await;
    assert!(
        bench.fake.pins().is_empty(),
        "the end lies with the image, so it needs no memory of ours"
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_pin_says_so() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(1));
    bench.fake.without_pins();
    let pinned = PullImage {
        pin_for: seconds(60),
        ..pull(APP)
    };
    bench.order(&[order_of("t", pinned)]).await;
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.pin()), (Phase::Succeeded, Pin::Unsupported));
}
