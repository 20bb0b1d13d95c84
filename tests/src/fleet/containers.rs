//! Containers that are played: each pod has one, `main`, whose instances are called `UID-0` and `UID-1`. The second starts a second after the first has
//! been stopped, as a kubelet would do it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kruise_daemon::runtime::RuntimeError;
use kruise_daemon::runtime::containers::{Containers, Seen};
use kruise_planner::restart::facts::Exit;
use kruise_planner::restart::node::{Instance, State};

use super::control::{Stamp, stamp};

/// What a kubelet takes to notice that a container has ended.
const RELIST: Duration = Duration::from_secs(1);

/// When containers were stopped, of the whole fleet.
#[derive(Debug, Default)]
pub(super) struct Stops(Mutex<Vec<Stamp>>);

impl Stops {
    /// All so far, in order.
    pub(super) fn all(&self) -> Vec<Stamp> {
        let mut stamps = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stamps.sort_unstable();
        stamps
    }

    fn came(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(stamp());
    }
}

/// The end of a pod's first instance, on both clocks.
type End = (Instant, Timestamp);

/// The containers of one node.
#[derive(Debug)]
pub(super) struct Played {
    stops: Arc<Stops>,
    /// By id.
    ended: Mutex<BTreeMap<String, End>>,
}

impl Played {
    pub(super) fn new(stops: Arc<Stops>) -> Self {
        Self {
            stops,
            ended: Mutex::default(),
        }
    }

    fn end_of(&self, id: &str) -> Option<End> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.get(id).copied()
    }

    fn newest(&self, pod_uid: &str) -> Instance {
        let first = format!("{pod_uid}-0");
        let running = |id: String, restart_count, started_at| Instance {
            id,
            state: State::Running,
            restart_count,
            started_at: Some(started_at),
            exit: None,
        };
        match self.end_of(&first) {
            None => running(first, 0, Timestamp::UNIX_EPOCH),
            Some((at, wall)) if at.elapsed() >= RELIST => running(format!("{pod_uid}-1"), 1, wall + RELIST),
            Some((_, wall)) => Instance {
                state: State::Exited,
                exit: Some(Exit {
                    code: 0,
                    finished_at: Some(wall),
                }),
                ..running(first, 0, Timestamp::UNIX_EPOCH)
            },
        }
    }
}

impl Containers for Played {
    fn of_pod(&self, pod_uid: &str) -> BoxFuture<'_, Result<Vec<Seen>, RuntimeError>> {
        let seen = Seen {
            name: "main".to_owned(),
            instance: self.newest(pod_uid),
            pre_stop: None,
            ports: None,
        };
        async { Ok(vec![seen]) }.boxed()
    }

    fn in_full(&self, instance: &Instance) -> BoxFuture<'_, Result<Instance, RuntimeError>> {
        let full = instance.clone();
        async { Ok(full) }.boxed()
    }

    fn stop(&self, id: &str, _: Duration) -> BoxFuture<'_, Result<(), RuntimeError>> {
        self.stops.came();
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended
            .entry(id.to_owned())
            .or_insert_with(|| (Instant::now(), Timestamp::now()));
        async { Ok(()) }.boxed()
    }

    fn exec(
        &self,
        _: &str,
        _: Vec<String>,
        _: Duration,
    ) -> BoxFuture<'_, Result<(i32, String), RuntimeError>> {
        async { Ok((0, String::new())) }.boxed()
    }
}
