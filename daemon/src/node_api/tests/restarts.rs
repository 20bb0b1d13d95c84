//! Restarts of containers by the socket.

use kruise_proto::node::restart_container_response::Stage;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::*;
use crate::runtime::fake::Fake;
use crate::runtime::machine::Container;

struct Machine {
    fake: Arc<Fake>,
    client: NodeServiceClient<Channel>,
    _bench: Bench,
}

async fn machine(containers: Vec<Container>) -> Machine {
    let bench = Bench::new().await;
    let fake = Fake::new(Clock::tokio());
    fake.machine.containers(containers);
    bench.link.send_replace(fake.link());
    Machine {
        fake,
        client: NodeServiceClient::new(bench.channel.clone()),
        _bench: bench,
    }
}

fn container(id: &str) -> Container {
    Container {
        id: id.into(),
        name: "web".into(),
        pod: "default/web-0".into(),
        pod_uid: "uid".into(),
        running: true,
        created: 1,
        grace: Some(Duration::from_secs(45)),
    }
}

impl Machine {
    async fn restart(
        &self,
        request: RestartContainerRequest,
    ) -> Result<Vec<RestartContainerResponse>, Status> {
        let mut stages = self.client.clone().restart_container(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(stage) = stages.message().await? {
            found.push(stage);
        }
        Ok(found)
    }

    async fn refusal(&self, id: &str) -> (Code, String) {
        let status = self.restart(of(id)).await.expect_err("refused");
        (status.code(), reason(&status))
    }
}

fn of(id: &str) -> RestartContainerRequest {
    RestartContainerRequest {
        container_id: id.into(),
        ..RestartContainerRequest::default()
    }
}

fn reason(status: &Status) -> String {
    status
        .get_details_error_info()
        .map(|info| info.reason)
        .unwrap_or_default()
}

#[tokio::test]
async fn the_old_one_is_stopped_and_the_new_one_named() {
    let machine = machine(vec![container("abcd1111"), container("ffff2222")]).await;
    machine
        .fake
        .machine
        .starts_again(Some(Duration::from_millis(300)));
    let stages = machine.restart(of("containerd://abcd")).await.expect("restarted");
    let kinds: Vec<Stage> = stages.iter().map(RestartContainerResponse::stage).collect();
    assert_eq!(kinds, [Stage::Stopping, Stage::Stopped, Stage::Started]);
    let last = stages.last().expect("three");
    assert_eq!(
        (last.container_id.as_str(), last.new_container_id.as_str()),
        ("abcd1111", "abcd1111-again")
    );
    assert_eq!(
        (last.pod.as_str(), last.container.as_str(), last.exit_code),
        ("default/web-0", "web", 143)
    );
    assert_eq!(last.grace_period.expect("told").seconds, 45, "the pod's own");
    let down = last.down_time.expect("measured");
    assert_eq!(
        (down.seconds, down.nanos),
        (0, 300_000_000),
        "as the runtime wrote it down"
    );
    assert_eq!(
        machine.fake.machine.stopped(),
        [("abcd1111".to_owned(), Duration::from_secs(45))]
    );
}

#[tokio::test]
async fn what_may_not_be_restarted_is_refused() {
    let mut dead = container("dead0000");
    dead.running = false;
    let mut by_hand = container("4a4d0000");
    by_hand.pod_uid.clear();
    let machine = machine(vec![container("abcd1111"), container("abcd2222"), dead, by_hand]).await;
    machine.fake.machine.sandbox("5a5a0000", "default/web-0");
    for (id, code, reason) in [
        ("abcd", Code::FailedPrecondition, "CONTAINER_AMBIGUOUS"),
        ("dead0000", Code::FailedPrecondition, "CONTAINER_NOT_RUNNING"),
        ("4a4d0000", Code::FailedPrecondition, "CONTAINER_NOT_MANAGED"),
        ("5a5a0000", Code::NotFound, "CONTAINER_NOT_FOUND"),
        ("99990000", Code::NotFound, "CONTAINER_NOT_FOUND"),
        ("abc", Code::InvalidArgument, "INVALID_CONTAINER_ID"),
        ("abcd/../x", Code::InvalidArgument, "INVALID_CONTAINER_ID"),
        ("", Code::InvalidArgument, "INVALID_CONTAINER_ID"),
    ] {
        assert_eq!(machine.refusal(id).await, (code, reason.to_owned()), "{id}");
    }
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    for request in [
        RestartContainerRequest {
            grace_period: seconds(3601),
            ..of("abcd1111")
        },
        RestartContainerRequest {
            grace_period: seconds(-1),
            ..of("abcd1111")
        },
        RestartContainerRequest {
            start_timeout: seconds(0),
            ..of("abcd1111")
        },
    ] {
        let status = machine.restart(request).await.expect_err("refused");
        assert_eq!(reason(&status), "OUT_OF_BOUNDS");
    }
    assert!(machine.fake.machine.stopped().is_empty(), "nothing was touched");
}

#[tokio::test]
async fn one_that_does_not_come_back_is_told_in_time_and_one_restart_runs_at_once() {
    let machine = machine(vec![container("abcd1111")]).await;
    let request = RestartContainerRequest {
        start_timeout: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
        ..of("abcd1111")
    };
    let mut first = machine
        .client
        .clone()
        .restart_container(request)
        .await
        .expect("begins")
        .into_inner();
    assert_eq!(
        first.message().await.expect("open").expect("a stage").stage(),
        Stage::Stopping
    );
    let again = machine.refusal("abcd1111").await;
    assert!(
        ["RESTART_UNDER_WAY", "CONTAINER_NOT_RUNNING"].contains(&again.1.as_str()),
        "{again:?}"
    );
    assert_eq!(
        first.message().await.expect("open").expect("a stage").stage(),
        Stage::Stopped
    );
    let status = first.message().await.expect_err("it does not come back");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::DeadlineExceeded, "NOT_STARTED_AGAIN")
    );
}

#[tokio::test]
async fn without_a_runtime_it_says_so() {
    let machine = machine(vec![]).await;
    machine._bench.link.send_replace(Link::Down {
        tried: vec![Tried {
            socket: "/run/x.sock".into(),
            error: "not there".into(),
        }],
    });
    let status = machine.restart(of("abcd1111")).await.expect_err("no runtime");
    assert_eq!(
        (status.code(), reason(&status).as_str()),
        (Code::Unavailable, "RUNTIME_UNAVAILABLE")
    );
    assert!(status.message().contains("/run/x.sock (not there)"), "{status:?}");
}
