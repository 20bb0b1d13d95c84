//! Who may call the runtime: carries out what the planner's queue decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kruise_planner::node::queue::{Entry, Limits, Queue, Ticket};
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;

/// The queue, and those who wait in it.
#[derive(Debug)]
pub(super) struct Gate {
    clock: Clock,
    state: Mutex<State>,
    /// Changes when a registry is to be left alone for longer than was known.
    slower: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    callers: BTreeMap<Ticket, oneshot::Sender<()>>,
}

/// A place in the queue, and later leave to call the runtime; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    gate: Arc<Gate>,
    ticket: Ticket,
}

impl Gate {
    pub(super) fn new(clock: Clock, limits: Limits) -> Arc<Self> {
        let state = State {
            queue: Queue::new(limits),
            callers: BTreeMap::new(),
        };
        Arc::new(Self {
            clock,
            state: Mutex::new(state),
            slower: watch::channel(()).0,
        })
    }

    /// Takes a place. The turn has come when the receiver is told.
    pub(super) fn enter(self: &Arc<Self>, entry: Entry) -> (Place, oneshot::Receiver<()>) {
        let (caller, turn) = oneshot::channel();
        let mut state = self.lock();
        let ticket = state.queue.enter(entry);
        state.callers.insert(ticket, caller);
        drop(state);
        self.call_next();
        let place = Place {
            gate: Arc::clone(self),
            ticket,
        };
        (place, turn)
    }

    /// Waits for the turn of a place.
    pub(super) async fn turn(&self, mut turn: oneshot::Receiver<()>) {
        let mut slower = self.slower.subscribe();
        loop {
            self.call_next();
            let alarm = self.lock().queue.wake_at(self.clock.now_mono());
            tokio::select! {
                _ = &mut turn => return,
                () = self.clock.sleep_until(alarm.unwrap_or(Duration::MAX)), if alarm.is_some() => {}
                _ = slower.changed() => {}
            }
        }
    }

    /// Lets those go whose turn it is.
    fn call_next(&self) {
        let now = self.clock.now_mono();
        let mut state = self.lock();
        while let Some(ticket) = state.queue.next(now) {
            let gone = state
                .callers
                .remove(&ticket)
                .is_none_or(|caller| caller.send(()).is_err());
            if gone {
                state.queue.leave(ticket);
            }
        }
    }

    /// The registry asked to slow down; for how long nobody asks it.
    pub(super) fn throttled(&self, registry: &str, asked_for: Option<Duration>) -> Duration {
        let pause = self
            .lock()
            .queue
            .throttled(registry, self.clock.now_mono(), asked_for);
        self.slower.send_replace(());
        pause
    }

    /// The registry served a pull.
    pub(super) fn served(&self, registry: &str) {
        self.lock().queue.served(registry);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Somebody else wants the same, with this priority and time.
    pub(super) fn raise(&self, priority: u32, queue_time: i64) {
        self.gate.lock().queue.raise(self.ticket, priority, queue_time);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.queue.leave(self.ticket);
        state.callers.remove(&self.ticket);
        drop(state);
        self.gate.call_next();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn gate(slots: usize) -> Arc<Gate> {
        let limits = Limits {
            slots: Some(slots),
            per_registry: None,
        };
        Gate::new(Clock::tokio(), limits)
    }

    fn entry(registry: &str) -> Entry {
        Entry {
            registry: registry.into(),
            ..Entry::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_is_given_on_at_once() {
        let gate = gate(1);
        let (first, turn) = gate.enter(entry("reg"));
        gate.turn(turn).await;
        let (_second, mut next) = gate.enter(entry("reg"));
        let (gone, _) = gate.enter(entry("reg"));
        drop(gone);
        assert!((&mut next).now_or_never().is_none(), "one slot");
        drop(first);
        assert!(next.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_is_left_alone_by_those_who_wait_already() {
        let gate = gate(1);
        let (first, turn) = gate.enter(entry("reg"));
        gate.turn(turn).await;
        let (_second, turn) = gate.enter(entry("reg"));
        let waits = gate.turn(turn);
        tokio::pin!(waits);
        assert!((&mut waits).now_or_never().is_none());
        let begin = tokio::time::Instant::now();
        let pause = gate.throttled("reg", None);
        drop(first);
        waits.await;
        assert!(begin.elapsed() >= pause);
    }
}
