//! The whole: agents, wires, leaders, the Lease and the stored job.

use std::time::Duration;

use super::agent::{Agent, Down, Up};
use super::leader::{Core, Leader, Out, Trouble};
use super::slots::{Job, Planner};
use super::walk::{Budget, Bug, Rules};
use crate::lease::{self, Elector, Next, Outcome, Purpose, Seen, Timing};

pub(super) const NODES: usize = 3;
/// In ticks.
pub(super) const SLOT_LEASE: u8 = 4;
pub(super) const GRACE: u8 = 1;
pub(super) const CONTACT_LEASE: Duration = Duration::from_secs(3);
pub(super) const MAX_ORDER_AGE: Duration = Duration::from_secs(2);
/// Writes that have not reached the API server after this never do.
pub(super) const REQUEST: u8 = 1;

pub(super) fn at(tick: u8) -> Duration {
    Duration::from_secs(tick.into())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: u8,
    pub(super) agents: [Agent; NODES],
    pub(super) wires: [Vec<Wire>; NODES],
    pub(super) cut: [bool; NODES],
    pub(super) leaders: [Leader; 2],
    pub(super) lease: Option<Seen>,
    pub(super) job: Job,
    pub(super) budget: Budget,
    pub(super) violation: Option<String>,
}

/// One stream. The agent has one open at a time; what it sent on the one before may still be on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wire {
    pub(super) id: u8,
    pub(super) leader: usize,
    /// The agent's end.
    pub(super) open: bool,
    /// Its leader has accepted a Hello with this stamp or a higher one. Streams lie in the order in which they were opened, so no numbers are needed.
    pub(super) stamped: bool,
    pub(super) up: Vec<Up>,
    pub(super) down: Vec<Down>,
}

pub(super) fn elector(index: usize) -> Elector {
    Elector {
        name: ["a", "b"][index].into(),
        address: String::new(),
        timing: Timing {
            lease_duration: at(3),
            renew_deadline: at(2),
            retry_period: at(1),
        },
    }
}

impl World {
    pub(super) fn new(budget: Budget, rules: &Rules, planner: &mut Planner) -> Self {
        let leader = || Leader {
            election: lease::State::new(),
            paused: false,
            dead: false,
            core: None,
        };
        let mut world = Self {
            now: 1,
            agents: std::array::from_fn(|_| Agent::new(1)),
            wires: Default::default(),
            cut: [false; NODES],
            leaders: [leader(), leader()],
            lease: None,
            job: Job::default(),
            budget,
            violation: None,
        };
        for leader in 0..2 {
            world.elect(leader);
            world.settle(leader, rules, planner);
        }
        world
    }

    pub(super) fn runs(&self, leader: usize) -> bool {
        !self.leaders[leader].paused && !self.leaders[leader].dead
    }

    /// Whether the lease is provably this leader's.
    pub(super) fn leads(&self, leader: usize) -> bool {
        match &self.leaders[leader].election {
            lease::State::Leading(leading) => at(self.now) < leading.deadline(&elector(leader).timing),
            lease::State::Following(_) => false,
        }
    }

    /// One round of the elector against the API server, without delays: the model beside the elector has those.
    pub(super) fn elect(&mut self, leader: usize) {
        let (me, now) = (elector(leader), at(self.now));
        let mut state = self.leaders[leader].election.clone();
        let mut next = me.tick(&state, now);
        loop {
            (state, next) = match next {
                Next::Wait => break,
                Next::Lose(_) => {
                    self.die(leader);
                    return;
                }
                Next::Read => me.read(state, self.lease.clone(), now, self.now.into()),
                Next::Write(write) => {
                    let fits = write.precondition == self.lease.as_ref().map(|lease| lease.version.clone());
                    let outcome = if fits {
                        let version = format!(
                            "{}-{}-{leader}",
                            self.now,
                            u8::from(write.purpose == Purpose::Acquire)
                        );
                        self.lease = Some(Seen {
                            version: version.clone(),
                            record: write.record.clone(),
                        });
                        Outcome::Done(version)
                    } else {
                        Outcome::Conflict
                    };
                    me.wrote(state, &write, outcome, now, now)
                }
            };
        }
        if let (lease::State::Leading(leading), None) = (&state, &self.leaders[leader].core) {
            // The first one knows that no agent's pod is older than itself, as the manager does by a list of them.
            let has_predecessor = self.leaders.iter().any(|leader| leader.core.is_some());
            let core = Core::new(leading.epoch, has_predecessor, self.now, self.job);
            self.leaders[leader].core = Some(core);
        }
        self.leaders[leader].election = state;
    }

    pub(super) fn die(&mut self, leader: usize) {
        let gone = &mut self.leaders[leader];
        (gone.dead, gone.paused, gone.election) = (true, false, lease::State::new());
        if let Some(core) = &mut gone.core {
            // What is on its way to the API server goes on; the rest is forgotten.
            let write = core.write.filter(|write| write.answer.is_none());
            *core = Core {
                write,
                ..Core::new(core.epoch, false, 0, Job::default())
            };
        }
    }

    /// Lets a leader take an event and do what follows from it.
    pub(super) fn with_core(
        &mut self,
        leader: usize,
        rules: &Rules,
        planner: &mut Planner,
        event: impl FnOnce(&mut Core, &mut Out),
    ) {
        let leads = self.leads(leader) || rules.has(Bug::NoLeaseCheck);
        let now = self.now;
        let Some(core) = &mut self.leaders[leader].core else {
            return;
        };
        let mut out = Out::new();
        event(core, &mut out);
        core.settle(now, rules.parallelism, leads, planner, &mut out);
        if rules.has(Bug::AckBeforeWrite)
            && let Some(write) = core
                .write
                .filter(|write| write.sent == now && write.answer.is_none())
        {
            for node in (0..NODES).filter(|node| write.results & (1 << node) != 0) {
                if let Some(session) = &core.desks[node].session {
                    out.push((node, session.wire, Down::Saved));
                }
            }
        }
        let over = core.job.over;
        for (node, wire, message) in out {
            self.send(leader, node, wire, message, leads, over);
        }
    }

    pub(super) fn settle(&mut self, leader: usize, rules: &Rules, planner: &mut Planner) {
        if self.runs(leader) {
            self.read_answer(leader);
            self.with_core(leader, rules, planner, |_, _| {});
        }
    }

    fn send(&mut self, leader: usize, node: usize, wire: u8, message: Down, leads: bool, over: bool) {
        let order = match message {
            Down::Set { order, .. } | Down::Delta { order, .. } => Some(order),
            _ => None,
        };
        if order.is_some() && !leads {
            // The session ends: this replica leads no more.
            if let Some(core) = &mut self.leaders[leader].core {
                core.detach(node);
            }
            return;
        }
        if order == Some(true) && over {
            self.violation = Some(format!("an order of a job that is over went to {node}"));
        }
        let wire = self.wires[node]
            .iter_mut()
            .find(|line| line.id == wire && line.leader == leader);
        if let Some(wire) = wire.filter(|wire| wire.open) {
            wire.down.push(message);
        }
    }

    /// The API server does a write, or refuses it.
    pub(super) fn apply(&mut self, leader: usize) {
        let stored = self.job;
        let Some(write) = self.leaders[leader]
            .core
            .as_mut()
            .and_then(|core| core.write.as_mut())
        else {
            return;
        };
        if write.base != stored.version {
            write.answer = Some(Err(Trouble::Conflict));
            return;
        }
        let job = Job {
            version: stored.version + 1,
            done: write.done,
            over: write.over,
        };
        write.answer = Some(Ok(job));
        self.judge_write(stored, job);
        self.job = job;
    }

    pub(super) fn read_answer(&mut self, leader: usize) {
        let stored = self.job;
        let dead = self.leaders[leader].dead;
        let Some(core) = &mut self.leaders[leader].core else {
            return;
        };
        let Some(write) = core.write.filter(|write| write.answer.is_some()) else {
            return;
        };
        core.write = None;
        if dead {
            return;
        }
        match write.answer {
            Some(Ok(job)) => {
                core.take_job(job);
                core.saved(write.results);
            }
            Some(Err(Trouble::Conflict)) => core.take_job(stored),
            Some(Err(Trouble::Unsure)) | None => {}
        }
    }
}
