//! Signs of life of one session, shared by its stream and the engine without a message per heartbeat.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kruise_proto::task::{DiskSpace, Runtime};

/// Written by the stream, read by the engine. Times are of the process' monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Vitals {
    heard: AtomicU64,
    answered: AtomicU64,
    node: Mutex<(Option<Runtime>, Option<DiskSpace>)>,
}

impl Vitals {
    /// A session that begins now. The agent counts its contact lease from the Welcome on.
    pub(crate) fn new(now: Duration, runtime: Option<Runtime>, disk: Option<DiskSpace>) -> Self {
        Self {
            heard: nanos(now).into(),
            answered: nanos(now).into(),
            node: Mutex::new((runtime, disk)),
        }
    }

    /// A heartbeat has come.
    pub(crate) fn hear(&self, now: Duration, runtime: Option<Runtime>, disk: Option<DiskSpace>) {
        self.heard.store(nanos(now), Ordering::Relaxed);
        *self.node.lock().unwrap_or_else(PoisonError::into_inner) = (runtime, disk);
    }

    /// A heartbeat is about to be answered.
    pub(crate) fn answer(&self, now: Duration) {
        self.answered.store(nanos(now), Ordering::Relaxed);
    }

    /// When the last heartbeat came.
    pub(crate) fn last_heard(&self) -> Duration {
        Duration::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// When the last one was answered: from here on counts the agent's contact lease.
    pub(crate) fn last_answered(&self) -> Duration {
        Duration::from_nanos(self.answered.load(Ordering::Relaxed))
    }

    /// What the node said of itself last.
    pub(crate) fn node(&self) -> (Option<Runtime>, Option<DiskSpace>) {
        self.node.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
