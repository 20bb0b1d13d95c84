//! Slots, and a runtime that goes away.

use super::*;

#[tokio::test(start_paused = true)]
async fn no_more_pulls_than_slots() {
    for (slots, most) in [(Some(2), 2), (Some(1), 1), (None, 6)] {
        let bench = Bench::new(slots);
        bench.fake.otherwise(image(2));
        let orders: Vec<Order> = (0..6)
            .map(|i| order(&i.to_string(), &format!("reg:5000/app:{i}")))
            .collect();
        bench.order(&orders).await;
        for i in 0..6 {
            assert_eq!(phase(&bench.end(&i.to_string()).await), Phase::Succeeded);
        }
        assert_eq!(bench.fake.most_running(), most);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_no_slot() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, failing(1, "toomanyrequests"));
    bench.fake.image("quick:5000/other:1", image(5));
    bench.order(&[order("slow", APP)]).await;
    bench.until("slow", |status| status.retry_in.is_some()).await;
    bench
        .puller
        .change(bench.welcome, vec![order("other", "quick:5000/other:1")], vec![])
        .await
        .expect("taken");
    assert_eq!(phase(&bench.end("other").await), Phase::Succeeded);
    assert_eq!(
        phase(&bench.status("slow").expect("held")),
        Phase::Waiting,
        "still in its 30 s"
    );
    assert_eq!(phase(&bench.end("slow").await), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_costs_no_attempt() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(2));
    bench.link.send_replace(Link::Down { tried: Vec::new() });
    bench
        .order(&[order_of(
            "t",
            PullImage {
                backoff_limit: 0,
                ..pull(APP)
            },
        )])
        .await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(bench.status("t").expect("held").attempts, 0);
    bench.fake.away(true);
    bench.link.send_replace(bench.fake.link());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        bench.status("t").expect("held").attempts,
        0,
        "it does not answer yet"
    );
    bench.fake.away(false);
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 1));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_breaks_off_is_asked_again() {
    let bench = Bench::new(Some(1));
    bench.fake.image(APP, image(6));
    bench
        .order(&[order_of(
            "t",
            PullImage {
                backoff_limit: 0,
                ..pull(APP)
            },
        )])
        .await;
    bench.until("t", |status| done(status) > 3 * MIB).await;
    bench.fake.away(true);
    let broken = bench.until("t", |status| reason(status).is_some()).await;
    assert_eq!(
        (phase(&broken), reason(&broken)),
        (Phase::Waiting, Some(Reason::RuntimeUnavailable))
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    bench.fake.away(false);
    let end = bench.end("t").await;
    assert_eq!((phase(&end), end.attempts), (Phase::Succeeded, 2));
}

#[tokio::test(start_paused = true)]
async fn leases_of_nobody_are_let_go() {
    let fake = Fake::new(Clock::tokio());
    let content = fake.link().runtime().cloned().expect("up");
    let orphan = LeaseId("kruise-pull-0".into());
    let store = content.content().expect("there");
    store
        .make_lease(&orphan, jiff::Timestamp::MAX)
        .await
        .expect("made");
    let bench = Bench::on(fake, Some(1), (Journal::none(), State::default()));
    bench.settle().await;
    assert!(bench.fake.held().is_empty());
    // And those that could not be dropped when their task ended.
    bench.fake.image(APP, image(1));
    bench.order(&[order("t", APP)]).await;
    bench.until("t", |status| done(status) > 0).await;
    bench.fake.away(true);
    bench
        .puller
        .change(bench.welcome, vec![], vec!["t".into()])
        .await
        .expect("taken");
    bench.settle().await;
    assert_eq!(bench.fake.held().len(), 1);
    bench.fake.away(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.fake.held().is_empty());
}
