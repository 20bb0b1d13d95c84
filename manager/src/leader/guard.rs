//! The guard: whether this process leads at this very instant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kruise_api::ids::Epoch;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Monotonic;

/// Another replica, as the Lease names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the pod.
    pub name: String,
    /// gRPC address, `IP:port`.
    pub address: String,
}

/// What this replica knows about the leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// Another one leads, or nobody does yet. Goes to `Leader` by taking the Lease.
    Follower {
        /// Who leads, when known.
        leader: Option<Peer>,
    },
    /// This one leads. Never goes back: a leader that loses the Lease ends its process.
    Leader {
        /// Number of this leadership.
        epoch: Epoch,
        /// When it was taken.
        since: Instant,
    },
}

/// This replica may not act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not lead{}", .leader.as_ref().map(|peer| format!("; {} does", peer.name)).unwrap_or_default())]
pub struct NotLeader {
    /// Who may, when known.
    pub leader: Option<Peer>,
}

/// Answers whether this replica may act now. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Monotonic,
    state: watch::Sender<LeaderState>,
    /// Nanoseconds of the clock until which the lease is provably ours.
    deadline: AtomicU64,
    /// Epoch of another leadership that agents have obeyed.
    outrun: AtomicU64,
}

/// Sets what a [`Leadership`] answers: held by the elector's driver, and by tests.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Leadership {
    /// A guard that starts as follower, and its control.
    #[must_use]
    pub fn new(clock: Monotonic) -> (Self, Control) {
        let (state, _) = watch::channel(LeaderState::Follower { leader: None });
        let shared = Arc::new(Shared {
            clock,
            state,
            deadline: AtomicU64::new(0),
            outrun: AtomicU64::new(0),
        });
        (
            Self {
                shared: Arc::clone(&shared),
            },
            Control { shared },
        )
    }

    /// A guard that never changes. A leader stays leader for ever.
    #[must_use]
    pub fn fixed(state: LeaderState) -> Self {
        Self::settable(state).0
    }

    /// A guard for tests: starts in `state` without a deadline, and changes by its control.
    #[must_use]
    pub fn settable(state: LeaderState) -> (Self, Control) {
        let (guard, control) = Self::new(Monotonic::boot());
        control.set(state);
        control.extend(Duration::MAX);
        (guard, control)
    }

    /// The epoch, if and only if the lease is provably ours at this instant.
    ///
    /// # Errors
    /// [`NotLeader`], with the leader when it is known.
    pub fn check(&self) -> Result<Epoch, NotLeader> {
        match &*self.shared.state.borrow() {
            LeaderState::Leader { epoch, .. } if self.shared.is_current() => Ok(*epoch),
            LeaderState::Leader { .. } => Err(NotLeader { leader: None }),
            LeaderState::Follower { leader } => Err(NotLeader {
                leader: leader.clone(),
            }),
        }
    }

    /// Says that agents obey nobody with an epoch up to this one, so that somebody has to lead by a higher one.
    pub fn outrun(&self, epoch: Epoch) {
        self.shared.outrun.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Changes of the state. Renewals do not show here, and neither does a lease that ran out: only [`Self::check`] knows that.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LeaderState> {
        self.shared.state.subscribe()
    }
}

impl Shared {
    fn is_current(&self) -> bool {
        nanos(self.clock.now()) < self.deadline.load(Ordering::Acquire)
    }
}

impl Control {
    /// Tells everybody. A repeated state wakes nobody.
    pub fn set(&self, state: LeaderState) {
        self.shared.state.send_if_modified(|old| {
            let changed = *old != state;
            *old = state;
            changed
        });
    }

    /// Tells everybody that this replica leads by this epoch, and says whether that is news.
    pub fn lead(&self, epoch: Epoch) -> bool {
        self.shared.state.send_if_modified(|state| {
            if matches!(state, LeaderState::Leader { epoch: known, .. } if *known == epoch) {
                return false;
            }
            *state = LeaderState::Leader {
                epoch,
                since: Instant::now(),
            };
            true
        })
    }

    /// Moves the moment until which a leader may act, on the clock given to [`Leadership::new`].
    pub fn extend(&self, deadline: Duration) {
        self.shared.deadline.store(nanos(deadline), Ordering::Release);
    }

    /// The highest epoch by [`Leadership::outrun`].
    #[must_use]
    pub fn outran(&self) -> Epoch {
        Epoch(self.shared.outrun.load(Ordering::Acquire))
    }

    /// Takes back the right to act, at once.
    pub fn revoke(&self) {
        self.extend(Duration::ZERO);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader(epoch: u64) -> LeaderState {
        LeaderState::Leader {
            epoch: Epoch(epoch),
            since: Instant::now(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leads_until_the_deadline_and_not_a_nanosecond_longer() {
        let (guard, control) = Leadership::new(Monotonic::tokio());
        assert_eq!(guard.check(), Err(NotLeader { leader: None }));
        control.set(leader(7));
        assert!(
            guard.check().is_err(),
            "a state without a deadline is no right to act"
        );
        control.extend(Duration::from_secs(10));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(guard.check(), Ok(Epoch(7)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(guard.check().is_err());
    }

    #[tokio::test]
    async fn a_follower_names_the_leader() {
        let peer = Peer {
            name: "pod-a".into(),
            address: "10.0.0.1:9877".into(),
        };
        let guard = Leadership::fixed(LeaderState::Follower {
            leader: Some(peer.clone()),
        });
        let refused = guard.check().expect_err("a follower");
        assert_eq!(refused.leader, Some(peer));
        assert_eq!(refused.to_string(), "this replica does not lead; pod-a does");
    }

    #[tokio::test]
    async fn the_same_state_wakes_nobody() {
        let (guard, control) = Leadership::settable(LeaderState::Follower { leader: None });
        let mut changes = guard.subscribe();
        control.set(LeaderState::Follower { leader: None });
        assert!(!changes.has_changed().expect("the guard lives"));
        control.set(leader(1));
        assert!(changes.has_changed().expect("the guard lives"));
        changes.mark_unchanged();
        control.revoke();
        assert!(guard.check().is_err());
    }
}
