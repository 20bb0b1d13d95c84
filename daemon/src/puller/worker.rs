//! The way of one task: wait for its turn, call the runtime, wait, try again.
//!
//! A worker decides nothing (the planner does) and keeps nothing (the engine does): it can be dropped at any point, and another
//! one goes on from the record.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_planner::node::attempt::{self, Failure, Tries, Verdict, Window};
use kruise_planner::node::reason;
use kruise_planner::node::stall::Rules;
use kruise_planner::task::{Progress, Reason};
use kruise_proto::dispatch::Credential;
use tokio::sync::{mpsc, oneshot, watch};

use super::gate::{Gate, Leave};
use super::order::{Policy, Work};
use super::record::Failed;
use crate::clock::Clock;
use crate::progress::{POLL_EVERY, Reading, Subject, Watch};
use crate::runtime::{LeaseId, Link, Pull, Runtime, RuntimeError};

/// Pause before a runtime that does not answer is asked again.
const RUNTIME_PAUSE: Duration = Duration::from_secs(1);
/// Time for reading the content store once.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Life of a lease: a little more than the longest task's.
const LEASE_LIFE: Duration = Duration::from_secs(24 * 3600 + 600);

/// What all workers of an agent share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) link: watch::Receiver<Link>,
    pub(super) gate: Gate,
    pub(super) rules: Rules,
}

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
    },
    /// The task has failed for good.
    Ended { tries: Tries, failed: Failed },
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
    pub(super) taken: Timestamp,
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
    Go(Arc<dyn Runtime>, Leave),
}

/// A failed attempt with the words to show.
struct Failing {
    failure: Failure,
    message: String,
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
            let Some(window) = self.window() else {
                return Some(self.too_late(None));
            };
            let left = self.whole().saturating_sub(self.elapsed());
            let (runtime, leave) = match tokio::time::timeout(left, self.turn()).await {
                Ok(Turn::Go(runtime, leave)) => (runtime, leave),
                Ok(Turn::Present(image_id)) => {
                    return Some(Note::Present {
                        image_id,
                        reading: None,
                    });
                }
                Err(_) => return Some(self.too_late(None)),
            };
            let window = self.window().unwrap_or(Window {
                limit: Duration::ZERO,
                ..window
            });
            let (begin, begun) = oneshot::channel();
            self.tell(Note::Begin(begin)).await;
            begun.await.ok()?;
            self.tries.begun = self.tries.begun.saturating_add(1);
            let failing = match self.attempt(&runtime, window).await {
                Ok((image_id, reading)) => return Some(Note::Present { image_id, reading }),
                Err(failing) => failing,
            };
            drop(leave);
            let limits = self.spec.borrow().work.limits;
            let (tries, verdict) = attempt::after_failure(
                &limits,
                self.tries,
                failing.failure,
                self.elapsed(),
                rand::random(),
            );
            self.tries = tries;
            let Failing { failure, message } = failing;
            match verdict {
                Verdict::End(Reason::DeadlineExceeded) => return Some(self.too_late(Some(message))),
                Verdict::End(reason) => {
                    return Some(Note::Ended {
                        tries,
                        failed: Failed { reason, message },
                    });
                }
                Verdict::Retry(pause) => {
                    let failed = Failed {
                        reason: failure.reason,
                        message,
                    };
                    self.tell(Note::Failed { tries, failed, pause }).await;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits until the runtime answers, the image's turn has come and a slot is free.
    async fn turn(&self) -> Turn {
        loop {
            let Some(runtime) = self.runtime().await else {
                // The supervisor has gone, so the agent is about to.
                std::future::pending::<()>().await;
                continue;
            };
            let present = match self.look(&runtime).await {
                Ok(present) => present,
                Err(error) => {
                    tracing::debug!(task = %self.task, %error, "the runtime does not answer yet");
                    tokio::time::sleep(RUNTIME_PAUSE).await;
                    continue;
                }
            };
            if let Some(image_id) = present {
                return Turn::Present(image_id);
            }
            let (image, waited) = self.shared.gate.image(self.image.canonical()).await;
            if waited && let Ok(Some(image_id)) = self.look(&runtime).await {
                return Turn::Present(image_id);
            }
            return Turn::Go(runtime, self.shared.gate.slot(image).await);
        }
    }

    async fn runtime(&self) -> Option<Arc<dyn Runtime>> {
        let mut link = self.shared.link.clone();
        let up = link.wait_for(|link| link.runtime().is_some()).await.ok()?;
        up.runtime().map(Arc::clone)
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

    /// One attempt, from the lease to the proof that the image is there.
    async fn attempt(
        &self,
        runtime: &Arc<dyn Runtime>,
        window: Window,
    ) -> Result<(String, Option<Reading>), Failing> {
        let began = self.shared.clock.now_mono();
        let lease = self.lease(runtime).await;
        let mut watch = lease.clone().map(|lease| {
            let subject = Subject {
                image: self.image.clone(),
                lease,
                taken: self.taken,
                began,
            };
            Watch::new(subject, self.shared.rules)
        });
        if let Err(failing) = self.fetch(runtime, lease, &mut watch, window).await {
            self.tidy(runtime, failing.failure.reason).await;
            return Err(failing);
        }
        let reading = self.read(runtime, &mut watch).await.map(whole);
        let failing = |reason, message| Failing {
            failure: Failure {
                reason,
                growing: false,
                guarded: false,
            },
            message,
        };
        match runtime.image(&self.image).await {
            Ok(Some(image_id)) => Ok((image_id, reading)),
            Ok(None) => {
                let message = "the runtime says that it pulled the image, and that it does not have it";
                Err(failing(Reason::Unknown, message.to_owned()))
            }
            Err(error) => Err(failing(Reason::RuntimeUnavailable, self.show(&error.text))),
        }
    }

    /// Calls the runtime and watches it, no longer than the window.
    async fn fetch(
        &self,
        runtime: &Arc<dyn Runtime>,
        lease: Option<LeaseId>,
        watch: &mut Option<Watch>,
        window: Window,
    ) -> Result<(), Failing> {
        let call = self.call(runtime, lease);
        tokio::pin!(call);
        let over = tokio::time::sleep(window.limit);
        tokio::pin!(over);
        let mut polls = tokio::time::interval(POLL_EVERY);
        polls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (reason, message) = loop {
            tokio::select! {
                biased;
                answer = &mut call => match answer {
                    Ok(()) => return Ok(()),
                    Err(error) => break (error.reason(), self.show(&error.text)),
                },
                () = &mut over => {
                    let limit = window.limit.as_secs();
                    break (window.reason, format!("no end after {limit} s; what was fetched is kept for the next attempt"));
                }
                _ = polls.tick(), if watch.is_some() => {
                    if let Some(reading) = self.read(runtime, watch).await {
                        self.tell(Note::Reading(reading)).await;
                    }
                    if watch.as_ref().is_some_and(|watch| watch.stalled(self.shared.clock.now_mono())) {
                        let rate = self.shared.rules.min_rate;
                        break (Reason::Stalled, format!("fewer than {rate} bytes per second arrived"));
                    }
                }
            }
        };
        let growing = watch
            .as_ref()
            .is_some_and(|watch| watch.growing(self.shared.clock.now_mono()));
        Err(Failing {
            failure: Failure {
                reason,
                growing,
                guarded: false,
            },
            message,
        })
    }

    /// The call, with each log-in until one is let in.
    async fn call(&self, runtime: &Arc<dyn Runtime>, lease: Option<LeaseId>) -> Result<(), RuntimeError> {
        let Spec { work, credentials } = self.spec.borrow().clone();
        let mut pull = Pull {
            image: self.image.clone(),
            labels: work.labels,
            annotations: work.annotations,
            credential: None,
            lease,
        };
        let mut credentials = credentials.into_iter();
        loop {
            pull.credential = credentials.next();
            let answer = runtime.pull(pull.clone()).await;
            // A registry may also say "not found" of what this log-in may not see.
            let refused = |error: &RuntimeError| matches!(error.reason(), Reason::Denied | Reason::NotFound);
            match answer {
                Err(error) if refused(&error) && credentials.len() > 0 => {}
                answer => return answer,
            }
        }
    }

    /// The lease that this attempt fetches under; none where there is no content store.
    async fn lease(&self, runtime: &Arc<dyn Runtime>) -> Option<LeaseId> {
        let content = runtime.content()?;
        let expires = self.shared.clock.now_wall().saturating_add(LEASE_LIFE).ok()?;
        match content.make_lease(&self.lease, expires).await {
            Ok(()) => Some(self.lease.clone()),
            Err(error) => {
                tracing::warn!(task = %self.task, %error, "no lease: this attempt will not resume if it is cut off");
                None
            }
        }
    }

    /// What a failed attempt leaves is kept for the next one, with two exceptions.
    async fn tidy(&self, runtime: &Arc<dyn Runtime>, reason: Reason) {
        let Some(content) = runtime.content() else { return };
        let tidied = match reason {
            // The lease keeps what came in wrong too, and the runtime would check the same bytes for ever.
            Reason::Corrupt => content.discard(&self.lease).await,
            // A node with a full disk loses pods; our bytes are the least that is needed on it.
            Reason::NoSpace => content.drop_lease(&self.lease, true).await,
            _ => return,
        };
        if let Err(error) = tidied {
            tracing::warn!(task = %self.task, %reason, %error, "what a failed attempt left was not thrown away");
        }
    }

    async fn read(&self, runtime: &Arc<dyn Runtime>, watch: &mut Option<Watch>) -> Option<Reading> {
        let (watch, store) = (watch.as_mut()?, runtime.content()?);
        let reading = watch.read(store, self.shared.clock.now_mono());
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(reading)) => Some(reading),
            Ok(Err(error)) => {
                tracing::debug!(task = %self.task, %error, "content store not read");
                None
            }
            Err(_) => None,
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

    /// The runtime's words without what is secret.
    fn show(&self, text: &str) -> String {
        let spec = self.spec.borrow();
        let encoded: Vec<String> = (spec.credentials.iter())
            .map(|credential| STANDARD.encode(format!("{}:{}", credential.username, credential.password)))
            .collect();
        let plain = spec.credentials.iter().flat_map(|credential| {
            [
                &credential.password,
                &credential.identity_token,
                &credential.registry_token,
            ]
        });
        let secrets: Vec<&str> = plain.chain(&encoded).map(String::as_str).collect();
        reason::show(text, &secrets)
    }

    async fn tell(&self, note: Note) {
        // Nobody listens only when the engine has gone, and then this worker is about to be dropped.
        let _ = self.notes.send((self.task.clone(), self.number, note)).await;
    }
}

/// The last reading of a pull that has ended well: all is there, also where the runtime throws layers away once they are unpacked.
fn whole(reading: Reading) -> Reading {
    let progress = Progress {
        bytes_done: reading.progress.bytes_total.max(reading.progress.bytes_done),
        layers_done: reading.progress.layers_total,
        bytes_per_second: 0,
        ..reading.progress
    };
    Reading { progress, ..reading }
}
