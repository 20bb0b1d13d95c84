//! A task in memory.

use std::time::Duration;

use kruise_planner::node::attempt::Tries;
use kruise_planner::task::{Phase, Progress, Reason};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::progress::Reading;
use crate::puller::record::{Failed, Live, Record};
use crate::puller::worker::Spec;

/// A task in memory.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) record: Record,
    pub(super) live: Live,
    /// The forward clock when `record.spent` was true.
    pub(super) as_of: Duration,
    /// Since when the runtime works on it.
    pub(super) running: Option<Duration>,
    /// None when nobody works on it.
    pub(super) worker: Option<Working>,
}

/// The worker of a task.
#[derive(Debug)]
pub(super) struct Working {
    pub(super) abort: AbortHandle,
    /// Notes of workers before it count no more.
    pub(super) number: u64,
    pub(super) spec: watch::Sender<Spec>,
}

impl Task {
    pub(super) fn new(record: Record, now: Duration) -> Self {
        let live = Live {
            phase: record.phase(),
            ..Live::default()
        };
        Self {
            record,
            live,
            as_of: now,
            running: None,
            worker: None,
        }
    }

    pub(super) fn begin(&mut self, wall: jiff::Timestamp, now: Duration) {
        self.record.tries.begun = self.record.tries.begun.saturating_add(1);
        self.record.started.get_or_insert(wall);
        self.running = Some(now);
        // Until the first reading it shows what the last attempt left, unless that was thrown away: bytes never fall in an attempt.
        let last = self.record.failure.as_ref().map(|failed| failed.reason);
        let spoilt = matches!(last, Some(Reason::Corrupt | Reason::NoSpace));
        let progress = if spoilt {
            Progress::default()
        } else {
            self.live.progress
        };
        self.live = Live {
            phase: Phase::Pulling,
            progress,
            retry_in: None,
        };
    }

    /// Takes in a reading.
    pub(super) fn read(&mut self, reading: Reading) {
        self.live = Live {
            phase: reading.phase,
            progress: reading.progress,
            retry_in: None,
        };
        self.record.bytes_fetched = self.record.bytes_fetched.max(reading.fetched);
    }

    /// An attempt failed and another one follows.
    pub(super) fn retry(&mut self, tries: Tries, failed: Failed, pause: Duration, now: Duration) {
        self.rest(now);
        self.live.phase = Phase::Waiting;
        self.live.retry_in = Some(pause);
        self.record.tries = tries;
        self.record.failure = Some(failed);
    }

    /// The runtime no longer works on it.
    pub(super) fn rest(&mut self, now: Duration) {
        if let Some(since) = self.running.take() {
            self.record.pull_time = self.record.pull_time.saturating_add(now.saturating_sub(since));
        }
        self.live.progress.bytes_per_second = 0;
    }

    /// Drops its worker, and with it the call to the runtime. Whether there was one.
    pub(super) fn halt(&mut self, now: Duration) -> bool {
        let worked = self.running.is_some();
        self.rest(now);
        if let Some(worker) = self.worker.take() {
            worker.abort.abort();
        }
        worked
    }
}
