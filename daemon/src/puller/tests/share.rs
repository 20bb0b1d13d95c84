//! One call for all who want the same image.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_shared_pull_lives_as_long_as_somebody_wants_it() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(10));
    bench.order(&[order("a", APP)]).await;
    bench.until("a", |status| done(status) > 2 * MIB).await;
    bench.change(vec![order("b", APP)], &[]).await;
    let joined = bench.until("b", |status| done(status) > 2 * MIB).await;
    assert_eq!(phase(&joined), Phase::Pulling);
    bench.change(vec![], &["a"]).await;
    assert_eq!(bench.status("a"), None);
    let end = bench.end("b").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 1));
    assert_eq!(bench.began().len(), 1, "the one that left took nothing along");
    bench.settle().await;
    assert!(bench.fake.held().is_empty(), "the last one lets go of the lease");
}

#[tokio::test(start_paused = true)]
async fn the_last_one_to_leave_ends_the_pull() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, image(100));
    bench.order(&[order("a", APP), order("b", APP)]).await;
    bench.until("b", |status| done(status) > 0).await;
    bench.change(vec![], &["a", "b"]).await;
    bench.settle().await;
    assert!(bench.fake.events().contains(&Event::Dropped(APP.into())));
    assert!(bench.fake.held().is_empty());
    let page = bench.metrics.encode().expect("encodes");
    assert!(page.contains("kruise_image_pulls_total{result=\"cancelled\",reason=\"\"} 2"));
}

#[tokio::test(start_paused = true)]
async fn those_who_share_fail_and_come_back_together() {
    let bench = Bench::new(Some(3));
    bench.fake.image(APP, failing(2, "something odd"));
    let ids: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    let orders: Vec<Order> = ids.iter().map(|id| order(id, APP)).collect();
    bench.order(&orders).await;
    for id in &ids {
        let end = bench.end(id).await;
        assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 3), "{id}");
    }
    assert_eq!(
        bench.began().len(),
        3,
        "not one call more than one task would make"
    );
}

#[tokio::test(start_paused = true)]
async fn each_has_its_own_time_limit() {
    let bench = Bench::new(Some(3));
    bench.fake.image(
        APP,
        Image {
            rate: MIB / 10,
            ..image(10)
        },
    );
    let short = PullImage {
        attempt_timeout: seconds(5),
        deadline: seconds(8),
        ..pull(APP)
    };
    bench.order(&[order("long", APP), order_of("short", short)]).await;
    let end = bench.end("short").await;
    assert_eq!(reason(&end), Some(Reason::DeadlineExceeded));
    let end = bench.end("long").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 1));
    assert_eq!(bench.began().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_logs_in_otherwise_waits_and_then_looks() {
    let bench = Bench::new(Some(3));
    bench.fake.image(
        APP,
        Image {
            users: vec!["a".into()],
            ..image(3)
        },
    );
    let with = |id, name| Order {
        credentials: vec![user(name)],
        ..order(id, APP)
    };
    bench.order(&[with("a", "a"), with("b", "b")]).await;
    let (a, b) = (bench.end("a").await, bench.end("b").await);
    assert!(!a.already_present && b.already_present);
    assert_eq!(bench.began().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_fetches_in_any_case_shares_only_what_has_not_begun() {
    let always = |id| {
        let mut pull = pull(APP);
        pull.set_policy(pull_image::Policy::Always);
        order_of(id, pull)
    };
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(3));
    bench.fake.image("reg:5000/other:1", image(2));
    bench
        .order(&[order("other", "reg:5000/other:1"), always("a"), always("b")])
        .await;
    bench.until("a", |status| done(status) > 0).await;
    bench.change(vec![always("late")], &[]).await;
    for id in ["a", "b", "late"] {
        assert_eq!(phase(&bench.end(id).await), Phase::Succeeded);
    }
    let calls = bench.began().into_iter().filter(|(image, _)| image == APP);
    assert_eq!(
        calls.count(),
        2,
        "a and b share, the late one asks the registry itself"
    );
}
