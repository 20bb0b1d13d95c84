//! Leader election, as steps over observations of a Lease.
//!
//! # Flow
//! A follower reads the Lease every retry period ([`Elector::tick`], [`Elector::read`]) and takes it by a write with the version it
//! read as precondition when nobody holds it, or when the holder's record has not changed for the holder's lease duration. A leader
//! renews every retry period, and reads only after a conflict. [`Elector::wrote`] says what a write's outcome means.
//!
//! # Guarantees
//! Expiry is counted from the moment at which *this* process first saw a record, on its own monotonic clock; no two clocks are ever
//! compared. A leader counts its right to act from before the renewal was sent, and gives it up after the renew deadline. As
//! long as requests end within the request time-out, nothing of an old leader reaches the server after the next one took over. A
//! model in the tests walks every interleaving of two electors.
//!
//! The epoch is written in the very request that takes the Lease: `max(highest seen + 1, unix milliseconds)`, so that it also
//! grows when the Lease was deleted or restored from a backup.
//!
//! # Assumptions
//! Names are unique per process (pod name and a random part): a record with our name that we do not lead by was left by a write of
//! ours whose answer was lost, and may be taken at once.
//!
//! # Caveats
//! When somebody deletes the Lease under a living leader, that leader steps down when it notices. Electors that saw its record
//! still wait for the record to expire; one that starts at that very moment knows nothing and takes over at once, and only the
//! epoch keeps the two apart. A Lease that is not there, or is empty, therefore proves nothing: nobody is ever sure to be the first.

mod timing;

use std::time::Duration;

use kruise_api::ids::Epoch;

pub use timing::{Timing, TimingError};

/// What election needs of a Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// Who holds it; empty means nobody.
    pub holder: String,
    /// How long the holder's last renewal is good. Zero, which is no valid value, counts as our own lease duration.
    pub duration: Duration,
    /// Number of the leadership; 0 where the holder does not write one.
    pub epoch: Epoch,
    /// gRPC address of the holder; empty when unknown.
    pub address: String,
    /// How often the holder changed.
    pub transitions: i32,
}

/// A Lease as read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Its resource version.
    pub version: String,
    /// What it says.
    pub record: Record,
}

/// Who runs for leadership, and by which times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elector {
    /// Unique per process.
    pub name: String,
    /// gRPC address to announce.
    pub address: String,
    /// Times.
    pub timing: Timing,
}

/// Where an elector stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Looks on. Goes to `Leading` by a successful write.
    Following(Following),
    /// Leads. There is no way back: [`Next::Lose`] ends the process.
    Leading(Leading),
}

/// What a follower remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Following {
    /// The latest record and when it was first seen, on our clock.
    observed: Option<(Seen, Duration)>,
    /// The highest epoch ever seen.
    highest: Epoch,
}

/// What a leader remembers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leading {
    /// Number of this leadership.
    pub epoch: Epoch,
    /// Version of the Lease after our last write.
    version: String,
    /// When the last successful renewal was sent, on our clock.
    renewed: Duration,
    transitions: i32,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the Lease.
    Read,
    /// Write it.
    Write(Write),
    /// Nothing until the next tick.
    Wait,
    /// Stop acting and end: the leadership is gone.
    Lose(Loss),
}

/// A write of the Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// Version that the Lease must still have; none means that it must not exist.
    pub precondition: Option<String>,
    /// What for.
    pub purpose: Purpose,
    /// What it shall say.
    pub record: Record,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// To become the leader.
    Acquire,
    /// To stay it.
    Renew,
    /// To let others take over at once.
    Release,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done; the Lease now has this version.
    Done(String),
    /// Refused: the Lease is not what the precondition says.
    Conflict,
    /// No usable answer. It may have been done all the same.
    Unknown,
}

/// Why a leadership ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded within the renew deadline.
    #[error("the lease could not be renewed within {deadline:?}")]
    Deadline {
        /// The renew deadline.
        deadline: Duration,
    },
    /// Somebody else holds it.
    #[error("the lease is held by {holder}")]
    Taken {
        /// Who.
        holder: String,
    },
    /// Agents have obeyed a higher epoch, so that they refuse this leader for good.
    #[error("agents have obeyed epoch {highest}, which is higher than ours")]
    Outrun {
        /// Their epoch.
        highest: Epoch,
    },
    /// The Lease was deleted.
    #[error("the lease was deleted")]
    Gone,
    /// Holder or epoch were changed by another hand, for example by restoring a backup.
    #[error("the lease was changed by another hand")]
    Altered,
}

impl State {
    /// An elector that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::Following(Following::default())
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl Leading {
    /// Until when it may act, on our clock.
    #[must_use]
    pub fn deadline(&self, timing: &Timing) -> Duration {
        self.renewed + timing.renew_deadline
    }
}

impl Elector {
    /// What to do when a retry period has passed.
    #[must_use]
    pub fn tick(&self, state: &State, now: Duration) -> Next {
        match state {
            State::Following(_) => Next::Read,
            State::Leading(leading) if now >= leading.deadline(&self.timing) => self.too_late(),
            State::Leading(leading) => Next::Write(self.renewal(leading)),
        }
    }

    /// What an answer to a read means. `now` is when it arrived; `seen` is none when there is no Lease.
    #[must_use]
    pub fn read(&self, state: State, seen: Option<Seen>, now: Duration, wall_unix_ms: u64) -> (State, Next) {
        match state {
            State::Following(following) => self.look(following, seen, now, wall_unix_ms),
            State::Leading(leading) => self.recover(leading, seen, now),
        }
    }

    /// What the outcome of a write means. `started` is when it was sent, `now` when the outcome was known.
    #[must_use]
    pub fn wrote(
        &self,
        state: State,
        write: &Write,
        outcome: Outcome,
        started: Duration,
        now: Duration,
    ) -> (State, Next) {
        let in_time = now < started + self.timing.renew_deadline;
        match (state, outcome) {
            (State::Leading(leading), Outcome::Done(version)) => {
                let renewed = Leading {
                    version,
                    renewed: started,
                    ..leading
                };
                let next = if in_time { Next::Wait } else { self.too_late() };
                (State::Leading(renewed), next)
            }
            (State::Leading(leading), Outcome::Conflict) => (State::Leading(leading), Next::Read),
            (State::Leading(leading), Outcome::Unknown) => {
                let late = now >= leading.deadline(&self.timing);
                (
                    State::Leading(leading),
                    if late { self.too_late() } else { Next::Wait },
                )
            }
            (State::Following(_), Outcome::Done(version)) if in_time => {
                let leading = Leading {
                    epoch: write.record.epoch,
                    version,
                    renewed: started,
                    transitions: write.record.transitions,
                };
                (State::Leading(leading), Next::Wait)
            }
            // The answer came too late to rely on, or somebody was faster, or nobody knows. The next read tells.
            (State::Following(following), _) => (State::Following(following), Next::Wait),
        }
    }

    /// The write by which a leader lets go, so that others need not wait for its record to expire.
    #[must_use]
    pub fn release(&self, state: &State) -> Option<Write> {
        self.yield_to(state, Epoch(0))
    }

    /// A release that makes the next leader's epoch higher than `above`.
    #[must_use]
    pub fn yield_to(&self, state: &State, above: Epoch) -> Option<Write> {
        let State::Leading(leading) = state else {
            return None;
        };
        let record = Record {
            holder: String::new(),
            duration: Duration::from_secs(1),
            address: String::new(),
            ..self.record(leading.epoch.max(above), leading.transitions)
        };
        Some(Write {
            precondition: Some(leading.version.clone()),
            purpose: Purpose::Release,
            record,
        })
    }

    /// The record of the one who leads, as far as a follower knows. None when nobody does, when it has not been renewed for so long that its
    /// holder must have stopped, and when it is of an earlier life of this very process.
    #[must_use]
    pub fn leader<'a>(&self, state: &'a State, now: Duration) -> Option<&'a Record> {
        let State::Following(Following {
            observed: Some((seen, since)),
            ..
        }) = state
        else {
            return None;
        };
        let stops = self
            .expiry(&seen.record, *since)
            .min(*since + self.timing.renew_deadline);
        let held = !seen.record.holder.is_empty() && seen.record.address != self.address && now < stops;
        held.then_some(&seen.record)
    }

    fn look(
        &self,
        following: Following,
        seen: Option<Seen>,
        now: Duration,
        wall_unix_ms: u64,
    ) -> (State, Next) {
        let Following { observed, highest } = following;
        let observed = match (observed, seen) {
            (Some((old, since)), Some(seen)) if old.version == seen.version => (seen, since),
            (_, Some(seen)) => (seen, now),
            (Some((old, since)), None) => {
                // Deleted under its holder, who may not have noticed: wait as long as for the record itself.
                let highest = highest.max(old.record.epoch);
                let free = self.is_free(&old.record, since, now);
                let next = if free {
                    self.creation(highest, wall_unix_ms)
                } else {
                    Next::Wait
                };
                return (
                    State::Following(Following {
                        observed: Some((old, since)),
                        highest,
                    }),
                    next,
                );
            }
            (None, None) => {
                let next = self.creation(highest, wall_unix_ms);
                return (
                    State::Following(Following {
                        observed: None,
                        highest,
                    }),
                    next,
                );
            }
        };
        let (seen, since) = observed;
        let highest = highest.max(seen.record.epoch);
        let next = if self.is_free(&seen.record, since, now) {
            Next::Write(self.takeover(&seen, highest, wall_unix_ms))
        } else {
            Next::Wait
        };
        (
            State::Following(Following {
                observed: Some((seen, since)),
                highest,
            }),
            next,
        )
    }

    fn recover(&self, mut leading: Leading, seen: Option<Seen>, now: Duration) -> (State, Next) {
        let next = match seen {
            None => Next::Lose(Loss::Gone),
            Some(Seen { version, record }) => {
                if record.holder == self.name && record.epoch == leading.epoch {
                    // A renewal of ours whose answer was lost, or somebody's label.
                    leading.version = version;
                    self.tick(&State::Leading(leading.clone()), now)
                } else if record.holder == self.name || record.holder.is_empty() {
                    Next::Lose(Loss::Altered)
                } else {
                    Next::Lose(Loss::Taken {
                        holder: record.holder,
                    })
                }
            }
        };
        (State::Leading(leading), next)
    }

    fn is_free(&self, record: &Record, since: Duration, now: Duration) -> bool {
        record.holder.is_empty() || record.holder == self.name || now >= self.expiry(record, since)
    }

    fn expiry(&self, record: &Record, since: Duration) -> Duration {
        since
            + if record.duration.is_zero() {
                self.timing.lease_duration
            } else {
                record.duration
            }
    }

    fn creation(&self, highest: Epoch, wall_unix_ms: u64) -> Next {
        Next::Write(Write {
            precondition: None,
            purpose: Purpose::Acquire,
            record: self.record(next_epoch(highest, wall_unix_ms), 0),
        })
    }

    fn takeover(&self, seen: &Seen, highest: Epoch, wall_unix_ms: u64) -> Write {
        let transitions = seen.record.transitions.saturating_add(1);
        Write {
            precondition: Some(seen.version.clone()),
            purpose: Purpose::Acquire,
            record: self.record(next_epoch(highest, wall_unix_ms), transitions),
        }
    }

    fn renewal(&self, leading: &Leading) -> Write {
        Write {
            precondition: Some(leading.version.clone()),
            purpose: Purpose::Renew,
            record: self.record(leading.epoch, leading.transitions),
        }
    }

    fn record(&self, epoch: Epoch, transitions: i32) -> Record {
        Record {
            holder: self.name.clone(),
            duration: self.timing.lease_duration,
            epoch,
            address: self.address.clone(),
            transitions,
        }
    }

    fn too_late(&self) -> Next {
        Next::Lose(Loss::Deadline {
            deadline: self.timing.renew_deadline,
        })
    }
}

fn next_epoch(highest: Epoch, wall_unix_ms: u64) -> Epoch {
    Epoch(highest.0.saturating_add(1).max(wall_unix_ms))
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
