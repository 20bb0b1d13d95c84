//! Which orders an agent takes: epoch, generation and stamp.
//!
//! The epoch keeps out a leader that has been replaced, the generation a message that was lost, the stamp a leader that was paused
//! between looking at its lease and sending.

use std::time::Duration;

use kruise_api::ids::{Epoch, Generation};

/// What an order says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The whole set, or a change of it.
    pub kind: Kind,
    /// Of the leader that sent it.
    pub epoch: Epoch,
    /// Of the node's set.
    pub generation: Generation,
    /// The agent's own clock as last echoed; none stands for "before the first heartbeat".
    pub stamp: Option<Duration>,
}

/// Whole or part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Everything that the node shall do.
    Set,
    /// A change of the last set.
    Delta,
}

/// Why an order was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A later leader has spoken to this agent before.
    #[error("epoch {got} is lower than {highest}, which this agent has seen")]
    OldEpoch {
        /// Of the order.
        got: Epoch,
        /// Highest seen.
        highest: Epoch,
    },
    /// Something was lost before it.
    #[error("generation {got} does not follow {last}; a whole set is wanted")]
    Gap {
        /// Of the order.
        got: Generation,
        /// Last taken on this stream; 0 before the first.
        last: Generation,
    },
    /// The sender slept between looking at its lease and sending, or the network held the message back.
    #[error("the order is {age:?} old by this agent's own clock, at most {most:?} is taken")]
    Stale {
        /// By the agent's clock.
        age: Duration,
        /// Most that is taken.
        most: Duration,
    },
    /// The stamp is none that this agent has sent on this stream.
    #[error("the order's stamp was never sent by this agent")]
    ForeignStamp,
}

/// State of the fence. One per agent; the highest epoch outlives streams and, through the journal, the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    highest: Epoch,
    stream: Option<Stream>,
}

/// What is known about the stream in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stream {
    /// When the agent sent its Hello. Stands in for the stamp of the first set, which may come before any heartbeat.
    opened: Duration,
    max_order_age: Duration,
    last: Option<Generation>,
}

impl Fence {
    /// With the highest epoch that this agent has ever seen; 0 if it does not know.
    #[must_use]
    pub fn new(highest: Epoch) -> Self {
        Self {
            highest,
            stream: None,
        }
    }

    /// Highest epoch seen.
    #[must_use]
    pub fn highest(&self) -> Epoch {
        self.highest
    }

    /// Last generation taken on the stream in use; 0 if none.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.stream.and_then(|stream| stream.last).unwrap_or_default()
    }

    /// A manager welcomed the agent. Whether the highest epoch grew, so that it must be stored before anything is done for it.
    ///
    /// # Errors
    /// An epoch lower than the highest one seen: the agent must leave.
    pub fn welcome(
        &mut self,
        epoch: Epoch,
        opened: Duration,
        max_order_age: Duration,
    ) -> Result<bool, Refusal> {
        self.not_old(epoch)?;
        let grew = epoch > self.highest;
        self.highest = epoch;
        self.stream = Some(Stream {
            opened,
            max_order_age,
            last: None,
        });
        Ok(grew)
    }

    /// The stream ended.
    pub fn closed(&mut self) {
        self.stream = None;
    }

    /// Looks at an order at time `now`. Nothing changes: [`Fence::taken`] is for when its content was fine too.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn check(&self, order: &Envelope, now: Duration) -> Result<(), Refusal> {
        self.not_old(order.epoch)?;
        let last = self.generation();
        let gap = Refusal::Gap {
            got: order.generation,
            last,
        };
        // An order with another epoch than the Welcome of its stream comes from nobody who introduced himself.
        let Some(stream) = self.stream.filter(|_| order.epoch == self.highest) else {
            return Err(gap);
        };
        let in_order = match order.kind {
            Kind::Set => order.generation > last,
            Kind::Delta => stream.last.is_some() && order.generation == last.next(),
        };
        let stamp = match (order.stamp, order.kind, stream.last) {
            (Some(stamp), ..) => stamp,
            (None, Kind::Set, None) => stream.opened,
            (None, ..) => return Err(Refusal::ForeignStamp),
        };
        let age = now.checked_sub(stamp).ok_or(Refusal::ForeignStamp)?;
        if age > stream.max_order_age {
            return Err(Refusal::Stale {
                age,
                most: stream.max_order_age,
            });
        }
        if in_order { Ok(()) } else { Err(gap) }
    }

    /// The order was taken.
    pub fn taken(&mut self, order: &Envelope) {
        if let Some(stream) = &mut self.stream {
            stream.last = Some(order.generation);
        }
    }

    fn not_old(&self, epoch: Epoch) -> Result<(), Refusal> {
        if epoch < self.highest {
            return Err(Refusal::OldEpoch {
                got: epoch,
                highest: self.highest,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MOST: Duration = Duration::from_secs(15);

    fn order(kind: Kind, epoch: u64, generation: u64, stamp: Option<u64>) -> Envelope {
        Envelope {
            kind,
            epoch: Epoch(epoch),
            generation: Generation(generation),
            stamp: stamp.map(Duration::from_secs),
        }
    }

    fn attached() -> Fence {
        let mut fence = Fence::new(Epoch(3));
        assert_eq!(fence.welcome(Epoch(5), 100 * SECOND, MOST), Ok(true));
        fence
    }

    fn take(fence: &mut Fence, order: Envelope, now: u64) -> Result<(), Refusal> {
        fence.check(&order, Duration::from_secs(now))?;
        fence.taken(&order);
        Ok(())
    }

    #[test]
    fn a_set_and_its_deltas_are_taken_in_order() {
        let mut fence = attached();
        take(&mut fence, order(Kind::Set, 5, 1, None), 101).expect("first set without a stamp");
        take(&mut fence, order(Kind::Delta, 5, 2, Some(101)), 102).expect("next");
        take(&mut fence, order(Kind::Set, 5, 7, Some(102)), 103).expect("a set may jump");
        take(&mut fence, order(Kind::Delta, 5, 8, Some(102)), 117).expect("15 s old is not too old");
        assert_eq!(fence.generation(), Generation(8));
    }

    #[test]
    fn what_is_refused() {
        let old = Refusal::OldEpoch {
            got: Epoch(4),
            highest: Epoch(5),
        };
        let gap = |got, last| Refusal::Gap {
            got: Generation(got),
            last: Generation(last),
        };
        let stale = |age| Refusal::Stale {
            age: Duration::from_secs(age),
            most: MOST,
        };
        let cases = [
            (
                "set of an old leader",
                order(Kind::Set, 4, 2, Some(100)),
                101,
                old.clone(),
            ),
            (
                "delta of an old leader",
                order(Kind::Delta, 4, 2, Some(100)),
                101,
                old,
            ),
            (
                "another epoch than the Welcome's",
                order(Kind::Set, 6, 2, Some(100)),
                101,
                gap(2, 1),
            ),
            (
                "delta after a lost one",
                order(Kind::Delta, 5, 3, Some(100)),
                101,
                gap(3, 1),
            ),
            ("delta twice", order(Kind::Delta, 5, 1, Some(100)), 101, gap(1, 1)),
            ("set twice", order(Kind::Set, 5, 1, Some(100)), 101, gap(1, 1)),
            ("old stamp", order(Kind::Delta, 5, 2, Some(100)), 116, stale(16)),
            (
                "old stamp of a set",
                order(Kind::Set, 5, 2, Some(100)),
                160,
                stale(60),
            ),
            (
                "second order without a stamp",
                order(Kind::Set, 5, 2, None),
                101,
                Refusal::ForeignStamp,
            ),
            (
                "delta without a stamp",
                order(Kind::Delta, 5, 2, None),
                101,
                Refusal::ForeignStamp,
            ),
            (
                "stamp of the future",
                order(Kind::Delta, 5, 2, Some(102)),
                101,
                Refusal::ForeignStamp,
            ),
        ];
        for (name, order, now, want) in cases {
            let mut fence = attached();
            take(&mut fence, super::tests::order(Kind::Set, 5, 1, None), 100).expect("first set");
            let before = fence.clone();
            assert_eq!(take(&mut fence, order, now), Err(want), "{name}");
            assert_eq!(fence, before, "{name}: a refused order leaves no trace");
        }
    }

    #[test]
    fn a_first_set_that_was_held_back_is_stale_too() {
        let mut fence = attached();
        let late = order(Kind::Set, 5, 1, None);
        assert!(matches!(take(&mut fence, late, 130), Err(Refusal::Stale { .. })));
        take(&mut fence, order(Kind::Set, 5, 2, Some(129)), 130).expect("sent again with a stamp");
    }

    #[test]
    fn a_delta_before_any_set_is_a_gap() {
        let fence = attached();
        let refused = fence.check(&order(Kind::Delta, 5, 1, Some(100)), 101 * SECOND);
        assert!(matches!(refused, Err(Refusal::Gap { .. })));
    }

    #[test]
    fn a_new_stream_begins_anew_and_an_old_leader_stays_out() {
        let mut fence = attached();
        take(&mut fence, order(Kind::Set, 5, 9, None), 101).expect("first set");
        fence.closed();
        assert!(
            fence
                .check(&order(Kind::Delta, 5, 10, Some(101)), 102 * SECOND)
                .is_err(),
            "no stream"
        );
        assert_eq!(fence.welcome(Epoch(5), 110 * SECOND, MOST), Ok(false));
        take(&mut fence, order(Kind::Set, 5, 1, None), 111).expect("generations are per stream");
        assert!(matches!(
            fence.welcome(Epoch(4), 120 * SECOND, MOST),
            Err(Refusal::OldEpoch { .. })
        ));
    }

    proptest! {
        /// Whatever arrives in whatever order: nothing of a lower epoch than one seen before, and nothing old, is ever taken; on
        /// one stream generations only grow.
        #[test]
        fn no_order_gets_past(steps in prop::collection::vec((0_u8..3, 0_u64..4, 0_u64..6, 0_u64..60, 0_u64..60), 1..80)) {
            let mut fence = Fence::new(Epoch(0));
            let (mut highest, mut last) = (0, 0);
            for (what, epoch, generation, stamp, now) in steps {
                let now = Duration::from_secs(now);
                if what == 0 {
                    let welcomed = fence.welcome(Epoch(epoch), now, MOST);
                    prop_assert_eq!(welcomed.is_ok(), epoch >= highest);
                    if welcomed.is_ok() {
                        (highest, last) = (epoch, 0);
                    }
                    continue;
                }
                let kind = if what == 1 { Kind::Set } else { Kind::Delta };
                let order = order(kind, epoch, generation, (stamp > 0).then_some(stamp));
                if fence.check(&order, now).is_ok() {
                    fence.taken(&order);
                    prop_assert_eq!(epoch, highest);
                    prop_assert!(generation > last);
                    if let Some(stamp) = order.stamp {
                        prop_assert!(now - stamp <= MOST);
                    }
                    last = generation;
                }
            }
        }
    }
}
