//! Contact with the leader: how long an agent works on without it, and when it dials again.

use std::time::Duration;

/// Contact lease until a leader says otherwise.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(90);

/// How the agent stands with a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A stream to a leader is open and it answered lately. Goes to `Silent` when the stream ends, to `Lost` when the lease does.
    Attached,
    /// No stream, the lease still runs: what runs goes on. Goes to `Attached` by a Welcome, to `Lost` when the lease ends.
    Silent,
    /// The lease ended: running pulls are stopped, nothing starts. Goes to `Attached` by a Welcome.
    Lost,
}

/// The contact lease of one agent, by its own monotonic clock.
///
/// A manager counts the slot of a silent node as taken until lease and margin are over, from the last heartbeat that it answered.
/// Here the time counts from when that heartbeat was *sent*, so that the agent always stops first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contact {
    state: State,
    lease: Duration,
    last: Duration,
}

impl Contact {
    /// An agent that starts at `now` without having heard from anybody.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self {
            state: State::Silent,
            lease: DEFAULT_LEASE,
            last: now,
        }
    }

    /// The present state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// When the lease ends unless a heartbeat is answered before.
    #[must_use]
    pub fn ends(&self) -> Duration {
        self.last.saturating_add(self.lease)
    }

    /// When the last answered message was sent.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.last
    }

    /// A leader answered the Hello that was sent at `sent`, and told its lease.
    pub fn welcomed(&mut self, sent: Duration, lease: Duration) {
        self.state = State::Attached;
        self.lease = lease;
        self.last = self.last.max(sent);
    }

    /// A leader answered the heartbeat that was sent at `sent`.
    pub fn answered(&mut self, sent: Duration) {
        if self.state == State::Attached {
            self.last = self.last.max(sent);
        }
    }

    /// The stream ended.
    pub fn closed(&mut self) {
        if self.state == State::Attached {
            self.state = State::Silent;
        }
    }

    /// Looks at the clock. True exactly once per loss: now running pulls must be stopped.
    pub fn tick(&mut self, now: Duration) -> bool {
        let lost = self.state != State::Lost && now >= self.ends();
        if lost {
            self.state = State::Lost;
        }
        lost
    }
}

/// Spread of the redials in the first minute, so that five thousand agents do not come at once after a failover.
const FIRST_SPREAD: Duration = Duration::from_secs(5);
/// Spread later on.
const LATER_SPREAD: Duration = Duration::from_secs(30);

/// How long to wait before the next dial, `lost_for` after the last stream ended. `jitter` is drawn from `[0, 1)`.
#[must_use]
pub fn redial(lost_for: Duration, jitter: f64) -> Duration {
    let spread = match lost_for.as_secs() {
        0..60 => FIRST_SPREAD,
        60..180 => LATER_SPREAD / 2,
        _ => LATER_SPREAD,
    };
    spread.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_lease_counts_from_the_heartbeat_that_was_answered() {
        let mut contact = Contact::new(at(0));
        contact.welcomed(at(10), at(90));
        contact.answered(at(50));
        assert!(!contact.tick(at(139)));
        assert!(contact.tick(at(140)), "50 + 90");
        assert!(!contact.tick(at(141)), "told once");
        assert_eq!(contact.state(), State::Lost);
    }

    #[test]
    fn a_stream_that_ends_takes_nothing_from_the_lease() {
        let mut contact = Contact::new(at(0));
        contact.welcomed(at(10), at(90));
        contact.closed();
        assert_eq!(contact.state(), State::Silent);
        assert!(!contact.tick(at(99)));
        assert!(contact.tick(at(100)));
        contact.welcomed(at(200), at(30));
        assert_eq!((contact.state(), contact.ends()), (State::Attached, at(230)));
    }

    #[test]
    fn an_answer_on_a_dead_stream_prolongs_nothing() {
        let mut contact = Contact::new(at(0));
        contact.welcomed(at(1), at(90));
        contact.closed();
        contact.answered(at(80));
        assert_eq!(contact.ends(), at(91));
    }

    #[test]
    fn an_agent_that_never_hears_from_anybody_is_lost_as_well() {
        let mut contact = Contact::new(at(5));
        assert!(contact.tick(at(5) + DEFAULT_LEASE));
    }

    #[test]
    fn redials_are_spread() {
        for (lost_for, most) in [(0, 5), (59, 5), (60, 15), (180, 30), (100_000, 30)] {
            assert_eq!(redial(at(lost_for), 0.0), Duration::ZERO);
            assert_eq!(redial(at(lost_for), 1.0), at(most));
            assert!(redial(at(lost_for), 0.999) < at(most));
        }
    }

    proptest! {
        /// Never working for longer than the lease after the last answered message.
        #[test]
        fn never_longer_than_the_lease(steps in prop::collection::vec((0_u8..4, 0_u64..200), 1..60), lease in 1_u64..120) {
            let mut contact = Contact::new(at(0));
            contact.welcomed(at(0), at(lease));
            let (mut now, mut answered) = (0, 0);
            for (what, pause) in steps {
                now += pause;
                contact.tick(at(now));
                match what {
                    0 => { contact.welcomed(at(now), at(lease)); answered = now; }
                    1 if contact.state() == State::Attached => { contact.answered(at(now)); answered = now; }
                    1 => contact.answered(at(now)),
                    2 => contact.closed(),
                    _ => {}
                }
                if contact.state() != State::Lost {
                    prop_assert!(now < answered + lease);
                }
            }
        }
    }
}
