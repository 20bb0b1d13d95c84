//! A leader: the real elector and the real plan, with sessions and slots between them.

use kruise_api::ids::Epoch;

use super::agent::{Down, Task, Up};
use super::slots::{Answer, Job, Planner, Question, Slot};
use super::world::{GRACE, NODES, SLOT_LEASE};
use crate::lease;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    pub(super) election: lease::State,
    pub(super) paused: bool,
    pub(super) dead: bool,
    pub(super) core: Option<Core>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Core {
    pub(super) epoch: Epoch,
    pub(super) has_predecessor: bool,
    pub(super) started: u8,
    pub(super) job: Job,
    pub(super) desks: [Desk; NODES],
    pub(super) write: Option<Write>,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    pub(super) sent: u8,
    pub(super) base: u8,
    pub(super) done: u8,
    pub(super) over: bool,
    /// Nodes whose results it contains.
    pub(super) results: u8,
    /// What the API server said; the writer has not read it yet.
    pub(super) answer: Option<Result<Job, Trouble>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Trouble {
    Conflict,
    Unsure,
}

/// What the leader knows of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Desk {
    pub(super) known: bool,
    pub(super) answered: u8,
    pub(super) lost: Option<u8>,
    pub(super) slot: Option<Slot>,
    pub(super) session: Option<Session>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) wire: u8,
    pub(super) stamp: Option<u8>,
    generation: u8,
    /// When the whole set is to be sent.
    set_due: Option<u8>,
    told: bool,
    add: bool,
    cancel: bool,
    saved: bool,
    /// The agent has lost its result: naming the task would order it anew.
    lacks: bool,
    /// Generation, and whether the slot is free once it is acknowledged.
    unacknowledged: Vec<(u8, bool)>,
}

impl Session {
    /// For a walk without the rule.
    pub(super) fn names_everything(&mut self) {
        self.lacks = false;
    }
}

/// Messages by wire, and whether a write is wanted.
pub(super) type Out = Vec<(usize, u8, Down)>;

impl Core {
    pub(super) fn new(epoch: Epoch, has_predecessor: bool, started: u8, job: Job) -> Self {
        Self {
            epoch,
            has_predecessor,
            started,
            job,
            desks: Default::default(),
            write: None,
        }
    }

    fn reserving(&self, now: u8) -> bool {
        now < self.started + SLOT_LEASE
    }

    pub(super) fn session_of(&mut self, node: usize, wire: u8) -> Option<&mut Session> {
        self.desks[node]
            .session
            .as_mut()
            .filter(|session| session.wire == wire)
    }

    pub(super) fn attach(&mut self, node: usize, wire: u8, held: Option<Task>, now: u8, out: &mut Out) {
        let honoured = !self.desks[node].known && self.reserving(now);
        let settled = self.job.over || self.job.done & (1 << node) != 0;
        let desk = &mut self.desks[node];
        let mut session = Session {
            wire,
            stamp: None,
            generation: 0,
            set_due: Some(now),
            told: false,
            add: false,
            cancel: false,
            saved: false,
            lacks: false,
            unacknowledged: Vec::new(),
        };
        if held.is_none() && desk.slot == Some(Slot::Cancelling) {
            desk.slot = None;
        }
        match held {
            Some(Task::Done) if settled => session.saved = true,
            None => {}
            Some(_) if settled => {}
            Some(task) => match (desk.slot, task) {
                (_, Task::Done) => desk.slot = Some(Slot::Ended),
                (None, Task::Pulling | Task::Held) => {
                    desk.slot = Some(if honoured {
                        Slot::InFlight
                    } else {
                        Slot::Cancelling
                    });
                }
                _ => {}
            },
        }
        (desk.known, desk.lost, desk.answered) = (true, None, now);
        session.lacks = held.is_none() && desk.slot == Some(Slot::Ended);
        desk.session = Some(session);
        out.push((node, wire, Down::Welcome(self.epoch)));
    }

    pub(super) fn detach(&mut self, node: usize) {
        let desk = &mut self.desks[node];
        if desk.session.take().is_some() && desk.slot.is_some() {
            desk.lost = Some(desk.answered + SLOT_LEASE);
        }
    }

    pub(super) fn hear(&mut self, node: usize, message: Up, now: u8) {
        match message {
            Up::Hello(_) => {}
            Up::Ack { generation, taken } => self.acknowledged(node, generation, taken, now),
            Up::Done => self.done(node),
        }
    }

    fn acknowledged(&mut self, node: usize, generation: u8, taken: bool, now: u8) {
        let desk = &mut self.desks[node];
        let Some(session) = &mut desk.session else { return };
        let known = session
            .unacknowledged
            .iter()
            .take_while(|(sent, _)| *sent <= generation)
            .count();
        let answered: Vec<_> = session.unacknowledged.drain(..known).collect();
        if !taken {
            session.set_due.get_or_insert(now + 1);
        } else if answered.iter().any(|(_, dropped)| *dropped) && desk.slot == Some(Slot::Cancelling) {
            desk.slot = None;
        }
    }

    fn done(&mut self, node: usize) {
        let settled = self.job.over || self.job.done & (1 << node) != 0;
        let desk = &mut self.desks[node];
        match desk.slot {
            Some(Slot::InFlight) => desk.slot = Some(Slot::Ended),
            Some(Slot::Cancelling) => desk.slot = None,
            Some(Slot::Ended) => {}
            None => {
                if let (true, Some(session)) = (settled, &mut desk.session) {
                    session.saved = true;
                }
            }
        }
    }

    /// Takes the job as stored.
    pub(super) fn take_job(&mut self, job: Job) {
        self.job = job;
        let stored = if job.over { u8::MAX } else { job.done };
        self.saved(stored);
    }

    pub(super) fn saved(&mut self, nodes: u8) {
        for node in (0..NODES).filter(|node| nodes & (1 << node) != 0) {
            let desk = &mut self.desks[node];
            if desk.slot == Some(Slot::Ended) {
                desk.slot = None;
                if let Some(session) = &mut desk.session {
                    session.told = false;
                    session.saved = true;
                }
            }
        }
    }

    /// Plans and sends. `may_write` is whether the lease is ours at this moment.
    pub(super) fn settle(
        &mut self,
        now: u8,
        parallelism: u8,
        may_write: bool,
        planner: &mut Planner,
        out: &mut Out,
    ) {
        for desk in &mut self.desks {
            if desk.lost.is_some_and(|until| until <= now) {
                desk.lost = None;
                if desk.slot != Some(Slot::Ended) {
                    desk.slot = None;
                }
            }
        }
        // Results that a write brings home may free nothing more: twice is enough.
        for _ in 0..2 {
            let answer = planner.ask(self.question(now, parallelism));
            self.carry_out(&answer);
            if !self.save(&answer, now, may_write) {
                break;
            }
        }
        for node in 0..NODES {
            self.sync(node, now, out);
        }
    }

    fn question(&self, now: u8, parallelism: u8) -> Question {
        let reserving = self.has_predecessor && self.reserving(now);
        Question {
            parallelism,
            job: Job {
                version: 0,
                ..self.job
            },
            slots: std::array::from_fn(|node| self.desks[node].slot),
            attached: std::array::from_fn(|node| self.desks[node].session.is_some()),
            may_hold: std::array::from_fn(|node| reserving && !self.desks[node].known),
            in_grace: self.has_predecessor && now < self.started + GRACE,
            reserving,
        }
    }

    fn carry_out(&mut self, answer: &Answer) {
        for (node, desk) in self.desks.iter_mut().enumerate() {
            if answer.cancel[node] {
                desk.slot = Some(Slot::Cancelling);
                if let Some(session) = &mut desk.session {
                    session.add = false;
                    if session.told {
                        session.cancel = true;
                    } else if session.set_due.is_none() {
                        desk.slot = None;
                    }
                }
            }
            if answer.assign[node] {
                desk.slot = Some(Slot::InFlight);
                if let Some(session) = &mut desk.session {
                    session.add = true;
                }
            }
        }
    }

    /// Whether results went home without a write.
    fn save(&mut self, answer: &Answer, now: u8, may_write: bool) -> bool {
        let Some((done, over)) = answer.write.filter(|_| self.write.is_none()) else {
            return false;
        };
        let results = (0..NODES)
            .filter(|node| self.desks[*node].slot == Some(Slot::Ended))
            .fold(0, |mask, node| mask | (1 << node));
        if (done, over) == (self.job.done, self.job.over) {
            self.saved(results);
            return results != 0;
        }
        if may_write {
            self.write = Some(Write {
                sent: now,
                base: self.job.version,
                done,
                over,
                results,
                answer: None,
            });
        }
        false
    }

    fn sync(&mut self, node: usize, now: u8, out: &mut Out) {
        let (epoch, desk) = (self.epoch, &mut self.desks[node]);
        let Some(session) = &mut desk.session else { return };
        let saved = std::mem::take(&mut session.saved);
        let in_flight = desk.slot == Some(Slot::InFlight);
        let (wire, stamp, generation) = (session.wire, session.stamp, session.generation + 1);
        // Only the first set goes without a stamp, and after a refusal there is a pause.
        let held = stamp.is_none() && session.generation > 0 || session.set_due.is_some_and(|at| at > now);
        if !held && session.set_due.take().is_some() {
            (session.add, session.cancel) = (false, false);
            let order = match desk.slot {
                Some(Slot::InFlight) => true,
                Some(Slot::Ended) => !session.lacks,
                Some(Slot::Cancelling) | None => false,
            };
            session.told = order;
            session.generation = generation;
            session.unacknowledged = vec![(generation, desk.slot == Some(Slot::Cancelling))];
            let set = Down::Set {
                epoch,
                generation,
                stamp,
                order,
            };
            out.push((node, wire, set));
        } else if !held && (session.add && in_flight || session.cancel) {
            let order = !session.cancel;
            (session.add, session.cancel, session.told) = (false, false, order);
            session.generation = generation;
            session
                .unacknowledged
                .push((generation, desk.slot == Some(Slot::Cancelling)));
            let delta = Down::Delta {
                epoch,
                generation,
                stamp,
                order,
            };
            out.push((node, wire, delta));
        }
        if saved {
            out.push((node, wire, Down::Saved));
        }
    }
}
