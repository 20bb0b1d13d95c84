//! How other tasks talk to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kruise_api::ids::{Epoch, NodeName, ObjectKey};
use kruise_proto::dispatch::{Ack, ProbeAnswer};
use kruise_proto::inspect;
use kruise_proto::task::TaskStatus;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::config::EngineConfig;
use super::event::{Attach, AttachRefused, Change, Event, SessionId, ToAgent};
use super::guests::{Guest, GuestChange, GuestRooms, Guests};
use super::objects::JobObject;
use super::ports::ApiFailure;
use super::state::{AgentPage, TaskFilter, TaskPage};
use crate::clock::Monotonic;

/// Messages that wait for the engine. It takes thousands a second; a queue of this length is a tenth of a second of work.
pub(super) const INBOX: usize = 1024;
/// Messages that wait for one agent's stream. The engine sends at most three per settling and stream.
/// They are boxed, since a queue keeps room for 32 items however short it is.
const LINK: usize = 16;

/// How long a new agent waits for room in the inbox. How many come at once is limited before.
const ATTACH_PATIENCE: Duration = Duration::from_secs(2);

/// The engine did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineGone {
    /// This replica does not lead, or ends.
    #[error("this replica does not lead")]
    NotLeading,
    /// Too much to do.
    #[error("the leader has too much to do at this moment")]
    Busy,
}

/// A message to the engine's task.
#[derive(Debug)]
pub(super) enum Message {
    Event(Box<Event>),
    Attach {
        attach: Box<Attach>,
        link: mpsc::Sender<Box<ToAgent>>,
        reply: oneshot::Sender<Result<Epoch, AttachRefused>>,
    },
    Agents {
        after: String,
        size: usize,
        reply: oneshot::Sender<(AgentPage, Epoch)>,
    },
    Agent {
        node: NodeName,
        reply: oneshot::Sender<Option<(inspect::Agent, Vec<inspect::Task>)>>,
    },
    Tasks {
        filter: TaskFilter,
        after: String,
        size: usize,
        reply: oneshot::Sender<TaskPage>,
    },
    Watch {
        filter: TaskFilter,
        reply: oneshot::Sender<Watched>,
    },
    Explain {
        job: ObjectKey,
        node: Option<NodeName>,
        reply: oneshot::Sender<Option<inspect::ExplainJobResponse>>,
    },
    Knows {
        job: ObjectKey,
        reply: oneshot::Sender<bool>,
    },
    Fetch {
        job: ObjectKey,
        reply: oneshot::Sender<Result<Option<JobObject>, ApiFailure>>,
    },
}

/// Tasks and jobs as they stand, and all changes from then on.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) tasks: Vec<inspect::Task>,
    pub(crate) jobs: Vec<inspect::JobSummary>,
    pub(crate) changes: broadcast::Receiver<Change>,
}

/// Handle of the engine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inbox: mpsc::Sender<Message>,
    config: EngineConfig,
    clock: Monotonic,
    sessions: Arc<AtomicU64>,
    open: watch::Receiver<bool>,
    closing: CancellationToken,
    guests: GuestRooms,
}

impl EngineHandle {
    pub(super) fn new(
        inbox: mpsc::Sender<Message>,
        config: EngineConfig,
        clock: Monotonic,
        open: watch::Receiver<bool>,
        closing: CancellationToken,
    ) -> Self {
        Self {
            open,
            inbox,
            config,
            clock,
            sessions: Arc::default(),
            closing,
            guests: GuestRooms::default(),
        }
    }

    /// Ends the engine for good: every stream is closed and sent to the next leader, nothing is handed out or written any more.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Until the engine is to end for good.
    pub(crate) async fn closing(&self) {
        self.closing.cancelled().await;
    }

    /// Waits until agents can attach. False when they never will, because the process ends.
    pub(crate) async fn opened(&self) -> bool {
        let mut open = self.open.clone();
        tokio::select! {
            // Both are cancel-safe: they only look.
            opened = open.wait_for(|open| *open) => opened.is_ok(),
            () = self.closing.cancelled() => false,
        }
    }

    /// Spans that agents are told.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The clock that vitals are kept by.
    #[must_use]
    pub fn clock(&self) -> &Monotonic {
        &self.clock
    }

    pub(crate) fn next_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// Lets an agent in. Returns the epoch and the messages for it.
    pub(crate) async fn attach(
        &self,
        attach: Attach,
    ) -> Result<(Epoch, mpsc::Receiver<Box<ToAgent>>), AttachRefused> {
        let (link, messages) = mpsc::channel(LINK);
        let (reply, answer) = oneshot::channel();
        let message = Message::Attach {
            attach: Box::new(attach),
            link,
            reply,
        };
        match tokio::time::timeout(ATTACH_PATIENCE, self.inbox.send(message)).await {
            Ok(sent) => sent.map_err(|_| AttachRefused::NotLeading)?,
            Err(_) => return Err(AttachRefused::Busy),
        }
        let epoch = answer.await.map_err(|_| AttachRefused::NotLeading)??;
        Ok((epoch, messages))
    }

    /// The engine with the views that it shares with other controllers.
    pub(super) fn with_guests(self, guests: GuestRooms) -> Self {
        Self { guests, ..self }
    }

    /// For a controller whose tasks travel with the engine's.
    pub(crate) fn guests(&self, guest: Guest) -> &Guests {
        self.guests.of(guest)
    }

    /// What that controller wants, under the leadership of this number.
    pub(crate) async fn guest(&self, epoch: Epoch, change: GuestChange) {
        self.tell(Event::Guest { epoch, change }).await;
    }

    /// Tells that a stream has ended. Waits for room: this must not be lost.
    pub(crate) async fn detached(&self, session: SessionId) {
        self.tell(Event::Detached { session }).await;
    }

    pub(crate) async fn stale(&self, session: SessionId, stale: bool) {
        self.tell(Event::Stale { session, stale }).await;
    }

    pub(crate) async fn ack(&self, session: SessionId, ack: Ack) {
        self.tell(Event::Ack { session, ack }).await;
    }

    /// Passes a report on. Waiting for room holds up the stream that it came by, and no other.
    pub(crate) async fn report(&self, session: SessionId, status: TaskStatus) {
        self.tell(Event::Report {
            session,
            status: Box::new(status),
        })
        .await;
    }

    /// Passes the answer to a question on.
    pub(crate) async fn probed(&self, session: SessionId, answer: ProbeAnswer) {
        self.tell(Event::Probed { session, answer }).await;
    }

    /// Passes a report of mere progress on, unless the engine is busy: the next one says more.
    pub(crate) fn progress(&self, session: SessionId, status: TaskStatus) {
        let event = Event::Report {
            session,
            status: Box::new(status),
        };
        // A report that finds no room is meant to be lost.
        drop(self.inbox.try_send(Message::Event(Box::new(event))));
    }

    async fn tell(&self, event: Event) {
        // The engine's task lives as long as the process; when it is gone there is nobody to tell.
        drop(self.inbox.send(Message::Event(Box::new(event))).await);
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, EngineGone> {
        let (reply, answer) = oneshot::channel();
        self.inbox.try_send(message(reply)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => EngineGone::Busy,
            mpsc::error::TrySendError::Closed(_) => EngineGone::NotLeading,
        })?;
        answer.await.map_err(|_| EngineGone::NotLeading)
    }

    pub(crate) async fn agents(&self, after: String, size: usize) -> Result<(AgentPage, Epoch), EngineGone> {
        self.ask(|reply| Message::Agents { after, size, reply }).await
    }

    pub(crate) async fn agent(
        &self,
        node: NodeName,
    ) -> Result<Option<(inspect::Agent, Vec<inspect::Task>)>, EngineGone> {
        self.ask(|reply| Message::Agent { node, reply }).await
    }

    pub(crate) async fn tasks(
        &self,
        filter: TaskFilter,
        after: String,
        size: usize,
    ) -> Result<TaskPage, EngineGone> {
        self.ask(|reply| Message::Tasks {
            filter,
            after,
            size,
            reply,
        })
        .await
    }

    pub(crate) async fn watch(&self, filter: TaskFilter) -> Result<Watched, EngineGone> {
        self.ask(|reply| Message::Watch { filter, reply }).await
    }

    /// Why a job stands where it stands; none when there is no such job.
    pub(crate) async fn explain(
        &self,
        job: ObjectKey,
        node: Option<NodeName>,
    ) -> Result<Option<inspect::ExplainJobResponse>, EngineGone> {
        self.ask(|reply| Message::Explain { job, node, reply }).await
    }

    /// Whether a job exists: known to the engine, or else to the API server, which may be ahead of the watch.
    pub(crate) async fn find_job(&self, job: ObjectKey) -> Result<bool, EngineGone> {
        let key = job.clone();
        if self.ask(|reply| Message::Knows { job: key, reply }).await? {
            return Ok(true);
        }
        match self.ask(|reply| Message::Fetch { job, reply }).await? {
            Ok(None) => Ok(false),
            Ok(Some(object)) => {
                self.tell(Event::Seen(Box::new(object))).await;
                Ok(true)
            }
            Err(_) => Err(EngineGone::Busy),
        }
    }
}
