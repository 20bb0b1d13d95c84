//! Serves one stream: what arrives goes through the fence to the puller, what changes goes out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use kruise_api::ids::{Epoch, Generation, TaskId};
use kruise_planner::node::fence::{Envelope, Kind, Refusal};
use kruise_proto::dispatch::{self, AttachRequest, AttachResponse, Hello, attach_request, attach_response};
use kruise_proto::{convert, node, task};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::Session;
use super::dial::Goodbye;
use super::outbox::Outbox;
use crate::puller::board::Follower;
use crate::puller::here::is_here;
use crate::puller::order::Order;
use crate::puller::{Refused, Welcome};
use crate::restart;
use crate::runtime::Link;

/// Time until a manager has welcomed the agent. It may let only so many attach per second.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);
/// Heartbeats that may stay unanswered before the stream is given up, and the least time for it.
const UNANSWERED: (u32, Duration) = (4, Duration::from_secs(20));
/// Bounds of what a leader may set.
const HEARTBEAT_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
const HEARTBEAT: Duration = Duration::from_secs(5);
const MAX_ORDER_AGE: Duration = Duration::from_secs(15);
/// How often the token's file is looked at.
const TOKEN_LOOK_EVERY: Duration = Duration::from_secs(30);
/// With more tasks than this, a Hello leaves out the words of failures, so that it fits into one message.
const WORDY_TASKS: usize = 500;

/// Numbers of the welcome.
#[derive(Clone, Copy, Debug)]
struct Terms {
    welcome: Welcome,
    heartbeat: Duration,
    /// Time without an answered heartbeat after which the stream is given up; never longer than the contact lease, or the agent
    /// would sit on a stream that it may no longer obey.
    patience: Duration,
}

/// The end of a stream, as an error so that `?` can be used.
type Served<T> = Result<T, Goodbye>;

impl Session {
    /// The first message: who the agent is and all that it holds.
    pub(super) fn hello(&self, opened: Duration) -> (AttachRequest, Follower) {
        let board = self.deps.puller.board().borrow().clone();
        let (runtime, disk) = self.runtime();
        let wordy = board.0.len() <= WORDY_TASKS;
        let without_words = |status: &task::TaskStatus| {
            let mut status = status.clone();
            if !wordy {
                status.message.clear();
            }
            status
        };
        let ordered = board.0.iter().filter(|(id, _)| !is_here(id));
        let tasks = ordered.map(|(_, status)| without_words(status)).collect();
        let hello = Hello {
            node_name: self.config.node_name.clone(),
            boot_id: self.config.boot_id.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime,
            disk,
            highest_epoch: self.fence().highest().0,
            tasks,
            max_workers: self.config.max_workers,
            stamp: self.hello_stamp(opened),
            answers_probes: true,
        };
        let message = Some(attach_request::Message::Hello(hello));
        (
            AttachRequest { message },
            Follower::told(&board, self.deps.clock.now_mono()).coarse(),
        )
    }

    /// Tells the manager which of two Hellos is the later one, so it rises with each stream, also where the clock is a coarse one.
    fn hello_stamp(&self, opened: Duration) -> u64 {
        let now = u64::try_from(opened.as_nanos()).unwrap_or(u64::MAX);
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self
            .stamp
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        now.max(last.unwrap_or_default().saturating_add(1))
    }

    pub(super) async fn serve(
        &self,
        mut inbound: Streaming<AttachResponse>,
        sender: mpsc::Sender<AttachRequest>,
        opened: Duration,
        follower: Follower,
        token: String,
    ) -> Goodbye {
        let first = tokio::time::timeout(WELCOME_TIMEOUT, inbound.message()).await;
        let welcome = match first {
            Ok(Ok(Some(AttachResponse {
                message: Some(attach_response::Message::Welcome(welcome)),
            }))) => welcome,
            Ok(Ok(Some(_))) => return Goodbye::failed(false, "the first message was no Welcome"),
            Ok(Ok(None)) => return Goodbye::failed(false, "the manager closed the stream"),
            Ok(Err(status)) => return Goodbye::from_status(false, &status),
            Err(_) => return Goodbye::failed(false, format_args!("no Welcome within {WELCOME_TIMEOUT:?}")),
        };
        let terms = match self.welcomed(&welcome, opened).await {
            Ok(terms) => terms,
            Err(refusal) => return Goodbye::failed(false, refusal),
        };
        let (Ok(goodbye) | Err(goodbye)) = self
            .converse(inbound, sender, terms, Outbox::new(follower), token)
            .await;
        goodbye
    }

    /// A leader has answered. Its epoch is on disk before anything is done for it.
    async fn welcomed(&self, welcome: &dispatch::Welcome, opened: Duration) -> Result<Terms, Refusal> {
        let duration = |duration: &Option<prost_types::Duration>, otherwise| {
            duration
                .as_ref()
                .and_then(convert::from_duration)
                .filter(|time| !time.is_zero())
                .unwrap_or(otherwise)
        };
        let epoch = Epoch(welcome.epoch);
        let max_order_age = duration(&welcome.max_order_age, MAX_ORDER_AGE);
        let grew = self.fence().welcome(epoch, opened, max_order_age)?;
        if grew {
            self.deps.puller.remember(epoch).await;
        }
        let lease = duration(
            &welcome.contact_lease,
            kruise_planner::node::contact::DEFAULT_LEASE,
        );
        let number = {
            let mut contact = self.contact();
            contact.0.welcomed(opened, lease);
            contact.1 = Welcome(contact.1.0 + 1);
            contact.1
        };
        self.contact_changed.notify_one();
        self.deps.metrics.connected.set(1);
        tracing::info!(%epoch, manager = welcome.manager_version, "attached");
        self.tell(|view| {
            view.contact = node::Contact::Attached;
            view.epoch = epoch.0;
            view.last_contact = view.last_contact.max(Some(opened));
            view.last_error.clear();
        });
        let (least, most) = HEARTBEAT_BOUNDS;
        // Three chances at least to be heard before the lease ends.
        let heartbeat = duration(&welcome.heartbeat_interval, HEARTBEAT)
            .min(lease / 3)
            .clamp(least, most);
        let patience = (heartbeat * UNANSWERED.0).max(UNANSWERED.1).min(lease);
        Ok(Terms {
            welcome: number,
            heartbeat,
            patience,
        })
    }

    /// Reads and writes until something ends the stream.
    async fn converse(
        &self,
        mut inbound: Streaming<AttachResponse>,
        sender: mpsc::Sender<AttachRequest>,
        terms: Terms,
        mut outbox: Outbox,
        mut token: String,
    ) -> Served<Goodbye> {
        let mut board = self.deps.puller.board();
        let mut heartbeats = tokio::time::interval(terms.heartbeat);
        heartbeats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut token_looks = tokio::time::interval(TOKEN_LOOK_EVERY);
        let (mut waiting, mut again) = (None, None);
        loop {
            if waiting.is_none() {
                let now = self.deps.clock.now_mono();
                (waiting, again) = outbox.next(&board.borrow_and_update(), now, || self.heartbeat());
            }
            let idle = waiting.is_none();
            tokio::select! {
                biased;
                permit = sender.reserve(), if !idle => match (permit, waiting.take()) {
                    (Ok(permit), Some(message)) => permit.send(message),
                    // The stream is closed; why, the reading side knows.
                    _ => return Ok(self.farewell(inbound).await),
                },
                message = inbound.message(), if !outbox.is_behind() => match message {
                    Ok(Some(AttachResponse { message: Some(attach_response::Message::Probe(probe)) })) => {
                        self.answer(probe, &sender);
                    }
                    Ok(Some(message)) => self.receive(message, terms, &mut outbox).await?,
                    Ok(None) => return Ok(Goodbye::failed(true, "the manager closed the stream")),
                    Err(status) => return Ok(Goodbye::from_status(true, &status)),
                },
                _ = heartbeats.tick() => outbox.heartbeat(),
                _ = token_looks.tick() => self.look_at_token(&mut token, &mut outbox).await,
                changed = board.changed(), if idle => if changed.is_err() {
                    return Ok(Goodbye::failed(true, "the agent stops"));
                },
                () = self.wait_for(again), if idle && again.is_some() => {}
                () = self.unanswered(terms.patience) => {
                    return Ok(Goodbye::failed(true, format_args!("no heartbeat was answered for {:?}", terms.patience)));
                }
            }
        }
    }

    async fn farewell(&self, mut inbound: Streaming<AttachResponse>) -> Goodbye {
        loop {
            match tokio::time::timeout(Duration::from_secs(1), inbound.message()).await {
                Ok(Ok(Some(_))) => {}
                Ok(Err(status)) => return Goodbye::from_status(true, &status),
                Ok(Ok(None)) | Err(_) => return Goodbye::failed(true, "the manager closed the stream"),
            }
        }
    }

    async fn wait_for(&self, time: Option<Duration>) {
        if let Some(time) = time {
            self.deps.clock.sleep_until(time).await;
        }
    }

    /// Returns when no heartbeat was answered for so long.
    async fn unanswered(&self, patience: Duration) {
        let last = self.contact().0.last();
        self.deps.clock.sleep_until(last.saturating_add(patience)).await;
    }

    async fn look_at_token(&self, token: &mut String, outbox: &mut Outbox) {
        match self.config.token.read().await {
            Ok(now) if now != *token => {
                token.clone_from(&now);
                outbox.renew(now.trim().to_owned());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "token not read"),
        }
    }

    async fn receive(&self, message: AttachResponse, terms: Terms, outbox: &mut Outbox) -> Served<()> {
        use attach_response::Message;
        match message.message {
            Some(Message::DesiredSet(set)) => {
                let (pulls, restarts) = by_kind(set.orders);
                let envelope = envelope(Kind::Set, set.epoch, set.generation, set.stamp);
                let taken = async {
                    self.deps.restarter.replace(terms.welcome, restarts).await?;
                    self.deps.puller.replace(terms.welcome, pulls).await
                };
                if self.order(envelope, taken, outbox).await {
                    outbox.repeat_results();
                }
            }
            Some(Message::DesiredDelta(delta)) => {
                let (add, restarts) = by_kind(delta.add);
                for cancel in &delta.cancel {
                    tracing::info!(task = cancel.task_id, reason = cancel.reason, "cancel ordered");
                }
                let cancel: Vec<TaskId> = delta
                    .cancel
                    .into_iter()
                    .map(|cancel| TaskId::new(cancel.task_id))
                    .collect();
                let envelope = envelope(Kind::Delta, delta.epoch, delta.generation, delta.stamp);
                let taken = async {
                    self.deps
                        .restarter
                        .change(terms.welcome, restarts, &cancel)
                        .await?;
                    self.deps.puller.change(terms.welcome, add, cancel).await
                };
                self.order(envelope, taken, outbox).await;
            }
            Some(Message::HeartbeatReply(reply)) => self.answered(&reply)?,
            Some(Message::ResultAck(ack)) => {
                let tasks: Vec<TaskId> = ack.task_ids.into_iter().map(TaskId::new).collect();
                self.deps.restarter.acknowledge(&tasks).await;
                self.deps.puller.acknowledge(tasks).await;
            }
            Some(Message::Welcome(_)) => return Err(Goodbye::failed(true, "a second Welcome")),
            // Answered beside the stream's own work.
            Some(Message::Probe(_)) => {}
            // Of a newer manager, which does not expect an answer from an older agent.
            None => {}
        }
        Ok(())
    }

    /// Lets an order through the fence and to the puller, and answers it. Whether it was taken.
    async fn order(
        &self,
        envelope: Envelope,
        take: impl Future<Output = Result<(), Refused>>,
        outbox: &mut Outbox,
    ) -> bool {
        let checked = self.fence().check(&envelope, self.deps.clock.now_mono());
        let refused = match checked {
            Err(refusal) => Some((dispatch::Refusal::from(&refusal), refusal.to_string())),
            Ok(()) => take
                .await
                .err()
                .map(|refused| (refusal_of(&refused), refused.to_string())),
        };
        let (refusal, message) = refused.clone().unwrap_or_default();
        match &refused {
            None => {
                self.fence().taken(&envelope);
                self.tell(|view| view.generation = envelope.generation.0);
            }
            Some(_) => {
                tracing::warn!(epoch = %envelope.epoch, generation = %envelope.generation, message, "order refused");
            }
        }
        let (epoch, generation) = (envelope.epoch.0, envelope.generation.0);
        outbox.ack(dispatch::Ack {
            epoch,
            generation,
            refusal: refusal.into(),
            message,
        });
        refused.is_none()
    }

    fn answered(&self, reply: &dispatch::HeartbeatReply) -> Served<()> {
        let highest = self.fence().highest();
        if Epoch(reply.epoch) != highest {
            let error = format!(
                "a heartbeat was answered for epoch {}, this stream's is {highest}",
                reply.epoch
            );
            return Err(Goodbye::failed(true, error));
        }
        let sent = Duration::from_nanos(reply.stamp);
        if sent > self.deps.clock.now_mono() {
            return Err(Goodbye::failed(
                true,
                "a heartbeat was answered that was never sent",
            ));
        }
        self.contact().0.answered(sent);
        self.contact_changed.notify_one();
        self.tell(|view| view.last_contact = view.last_contact.max(Some(sent)));
        Ok(())
    }

    fn heartbeat(&self) -> dispatch::Heartbeat {
        let (runtime, disk) = self.runtime();
        let stamp = u64::try_from(self.deps.clock.now_mono().as_nanos()).unwrap_or(u64::MAX);
        dispatch::Heartbeat { stamp, runtime, disk }
    }

    fn runtime(&self) -> (Option<task::Runtime>, Option<task::DiskSpace>) {
        match &*self.deps.link.borrow() {
            Link::Up { info, disk, .. } => (Some(info.clone()), *disk),
            Link::Down { .. } => (None, None),
        }
    }
}

/// Orders by who carries them out.
fn by_kind(orders: Vec<dispatch::Order>) -> (Vec<Order>, Vec<restart::Order>) {
    let (mut pulls, mut restarts) = (Vec::new(), Vec::new());
    for order in orders {
        match order.work {
            Some(dispatch::order::Work::RestartContainers(message)) => restarts.push(restart::Order {
                id: TaskId::new(order.task_id),
                message,
            }),
            _ => pulls.push(Order::from(order)),
        }
    }
    (pulls, restarts)
}

fn envelope(kind: Kind, epoch: u64, generation: u64, stamp: u64) -> Envelope {
    Envelope {
        kind,
        epoch: Epoch(epoch),
        generation: Generation(generation),
        stamp: (stamp > 0).then(|| Duration::from_nanos(stamp)),
    }
}

fn refusal_of(refused: &Refused) -> dispatch::Refusal {
    match refused {
        Refused::Conflict(_) | Refused::TooMany(_) | Refused::TooManyHere => dispatch::Refusal::Conflict,
        // What was ordered before contact was lost is old, however it got here.
        Refused::ContactLost | Refused::Stopping => dispatch::Refusal::Stale,
    }
}
