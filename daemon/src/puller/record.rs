//! What the agent remembers of a task, over restarts of its own as well. No way to log in is in here.

use std::time::Duration;

use jiff::Timestamp;
use kruise_api::ids::TaskId;
use kruise_api::reference::ImageRef;
use kruise_planner::node::attempt::Tries;
use kruise_planner::task::{Phase, Progress, Reason, fnv64};
use kruise_proto::{convert, task};
use serde::{Deserialize, Serialize};

use super::order::Work;
use crate::runtime::LeaseId;

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: TaskId,
    /// What to do.
    pub work: Work,
    /// When it was taken, by the wall clock. For people, and for how long the agent itself was away.
    pub taken: Timestamp,
    /// Time since then, by the clock that only runs forward, as of [`Record::written`].
    pub spent: Duration,
    /// When `spent` was true.
    pub written: Timestamp,
    /// Attempts so far.
    pub tries: Tries,
    /// Begin of the first attempt.
    #[serde(default)]
    pub started: Option<Timestamp>,
    /// Time in calls to the runtime.
    #[serde(default)]
    pub pull_time: Duration,
    /// Bytes that it brought in.
    #[serde(default)]
    pub bytes_fetched: u64,
    /// How the last failed attempt failed.
    #[serde(default)]
    pub failure: Option<Failed>,
    /// How it ended.
    #[serde(default)]
    pub end: Option<End>,
}

/// A failure with the runtime's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Why.
    pub reason: Reason,
    /// As it may be shown.
    pub message: String,
}

/// The end of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// By the wall clock.
    pub time: Timestamp,
    /// Digest or id of the image; none when it failed.
    pub image_id: Option<String>,
    /// Whether nothing had to be fetched.
    pub already_present: bool,
    /// Bytes at the end.
    pub progress: Progress,
    /// Whether the image is kept from the kubelet's image collection; false where the runtime cannot, none where nobody asked.
    #[serde(default)]
    pub pinned: Option<bool>,
}

impl Record {
    /// A task that was taken just now.
    #[must_use]
    pub fn new(id: TaskId, work: Work, now: Timestamp) -> Self {
        Self {
            id,
            work,
            taken: now,
            spent: Duration::ZERO,
            written: now,
            tries: Tries::default(),
            started: None,
            pull_time: Duration::ZERO,
            bytes_fetched: 0,
            failure: None,
            end: None,
        }
    }

    /// The time spent as of now, for a record that was read from disk. A wall clock that was set back counts as no time, one that
    /// was set forward at most as a day.
    pub fn resume(&mut self, now: Timestamp) {
        let away = Duration::try_from(now.duration_since(self.written)).unwrap_or_default();
        self.spent = self
            .spent
            .saturating_add(away.min(Duration::from_secs(24 * 3600)));
        self.written = now;
    }

    /// The lease that its content is fetched under: the same for every attempt, after every restart, and for all tasks that want
    /// the same image, so that the bytes of a task that is cancelled are not lost to the others.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        let image = ImageRef::parse(&self.work.image);
        let name = image
            .as_ref()
            .map_or(self.work.image.as_str(), ImageRef::canonical);
        LeaseId(format!("kruise-pull-{:016x}", fnv64(name.as_bytes())))
    }

    /// Where it stands as far as the record tells.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &self.end {
            Some(End {
                image_id: Some(_), ..
            }) => Phase::Succeeded,
            Some(End { image_id: None, .. }) => Phase::Failed,
            None => Phase::Waiting,
        }
    }

    /// As it is told to others.
    #[must_use]
    pub fn status(&self, live: &Live) -> task::TaskStatus {
        let canonical = ImageRef::parse(&self.work.image).map(|image| image.canonical().to_owned());
        let (phase, progress) = match &self.end {
            Some(end) => (self.phase(), end.progress),
            None => (live.phase, live.progress),
        };
        let failed = self.failure.as_ref();
        let end = self.end.as_ref();
        task::TaskStatus {
            task_id: self.id.as_str().to_owned(),
            phase: task::Phase::from(phase).into(),
            attempts: self.tries.begun,
            progress: Some(progress.into()),
            // An image that is there needs no excuse.
            reason: convert::reason_number(
                failed
                    .map(|failed| failed.reason)
                    .filter(|_| phase != Phase::Succeeded),
            ),
            message: failed
                .filter(|_| phase != Phase::Succeeded)
                .map(|failed| failed.message.clone())
                .unwrap_or_default(),
            image: canonical.unwrap_or_else(|_| self.work.image.chars().take(600).collect()),
            image_id: end.and_then(|end| end.image_id.clone()).unwrap_or_default(),
            already_present: end.is_some_and(|end| end.already_present),
            start_time: self.started.map(convert::to_timestamp),
            finish_time: end.map(|end| convert::to_timestamp(end.time)),
            pull_time: Some(convert::to_duration(self.pull_time)),
            bytes_fetched: self.bytes_fetched,
            pin: pin(end.and_then(|end| end.pinned)).into(),
            retry_in: live.retry_in.filter(|_| end.is_none()).map(convert::to_duration),
            traceparent: self.work.traceparent.clone(),
            restart: None,
        }
    }
}

fn pin(pinned: Option<bool>) -> task::Pin {
    match pinned {
        None => task::Pin::Unspecified,
        Some(true) => task::Pin::Pinned,
        Some(false) => task::Pin::Unsupported,
    }
}

/// What of a task lives in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Where it stands.
    pub phase: Phase,
    /// Bytes of the running attempt, or of the last one.
    pub progress: Progress,
    /// Pause before the next attempt.
    pub retry_in: Option<Duration>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            phase: Phase::Waiting,
            progress: Progress::default(),
            retry_in: None,
        }
    }
}
