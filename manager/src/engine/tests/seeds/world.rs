//! Time, streams between agents and managers, and what happens next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use kruise_proto::dispatch::{Ack, DesiredDelta, DesiredSet, Probe, ProbeAnswer, ResultAck};
use kruise_proto::task::TaskStatus;

use super::api::Api;
use super::chance::Chance;
use super::judge::Judge;
use super::leader::{Input, Manager};
use super::node::{Agent, Timer};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MANAGERS: usize = 2;
/// No fault begins after this.
pub(super) const FAULTS_END: u64 = 150 * SECOND;
/// By then everything has come to its end.
pub(super) const END: u64 = FAULTS_END + 600 * SECOND;

/// From an agent. Number of its process, so that what an earlier one started counts no more.
#[derive(Clone, Debug)]
pub(super) enum Up {
    Hello {
        tasks: Vec<TaskStatus>,
        highest: u64,
        stamp: u64,
    },
    Heartbeat(Duration),
    Ack(Ack),
    Report(Box<TaskStatus>),
    Answer(ProbeAnswer),
}

/// From a manager.
#[derive(Clone, Debug)]
pub(super) enum Down {
    Welcome {
        epoch: u64,
    },
    /// `sure` is the world's time at which the sender looked at its lease.
    Set {
        set: DesiredSet,
        sure: u64,
    },
    Delta {
        delta: DesiredDelta,
        sure: u64,
    },
    Reply {
        stamp: Duration,
        epoch: u64,
    },
    Saved(ResultAck),
    Probe(Probe),
    /// The stream ends, perhaps with the number of the manager that leads.
    End {
        leader: Option<usize>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Line(pub(super) u64);

/// A stream.
pub(super) struct Stream {
    pub(super) node: usize,
    pub(super) agent_process: u64,
    pub(super) manager: usize,
    pub(super) manager_process: u64,
    /// Nothing overtakes on one stream.
    last: [u64; 2],
    held: [VecDeque<Moved>; 2],
    pub(super) agent_open: bool,
    pub(super) manager_open: bool,
}

#[derive(Clone, Debug)]
enum Moved {
    Up(Up),
    Down(Down),
    /// The agent's end is closed.
    Closed,
}

#[derive(Debug)]
pub(super) enum Happening {
    Moved(Line, Moved2),
    ToManager {
        manager: usize,
        process: u64,
        input: Box<Input>,
    },
    Agent {
        node: usize,
        process: u64,
        timer: Timer,
    },
    Fault,
    Heal(super::faults::Cure),
}

/// So that the queue's items need not be public.
#[derive(Debug)]
pub(super) struct Moved2(Moved);

/// Something that is left out, to see that the judge notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    /// Agents obey whoever welcomed them last.
    NoEpochCheck,
    /// Managers take the lease for theirs once it was.
    NoLeaseCheck,
    /// Results are acknowledged when their write is sent.
    AckBeforeWrite,
    /// A node that lost its stream keeps no slot.
    SlotFreedAtLoss,
}

pub(super) struct Sim {
    pub(super) bugs: &'static [Bug],
    pub(super) chance: Chance,
    pub(super) now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    number: u64,
    pub(super) api: Api,
    pub(super) managers: Vec<Manager>,
    pub(super) agents: Vec<Agent>,
    pub(super) streams: BTreeMap<Line, Stream>,
    /// By node: messages up, messages down.
    pub(super) blocked: Vec<[bool; 2]>,
    pub(super) judge: Judge,
    pub(super) log: VecDeque<String>,
}

impl Sim {
    pub(super) fn new(seed: u64, bugs: &'static [Bug]) -> Self {
        let mut chance = Chance::new(seed);
        let nodes = usize::try_from(chance.between(2, 6)).expect("small");
        let jobs = usize::try_from(chance.between(1, 3)).expect("small");
        // What an agent remembers is what the walk without lease checks is about.
        let remember = bugs.contains(&Bug::NoLeaseCheck);
        let mut sim = Self {
            bugs,
            now: 0,
            queue: BTreeMap::new(),
            number: 0,
            api: Api::new(nodes),
            managers: (0..MANAGERS).map(|_| Manager::new(&mut chance)).collect(),
            agents: (0..nodes)
                .map(|node| Agent::new(node, &mut chance, remember))
                .collect(),
            streams: BTreeMap::new(),
            blocked: vec![[false; 2]; nodes],
            judge: Judge::default(),
            log: VecDeque::new(),
            chance,
        };
        for job in 0..jobs {
            sim.create_job(job);
        }
        for manager in 0..MANAGERS {
            let delay = sim.chance.between(0, 3 * SECOND);
            sim.tell_manager(manager, delay, Input::Elect);
        }
        for node in 0..nodes {
            let delay = sim.chance.between(0, 5 * SECOND);
            sim.agent_after(node, delay, Timer::Dial);
            sim.agent_after(node, 90 * SECOND, Timer::Contact);
        }
        sim.after(5 * SECOND, Happening::Fault);
        sim
    }

    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    pub(super) fn run(&mut self) {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            if at > END {
                break;
            }
            self.now = at;
            match happening {
                Happening::Moved(line, moved) => self.arrive(line, moved.0),
                Happening::ToManager {
                    manager,
                    process,
                    input,
                } => self.manager_input(manager, process, *input),
                Happening::Agent { node, process, timer } => self.agent_timer(node, process, timer),
                Happening::Fault => self.fault(),
                Happening::Heal(cure) => self.heal(cure),
            }
        }
        self.judge_end();
    }

    /// I2: after the last fault everything comes to its end.
    fn judge_end(&self) {
        for job in self.api.jobs.values() {
            let over = job
                .status
                .as_ref()
                .is_some_and(|status| status.completion_time.is_some());
            assert!(
                over || job.deleting,
                "I2: {} never comes to its end: parallelism {:?}, {:?}",
                job.key,
                job.spec.parallelism,
                job.status
            );
        }
        assert!(
            self.api.last_write + 60 * SECOND < END,
            "I10: there is no end of writes"
        );
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.log.len() >= 400 {
            self.log.pop_front();
        }
        self.log.push_back(format!(
            "{:>7}.{:03} {}",
            self.now / 1_000,
            self.now % 1_000,
            line()
        ));
    }

    pub(super) fn after(&mut self, delay: u64, happening: Happening) {
        self.number += 1;
        self.queue.insert((self.now + delay, self.number), happening);
    }

    pub(super) fn tell_manager(&mut self, manager: usize, delay: u64, input: Input) {
        let process = self.managers[manager].process;
        self.after(
            delay,
            Happening::ToManager {
                manager,
                process,
                input: Box::new(input),
            },
        );
    }

    pub(super) fn agent_after(&mut self, node: usize, delay: u64, timer: Timer) {
        let process = self.agents[node].process;
        self.after(delay, Happening::Agent { node, process, timer });
    }

    /// The API server's clock.
    pub(super) fn wall(&self) -> Timestamp {
        Timestamp::from_millisecond(2_000_000_000_000 + i64::try_from(self.now).expect("small"))
            .expect("a time")
    }

    pub(super) fn open(&mut self, node: usize, manager: usize) -> Line {
        self.number += 1;
        let line = Line(self.number);
        self.streams.insert(
            line,
            Stream {
                node,
                agent_process: self.agents[node].process,
                manager,
                manager_process: self.managers[manager].process,
                last: [self.now; 2],
                held: [VecDeque::new(), VecDeque::new()],
                agent_open: true,
                manager_open: true,
            },
        );
        line
    }

    pub(super) fn send_up(&mut self, line: Line, message: Up) {
        let double = !matches!(message, Up::Hello { .. });
        self.put(line, 0, &Moved::Up(message), double);
    }

    pub(super) fn send_down(&mut self, line: Line, message: Down) {
        let double = !matches!(message, Down::Welcome { .. } | Down::End { .. });
        self.put(line, 1, &Moved::Down(message), double);
    }

    fn put(&mut self, line: Line, direction: usize, message: &Moved, may_double: bool) {
        let faulty = self.now < FAULTS_END;
        let double = may_double && faulty && self.chance.permille(5);
        for _ in 0..=usize::from(double) {
            let slow = faulty && self.chance.permille(10);
            let delay = self.chance.between(1, if slow { 20 * SECOND } else { 80 });
            let now = self.now;
            let Some(stream) = self.streams.get_mut(&line) else {
                return;
            };
            if self.blocked[stream.node][direction] {
                stream.held[direction].push_back(message.clone());
                continue;
            }
            let at = (now + delay).max(stream.last[direction] + 1);
            stream.last[direction] = at;
            self.after(at - now, Happening::Moved(line, Moved2(message.clone())));
        }
    }

    fn arrive(&mut self, line: Line, message: Moved) {
        let Some(stream) = self.streams.get_mut(&line) else {
            return;
        };
        let direction = usize::from(matches!(message, Moved::Down(_)));
        if self.blocked[stream.node][direction] {
            stream.held[direction].push_back(message);
            return;
        }
        let (node, manager, process) = (stream.node, stream.manager, stream.manager_process);
        match message {
            Moved::Up(message) => self.manager_input(manager, process, Input::Message(line, message)),
            Moved::Closed => self.manager_input(manager, process, Input::Closed(line)),
            Moved::Down(message) => {
                if stream.agent_open && stream.agent_process == self.agents[node].process {
                    self.agent_message(node, line, message);
                }
            }
        }
    }

    /// What was held up on the way to or from a node goes on, in order.
    pub(super) fn unblock(&mut self, node: usize) {
        self.blocked[node] = [false; 2];
        let lines: Vec<Line> = (self.streams.iter())
            .filter(|(_, stream)| stream.node == node)
            .map(|(line, _)| *line)
            .collect();
        for line in lines {
            for direction in 0..2 {
                let stream = self.streams.get_mut(&line).expect("just listed");
                for message in std::mem::take(&mut stream.held[direction]) {
                    self.put(line, direction, &message, false);
                }
            }
        }
    }

    /// The agent's end is closed: by itself, or by the end of its process.
    pub(super) fn agent_closes(&mut self, line: Line) {
        if let Some(stream) = self.streams.get_mut(&line).filter(|stream| stream.agent_open) {
            stream.agent_open = false;
            self.put(line, 0, &Moved::Closed, false);
        }
    }
}
