//! The service over a real channel in this process, and a follower that asks a leader over TLS.

mod forwarding;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kruise_api::ids::Epoch;
use kruise_proto::dispatch::Hello;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use kruise_proto::inspect::watch_tasks_response::Event;
use kruise_proto::task::{Phase, Progress, TaskStatus};
use rustls::RootCertStore;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use super::*;
use crate::clock::Monotonic;
use crate::cloneset;
use crate::engine::EngineConfig;
use crate::engine::event::{Attach, SessionId, ToAgent};
use crate::engine::spawn_over;
use crate::engine::tests::cluster::FakeCluster;
use crate::engine::vitals::Vitals;
use crate::identity::fake::FakeVerifier;
use crate::leader::{LeaderState, Peer};
use crate::testing::serve_in_process;

fn leads() -> Leadership {
    let since = tokio::time::Instant::now();
    Leadership::fixed(LeaderState::Leader {
        epoch: Epoch(7),
        since,
    })
}

fn identity() -> Identity {
    let all = [
        ("agents", "get"),
        ("tasks", "get"),
        ("tasks", "watch"),
        ("clonesets", "get"),
    ];
    Identity::new(
        FakeVerifier::default()
            .with_agent("node1")
            .with_person("ann", &all)
            .with_person("bob", &[("agents", "get")]),
    )
}

#[derive(Debug)]
struct NoRoots;

impl Roots for NoRoots {
    fn roots(&self) -> BoxFuture<'_, Result<Arc<RootCertStore>, String>> {
        std::future::ready(Err("none".to_owned())).boxed()
    }
}

struct Bed {
    cluster: FakeCluster,
    engine: EngineHandle,
    channel: Channel,
    /// What the controller of CloneSets is asked.
    questions: mpsc::Receiver<cloneset::Question>,
}

async fn bed() -> Bed {
    let cluster = FakeCluster::new(3);
    let config = EngineConfig {
        creation_delay: Duration::ZERO,
        ..EngineConfig::default()
    };
    let leadership = leads();
    let engine = spawn_over(
        Arc::new(cluster.clone()),
        &leadership,
        Monotonic::tokio(),
        Default::default(),
        config,
    );
    let (clone_sets, questions) = cloneset::channel();
    let service = service(
        engine.clone(),
        clone_sets,
        identity(),
        leadership,
        "pod-a".into(),
        Arc::new(NoRoots),
    );
    let channel = serve_in_process(Routes::new(service)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Bed {
        cluster,
        engine,
        channel,
        questions,
    }
}

impl Bed {
    async fn attach(&self, node: &str) -> (SessionId, mpsc::Receiver<Box<ToAgent>>) {
        let session = self.engine.next_session();
        let attach = Attach {
            session,
            node: node.into(),
            node_uid: format!("uid-{node}").as_str().into(),
            peer: "10.0.0.9".into(),
            hello: Hello {
                agent_version: "1.2".into(),
                ..Hello::default()
            },
            vitals: Arc::new(Vitals::new(self.engine.clock().now(), None, None)),
        };
        let (_, messages) = self.engine.attach(attach).await.expect("let in");
        (session, messages)
    }

    async fn watch(&self, job: &str, until_done: bool) -> Result<Streaming<WatchTasksResponse>, Status> {
        let request = WatchTasksRequest {
            job: job.into(),
            node_name: String::new(),
            until_done,
        };
        let answer = client(&self.channel)
            .watch_tasks(with_token("person-ann", request))
            .await?;
        Ok(answer.into_inner())
    }
}

fn client(channel: &Channel) -> InspectServiceClient<Channel> {
    InspectServiceClient::new(channel.clone())
}

fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
    request
}

async fn next(stream: &mut Streaming<WatchTasksResponse>) -> Option<Event> {
    let next = tokio::time::timeout(Duration::from_secs(60), stream.next())
        .await
        .expect("in time");
    next.map(|message| message.expect("no error").event.expect("known"))
}

fn report(id: &str, phase: Phase, done: u64) -> TaskStatus {
    TaskStatus {
        task_id: id.to_owned(),
        phase: phase.into(),
        progress: Some(Progress {
            bytes_done: done,
            bytes_total: 100,
            bytes_known: true,
            ..Progress::default()
        }),
        image: "docker.io/library/nginx:1".into(),
        ..TaskStatus::default()
    }
}

fn order_of(message: ToAgent) -> Option<String> {
    match message {
        ToAgent::Set(set) => set.orders.into_iter().next().map(|order| order.task_id),
        ToAgent::Delta(delta) => delta.add.into_iter().next().map(|order| order.task_id),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn rights_are_asked_for_by_resource_and_verb() {
    let bed = bed().await;
    let list = |token: &str| with_token(token, ListAgentsRequest::default());
    assert!(client(&bed.channel).list_agents(list("person-bob")).await.is_ok());
    let tasks = client(&bed.channel)
        .list_tasks(with_token("person-bob", ListTasksRequest::default()))
        .await;
    assert_eq!(tasks.expect_err("refused").code(), Code::PermissionDenied);
    let agent = client(&bed.channel).list_agents(list("agent-node1")).await;
    assert_eq!(
        agent.expect_err("an agent is no person").code(),
        Code::Unauthenticated
    );
    let nobody = client(&bed.channel)
        .list_agents(Request::new(ListAgentsRequest::default()))
        .await;
    assert_eq!(nobody.expect_err("no token").code(), Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn agents_come_in_pages() {
    let bed = bed().await;
    let _link = bed.attach("node2").await;
    let mut names = Vec::new();
    let mut token = String::new();
    loop {
        let request = ListAgentsRequest {
            page_size: 2,
            page_token: token,
        };
        let page = client(&bed.channel)
            .list_agents(with_token("person-ann", request))
            .await
            .expect("a page");
        let page = page.into_inner();
        assert_eq!((page.epoch, page.leader.as_str()), (7, "pod-a"));
        names.extend(
            page.agents
                .into_iter()
                .map(|agent| (agent.node_name.clone(), agent.sync_state())),
        );
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    use kruise_proto::inspect::SyncState::{NotSent, Stale};
    assert_eq!(
        names,
        [
            ("node1".into(), NotSent),
            ("node2".into(), Stale),
            ("node3".into(), NotSent)
        ]
    );
    let get = |node: &str| {
        with_token(
            "person-ann",
            GetAgentRequest {
                node_name: node.into(),
            },
        )
    };
    let found = client(&bed.channel)
        .get_agent(get("node2"))
        .await
        .expect("there")
        .into_inner();
    assert_eq!(found.agent.expect("there").version, "1.2");
    assert_eq!(
        client(&bed.channel)
            .get_agent(get("node9"))
            .await
            .expect_err("none")
            .code(),
        Code::NotFound
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_a_job_from_its_tasks_to_its_end() {
    let bed = bed().await;
    let (session, mut link) = bed.attach("node1").await;
    bed.cluster
        .create_job("a", &json!({"selector": {"names": ["node1"]}}));
    let mut stream = bed.watch("ns/a", true).await.expect("a stream");
    let id = loop {
        if let Some(id) = order_of(*link.recv().await.expect("an order")) {
            break id;
        }
    };
    bed.engine.report(session, report(&id, Phase::Pulling, 40)).await;
    let mut saw_bytes = false;
    loop {
        match next(&mut stream).await.expect("more to come") {
            Event::Task(task) => {
                assert_eq!(
                    (task.job.as_str(), task.node_name.as_str(), task.attached),
                    ("ns/a", "node1", true)
                );
            }
            Event::Job(job) => {
                saw_bytes |= job.progress.is_some_and(|progress| progress.bytes_done == 40);
                if saw_bytes {
                    break;
                }
            }
            Event::Gone(_) => panic!("too early"),
        }
    }
    bed.engine
        .report(session, report(&id, Phase::Succeeded, 100))
        .await;
    let (mut gone, mut last) = (false, None);
    while let Some(event) = next(&mut stream).await {
        match event {
            Event::Gone(task) => gone |= task == id,
            Event::Job(job) => last = Some(job),
            Event::Task(_) => {}
        }
    }
    let last = last.expect("a summary");
    assert!(gone && last.complete);
    assert_eq!((last.desired, last.succeeded), (1, 1));
    assert_eq!(
        last.progress.expect("set").bytes_done,
        100,
        "bytes of tasks that have ended still count"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_complete_before_says_so_once() {
    let bed = bed().await;
    bed.cluster.create_job("a", &json!({"selector": {"names": []}}));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut stream = bed.watch("ns/a", true).await.expect("a stream");
    match next(&mut stream).await {
        Some(Event::Job(job)) => assert!(job.complete),
        other => panic!("{other:?}"),
    }
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_job_that_the_watch_has_not_told_of_yet_begins_all_the_same() {
    let bed = bed().await;
    let refused = bed.watch("ns/a", true).await.expect_err("none");
    assert_eq!(refused.code(), Code::NotFound);
    bed.cluster.create_job_unseen("a", &json!({"parallelism": 0}));
    let mut stream = bed.watch("ns/a", true).await.expect("a stream");
    assert!(matches!(next(&mut stream).await, Some(Event::Job(job)) if !job.complete));
    bed.cluster.delete_job("a");
    while next(&mut stream).await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused() {
    let bed = bed().await;
    for job in ["a", "/a", "ns/", "ns/a/b"] {
        assert_eq!(
            bed.watch(job, false).await.expect_err("refused").code(),
            Code::InvalidArgument,
            "{job}"
        );
    }
    assert_eq!(
        bed.watch("", true).await.expect_err("refused").code(),
        Code::InvalidArgument
    );
    bed.watch("", false).await.expect("all jobs");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_falls_behind_is_told_so() {
    let bed = bed().await;
    let (session, mut link) = bed.attach("node1").await;
    bed.cluster.create_job("a", &json!({}));
    let id = loop {
        if let Some(id) = order_of(*link.recv().await.expect("an order")) {
            break id;
        }
    };
    let mut stream = bed.watch("ns/a", false).await.expect("a stream");
    let words = "x".repeat(1_000);
    for round in 0..40_000_u64 {
        let phase = if round % 2 == 0 {
            Phase::Pulling
        } else {
            Phase::Waiting
        };
        let status = TaskStatus {
            message: words.clone(),
            ..report(&id, phase, round)
        };
        bed.engine.report(session, status).await;
    }
    let end = loop {
        match tokio::time::timeout(Duration::from_secs(60), stream.next())
            .await
            .expect("in time")
        {
            Some(Ok(_)) => {}
            Some(Err(status)) => break status,
            None => panic!("an error was expected"),
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn whoever_may_see_tasks_is_told_why_a_job_waits() {
    let bed = bed().await;
    let _attached = bed.attach("node1").await;
    bed.cluster.create_job("a", &json!({"parallelism": 0}));
    // Until no agent of an earlier leader can be at work any more.
    tokio::time::sleep(Duration::from_secs(130)).await;
    let ask = async |token: &str, job: &str| {
        let request = ExplainJobRequest {
            job: job.into(),
            node_name: String::new(),
        };
        let answer = client(&bed.channel).explain_job(with_token(token, request)).await;
        answer.map(tonic::Response::into_inner)
    };
    let told = ask("person-ann", "ns/a").await.expect("allowed");
    assert_eq!(told.waiting[0].reason, "Paused");
    assert_eq!(told.job.expect("set").desired, 3);
    let nodes: Vec<_> = told
        .nodes
        .iter()
        .map(|node| (node.node_name.as_str(), node.state.as_str()))
        .collect();
    assert_eq!(
        nodes,
        [
            ("node1", "Pending"),
            ("node2", "AgentAway"),
            ("node3", "AgentAway")
        ]
    );
    assert_eq!(
        ask("person-ann", "ns/b").await.expect_err("unknown").code(),
        Code::NotFound
    );
    assert_eq!(
        ask("person-ann", "b").await.expect_err("no name").code(),
        Code::InvalidArgument
    );
    assert_eq!(
        ask("nobody", "ns/a").await.expect_err("unknown caller").code(),
        Code::Unauthenticated
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_may_see_sets_is_told_why_one_waits() {
    let mut bed = bed().await;
    let mut questions = std::mem::replace(&mut bed.questions, mpsc::channel(1).1);
    tokio::spawn(async move {
        while let Some(cloneset::Question { set, reply }) = questions.recv().await {
            let answer = match set.name.as_str() {
                "web" => Answer::Explained(Box::new(ExplainCloneSetResponse {
                    clone_set: set.to_string(),
                    ..Default::default()
                })),
                "early" => Answer::Starting,
                "deposed" => continue,
                _ => Answer::Unknown,
            };
            reply.send(answer).expect("somebody waits");
        }
    });
    let ask = async |token: &str, set: &str| {
        let request = ExplainCloneSetRequest {
            clone_set: set.into(),
        };
        let answer = client(&bed.channel)
            .explain_clone_set(with_token(token, request))
            .await;
        answer.map(tonic::Response::into_inner)
    };
    assert_eq!(
        ask("person-ann", "ns/web").await.expect("allowed").clone_set,
        "ns/web"
    );
    for (token, set, code) in [
        ("person-ann", "ns/gone", Code::NotFound),
        ("person-ann", "ns/early", Code::Unavailable),
        ("person-ann", "ns/deposed", Code::Unavailable),
        ("person-ann", "web", Code::InvalidArgument),
        ("person-bob", "ns/web", Code::PermissionDenied),
        ("nobody", "ns/web", Code::Unauthenticated),
    ] {
        assert_eq!(ask(token, set).await.expect_err(set).code(), code, "{set}");
    }
}
