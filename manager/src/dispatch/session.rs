//! One stream of one agent, from its Hello to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kruise_api::ids::Epoch;
use kruise_proto::convert::{phase_from_number, to_duration};
use kruise_proto::dispatch::{
    AttachRequest, Heartbeat, HeartbeatReply, Hello, TokenRenewal, Welcome, attach_request, attach_response,
};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::admission::Bucket;
use super::outbound::{NotSent, Sender};
use super::{Peer, Shared, refuse, sanitize};
use crate::engine::config::MAX_ORDER_AGE;
use crate::engine::event::{Attach, CloseReason, SessionId, ToAgent};
use crate::engine::vitals::Vitals;
use crate::identity::{AgentIdentity, AuthError};

/// Time for the Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that an agent may send: one a second for each of hundreds of tasks, with all of them changing at once now and then.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(5);
const MESSAGE_BURST: u32 = 2_000;
/// Messages that wait for the agent's first heartbeat, without which only the first set may be sent.
const HELD: usize = 256;
/// How often a renewed token is tried while the API server cannot be asked.
const RENEWAL_TRIES: u32 = 5;

/// A stream whose token is verified.
pub(super) struct Session {
    shared: Arc<Shared>,
    agent: AgentIdentity,
    peer: Peer,
    id: SessionId,
    vitals: Arc<Vitals>,
    /// When the token ends, by the engine's clock.
    token_end: Duration,
    budget: Bucket,
    epoch: Epoch,
    /// The agent's clock as last heard; 0 before the first heartbeat.
    stamp: u64,
    first_set_sent: bool,
    held: VecDeque<ToAgent>,
    stale: bool,
    /// A token to be verified.
    fresh: Option<TokenRenewal>,
}

type Verification = BoxFuture<'static, Result<AgentIdentity, AuthError>>;

impl Session {
    pub(super) fn new(shared: Arc<Shared>, agent: AgentIdentity, peer: Peer) -> Self {
        let now = shared.engine.clock().now();
        Self {
            id: shared.engine.next_session(),
            token_end: now.saturating_add(agent.valid_for),
            budget: Bucket::new(MESSAGE_INTERVAL, MESSAGE_BURST, now),
            vitals: Arc::new(Vitals::new(now, None, None)),
            shared,
            agent,
            peer,
            epoch: Epoch(0),
            stamp: 0,
            first_set_sent: false,
            held: VecDeque::new(),
            stale: false,
            fresh: None,
        }
    }

    fn now(&self) -> Duration {
        self.shared.engine.clock().now()
    }

    /// Serves the stream to its end.
    pub(super) async fn run(mut self, mut inbound: Streaming<AttachRequest>, out: Sender) {
        let status = match self.open(&mut inbound, &out).await {
            Ok(mut orders) => {
                let status = self.converse(&mut inbound, &mut orders, &out).await;
                self.shared.engine.detached(self.id).await;
                let (reason, detail) = (refuse::reason(&status), status.message());
                if refuse::is_refusal(&status) {
                    tracing::warn!(node = %self.agent.node_name, peer = self.peer.address, reason, detail, "an agent was cut off");
                } else {
                    tracing::info!(node = %self.agent.node_name, peer = self.peer.address, reason, detail, "an agent is gone");
                }
                status
            }
            Err(status) => {
                let (reason, detail) = (refuse::reason(&status), status.message());
                tracing::warn!(node = %self.agent.node_name, peer = self.peer.address, reason, detail, "an agent was not let in");
                status
            }
        };
        if refuse::is_refusal(&status) {
            self.peer.refused(&refuse::reason(&status));
        }
        if refuse::is_last(&status) {
            self.peer.expel();
        }
        out.finish(status);
    }

    /// Lobby, Hello, Welcome.
    async fn open(
        &mut self,
        inbound: &mut Streaming<AttachRequest>,
        out: &Sender,
    ) -> Result<mpsc::Receiver<Box<ToAgent>>, Status> {
        tokio::select! {
            // Dropping the wait gives up its place, which is then nobody's.
            entered = self.shared.lobby.enter() => entered?,
            () = out.closed() => return Err(gone()),
        }
        let hello = self.hello(inbound).await?;
        let now = self.now();
        self.vitals = Arc::new(Vitals::new(now, hello.runtime.clone(), hello.disk));
        let version = hello.agent_version.clone();
        let tasks = hello.tasks.len();
        let attach = Attach {
            session: self.id,
            node: self.agent.node_name.clone(),
            node_uid: self.agent.node_uid.clone(),
            peer: self.peer.address.clone(),
            hello,
            vitals: Arc::clone(&self.vitals),
        };
        let (epoch, orders) = self
            .shared
            .engine
            .attach(attach)
            .await
            .map_err(|refused| self.refused(refused))?;
        self.epoch = epoch;
        tracing::info!(node = %self.agent.node_name, peer = self.peer.address, version, tasks, "an agent attached");
        let config = self.shared.engine.config();
        let welcome = Welcome {
            epoch: epoch.0,
            contact_lease: Some(to_duration(config.contact_lease)),
            heartbeat_interval: Some(to_duration(config.heartbeat_interval)),
            max_order_age: Some(to_duration(MAX_ORDER_AGE)),
            manager_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        if let Err(status) = self.send(out, attach_response::Message::Welcome(welcome)).await {
            self.shared.engine.detached(self.id).await;
            return Err(status);
        }
        Ok(orders)
    }

    async fn hello(&self, inbound: &mut Streaming<AttachRequest>) -> Result<Hello, Status> {
        let first = match tokio::time::timeout(HELLO_TIMEOUT, inbound.message()).await {
            Ok(first) => first?,
            Err(_) => return Err(refuse::no_hello("no Hello within 5 s")),
        };
        let Some(attach_request::Message::Hello(mut hello)) = first.and_then(|first| first.message) else {
            return Err(refuse::no_hello("the first message must be a Hello"));
        };
        if hello.node_name != self.agent.node_name.as_str() {
            let claimed: String = hello.node_name.chars().take(253).collect();
            return Err(self.mismatch(claimed));
        }
        sanitize::hello(&mut hello).map_err(refuse::bad_message)?;
        Ok(hello)
    }

    fn mismatch(&self, claimed: String) -> Status {
        AuthError::NodeMismatch {
            token_node: self.agent.node_name.to_string(),
            claimed,
        }
        .into()
    }

    fn refused(&self, refused: crate::engine::event::AttachRefused) -> Status {
        match self.shared.leadership.check() {
            Ok(_) => refuse::attach(refused),
            Err(error) => refuse::not_leader(error.leader.as_ref()),
        }
    }

    fn not_leading(&self) -> Status {
        let leader = self
            .shared
            .leadership
            .check()
            .err()
            .and_then(|error| error.leader);
        refuse::not_leader(leader.as_ref())
    }

    /// Passes messages to and fro until something ends the stream.
    async fn converse(
        &mut self,
        inbound: &mut Streaming<AttachRequest>,
        orders: &mut mpsc::Receiver<Box<ToAgent>>,
        out: &Sender,
    ) -> Status {
        let mut verification: Option<Verification> = None;
        let mut ended = self.shared.identity.ended(&self.agent);
        loop {
            if let Some(fresh) = self.fresh.take() {
                verification = Some(self.verify(fresh));
            }
            let deadline = self.next_deadline().saturating_sub(self.now());
            let step = tokio::select! {
                // All are cancel-safe: a message is either taken or still there, and the two long ones are kept outside.
                message = inbound.message() => match message {
                    Ok(Some(message)) => self.receive(message, out).await,
                    Ok(None) => return Status::ok("the agent closed the stream"),
                    Err(status) => return status,
                },
                order = orders.recv() => match order {
                    Some(order) => self.pass_on(*order, out).await,
                    // The engine gave this link up because it was full.
                    None => return refuse::too_slow(),
                },
                verified = pending(&mut verification) => {
                    verification = None;
                    let renewed = self.renewed(verified);
                    ended = self.shared.identity.ended(&self.agent);
                    renewed
                }
                error = &mut ended => return error.into(),
                () = tokio::time::sleep(deadline) => self.check_time().await,
            };
            if let Err(status) = step {
                return status;
            }
        }
    }

    fn next_deadline(&self) -> Duration {
        let config = self.shared.engine.config();
        let silence = if self.stale {
            config.lost_after()
        } else {
            config.stale_after()
        };
        self.token_end.min(self.vitals.last_heard() + silence) + Duration::from_millis(1)
    }

    async fn check_time(&mut self) -> Result<(), Status> {
        let now = self.now();
        let config = *self.shared.engine.config();
        let silence = now.saturating_sub(self.vitals.last_heard());
        if now >= self.token_end {
            return Err(AuthError::TokenExpired.into());
        }
        if silence >= config.lost_after() {
            return Err(refuse::silent(silence));
        }
        if silence >= config.stale_after() && !self.stale {
            self.stale = true;
            self.shared.engine.stale(self.id, true).await;
        }
        Ok(())
    }

    async fn receive(&mut self, message: AttachRequest, out: &Sender) -> Result<(), Status> {
        let now = self.now();
        self.budget.take(now).map_err(|_| refuse::too_much())?;
        match message.message {
            Some(attach_request::Message::Heartbeat(heartbeat)) => self.heartbeat(heartbeat, out).await,
            Some(attach_request::Message::Ack(ack)) => {
                self.shared.engine.ack(self.id, ack).await;
                Ok(())
            }
            Some(attach_request::Message::TaskReport(report)) => {
                let Some(mut status) = report.task else {
                    return Ok(());
                };
                sanitize::status(&mut status);
                if phase_from_number(status.phase).is_final() {
                    self.shared.engine.report(self.id, status).await;
                } else {
                    self.shared.engine.progress(self.id, status);
                }
                Ok(())
            }
            Some(attach_request::Message::TokenRenewal(renewal)) => {
                self.fresh = Some(renewal);
                Ok(())
            }
            Some(attach_request::Message::Hello(_)) => {
                Err(refuse::bad_message("a second Hello on one stream"))
            }
            Some(attach_request::Message::ProbeAnswer(mut answer)) => {
                sanitize::answer(&mut answer);
                self.shared.engine.probed(self.id, answer).await;
                Ok(())
            }
            // From a newer agent.
            None => Ok(()),
        }
    }

    /// Answers, but only while the lease is provably ours: the agent's contact lease counts from here.
    async fn heartbeat(&mut self, heartbeat: Heartbeat, out: &Sender) -> Result<(), Status> {
        let Heartbeat {
            stamp,
            mut runtime,
            disk,
        } = heartbeat;
        if let Some(runtime) = &mut runtime {
            sanitize::runtime(runtime);
        }
        self.vitals.hear(self.now(), runtime, disk);
        if self.stale {
            self.stale = false;
            self.shared.engine.stale(self.id, false).await;
        }
        self.stamp = stamp;
        if self.shared.leadership.check() != Ok(self.epoch) {
            return Ok(());
        }
        self.vitals.answer(self.now());
        let reply = HeartbeatReply {
            stamp,
            epoch: self.epoch.0,
        };
        self.send(out, attach_response::Message::HeartbeatReply(reply))
            .await?;
        while let Some(message) = self.held.pop_front() {
            self.pass_on(message, out).await?;
        }
        Ok(())
    }

    /// Sends what the engine wants sent. Orders carry the agent's latest stamp, taken before the lease is looked at: should this process be paused
    /// after the look, the stamp is old when the order arrives.
    async fn pass_on(&mut self, message: ToAgent, out: &Sender) -> Result<(), Status> {
        let stamp = self.stamp;
        let is_order = matches!(message, ToAgent::Set(_) | ToAgent::Delta(_));
        if is_order && stamp == 0 && self.first_set_sent {
            if self.held.len() >= HELD {
                return Err(refuse::too_slow());
            }
            self.held.push_back(message);
            return Ok(());
        }
        if is_order && self.shared.leadership.check() != Ok(self.epoch) {
            return Err(self.not_leading());
        }
        let message = match message {
            ToAgent::Set(set) => {
                self.first_set_sent = true;
                attach_response::Message::DesiredSet(kruise_proto::dispatch::DesiredSet { stamp, ..set })
            }
            ToAgent::Delta(delta) => {
                attach_response::Message::DesiredDelta(kruise_proto::dispatch::DesiredDelta {
                    stamp,
                    ..delta
                })
            }
            ToAgent::Saved(ack) => attach_response::Message::ResultAck(ack),
            ToAgent::Probe(probe) => attach_response::Message::Probe(probe),
            ToAgent::Close(reason) => {
                return Err(match reason {
                    CloseReason::Replaced => refuse::replaced(),
                    CloseReason::NodeGone => refuse::node_gone(&self.agent.node_name),
                    CloseReason::OldEpoch => refuse::old_epoch(),
                    CloseReason::NotLeading => self.not_leading(),
                });
            }
        };
        self.send(out, message).await
    }

    async fn send(&self, out: &Sender, message: attach_response::Message) -> Result<(), Status> {
        out.send(message).await.map_err(|error| match error {
            NotSent::TooSlow => refuse::too_slow(),
            NotSent::Gone => gone(),
        })
    }

    /// Has a fresh token verified, while the stream goes on.
    fn verify(&self, renewal: TokenRenewal) -> Verification {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut tries = 1;
            loop {
                match shared.identity.agent(&renewal.token).await {
                    Err(AuthError::Backend { retry_after, .. }) if tries < RENEWAL_TRIES => {
                        tries += 1;
                        tokio::time::sleep(retry_after.max(Duration::from_secs(1))).await;
                    }
                    verified => return verified,
                }
            }
        }
        .boxed()
    }

    fn renewed(&mut self, verified: Result<AgentIdentity, AuthError>) -> Result<(), Status> {
        match verified {
            Ok(agent)
                if (&agent.node_name, &agent.node_uid) == (&self.agent.node_name, &self.agent.node_uid) =>
            {
                self.token_end = self.now().saturating_add(agent.valid_for);
                self.agent = agent;
                Ok(())
            }
            Ok(agent) => Err(self.mismatch(agent.node_name.to_string())),
            // The old token may still be good for a while; when it ends, so does the stream.
            Err(AuthError::Backend { detail, .. }) => {
                tracing::warn!(node = %self.agent.node_name, detail, "a fresh token could not be verified");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn gone() -> Status {
    Status::cancelled("the agent is gone")
}

/// The renewal's end, when there is one; for ever otherwise.
async fn pending<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
