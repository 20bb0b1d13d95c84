//! The way of one task: wait for its turn, have the runtime called, wait, try again.
//!
//! A worker decides nothing (the planner does) and keeps nothing (the engine does): it can be dropped at any point, and another
//! one goes on from the record.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_planner::node::attempt::{self, Failure, Tries, Verdict, Window};
use kruise_planner::node::reason;
use kruise_planner::task::Reason;
use kruise_proto::dispatch::Credential;
use tokio::sync::{mpsc, oneshot, watch};

use super::call::{Broken, Done, Stage};
use super::calls::{Calls, Handle, Joined, Want};
use super::order::{Policy, Work};
use super::record::Failed;
use super::shared::Shared;
use crate::progress::Reading;
use crate::runtime::{LeaseId, Runtime, RuntimeError};

/// Pause before a runtime that does not answer is asked again.
const RUNTIME_PAUSE: Duration = Duration::from_secs(1);

/// What may change while a task is held.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) work: Work,
    pub(super) credentials: Vec<Credential>,
}

/// What a worker tells the engine.
#[derive(Debug)]
pub(super) enum Note {
    /// An attempt is about to begin; it waits for the answer.
    Begin(oneshot::Sender<()>),
    /// How far it is.
    Reading(Reading),
    /// It failed; the next one follows after a pause.
    Failed {
        tries: Tries,
        failed: Failed,
        pause: Duration,
    },
    /// The task has ended well.
    Present {
        image_id: String,
        reading: Option<Reading>,
        pin: Option<Pinned>,
    },
    /// The task has failed for good.
    Ended { tries: Tries, failed: Failed },
}

/// What came of keeping an image from the kubelet's image collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    /// Whether this runtime can do it.
    pub(super) supported: bool,
    pub(super) until: Timestamp,
}

/// A note with its sender; a later worker of the same task has a higher number.
pub(super) type Envelope = (TaskId, u64, Note);

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) task: TaskId,
    pub(super) number: u64,
    pub(super) image: ImageRef,
    pub(super) lease: LeaseId,
    /// When the task was taken, and bytes that it has brought in.
    pub(super) since: (Timestamp, u64),
    /// The task's time spent, as of a reading of the forward clock.
    pub(super) spent: (Duration, Duration),
    pub(super) tries: Tries,
    pub(super) spec: watch::Receiver<Spec>,
    pub(super) notes: mpsc::Sender<Envelope>,
}

/// What came of waiting for a turn.
enum Turn {
    /// The image is there already.
    Present(String),
    /// Now.
    Go(Arc<Handle>),
}

impl Worker {
    /// Works until the task has ended, or the engine has gone.
    pub(super) async fn run(mut self) {
        let last = self.work().await;
        if let Some(note) = last {
            self.tell(note).await;
        }
    }

    /// None when the engine has gone.
    async fn work(&mut self) -> Option<Note> {
        loop {
            if self.window().is_none() {
                return Some(self.too_late(None));
            }
            let left = self.whole().saturating_sub(self.elapsed());
            let handle = match tokio::time::timeout(left, self.turn()).await {
                Ok(Turn::Go(handle)) => handle,
                Ok(Turn::Present(image_id)) => return Some(self.present(image_id, None).await),
                Err(_) => return Some(self.too_late(None)),
            };
            let (begin, begun) = oneshot::channel();
            self.tell(Note::Begin(begin)).await;
            begun.await.ok()?;
            self.tries.begun = self.tries.begun.saturating_add(1);
            handle.go();
            let broken = match self.follow(&handle).await {
                Ok(Done { image_id, reading }) => return Some(self.present(image_id, reading).await),
                Err(broken) => broken,
            };
            drop(handle);
            match self.judge(broken) {
                Note::Failed { tries, failed, pause } => {
                    self.tries = tries;
                    self.tell(Note::Failed { tries, failed, pause }).await;
                    tokio::time::sleep(pause).await;
                }
                end => return Some(end),
            }
        }
    }

    /// What follows a failed attempt.
    fn judge(&self, broken: Broken) -> Note {
        let Broken {
            reason,
            growing,
            message,
            jitter,
            pause: asked_for,
        } = broken;
        let spec = self.spec.borrow();
        let failure = Failure {
            reason,
            growing,
            guarded: spec.work.terms.guard.is_some(),
        };
        let limits = spec.work.limits;
        let (tries, verdict) = attempt::after_failure(&limits, self.tries, failure, self.elapsed(), jitter);
        match verdict {
            Verdict::End(Reason::DeadlineExceeded) => self.too_late(Some(message)),
            Verdict::End(reason) => Note::Ended {
                tries,
                failed: Failed { reason, message },
            },
            Verdict::Retry(pause) => Note::Failed {
                tries,
                failed: Failed { reason, message },
                pause: pause.max(asked_for.unwrap_or_default()),
            },
        }
    }

    /// Waits until the runtime answers and the image's turn has come.
    async fn turn(&mut self) -> Turn {
        loop {
            let Some(runtime) = self.shared.runtime().await else {
                // The supervisor has gone, so the agent is about to.
                std::future::pending::<()>().await;
                continue;
            };
            match self.look(&runtime).await {
                Ok(None) => {}
                Ok(Some(image_id)) => return Turn::Present(image_id),
                Err(error) => {
                    tracing::debug!(task = %self.task, %error, "the runtime does not answer yet");
                    tokio::time::sleep(RUNTIME_PAUSE).await;
                    continue;
                }
            }
            match self.join() {
                Joined::Share(handle) => {
                    if let Some(turn) = self.ready(handle).await {
                        return turn;
                    }
                }
                Joined::Busy(mut stage) => {
                    // It also counts as over when its last share is gone.
                    let _ = stage.wait_for(|stage| matches!(stage, Stage::Ended(_))).await;
                }
            }
        }
    }

    fn join(&mut self) -> Joined {
        let Spec { work, credentials } = self.spec.borrow_and_update().clone();
        let want = Want {
            image: &self.image,
            lease: &self.lease,
            work,
            credentials,
            since: self.since,
        };
        Calls::join(&self.shared, want)
    }

    /// Waits until the runtime is about to be called; none when the call must be looked for anew.
    async fn ready(&mut self, handle: Arc<Handle>) -> Option<Turn> {
        let mut stage = handle.stage();
        loop {
            match &*stage.borrow_and_update() {
                Stage::Queued => {}
                Stage::Ready | Stage::Running(_) => return Some(Turn::Go(Arc::clone(&handle))),
                Stage::Ended(Ok(done)) => return Some(Turn::Present(done.image_id.clone())),
                Stage::Ended(Err(_)) => return None,
            }
            tokio::select! {
                changed = stage.changed() => changed.ok()?,
                changed = self.spec.changed() => {
                    changed.ok()?;
                    if !handle.logs_in_with(&self.spec.borrow().credentials) {
                        return None;
                    }
                }
            }
        }
    }

    /// Follows a call to its end, no longer than this task's own window.
    async fn follow(&mut self, handle: &Arc<Handle>) -> Result<Done, Broken> {
        let window = self.window().unwrap_or(Window {
            limit: Duration::ZERO,
            reason: Reason::DeadlineExceeded,
        });
        let broken = |reason, growing, message: String| Broken {
            reason,
            growing,
            message,
            jitter: rand::random(),
            pause: None,
        };
        let mut stage = handle.stage();
        let mut last = None;
        let over = tokio::time::sleep(window.limit);
        tokio::pin!(over);
        loop {
            let now = stage.borrow_and_update().clone();
            match now {
                Stage::Queued | Stage::Ready | Stage::Running(None) => {}
                Stage::Running(Some(reading)) => {
                    if last != Some(reading) {
                        self.tell(Note::Reading(reading)).await;
                    }
                    last = Some(reading);
                }
                Stage::Ended(ended) => return ended,
            }
            tokio::select! {
                changed = stage.changed() => if changed.is_err() {
                    let message = "the call was dropped".to_owned();
                    return Err(broken(Reason::RuntimeUnavailable, false, message));
                },
                () = &mut over => {
                    let growing = last.is_some_and(|last: Reading| last.growing);
                    let limit = window.limit.as_secs();
                    let message = format!("no end after {limit} s; what was fetched is kept for the next attempt");
                    return Err(broken(window.reason, growing, message));
                }
            }
        }
    }

    /// The end of a task whose image is there, kept from the kubelet's image collection if the order says so.
    async fn present(&self, image_id: String, reading: Option<Reading>) -> Note {
        let pin_for = self.spec.borrow().work.terms.pin_for;
        let pin = match pin_for {
            Some(time) => self.pin(time).await,
            None => None,
        };
        Note::Present {
            image_id,
            reading,
            pin,
        }
    }

    async fn pin(&self, time: Duration) -> Option<Pinned> {
        let runtime = self.shared.runtime().await?;
        let until = self.shared.clock.now_wall().checked_add(time);
        let until = until.unwrap_or(Timestamp::MAX);
        let pinned = match runtime.content() {
            Some(content) => content.pin(&self.image, until).await,
            None => Ok(false),
        };
        match pinned {
            Ok(supported) => Some(Pinned { supported, until }),
            Err(error) => {
                tracing::warn!(task = %self.task, %error, "image not kept from the kubelet's image collection");
                None
            }
        }
    }

    /// Whether nothing has to be fetched. Asks the runtime in any case, so that no attempt is wasted on one that does not answer.
    async fn look(&self, runtime: &Arc<dyn Runtime>) -> Result<Option<String>, RuntimeError> {
        let policy = self.spec.borrow().work.policy;
        match policy {
            Policy::Always => runtime.version().await.map(|_| None),
            Policy::IfNotPresent => match runtime.image(&self.image).await {
                // What the runtime thinks of this very image it shall say when it pulls.
                Err(error) if error.reason() != Reason::RuntimeUnavailable => Ok(None),
                answer => answer,
            },
        }
    }

    fn elapsed(&self) -> Duration {
        let (spent, as_of) = self.spent;
        spent.saturating_add(self.shared.clock.now_mono().saturating_sub(as_of))
    }

    fn window(&self) -> Option<Window> {
        self.spec.borrow().work.limits.window(self.elapsed())
    }

    fn whole(&self) -> Duration {
        self.spec.borrow().work.limits.whole()
    }

    fn too_late(&self, last: Option<String>) -> Note {
        let limit = self.whole().as_secs();
        let message = match last {
            Some(last) => format!("not done within {limit} s; last: {last}"),
            None => format!("not done within {limit} s"),
        };
        let failed = Failed {
            reason: Reason::DeadlineExceeded,
            message: reason::show(&message, &[]),
        };
        Note::Ended {
            tries: self.tries,
            failed,
        }
    }

    async fn tell(&self, note: Note) {
        // Nobody listens only when the engine has gone, and then this worker is about to be dropped.
        let _ = self.notes.send((self.task.clone(), self.number, note)).await;
    }
}
