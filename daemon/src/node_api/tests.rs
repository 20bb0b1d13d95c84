//! The service over its socket, as people reach it.

use std::path::Path;
use std::time::Duration;

use kruise_proto::node::node_service_client::NodeServiceClient;
use kruise_proto::{dispatch, node, task};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use super::*;
use crate::journal::{Journal, State};
use crate::metrics::Metrics;
use crate::puller::{Deps, Settings};
use crate::runtime::Tried;

mod pulls;
mod restarts;

struct Bench {
    board: watch::Sender<Board>,
    link: watch::Sender<Link>,
    view: watch::Sender<View>,
    channel: Channel,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("agent.sock");
        let board = watch::Sender::new(Board::default());
        let link = watch::Sender::new(Link::Down { tried: Vec::new() });
        let view = watch::Sender::new(View::default());
        let deps = Deps {
            clock: Clock::tokio(),
            link: link.subscribe(),
            journal: Journal::none(),
            state: State::default(),
            metrics: Arc::new(Metrics::default()),
        };
        let sources = Sources {
            node_name: "node1".into(),
            clock: Clock::tokio(),
            board: board.subscribe(),
            puller: Puller::spawn(Settings::default(), deps),
            link: link.subscribe(),
            view: view.subscribe(),
        };
        let routes = routes(sources).await.expect("contracts");
        let incoming = UnixListenerStream::new(socket::bind(&path).expect("bound"));
        tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming));
        let channel = dial(&path).await;
        Self {
            board,
            link,
            view,
            channel,
            _directory: directory,
        }
    }

    fn tell(&self, id: &str, phase: task::Phase, bytes_done: u64) {
        let progress = Some(task::Progress {
            bytes_done,
            ..Default::default()
        });
        let status = task::TaskStatus {
            task_id: id.into(),
            phase: phase.into(),
            progress,
            ..Default::default()
        };
        self.board.send_modify(|board| {
            board.0.insert(id.into(), Arc::new(status));
        });
    }
}

async fn dial(path: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", path.display())).expect("an address");
    endpoint.connect().await.expect("listening")
}

#[tokio::test]
async fn the_agent_shows_itself() {
    let bench = Bench::new().await;
    let mut client = NodeServiceClient::new(bench.channel.clone());
    bench.link.send_replace(Link::Down {
        tried: vec![Tried {
            socket: "/run/containerd/containerd.sock".into(),
            error: "not there".into(),
        }],
    });
    let agent = client
        .get_agent(GetAgentRequest {})
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        agent.sockets_tried,
        ["/run/containerd/containerd.sock: not there"]
    );
    assert_eq!((agent.runtime, agent.last_contact_ago), (None, None));

    let fake = crate::runtime::fake::Fake::new(Clock::tokio());
    bench.link.send_replace(fake.link());
    bench.view.send_replace(View {
        contact: node::Contact::Attached,
        manager: "m:9877".into(),
        last_contact: Some(Duration::ZERO),
        epoch: 7,
        generation: 3,
        last_error: String::new(),
    });
    let agent = client
        .get_agent(GetAgentRequest {})
        .await
        .expect("an answer")
        .into_inner();
    assert_eq!(
        (agent.node_name.as_str(), agent.manager.as_str()),
        ("node1", "m:9877")
    );
    assert_eq!(
        (agent.contact(), agent.epoch, agent.generation),
        (node::Contact::Attached, 7, 3)
    );
    assert_eq!(agent.runtime.expect("up").name, "fake");
    assert!(agent.last_contact_ago.is_some());
}

#[tokio::test]
async fn tasks_are_listed_and_watched() {
    let bench = Bench::new().await;
    let mut client = NodeServiceClient::new(bench.channel.clone());
    bench.tell("b", task::Phase::Pulling, 1);
    bench.tell("a", task::Phase::Waiting, 0);
    let listed = client
        .list_tasks(ListTasksRequest {})
        .await
        .expect("an answer")
        .into_inner()
        .tasks;
    let ids: Vec<&str> = listed.iter().map(|task| task.task_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);

    let mut events = client
        .watch_tasks(WatchTasksRequest {})
        .await
        .expect("a stream")
        .into_inner();
    let mut next = async || {
        events
            .message()
            .await
            .expect("open")
            .expect("more")
            .event
            .expect("an event")
    };
    let seen = [next().await, next().await];
    let ids = seen.map(|event| match event {
        watch_tasks_response::Event::Task(task) => task.task_id,
        watch_tasks_response::Event::Gone(id) => panic!("{id} is not gone"),
    });
    assert_eq!(ids, ["a", "b"], "as they stand");
    bench.tell("b", task::Phase::Succeeded, 9);
    let watch_tasks_response::Event::Task(task) = next().await else {
        panic!("a task changed")
    };
    assert_eq!(
        (task.task_id.as_str(), task.phase()),
        ("b", task::Phase::Succeeded)
    );
    bench.board.send_modify(|board| board.0.clear());
    assert_eq!(next().await, watch_tasks_response::Event::Gone("a".into()));
    assert_eq!(next().await, watch_tasks_response::Event::Gone("b".into()));
}

#[tokio::test]
async fn health_and_reflection_speak_of_this_service_only() {
    let bench = Bench::new().await;
    let mut health = HealthClient::new(bench.channel.clone());
    let request = tonic_health::pb::HealthCheckRequest {
        service: "kruise.node.v1.NodeService".into(),
    };
    let status = health
        .check(request)
        .await
        .expect("an answer")
        .into_inner()
        .status();
    assert_eq!(
        status,
        tonic_health::pb::health_check_response::ServingStatus::Serving
    );

    let mut reflection = ServerReflectionClient::new(bench.channel.clone());
    let ask = |message| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message),
    };
    let questions = [
        ask(MessageRequest::ListServices(String::new())),
        ask(MessageRequest::FileContainingSymbol(
            "kruise.node.v1.NodeService".into(),
        )),
    ];
    let answers = reflection
        .server_reflection_info(tokio_stream::iter(questions))
        .await
        .expect("a stream");
    let answers: Vec<ServerReflectionResponse> =
        tokio_stream::StreamExt::collect::<Result<_, _>>(answers.into_inner())
            .await
            .expect("answers");
    let Some(MessageResponse::ListServicesResponse(list)) = &answers[0].message_response else {
        panic!("a list: {answers:?}")
    };
    let mut names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["grpc.health.v1.Health", "kruise.node.v1.NodeService"]);
    assert!(matches!(
        answers[1].message_response,
        Some(MessageResponse::FileDescriptorResponse(_))
    ));

    let mut foreign = dispatch::dispatch_service_client::DispatchServiceClient::new(bench.channel.clone());
    let refused = foreign
        .attach(tokio_stream::empty())
        .await
        .expect_err("not served here");
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
}
