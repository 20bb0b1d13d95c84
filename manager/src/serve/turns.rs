//! Turns at something that only so many may do at once, handed out fairly: the sources that wait are served one after the other, each of them
//! in the order in which it asked. A source that asks for thousands of turns so holds up itself and nobody else.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Hands out turns. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    queue: Arc<Mutex<Queue>>,
}

/// Somebody's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Sources that wait, the next one first. Each is in it once.
    sources: VecDeque<IpAddr>,
    waiting: BTreeMap<IpAddr, VecDeque<oneshot::Sender<Turn>>>,
}

impl Queue {
    /// Whose turn it is. Those who wait no more are passed over.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(source) = self.sources.pop_front() {
            let Some(mut waiting) = self.waiting.remove(&source) else {
                continue;
            };
            let next = std::iter::from_fn(|| waiting.pop_front()).find(|asker| !asker.is_closed());
            if !waiting.is_empty() {
                self.waiting.insert(source, waiting);
                self.sources.push_back(source);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Turns {
    /// As many turns at once.
    pub(super) fn new(count: usize) -> Self {
        let queue = Queue {
            free: count.max(1),
            sources: VecDeque::new(),
            waiting: BTreeMap::new(),
        };
        Self {
            queue: Arc::new(Mutex::new(queue)),
        }
    }

    /// Waits for a turn. Who stops waiting loses nothing but the place.
    pub(super) async fn take(&self, source: IpAddr) -> Turn {
        let asked = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                None
            } else {
                let (asker, turn) = oneshot::channel();
                let waiting = queue.waiting.entry(source).or_default();
                let is_first = waiting.is_empty();
                waiting.push_back(asker);
                if is_first {
                    queue.sources.push_back(source);
                }
                Some(turn)
            }
        };
        match asked {
            // An asker that waits is forgotten by nobody but itself.
            Some(turn) => turn.await.unwrap_or_else(|_| self.turn()),
            None => self.turn(),
        }
    }

    fn turn(&self) -> Turn {
        Turn { turns: self.clone() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.turns.queue();
            let next = queue.next();
            queue.free += usize::from(next.is_none());
            next
        };
        if let Some(next) = next {
            // One that has stopped waiting in this very moment drops the turn, which then goes to the next one.
            drop(next.send(self.turns.turn()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;

    use super::*;

    fn source(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn sources_are_served_in_turn_however_much_one_of_them_asks() {
        let turns = Turns::new(1);
        let held = turns.take(source(9)).now_or_never().expect("free");
        let mut waiting: Vec<_> = [1, 1, 1, 2, 3, 2]
            .map(|number| (number, Box::pin(turns.take(source(number)))))
            .into_iter()
            .collect();
        for (_, take) in &mut waiting {
            assert!(take.now_or_never().is_none(), "it is taken");
        }
        let (mut served, mut held) = (Vec::new(), Some(held));
        while !waiting.is_empty() {
            drop(held.take());
            let ready = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(index, (number, take))| Some((index, *number, take.now_or_never()?)));
            let (index, number, turn) = ready.expect("somebody's turn");
            served.push(number);
            held = Some(turn);
            drop(waiting.remove(index));
        }
        assert_eq!(served, [1, 2, 3, 1, 2, 1]);
        drop(held);
        assert!(turns.take(source(1)).now_or_never().is_some());
    }

    #[test]
    fn who_stops_waiting_takes_no_turn() {
        let turns = Turns::new(2);
        let first = turns.take(source(1)).now_or_never().expect("free");
        let _second = turns.take(source(1)).now_or_never().expect("free");
        let mut patient = pin!(turns.take(source(3)));
        {
            let mut leaves = pin!(turns.take(source(2)));
            assert!(leaves.as_mut().now_or_never().is_none());
            assert!(patient.as_mut().now_or_never().is_none());
        }
        drop(first);
        let third = patient.now_or_never().expect("the one before has left");
        // A turn that was given to one who never looked goes on as well.
        {
            let mut late = pin!(turns.take(source(4)));
            assert!(late.as_mut().now_or_never().is_none());
            drop(third);
        }
        assert!(turns.take(source(5)).now_or_never().is_some());
    }
}
