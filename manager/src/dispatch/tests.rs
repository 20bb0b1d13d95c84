//! Streams over a real channel in this process, with a clock that stands still unless a test moves it.

use std::time::Duration;

use kruise_api::ids::Epoch;
use kruise_proto::dispatch::{
    Ack, AttachRequest, AttachResponse, DesiredDelta, DesiredSet, Heartbeat, Hello, TaskReport, TokenRenewal,
    Welcome, attach_request, attach_response, dispatch_service_client::DispatchServiceClient,
};
use kruise_proto::task::{Phase, TaskStatus};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;

use super::service;
use crate::clock::Monotonic;
use crate::engine::tests::cluster::FakeCluster;
use crate::engine::{EngineConfig, EngineHandle, spawn_over};
use crate::identity::Identity;
use crate::identity::fake::FakeVerifier;
use crate::leader::{Control, LeaderState, Leadership, Peer};
use crate::testing::serve_in_process;

fn leader() -> LeaderState {
    LeaderState::Leader {
        epoch: Epoch(7),
        since: tokio::time::Instant::now(),
    }
}

struct Bed {
    cluster: FakeCluster,
    control: Control,
    engine: EngineHandle,
    channel: Channel,
}

fn verifier() -> FakeVerifier {
    let mut verifier = FakeVerifier::default().with_agent("node1").with_agent("node2");
    for (token, node, valid_for) in [("short-node1", "node1", 20), ("long-node1", "node1", 3_600)] {
        let mut agent = verifier.agents[&format!("agent-{node}")].clone();
        agent.valid_for = Duration::from_secs(valid_for);
        verifier.agents.insert(token.to_owned(), agent);
    }
    verifier
}

async fn bed_with(state: LeaderState, config: EngineConfig) -> Bed {
    let cluster = FakeCluster::new(2);
    let (leadership, control) = Leadership::settable(state);
    let engine = spawn_over(
        std::sync::Arc::new(cluster.clone()),
        &leadership,
        Monotonic::tokio(),
        Default::default(),
        EngineConfig {
            creation_delay: Duration::ZERO,
            ..config
        },
    );
    let service = service(engine.clone(), Identity::new(verifier()), leadership);
    let channel = serve_in_process(tonic::service::Routes::new(service)).await;
    // Until the lists are read.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Bed {
        cluster,
        control,
        engine,
        channel,
    }
}

async fn bed() -> Bed {
    bed_with(leader(), EngineConfig::default()).await
}

/// An agent's end of a stream.
struct Agent {
    sender: mpsc::Sender<AttachRequest>,
    inbound: Streaming<AttachResponse>,
}

impl Agent {
    async fn send(&self, message: attach_request::Message) {
        self.sender
            .send(AttachRequest {
                message: Some(message),
            })
            .await
            .expect("the stream is open");
    }

    async fn hello(&self, node: &str, tasks: Vec<TaskStatus>) {
        let hello = Hello {
            node_name: node.into(),
            tasks,
            ..Hello::default()
        };
        self.send(attach_request::Message::Hello(hello)).await;
    }

    async fn heartbeat(&self, stamp: u64) {
        self.send(attach_request::Message::Heartbeat(Heartbeat {
            stamp,
            ..Heartbeat::default()
        }))
        .await;
    }

    async fn ack(&self, generation: u64) {
        self.send(attach_request::Message::Ack(Ack {
            epoch: 7,
            generation,
            ..Ack::default()
        }))
        .await;
    }

    async fn report(&self, id: &str, phase: Phase) {
        let task = TaskStatus {
            task_id: id.to_owned(),
            phase: phase.into(),
            image: "docker.io/library/nginx:1".into(),
            ..TaskStatus::default()
        };
        self.send(attach_request::Message::TaskReport(TaskReport {
            task: Some(task),
        }))
        .await;
    }

    async fn next(&mut self) -> Result<attach_response::Message, Status> {
        let message = tokio::time::timeout(Duration::from_secs(600), self.inbound.message())
            .await
            .expect("in time");
        message.map(|message| message.expect("more to come").message.expect("known"))
    }

    async fn welcome(&mut self) -> Welcome {
        match self.next().await {
            Ok(attach_response::Message::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    async fn set(&mut self) -> DesiredSet {
        match self.next().await {
            Ok(attach_response::Message::DesiredSet(set)) => set,
            other => panic!("{other:?}"),
        }
    }

    async fn delta(&mut self) -> DesiredDelta {
        match self.next().await {
            Ok(attach_response::Message::DesiredDelta(delta)) => delta,
            other => panic!("{other:?}"),
        }
    }

    async fn reply(&mut self) -> u64 {
        match self.next().await {
            Ok(attach_response::Message::HeartbeatReply(reply)) => reply.stamp,
            other => panic!("{other:?}"),
        }
    }

    /// The status that ends the stream, whatever comes before it.
    async fn end(&mut self) -> Status {
        loop {
            if let Err(status) = self.next().await {
                return status;
            }
        }
    }

    fn reason(status: &Status) -> String {
        status
            .get_error_details()
            .error_info()
            .map(|info| info.reason.clone())
            .unwrap_or_default()
    }
}

async fn dial(channel: &Channel, token: &str) -> Result<Agent, Status> {
    let (sender, receiver) = mpsc::channel(16);
    let mut request = Request::new(ReceiverStream::new(receiver));
    request
        .metadata_mut()
        .insert("authorization", format!("Bearer {token}").parse().expect("ASCII"));
    let inbound = DispatchServiceClient::new(channel.clone())
        .attach(request)
        .await?
        .into_inner();
    Ok(Agent { sender, inbound })
}

/// Attached, with the set acknowledged and one heartbeat answered.
async fn attach(bed: &Bed, node: &str) -> Agent {
    let mut agent = dial(&bed.channel, &format!("agent-{node}"))
        .await
        .expect("let in");
    agent.hello(node, Vec::new()).await;
    assert_eq!(agent.welcome().await.epoch, 7);
    let set = agent.set().await;
    assert_eq!((set.epoch, set.generation), (7, 1));
    agent.ack(1).await;
    agent.heartbeat(1).await;
    assert_eq!(agent.reply().await, 1);
    agent
}

#[tokio::test(start_paused = true)]
async fn a_job_from_order_to_result() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    bed.cluster
        .create_job("a", &json!({"selector": {"names": ["node1"]}}));
    let delta = agent.delta().await;
    assert_eq!((delta.generation, delta.stamp), (2, 1));
    let id = delta.add[0].task_id.clone();
    agent.ack(2).await;
    agent.report(&id, Phase::Pulling).await;
    agent.report(&id, Phase::Succeeded).await;
    match agent.next().await {
        Ok(attach_response::Message::ResultAck(ack)) => assert_eq!(ack.task_ids, [id]),
        other => panic!("{other:?}"),
    }
    let status = bed.cluster.job("a").expect("there").status.expect("written");
    assert!(status.completion_time.is_some());
    assert_eq!((status.succeeded, bed.cluster.writes()), (1, 2));
    assert_eq!(bed.cluster.events()[0].reason, "PullImageSucceed");
}

#[tokio::test(start_paused = true)]
async fn who_is_not_let_in() {
    let bed = bed().await;
    for (token, code) in [("wrong", Code::Unauthenticated), ("", Code::Unauthenticated)] {
        let status = dial(&bed.channel, token).await.err().expect("refused");
        assert_eq!(status.code(), code, "{token:?}");
    }
    let mut liar = dial(&bed.channel, "agent-node1").await.expect("a good token");
    liar.hello("node2", Vec::new()).await;
    let status = liar.end().await;
    assert_eq!(
        (status.code(), Agent::reason(&status).as_str()),
        (Code::PermissionDenied, "NODE_MISMATCH")
    );
    let mut silent = dial(&bed.channel, "agent-node1").await.expect("a good token");
    let status = silent.end().await;
    assert_eq!(Agent::reason(&status), "HELLO_WANTED");
    let mut rude = dial(&bed.channel, "agent-node1").await.expect("a good token");
    rude.heartbeat(1).await;
    assert_eq!(Agent::reason(&rude.end().await), "HELLO_WANTED");
    bed.cluster.delete_node("node1");
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut ghost = dial(&bed.channel, "agent-node1").await.expect("a good token");
    ghost.hello("node1", Vec::new()).await;
    assert_eq!(Agent::reason(&ghost.end().await), "UNKNOWN_NODE");
}

#[tokio::test(start_paused = true)]
async fn a_follower_names_the_leader() {
    let peer = Peer {
        name: "pod-b".into(),
        address: "10.0.0.2:9877".into(),
    };
    let bed = bed_with(
        LeaderState::Follower { leader: Some(peer) },
        EngineConfig::default(),
    )
    .await;
    let status = dial(&bed.channel, "agent-node1").await.err().expect("refused");
    assert_eq!(status.code(), Code::Unavailable);
    let details = status.get_error_details();
    let info = details.error_info().expect("there");
    assert_eq!(info.reason, "NOT_LEADER");
    assert_eq!(info.metadata["leader_address"], "10.0.0.2:9877");
    let status = dial(&bed.channel, "wrong").await.err().expect("refused");
    assert_eq!(status.code(), Code::Unauthenticated, "strangers are not told");
}

#[tokio::test(start_paused = true)]
async fn only_so_many_attach_in_a_second_and_the_others_wait_for_their_turn() {
    let bed = bed_with(
        leader(),
        EngineConfig {
            attach_per_second: 1,
            ..EngineConfig::default()
        },
    )
    .await;
    let begun = tokio::time::Instant::now();
    let mut agents = Vec::new();
    for turn in 0..12 {
        let node = format!("node{}", 1 + turn % 2);
        let agent = dial(&bed.channel, &format!("agent-{node}"))
            .await
            .expect("a good token");
        if turn < 11 {
            agent.hello(&node, Vec::new()).await;
        }
        agents.push(agent);
    }
    for (turn, agent) in (0_u64..).zip(&mut agents) {
        if turn == 11 {
            let status = agent.end().await;
            let reason = Agent::reason(&status);
            assert_eq!(
                (status.code(), reason.as_str()),
                (Code::Unavailable, "ATTACH_RATE")
            );
            assert!(status.get_error_details().retry_info().is_some());
        } else {
            agent.welcome().await;
            assert_eq!(begun.elapsed().as_secs(), turn);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_nobody_leads_agents_wait_for_the_leader() {
    let nobody = || LeaderState::Follower { leader: None };
    let bed = bed_with(nobody(), EngineConfig::default()).await;
    let mut early = dial(&bed.channel, "agent-node1").await.expect("a good token");
    early.hello("node1", Vec::new()).await;
    assert_eq!(Agent::reason(&early.end().await), "NOT_LEADER", "not for ever");

    let mut here = dial(&bed.channel, "agent-node1").await.expect("a good token");
    here.hello("node1", Vec::new()).await;
    let mut elsewhere = dial(&bed.channel, "agent-node2").await.expect("a good token");
    tokio::time::sleep(Duration::from_secs(5)).await;
    bed.control.set(leader());
    assert_eq!(here.welcome().await.epoch, 7);
    assert_eq!(
        Agent::reason(&elsewhere.end().await),
        "HELLO_WANTED",
        "let in, and then silent"
    );

    let bed = bed_with(nobody(), EngineConfig::default()).await;
    elsewhere = dial(&bed.channel, "agent-node2").await.expect("a good token");
    let peer = Peer {
        name: "pod-b".into(),
        address: "10.0.0.2:9877".into(),
    };
    bed.control.set(LeaderState::Follower { leader: Some(peer) });
    let status = elsewhere.end().await;
    let details = status.get_error_details();
    assert_eq!(
        details.error_info().expect("there").metadata["leader_address"],
        "10.0.0.2:9877"
    );

    let bed = bed_with(nobody(), EngineConfig::default()).await;
    let mut last = dial(&bed.channel, "agent-node1").await.expect("a good token");
    bed.engine.close();
    assert_eq!(
        Agent::reason(&last.end().await),
        "NOT_LEADER",
        "nobody waits for a process that ends"
    );
}

#[tokio::test(start_paused = true)]
async fn heartbeats_are_answered_only_while_the_lease_is_provably_ours() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    bed.control.revoke();
    agent.heartbeat(2).await;
    let silence = tokio::time::timeout(Duration::from_secs(4), agent.inbound.message()).await;
    assert!(silence.is_err(), "{silence:?}");
    bed.control.extend(Duration::MAX);
    agent.heartbeat(3).await;
    assert_eq!(agent.reply().await, 3);
}

#[tokio::test(start_paused = true)]
async fn no_order_leaves_without_the_lease() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    bed.control.revoke();
    bed.cluster.create_job("a", &json!({}));
    assert_eq!(Agent::reason(&agent.end().await), "NOT_LEADER");
}

#[tokio::test(start_paused = true)]
async fn orders_after_the_first_set_wait_for_the_first_heartbeat() {
    let bed = bed().await;
    let mut agent = dial(&bed.channel, "agent-node1").await.expect("let in");
    agent.hello("node1", Vec::new()).await;
    agent.welcome().await;
    assert_eq!(agent.set().await.stamp, 0);
    bed.cluster.create_job("a", &json!({}));
    tokio::time::sleep(Duration::from_millis(50)).await;
    agent.heartbeat(41).await;
    assert_eq!(agent.reply().await, 41);
    assert_eq!(agent.delta().await.stamp, 41);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_falls_silent_is_let_go() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    let before = tokio::time::Instant::now();
    assert_eq!(Agent::reason(&agent.end().await), "NO_HEARTBEAT");
    let after = before.elapsed();
    assert!(
        after >= Duration::from_secs(30) && after < Duration::from_secs(31),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_token_unless_it_is_renewed() {
    let bed = bed().await;
    for renewal in [None, Some("long-node1"), Some("agent-node2"), Some("wrong")] {
        let mut agent = dial(&bed.channel, "short-node1").await.expect("let in");
        agent.hello("node1", Vec::new()).await;
        agent.welcome().await;
        agent.set().await;
        if let Some(token) = renewal {
            agent
                .send(attach_request::Message::TokenRenewal(TokenRenewal {
                    token: token.into(),
                }))
                .await;
        }
        let ended = async {
            for stamp in 1..8 {
                tokio::time::sleep(Duration::from_secs(4)).await;
                let beat = Heartbeat {
                    stamp,
                    ..Heartbeat::default()
                };
                let message = AttachRequest {
                    message: Some(attach_request::Message::Heartbeat(beat)),
                };
                if agent.sender.send(message).await.is_err() {
                    return Agent::reason(&agent.end().await);
                }
                if let Err(status) = agent.next().await {
                    return Agent::reason(&status);
                }
            }
            String::new()
        };
        let expected = match renewal {
            None => "TOKEN_EXPIRED",
            Some("long-node1") => "",
            Some("agent-node2") => "NODE_MISMATCH",
            _ => "TOKEN_INVALID",
        };
        assert_eq!(ended.await, expected, "{renewal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_sends_too_much_is_cut_off() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    let sender = agent.sender.clone();
    tokio::spawn(async move {
        let message = attach_request::Message::Ack(Ack::default());
        while sender
            .send(AttachRequest {
                message: Some(message.clone()),
            })
            .await
            .is_ok()
        {}
    });
    assert_eq!(Agent::reason(&agent.end().await), "TOO_MANY_MESSAGES");
}

#[tokio::test(start_paused = true)]
async fn the_second_stream_of_a_node_replaces_the_first() {
    let bed = bed().await;
    let mut first = attach(&bed, "node1").await;
    let mut second = attach(&bed, "node1").await;
    assert_eq!(Agent::reason(&first.end().await), "REPLACED");
    second.heartbeat(2).await;
    assert_eq!(second.reply().await, 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_leadership_and_of_the_process_end_every_stream() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    let peer = Peer {
        name: "pod-b".into(),
        address: "10.0.0.2:9877".into(),
    };
    bed.control.set(LeaderState::Follower { leader: Some(peer) });
    let status = agent.end().await;
    let details = status.get_error_details();
    assert_eq!(
        details.error_info().expect("there").metadata["leader_address"],
        "10.0.0.2:9877"
    );
    bed.control.set(leader());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut agent = attach(&bed, "node1").await;
    bed.engine.close();
    assert_eq!(Agent::reason(&agent.end().await), "NOT_LEADER");
}

#[tokio::test(start_paused = true)]
async fn the_agent_of_a_deleted_node_is_cut_off() {
    let bed = bed().await;
    let mut agent = attach(&bed, "node1").await;
    bed.cluster.delete_node("node1");
    assert_eq!(Agent::reason(&agent.end().await), "NODE_GONE");
}
