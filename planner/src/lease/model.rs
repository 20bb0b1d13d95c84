//! Every interleaving of two electors and one Lease, with lost requests, lost answers, stopped processes and exits.
//!
//! Time passes in steps of a second and every stored time is kept as an age, capped where it no longer matters; versions and epochs are
//! renamed by order. That makes the worlds finite, and all of them are visited.
//!
//! What is checked: when somebody takes the Lease, nobody else may still have a request under way that an earlier right to act
//! allowed, and each take-over has a higher epoch than any before.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The present, in each world.
const NOW: Duration = Duration::from_secs(1_000);
/// Ages beyond this make no difference.
const OLD: Duration = Duration::from_secs(4);
const STEP: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Request {
    Read,
    Write(Write),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Sent,
    /// The server answered a read with this.
    Found(Option<Seen>),
    /// The server did a write, with this version, or refused it.
    Written(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    request: Request,
    started: Duration,
    progress: Progress,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    lease: Option<Seen>,
    /// None is a process that ended and is not started again.
    states: [Option<State>; 2],
    pending: [Option<Pending>; 2],
    /// Writes of processes that ended, on their way to the server.
    orphans: Vec<(Write, Duration)>,
    highest: Epoch,
    deletions: u8,
    next_version: u64,
    /// What must never happen and did.
    violation: Option<String>,
}

#[derive(Clone, Copy)]
struct Rules {
    restarts: bool,
    /// A clock for epochs that is ahead of everything so far; else it stands at 0.
    clock: bool,
    /// Requests that have not reached the server after this never do.
    request: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            restarts: true,
            clock: false,
            request: STEP,
        }
    }
}

fn elector(index: usize) -> Elector {
    let timing = Timing {
        lease_duration: Duration::from_secs(3),
        renew_deadline: STEP,
        retry_period: STEP,
    };
    Elector {
        name: ["a", "b"][index].into(),
        address: String::new(),
        timing,
    }
}

impl World {
    fn new() -> Self {
        Self {
            lease: None,
            states: [Some(State::new()), Some(State::new())],
            pending: [None, None],
            orphans: Vec::new(),
            highest: Epoch(0),
            deletions: 0,
            next_version: 1,
            violation: None,
        }
    }

    fn wall(&self, rules: Rules) -> u64 {
        if rules.clock { self.highest.0 + 1 } else { 0 }
    }

    /// All worlds that may come right after this one.
    fn successors(&self, rules: Rules) -> Vec<Self> {
        let mut found = Vec::new();
        for index in 0..2 {
            self.moves_of(index, rules, &mut found);
        }
        for at in 0..self.orphans.len() {
            let mut world = self.clone();
            let (write, _) = world.orphans.remove(at);
            found.push(world.clone());
            world.apply(&write, None, rules);
            found.push(world);
        }
        if self.deletions > 0 && self.lease.is_some() {
            let mut world = self.clone();
            world.deletions -= 1;
            world.lease = None;
            found.push(world);
        }
        if !self.must_move(rules) {
            found.push(self.after_a_step());
        }
        found
    }

    /// Whether a write is as late as it may be: it must arrive or vanish before time goes on.
    fn must_move(&self, rules: Rules) -> bool {
        let late = |started: Duration| NOW >= started + rules.request;
        self.orphans.iter().any(|(_, started)| late(*started))
            || self.pending.iter().flatten().any(|pending| {
                matches!(pending.request, Request::Write(_))
                    && pending.progress == Progress::Sent
                    && late(pending.started)
            })
    }

    fn moves_of(&self, index: usize, rules: Rules, found: &mut Vec<Self>) {
        let Some(state) = self.states[index].clone() else {
            return;
        };
        let me = elector(index);
        let Some(pending) = self.pending[index].clone() else {
            let mut world = self.clone();
            let next = me.tick(&state, NOW);
            world.follow(index, state, next, rules);
            found.push(world);
            return;
        };
        // The request or its answer gets lost.
        let mut world = self.clone();
        world.pending[index] = None;
        match &pending.request {
            Request::Read => world.follow(index, state.clone(), Next::Wait, rules),
            Request::Write(write) => {
                let (state, next) = me.wrote(state.clone(), write, Outcome::Unknown, pending.started, NOW);
                world.follow(index, state, next, rules);
            }
        }
        found.push(world);
        // It gets one further.
        let mut world = self.clone();
        match (pending.request, pending.progress) {
            (Request::Write(write), Progress::Sent) => {
                let version = world.apply(&write, Some(index), rules);
                world.progress(index, Progress::Written(version));
            }
            (Request::Read, Progress::Found(seen)) => {
                world.pending[index] = None;
                let (state, next) = me.read(state, seen, NOW, self.wall(rules));
                world.follow(index, state, next, rules);
            }
            (Request::Write(write), Progress::Written(version)) => {
                world.pending[index] = None;
                let outcome = version.map_or(Outcome::Conflict, Outcome::Done);
                let (state, next) = me.wrote(state, &write, outcome, pending.started, NOW);
                world.follow(index, state, next, rules);
            }
            (request, progress) => panic!("{request:?} cannot be {progress:?}"),
        }
        found.push(world);
    }

    fn progress(&mut self, index: usize, progress: Progress) {
        self.pending[index].as_mut().expect("the caller looked").progress = progress;
    }

    fn follow(&mut self, index: usize, state: State, next: Next, rules: Rules) {
        self.states[index] = Some(state);
        let (request, progress) = match next {
            Next::Wait => return,
            // When the server looks makes no difference: the answer may arrive at any later time.
            Next::Read => (Request::Read, Progress::Found(self.lease.clone())),
            Next::Write(write) => (Request::Write(write), Progress::Sent),
            Next::Lose(_) => return self.exit(index, rules),
        };
        self.pending[index] = Some(Pending {
            request,
            started: NOW,
            progress,
        });
    }

    /// The process ends. Its successor has another name.
    fn exit(&mut self, index: usize, rules: Rules) {
        if let Some(Pending {
            request: Request::Write(write),
            started,
            progress: Progress::Sent,
        }) = self.pending[index].take()
        {
            self.orphans.push((write, started));
        }
        self.states[index] = rules.restarts.then(State::new);
        let name = elector(index).name;
        for record in self.records() {
            if record.holder == name {
                "gone".clone_into(&mut record.holder);
            }
        }
    }

    /// The server handles a write: checks the precondition and the promise.
    fn apply(&mut self, write: &Write, by: Option<usize>, rules: Rules) -> Option<String> {
        if write.precondition != self.lease.as_ref().map(|lease| lease.version.clone()) {
            return None;
        }
        if write.purpose == Purpose::Acquire {
            if write.record.epoch <= self.highest {
                self.violation = Some(format!("the epoch of {write:?} is no higher than one before"));
            }
            self.highest = write.record.epoch;
            if let Some(index) = (0..2).find(|index| Some(*index) != by && self.may_act(*index, rules)) {
                self.violation = Some(format!("{write:?} was done while {index} may act"));
            }
        }
        let version = format!("v{}", self.next_version);
        self.next_version += 1;
        self.lease = Some(Seen {
            version: version.clone(),
            record: write.record.clone(),
        });
        Some(version)
    }

    /// Whether a request of this elector, sent when it had the right to, may still be on its way; or will be, once it hears
    /// the answer to its take-over.
    fn may_act(&self, index: usize, rules: Rules) -> bool {
        let timing = elector(index).timing;
        let since = match (&self.states[index], &self.pending[index]) {
            (Some(State::Leading(leading)), _) => leading.renewed,
            (
                Some(_),
                Some(Pending {
                    request: Request::Write(_),
                    started,
                    progress: Progress::Written(Some(_)),
                }),
            ) => *started,
            _ => return false,
        };
        NOW < since + timing.renew_deadline + rules.request
    }

    fn after_a_step(&self) -> Self {
        let mut world = self.clone();
        let age = |time: &mut Duration| *time = (*time - STEP).max(NOW - OLD);
        for state in world.states.iter_mut().flatten() {
            match state {
                State::Following(Following {
                    observed: Some((_, since)),
                    ..
                }) => age(since),
                State::Following(_) => {}
                State::Leading(leading) => age(&mut leading.renewed),
            }
        }
        for pending in world.pending.iter_mut().flatten() {
            age(&mut pending.started);
        }
        for (_, started) in &mut world.orphans {
            age(started);
        }
        world
    }

    /// The same world with versions and epochs renamed, so that worlds that behave alike are equal.
    fn normalised(mut self) -> Self {
        let mut versions = BTreeMap::new();
        self.next_version = 0;
        for version in self.versions() {
            let fresh = versions.len();
            *version = format!("v{}", versions.entry(version.clone()).or_insert(fresh));
        }
        self.next_version = versions.len() as u64;
        let epochs: BTreeSet<Epoch> = self.epochs().into_iter().map(|epoch| *epoch).collect();
        let ranks: BTreeMap<Epoch, u64> = epochs
            .into_iter()
            .filter(|epoch| epoch.0 > 0)
            .zip(1_u64..)
            .collect();
        for epoch in self.epochs() {
            *epoch = Epoch(ranks.get(epoch).copied().unwrap_or(0));
        }
        for record in self.records() {
            record.transitions = 0;
        }
        self.orphans.sort();
        self
    }

    fn sights(&mut self) -> Vec<&mut Seen> {
        let observed = self.states.iter_mut().flatten().filter_map(|state| match state {
            State::Following(Following {
                observed: Some((seen, _)),
                ..
            }) => Some(seen),
            _ => None,
        });
        let found = self
            .pending
            .iter_mut()
            .flatten()
            .filter_map(|pending| match &mut pending.progress {
                Progress::Found(Some(seen)) => Some(seen),
                _ => None,
            });
        self.lease.iter_mut().chain(observed).chain(found).collect()
    }

    fn records(&mut self) -> Vec<&mut Record> {
        self.sights().into_iter().map(|seen| &mut seen.record).collect()
    }

    /// All versions, the Lease's own first.
    fn versions(&mut self) -> Vec<&mut String> {
        let Self {
            lease,
            states,
            pending,
            orphans,
            ..
        } = self;
        let mut all: Vec<&mut String> = lease.iter_mut().map(|seen| &mut seen.version).collect();
        for state in states.iter_mut().flatten() {
            match state {
                State::Following(Following {
                    observed: Some((seen, _)),
                    ..
                }) => all.push(&mut seen.version),
                State::Following(_) => {}
                State::Leading(leading) => all.push(&mut leading.version),
            }
        }
        for Pending {
            request, progress, ..
        } in pending.iter_mut().flatten()
        {
            if let Request::Write(write) = request {
                all.extend(&mut write.precondition);
            }
            match progress {
                Progress::Sent | Progress::Found(None) | Progress::Written(None) => {}
                Progress::Found(Some(seen)) => all.push(&mut seen.version),
                Progress::Written(Some(version)) => all.push(version),
            }
        }
        all.extend(
            orphans
                .iter_mut()
                .filter_map(|(write, _)| write.precondition.as_mut()),
        );
        all
    }

    fn epochs(&mut self) -> Vec<&mut Epoch> {
        let Self {
            lease,
            states,
            pending,
            orphans,
            highest,
            ..
        } = self;
        let mut all: Vec<&mut Epoch> = vec![highest];
        all.extend(lease.iter_mut().map(|seen| &mut seen.record.epoch));
        for state in states.iter_mut().flatten() {
            match state {
                State::Following(following) => {
                    all.push(&mut following.highest);
                    all.extend(
                        following
                            .observed
                            .iter_mut()
                            .map(|(seen, _)| &mut seen.record.epoch),
                    );
                }
                State::Leading(leading) => all.push(&mut leading.epoch),
            }
        }
        for Pending {
            request, progress, ..
        } in pending.iter_mut().flatten()
        {
            if let Request::Write(write) = request {
                all.push(&mut write.record.epoch);
            }
            if let Progress::Found(Some(seen)) = progress {
                all.push(&mut seen.record.epoch);
            }
        }
        all.extend(orphans.iter_mut().map(|(write, _)| &mut write.record.epoch));
        all
    }
}

/// Visits every world that can be reached. Says how many there are and in how many somebody leads, or the first violation.
fn explore(start: World, rules: Rules) -> Result<(usize, usize), String> {
    let start = start.normalised();
    let mut known = BTreeSet::from([start.clone()]);
    let mut queue = vec![start];
    let mut led = 0;
    while let Some(world) = queue.pop() {
        let leads = |state: &Option<State>| matches!(state, Some(State::Leading(_)));
        led += usize::from(world.states.iter().any(leads));
        for next in world.successors(rules) {
            if let Some(violation) = next.violation {
                return Err(format!("{violation}, after {world:#?}"));
            }
            let next = next.normalised();
            if known.insert(next.clone()) {
                queue.push(next);
            }
        }
        assert!(known.len() < 1_000_000, "the model must stay small");
    }
    Ok((known.len(), led))
}

#[test]
fn two_electors_never_act_at_once_whatever_is_lost_or_stopped() {
    let (worlds, led) = explore(World::new(), Rules::default()).expect("no violation");
    println!("{worlds} worlds, {led} with a leader");
    assert!(led > 1_000, "the model does something");
}

#[test]
fn a_deleted_lease_makes_no_second_leader_among_those_that_saw_its_holder() {
    let mut world = World::new();
    let record = elector(0).record(Epoch(1), 0);
    let seen = Seen {
        version: "v0".into(),
        record,
    };
    let leading = Leading {
        epoch: Epoch(1),
        version: "v0".into(),
        renewed: NOW,
        transitions: 0,
    };
    world.lease = Some(seen.clone());
    world.highest = Epoch(1);
    world.states = [
        Some(State::Leading(leading)),
        Some(State::Following(Following {
            observed: Some((seen, NOW)),
            highest: Epoch(1),
        })),
    ];
    world.deletions = 2;
    let (_, led) = explore(
        world,
        Rules {
            restarts: false,
            clock: true,
            ..Rules::default()
        },
    )
    .expect("no violation");
    assert!(led > 100, "the model does something");
}

#[test]
fn the_model_sees_what_goes_wrong_when_requests_take_too_long() {
    let slow = Rules {
        request: STEP * 3,
        ..Rules::default()
    };
    let violation = explore(World::new(), slow).expect_err("a late request of a deposed leader");
    assert!(violation.contains("may act"), "{violation}");
}
