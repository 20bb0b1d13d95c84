//! The driver against an API server in this process, with paused time.

use kruise_api::ids::Epoch;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::*;
use crate::kubeapi::fake::{FakeApi, Fault};
use crate::leader::{Leadership, Peer};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/kruise-manager";

struct Replica {
    leadership: Leadership,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Loss>>,
}

impl Replica {
    fn start(server: &FakeApi, pod: &str) -> Self {
        let clock = Monotonic::tokio();
        let (leadership, control) = Leadership::new(clock.clone());
        let settings = Settings {
            namespace: "ns".into(),
            lease: "kruise-manager".into(),
            holder: crate::leader::holder_name(pod),
            address: format!("{pod}:9877"),
            timing: Timing::default(),
        };
        let api = Api::over(server, leadership.clone());
        let driver = Driver::new(settings, &api, control, clock, LeaderMetrics::default());
        let stop = CancellationToken::new();
        let task = tokio::spawn(driver.run(stop.clone()));
        Self {
            leadership,
            stop,
            task,
        }
    }

    /// Waits until it leads and says by which epoch.
    async fn leads(&self) -> Epoch {
        let mut states = self.leadership.subscribe();
        let state = states
            .wait_for(|state| matches!(state, LeaderState::Leader { .. }))
            .await
            .expect("it lives");
        let LeaderState::Leader { epoch, .. } = *state else {
            panic!("waited for it")
        };
        epoch
    }

    async fn follows(&self, pod: &str) {
        let mut states = self.leadership.subscribe();
        let leader = Some(Peer {
            name: pod.into(),
            address: format!("{pod}:9877"),
        });
        let wanted = LeaderState::Follower { leader };
        states.wait_for(|state| *state == wanted).await.expect("it lives");
    }
}

fn spec(server: &FakeApi, field: &str) -> Value {
    server.object(LEASE).expect("a lease")["spec"][field].clone()
}

fn epoch_of(server: &FakeApi) -> u64 {
    let lease = server.object(LEASE).expect("a lease");
    lease["metadata"]["annotations"]["kruise.io/epoch"]
        .as_str()
        .expect("written")
        .parse()
        .expect("a number")
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_the_second_follows_and_takes_over_when_the_first_dies() {
    let server = FakeApi::default();
    let first = Replica::start(&server, "pod-a");
    let epoch = first.leads().await;
    assert!(epoch.0 > 1_600_000_000_000, "{epoch}");
    assert_eq!(epoch_of(&server), epoch.0);
    let second = Replica::start(&server, "pod-b");
    second.follows("pod-a").await;
    seconds(60).await;
    assert_eq!(first.leadership.check(), Ok(epoch));
    first.task.abort();
    let died = tokio::time::Instant::now();
    let next = second.leads().await;
    assert!(next > epoch, "{next} after {epoch}");
    assert!(died.elapsed() < Duration::from_secs(20), "{:?}", died.elapsed());
    assert!(first.leadership.check().is_err(), "the dead one would not act");
    assert_eq!(spec(&server, "leaseTransitions"), json!(1));
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_hands_over_within_three_seconds() {
    let server = FakeApi::default();
    let first = Replica::start(&server, "pod-a");
    let epoch = first.leads().await;
    let second = Replica::start(&server, "pod-b");
    second.follows("pod-a").await;
    seconds(7).await;
    let stopped = tokio::time::Instant::now();
    first.stop.cancel();
    assert_eq!(first.task.await.expect("no panic"), Ok(()));
    assert!(first.leadership.check().is_err());
    assert_eq!(
        (
            spec(&server, "holderIdentity"),
            spec(&server, "leaseDurationSeconds")
        ),
        (json!(""), json!(1))
    );
    assert_eq!(epoch_of(&server), epoch.0, "kept for the next one");
    assert!(second.leads().await > epoch);
    assert!(
        stopped.elapsed() < Duration::from_secs(3),
        "{:?}",
        stopped.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_server_ends_at_the_renew_deadline() {
    for fault in ["hangs", "refuses"] {
        let server = FakeApi::default();
        let replica = Replica::start(&server, "pod-a");
        replica.leads().await;
        let began = tokio::time::Instant::now();
        if fault == "hangs" {
            server.hang(true);
        } else {
            for _ in 0..100 {
                server.fail_next("PUT", Fault::Refuse(503));
            }
        }
        let loss = replica.task.await.expect("no panic").expect_err("lost");
        assert_eq!(
            loss,
            Loss::Deadline {
                deadline: Duration::from_secs(10)
            }
        );
        assert!(
            began.elapsed() <= Duration::from_secs(10),
            "{fault}: {:?}",
            began.elapsed()
        );
        assert!(replica.leadership.check().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_done_but_not_answered_is_no_loss() {
    let server = FakeApi::default();
    let replica = Replica::start(&server, "pod-a");
    let epoch = replica.leads().await;
    for fault in [
        Fault::ApplyThenHang,
        Fault::ApplyThenFail(500),
        Fault::Refuse(429),
    ] {
        server.fail_next("PUT", fault);
        seconds(20).await;
        assert_eq!(replica.leadership.check(), Ok(epoch), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_take_over_that_was_done_but_not_answered_is_done_again_by_a_higher_epoch() {
    let server = FakeApi::default();
    server.fail_next("POST", Fault::ApplyThenHang);
    let replica = Replica::start(&server, "pod-a");
    seconds(1).await;
    let lost = epoch_of(&server);
    assert!(replica.leadership.check().is_err(), "nobody knows");
    assert!(replica.leads().await.0 > lost);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_is_taken_altered_or_deleted_ends() {
    type Change = fn(&FakeApi);
    let changes: [(&str, Change); 3] = [
        ("held by pod-x_1", |server| {
            let mut lease = server.object(LEASE).expect("a lease");
            lease["spec"]["holderIdentity"] = json!("pod-x_1");
            server.put(LEASE, lease);
        }),
        ("another hand", |server| {
            let mut lease = server.object(LEASE).expect("a lease");
            lease["metadata"]["annotations"]["kruise.io/epoch"] = json!("12");
            server.put(LEASE, lease);
        }),
        ("deleted", |server| server.remove(LEASE)),
    ];
    for (words, change) in changes {
        let server = FakeApi::default();
        let replica = Replica::start(&server, "pod-a");
        replica.leads().await;
        let began = tokio::time::Instant::now();
        change(&server);
        let loss = replica.task.await.expect("no panic").expect_err("lost");
        assert!(loss.to_string().contains(words), "{loss}");
        assert!(
            began.elapsed() < Duration::from_secs(3),
            "noticed by the next renewal"
        );
        assert!(replica.leadership.check().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn renewals_are_single_writes_with_a_version_and_never_patches() {
    let server = FakeApi::default();
    let replica = Replica::start(&server, "pod-a");
    replica.leads().await;
    let before = server.requests().len();
    seconds(60).await;
    let requests = server.requests().split_off(before);
    assert!(
        (24..=31).contains(&requests.len()),
        "{} in a minute",
        requests.len()
    );
    assert!(
        requests.iter().all(|line| line == &format!("PUT {LEASE}")),
        "{requests:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_whom_agents_do_not_obey_makes_way_for_one_whom_they_do() {
    let server = FakeApi::default();
    let replica = Replica::start(&server, "pod-a");
    let epoch = replica.leads().await;
    replica.leadership.outrun(Epoch(epoch.0 - 1));
    seconds(5).await;
    assert_eq!(replica.leadership.check(), Ok(epoch), "that is no reason");
    let highest = Epoch(epoch.0 + 3_600_000);
    replica.leadership.outrun(highest);
    let loss = replica.task.await.expect("no panic").expect_err("lost");
    assert_eq!(loss, Loss::Outrun { highest });
    assert!(replica.leadership.check().is_err());
    let next = Replica::start(&server, "pod-a");
    assert_eq!(next.leads().await, Epoch(highest.0 + 1));
}
