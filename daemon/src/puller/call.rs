//! One call to the runtime, shared by all who want the same image.
//!
//! It waits for its place, asks whether the image has come in the meantime, waits until one of those who want it has written down that
//! an attempt begins, and calls. It lives as long as somebody wants it: dropping the last handle drops the call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::guard::{self, Refusal, Size, Space};
use kruise_planner::node::reason;
use kruise_planner::task::{Progress, Reason};
use kruise_proto::dispatch::Credential;
use tokio::sync::{Notify, watch};

use super::order::{Policy, Work};
use super::shared::Shared;
use crate::progress::{POLL_EVERY, Reading, Subject, Watch};
use crate::runtime::{LeaseId, Pull, Runtime, RuntimeError};

/// Time for reading the content store once.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the content store is read while the size is unknown and something depends on it.
const SIZE_POLL_EVERY: Duration = Duration::from_millis(100);
/// How often a pull is held against the space that is left, once its size is known.
const SPACE_CHECK_EVERY: Duration = Duration::from_secs(5);
/// Life of a lease: a little more than the longest task's.
const LEASE_LIFE: Duration = Duration::from_secs(24 * 3600 + 600);

/// What is called for.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    pub(super) image: ImageRef,
    pub(super) lease: LeaseId,
    pub(super) work: Work,
    pub(super) credentials: Vec<Credential>,
    /// What the node itself logs in with, once it was asked: kept so that it is shown nowhere.
    pub(super) of_node: Mutex<Vec<Credential>>,
    /// When the image was first wanted: younger blobs were fetched for it.
    pub(super) wanted: Timestamp,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) go: Arc<Notify>,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// Waits for its place.
    Queued,
    /// Its turn has come; it waits to be told to go.
    Ready,
    /// The runtime works, and this was read last.
    Running(Option<Reading>),
    /// It is over.
    Ended(Result<Done, Broken>),
}

/// A call that ended well.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) image_id: String,
    pub(super) reading: Option<Reading>,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(super) struct Broken {
    pub(super) reason: Reason,
    pub(super) growing: bool,
    pub(super) message: String,
    /// All who shared the call draw the same lot, so that they come back together.
    pub(super) jitter: f64,
    /// The registry wants to be left alone for this long.
    pub(super) pause: Option<Duration>,
}

impl Call {
    /// Goes all the way. The place in the queue is the caller's to hold.
    pub(super) async fn run(self, turn: impl Future<Output = ()>) {
        turn.await;
        let runtime = self.runtime().await;
        if let Some(image_id) = self.come(&runtime).await {
            let done = Done {
                image_id,
                reading: None,
            };
            self.stage.send_replace(Stage::Ended(Ok(done)));
            return;
        }
        self.stage.send_replace(Stage::Ready);
        self.go.notified().await;
        self.stage.send_replace(Stage::Running(None));
        let ended = self.attempt(&runtime).await;
        self.shared.promises.forget(self.image.canonical());
        self.stage.send_replace(Stage::Ended(ended));
    }

    async fn runtime(&self) -> Arc<dyn Runtime> {
        match self.shared.runtime().await {
            Some(runtime) => runtime,
            // The supervisor has gone, so the agent is about to.
            None => std::future::pending().await,
        }
    }

    /// Whether the image has come while the call waited.
    async fn come(&self, runtime: &Arc<dyn Runtime>) -> Option<String> {
        match self.work.policy {
            Policy::Always => None,
            Policy::IfNotPresent => runtime.image(&self.image).await.ok().flatten(),
        }
    }

    /// From the lease to the proof that the image is there.
    async fn attempt(&self, runtime: &Arc<dyn Runtime>) -> Result<Done, Broken> {
        let lease = self.lease(runtime).await;
        let mut watch = lease.clone().map(|lease| {
            let subject = Subject {
                image: self.image.clone(),
                lease,
                taken: self.wanted,
                began: self.shared.clock.now_mono(),
            };
            Watch::new(subject, self.shared.rules)
        });
        if let Err(broken) = self.fetch(runtime, lease, &mut watch).await {
            self.tidy(runtime, broken.reason).await;
            return Err(broken);
        }
        self.shared.gate.served(self.image.host());
        let reading = self.read(runtime, &mut watch).await.map(whole);
        match runtime.image(&self.image).await {
            Ok(Some(image_id)) => Ok(Done { image_id, reading }),
            Ok(None) => {
                let message = "the runtime says that it pulled the image, and that it does not have it";
                Err(broken(Reason::Unknown, message.to_owned()))
            }
            Err(error) => Err(broken(Reason::RuntimeUnavailable, self.show(&error.text))),
        }
    }

    /// Calls the runtime and watches it.
    async fn fetch(
        &self,
        runtime: &Arc<dyn Runtime>,
        lease: Option<LeaseId>,
        watch: &mut Option<Watch>,
    ) -> Result<(), Broken> {
        let call = self.with_each_login(runtime, lease);
        tokio::pin!(call);
        let mut space = SpaceCheck::default();
        let mut pause = Duration::ZERO;
        let mut last = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut call => return answer.map_err(|error| Broken {
                    growing: last.is_some_and(|last: Reading| last.growing),
                    ..self.failed(&error)
                }),
                () = tokio::time::sleep(pause), if watch.is_some() => {
                    if let Some(reading) = self.read(runtime, watch).await {
                        self.stage.send_replace(Stage::Running(Some(reading)));
                        self.fits(runtime, &reading, &mut space).await?;
                        last = Some(reading);
                    }
                    let stalled = watch.as_ref().is_some_and(|watch| watch.stalled(self.shared.clock.now_mono()));
                    if stalled {
                        let rate = self.shared.rules.min_rate;
                        return Err(broken(Reason::Stalled, format!("fewer than {rate} bytes per second arrived")));
                    }
                    pause = self.poll_every(last.as_ref());
                }
            }
        }
    }

    fn poll_every(&self, last: Option<&Reading>) -> Duration {
        let size_matters = self.work.terms.max_size > 0 || self.work.terms.guard.is_some();
        let size_known = last.is_some_and(|last| last.progress.bytes_total > 0);
        if size_matters && !size_known {
            SIZE_POLL_EVERY
        } else {
            POLL_EVERY
        }
    }

    /// Whether the image may be as large as it is, and its node has room for it.
    async fn fits(
        &self,
        runtime: &Arc<dyn Runtime>,
        reading: &Reading,
        check: &mut SpaceCheck,
    ) -> Result<(), Broken> {
        let Progress {
            bytes_done,
            bytes_total,
            ..
        } = reading.progress;
        if bytes_total == 0 {
            return Ok(());
        }
        let refused = |refusal: Refusal| match refusal {
            Refusal::TooLarge { .. } => broken(Reason::TooLarge, refusal.to_string()),
            Refusal::NoSpace { .. } => broken(Reason::NoSpace, refusal.to_string()),
        };
        let terms = &self.work.terms;
        guard::check_size(bytes_total, terms.max_size).map_err(refused)?;
        let missing = bytes_total.saturating_sub(bytes_done);
        let first_missing = *check.first_missing.get_or_insert(missing);
        let rules = terms.guard.unwrap_or_default();
        // What has been fetched is on the disk already; how much of it has been unpacked is not known, so all of it is still to come.
        let fetched = first_missing.saturating_sub(missing);
        let still = rules.need(first_missing).saturating_sub(fetched);
        let name = self.image.canonical();
        self.shared.promises.promise(name, still);
        let now = self.shared.clock.now_mono();
        let is_due = check
            .last
            .is_none_or(|last| now.saturating_sub(last) >= SPACE_CHECK_EVERY);
        let Some(rules) = terms.guard.filter(|_| is_due && missing > 0) else {
            return Ok(());
        };
        check.last = Some(now);
        let Some(space) = self.space(runtime).await else {
            return Ok(());
        };
        let size = Size {
            total: bytes_total,
            missing,
        };
        rules
            .check(size, space, self.shared.promises.of_others(name))
            .map_err(refused)
    }

    /// Space of the file system of images; none where it cannot be read from here.
    async fn space(&self, runtime: &Arc<dyn Runtime>) -> Option<Space> {
        let disk = runtime.disk().await.ok().filter(|disk| disk.bytes_total > 0);
        if disk.is_none() {
            tracing::debug!(image = %self.image, "space for images is not known here, so nobody looks");
        }
        disk.map(|disk| Space {
            free: disk.bytes_free,
            total: disk.bytes_total,
        })
    }

    /// The call with each log-in until one is let in: those of the order, then those of the node, and without any if there is none.
    async fn with_each_login(
        &self,
        runtime: &Arc<dyn Runtime>,
        lease: Option<LeaseId>,
    ) -> Result<(), RuntimeError> {
        // A registry may also say "not found" of what a log-in may not see.
        let refused = |error: &RuntimeError| matches!(error.reason(), Reason::Denied | Reason::NotFound);
        let pull = |credential: Option<Credential>| {
            let pull = Pull {
                image: self.image.clone(),
                labels: self.work.labels.clone(),
                annotations: self.work.annotations.clone(),
                credential,
                lease: lease.clone(),
                limit: self.work.limits.attempt_timeout,
            };
            runtime.pull(pull)
        };
        let mut last = None;
        for credential in self.credentials.iter().cloned() {
            match pull(Some(credential)).await {
                Err(error) if refused(&error) => last = Some(error),
                answer => return answer,
            }
        }
        let of_node = self.shared.keychain.credentials(&self.image).await;
        self.of_node().clone_from(&of_node);
        for credential in of_node {
            match pull(Some(credential)).await {
                Err(error) if refused(&error) => last = Some(error),
                answer => return answer,
            }
        }
        match last {
            Some(error) => {
                // What was kept of earlier answers may have been withdrawn since.
                self.shared.keychain.forget(&self.image);
                Err(error)
            }
            None => pull(None).await,
        }
    }

    /// The lease that this attempt fetches under; none where there is no content store.
    async fn lease(&self, runtime: &Arc<dyn Runtime>) -> Option<LeaseId> {
        let content = runtime.content()?;
        let expires = self.shared.clock.now_wall().saturating_add(LEASE_LIFE).ok()?;
        match content.make_lease(&self.lease, expires).await {
            Ok(()) => Some(self.lease.clone()),
            Err(error) => {
                tracing::warn!(image = %self.image, %error, "no lease: this attempt will not resume if it is cut off");
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
            tracing::warn!(image = %self.image, %reason, %error, "what a failed attempt left was not thrown away");
        }
    }

    async fn read(&self, runtime: &Arc<dyn Runtime>, watch: &mut Option<Watch>) -> Option<Reading> {
        let (watch, store) = (watch.as_mut()?, runtime.content()?);
        let reading = watch.read(store, self.shared.clock.now_mono());
        match tokio::time::timeout(READ_TIMEOUT, reading).await {
            Ok(Ok(reading)) => {
                self.shared.books.count(&self.image, reading.fetched);
                Some(reading)
            }
            Ok(Err(error)) => {
                tracing::debug!(image = %self.image, %error, "content store not read");
                None
            }
            Err(_) => None,
        }
    }

    fn of_node(&self) -> MutexGuard<'_, Vec<Credential>> {
        self.of_node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &RuntimeError) -> Broken {
        let reason = error.reason();
        let pause = (reason == Reason::Throttled).then(|| {
            let asked_for = reason::retry_after(&error.text);
            self.shared.gate.throttled(self.image.host(), asked_for)
        });
        Broken {
            pause,
            ..broken(reason, self.show(&error.text))
        }
    }

    /// The runtime's words without what is secret.
    fn show(&self, text: &str) -> String {
        let of_node = self.of_node();
        let all = || self.credentials.iter().chain(&*of_node);
        let encoded: Vec<String> = all()
            .map(|credential| STANDARD.encode(format!("{}:{}", credential.username, credential.password)))
            .collect();
        let plain = all().flat_map(|credential| {
            [
                &credential.password,
                &credential.identity_token,
                &credential.registry_token,
            ]
        });
        let secrets: Vec<&str> = plain.chain(&encoded).map(String::as_str).collect();
        reason::show(text, &secrets)
    }
}

/// When the space was last looked at, and what was missing at first.
#[derive(Default)]
struct SpaceCheck {
    last: Option<Duration>,
    first_missing: Option<u64>,
}

fn broken(reason: Reason, message: String) -> Broken {
    Broken {
        reason,
        growing: false,
        message,
        jitter: rand::random(),
        pause: None,
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
