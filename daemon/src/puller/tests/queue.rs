//! Whose turn it is, and registries that want to be left alone.

use super::*;

fn ordered(id: &str, image: &str, priority: u32) -> Order {
    order_of(
        id,
        PullImage {
            priority,
            requested_by: id.into(),
            ..pull(image)
        },
    )
}

/// Images in the order in which their pulls began.
fn began(bench: &Bench) -> Vec<String> {
    bench.began().into_iter().map(|(image, _)| image).collect()
}

#[tokio::test(start_paused = true)]
async fn higher_priority_goes_first_among_those_that_wait() {
    let bench = Bench::new(Some(1));
    bench.fake.otherwise(image(1));
    let name = |i: u32| format!("reg:5000/app:{i}");
    bench.order(&[ordered("0", &name(0), 50)]).await;
    bench.until("0", |status| status.attempts > 0).await;
    let rest = [("1", 10), ("2", 50), ("3", 100)]
        .map(|(id, priority)| ordered(id, &name(id.parse().expect("a number")), priority));
    bench.change(rest.into(), &[]).await;
    for id in ["1", "2", "3"] {
        bench.end(id).await;
    }
    assert_eq!(began(&bench), [name(0), name(3), name(2), name(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_asks_to_slow_down_is_left_alone_and_others_go_on() {
    let bench = Bench::new(Some(2));
    let slow = Image {
        failures: vec![(Code::Other, "429 Too Many Requests; Retry-After: 90".to_owned())],
        ..image(1)
    };
    bench.fake.image("slow:5000/a:1", slow);
    bench.fake.otherwise(image(1));
    bench.order(&[order("a", "slow:5000/a:1")]).await;
    let waiting = bench.until("a", |status| status.retry_in.is_some()).await;
    assert_eq!(reason(&waiting), Some(Reason::Throttled));
    assert!(
        waiting.retry_in.expect("told").seconds >= 90,
        "as the registry asked"
    );
    let begin = tokio::time::Instant::now();
    bench
        .change(
            vec![order("b", "slow:5000/b:1"), order("c", "quick:5000/c:1")],
            &[],
        )
        .await;
    bench.end("c").await;
    assert!(begin.elapsed() < Duration::from_secs(5), "not held up");
    bench.end("b").await;
    assert!(
        begin.elapsed() >= Duration::from_secs(85),
        "the node asks that registry for nothing"
    );
    assert_eq!(phase(&bench.end("a").await), Phase::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn one_registry_has_no_more_than_its_share() {
    let settings = Settings {
        slots: None,
        per_registry: Some(2),
        ..Settings::default()
    };
    let bench = Bench::with(
        Fake::new(Clock::tokio()),
        settings,
        (Journal::none(), State::default()),
    );
    bench.fake.otherwise(image(2));
    let orders: Vec<Order> = (0..6)
        .map(|i| order(&i.to_string(), &format!("reg:5000/app:{i}")))
        .collect();
    bench.order(&orders).await;
    for i in 0..6 {
        bench.end(&i.to_string()).await;
    }
    assert_eq!(bench.fake.most_running(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_came_while_its_pull_waited_is_not_fetched() {
    let bench = Bench::new(Some(1));
    bench.fake.otherwise(image(5));
    bench.order(&[order("first", "reg:5000/first:1")]).await;
    bench.until("first", |status| done(status) > 0).await;
    bench.change(vec![order("t", APP)], &[]).await;
    bench.settle().await;
    bench.fake.present(APP);
    let end = bench.end("t").await;
    assert!(end.already_present && end.attempts == 0, "{end:?}");
}
