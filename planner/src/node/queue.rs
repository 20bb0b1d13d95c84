//! Who may call the runtime next.
//!
//! Higher priority first; among equals those who asked take turns, so that a job of many images does not hold up another; within
//! one of them the older job first, then who came first. Every fourth turn goes to whoever has waited longest, whatever its
//! priority, so that nobody waits for ever. A registry that is to be left alone, or has enough pulls, is passed over.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::pace::Pace;

/// Every so many turns the one that has waited longest goes first.
const OLDEST_EVERY: u64 = 4;
/// Most registries that are remembered beyond those in use.
const MAX_REGISTRIES: usize = 256;

/// How many at once; none is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// On the node.
    pub slots: Option<usize>,
    /// From one registry.
    pub per_registry: Option<usize>,
}

/// One that wants to call the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Host of its image.
    pub registry: String,
    /// Higher first.
    pub priority: u32,
    /// Among equals, lower first.
    pub queue_time: i64,
    /// Those who asked take turns.
    pub requester: String,
}

/// Place of an entry, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// All that wait and all that run.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    limits: Limits,
    arrivals: u64,
    turns: u64,
    waiting: BTreeMap<Ticket, Entry>,
    running: BTreeMap<Ticket, String>,
    registries: BTreeMap<String, Pace>,
    /// Last turn of those who have more waiting.
    last_turn: BTreeMap<String, u64>,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Takes a place at the end.
    pub fn enter(&mut self, entry: Entry) -> Ticket {
        self.arrivals += 1;
        let ticket = Ticket(self.arrivals);
        self.waiting.insert(ticket, entry);
        ticket
    }

    /// Lets an entry that waits have this priority and time if they are better: somebody else wants the same.
    pub fn raise(&mut self, ticket: Ticket, priority: u32, queue_time: i64) {
        if let Some(entry) = self.waiting.get_mut(&ticket)
            && (priority, Reverse(queue_time)) > (entry.priority, Reverse(entry.queue_time))
        {
            entry.priority = priority;
            entry.queue_time = queue_time;
        }
    }

    /// Gives up a place, or a turn.
    pub fn leave(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.running.remove(&ticket);
    }

    /// Whose turn it is; it runs from now on.
    pub fn next(&mut self, now: Duration) -> Option<Ticket> {
        if self.limits.slots.is_some_and(|slots| self.running.len() >= slots) {
            return None;
        }
        let free = |(_, entry): &(&Ticket, &Entry)| self.allows(&entry.registry, now);
        let candidates = self.waiting.iter().filter(free);
        let chosen = if (self.turns + 1).is_multiple_of(OLDEST_EVERY) {
            candidates.min_by_key(|(ticket, _)| **ticket)
        } else {
            candidates.min_by_key(|(ticket, entry)| self.rank(**ticket, entry))
        };
        let ticket = *chosen?.0;
        let entry = self.waiting.remove(&ticket)?;
        self.turns += 1;
        self.last_turn.insert(entry.requester, self.turns);
        self.running.insert(ticket, entry.registry);
        self.forget();
        Some(ticket)
    }

    fn rank(&self, ticket: Ticket, entry: &Entry) -> (Reverse<u32>, u64, i64, Ticket) {
        let last_turn = self.last_turn.get(&entry.requester).copied();
        (
            Reverse(entry.priority),
            last_turn.unwrap_or_default(),
            entry.queue_time,
            ticket,
        )
    }

    fn allows(&self, registry: &str, now: Duration) -> bool {
        let running = self.running_from(registry);
        self.limits.per_registry.is_none_or(|most| running < most)
            && self
                .registries
                .get(registry)
                .is_none_or(|pace| pace.allows(now, running))
    }

    fn running_from(&self, registry: &str) -> usize {
        self.running.values().filter(|other| *other == registry).count()
    }

    /// The registry asked to slow down; for how long it is left alone.
    pub fn throttled(&mut self, registry: &str, now: Duration, asked_for: Option<Duration>) -> Duration {
        let running = self.running_from(registry);
        if self.registries.len() >= MAX_REGISTRIES {
            self.registries.retain(|_, pace| !pace.is_default(now));
        }
        self.registries
            .entry(registry.to_owned())
            .or_default()
            .throttled(now, running, asked_for)
    }

    /// The registry served a pull.
    pub fn served(&mut self, registry: &str) {
        let most = self
            .limits
            .per_registry
            .into_iter()
            .chain(self.limits.slots)
            .min();
        if let Some(pace) = self.registries.get_mut(registry) {
            pace.served(most);
        }
    }

    /// When to ask for the next one again, if somebody waits for a registry that is left alone.
    #[must_use]
    pub fn wake_at(&self, now: Duration) -> Option<Duration> {
        let paces = self
            .waiting
            .values()
            .filter_map(|entry| self.registries.get(&entry.registry));
        paces.map(Pace::until).filter(|until| *until > now).min()
    }

    /// Turns of those who have nothing left to wait for are forgotten.
    fn forget(&mut self) {
        if self.last_turn.len() > self.waiting.len() + MAX_REGISTRIES {
            let waiting = &self.waiting;
            self.last_turn
                .retain(|requester, _| waiting.values().any(|entry| entry.requester == *requester));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn entry(requester: &str, priority: u32, queue_time: i64) -> Entry {
        Entry {
            registry: "reg".into(),
            priority,
            queue_time,
            requester: requester.into(),
        }
    }

    fn queue(slots: usize) -> Queue {
        Queue::new(Limits {
            slots: Some(slots),
            per_registry: None,
        })
    }

    /// Lets everybody have their turn, one after the other.
    fn drain(queue: &mut Queue) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(ticket) = queue.next(NOW) {
            order.push(ticket.0);
            queue.leave(ticket);
        }
        order
    }

    #[test]
    fn higher_priority_first_and_ties_in_the_order_of_arrival() {
        let mut queue = queue(1);
        for priority in [50, 50, 100] {
            queue.enter(entry("a", priority, 0));
        }
        assert_eq!(drain(&mut queue), [3, 1, 2]);
    }

    #[test]
    fn the_older_job_goes_first_among_equals() {
        let mut queue = queue(1);
        queue.enter(entry("young", 50, 20));
        queue.enter(entry("old", 50, 10));
        assert_eq!(drain(&mut queue), [2, 1]);
    }

    #[test]
    fn those_who_asked_take_turns() {
        let mut queue = queue(1);
        for _ in 0..3 {
            queue.enter(entry("many", 50, 0));
        }
        queue.enter(entry("one", 50, 5));
        assert_eq!(drain(&mut queue), [1, 4, 2, 3]);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut queue = queue(1);
        let low = queue.enter(entry("low", 0, 0));
        let mut turns = 0;
        loop {
            turns += 1;
            queue.enter(entry("high", 100, 0));
            let ticket = queue.next(NOW).expect("somebody waits");
            queue.leave(ticket);
            if ticket == low {
                break;
            }
        }
        assert_eq!(turns, 4);
    }

    #[test]
    fn a_registry_that_is_left_alone_holds_up_nobody_else() {
        let mut queue = queue(2);
        let first = queue.enter(entry("a", 50, 0));
        assert_eq!(queue.next(NOW), Some(first));
        let pause = queue.throttled("reg", NOW, None);
        queue.leave(first);
        let slow = queue.enter(entry("a", 100, 0));
        let other = queue.enter(Entry {
            registry: "other".into(),
            ..entry("b", 0, 0)
        });
        assert_eq!(queue.next(NOW), Some(other));
        assert_eq!(queue.next(NOW), None);
        assert_eq!(queue.wake_at(NOW), Some(NOW + pause));
        assert_eq!(queue.next(NOW + pause), Some(slow));
        assert_eq!(queue.wake_at(NOW + pause), None);
    }

    #[test]
    fn one_registry_has_so_many_at_once() {
        let mut queue = Queue::new(Limits {
            slots: None,
            per_registry: Some(1),
        });
        let (first, second) = (queue.enter(entry("a", 0, 0)), queue.enter(entry("a", 0, 0)));
        assert_eq!(queue.next(NOW), Some(first));
        assert_eq!(queue.next(NOW), None);
        queue.leave(first);
        assert_eq!(queue.next(NOW), Some(second));
    }

    #[test]
    fn who_joins_may_bring_a_better_place() {
        let mut queue = queue(1);
        let shared = queue.enter(entry("a", 10, 9));
        queue.enter(entry("b", 50, 0));
        queue.raise(shared, 5, 0);
        queue.raise(shared, 60, 9);
        assert_eq!(drain(&mut queue), [1, 2]);
    }

    proptest! {
        /// Whatever happens, no more run than may, everybody gets a turn, and no one twice.
        #[test]
        fn everybody_gets_one_turn(
            slots in 1_usize..4, per_registry in prop::option::of(1_usize..3),
            entries in prop::collection::vec((0_u32..4, 0_i64..3, 0_usize..3, 0_usize..3), 1..40),
            throttles in prop::collection::vec(0_usize..40, 0..5),
        ) {
            let mut queue = Queue::new(Limits { slots: Some(slots), per_registry });
            for (priority, queue_time, requester, registry) in &entries {
                queue.enter(Entry {
                    registry: registry.to_string(), priority: *priority, queue_time: *queue_time, requester: requester.to_string(),
                });
            }
            let (mut now, mut seen, mut running) = (NOW, Vec::new(), Vec::new());
            while seen.len() < entries.len() {
                if let Some(ticket) = queue.next(now) {
                    prop_assert!(!seen.contains(&ticket));
                    seen.push(ticket);
                    running.push(ticket);
                    prop_assert!(running.len() <= slots);
                    if throttles.contains(&seen.len()) {
                        queue.throttled(&entries[usize::try_from(ticket.0).expect("small") - 1].3.to_string(), now, None);
                    }
                } else if !running.is_empty() {
                    queue.leave(running.remove(0));
                } else {
                    now = queue.wake_at(now).expect("nobody runs, so a registry is left alone");
                }
            }
        }
    }
}
