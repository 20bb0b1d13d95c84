//! Agents: the planner's fence and contact lease, a journal, and a runtime that takes some time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kruise_api::ids::{Epoch, Generation};
use kruise_planner::node::contact::{Contact, redial};
use kruise_planner::node::fence::{Envelope, Fence, Kind};
use kruise_proto::dispatch::{Ack, Order, ProbeAnswer, Refusal, order, probe_answer::Presence};
use kruise_proto::task::{Phase, Reason, TaskStatus};

use super::chance::{Chance, Drift};
use super::faults::Cure;
use super::world::{Bug, Down, FAULTS_END, Happening, Line, MANAGERS, SECOND, Sim, Up};

const MAX_ORDER_AGE: Duration = Duration::from_secs(15);
const CONTACT_LEASE: Duration = Duration::from_secs(90);
const HEARTBEAT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(20);
const WELCOME: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Timer {
    Dial,
    Heartbeat(Line),
    /// No Welcome in time, or nothing answered.
    Patience(Line),
    Contact,
    /// The runtime is done with a task; the number is that of the attempt.
    Pulled {
        task: String,
        attempt: u64,
        well: bool,
    },
}

pub(super) struct Agent {
    pub(super) uid: String,
    pub(super) process: u64,
    alive: bool,
    journal: bool,
    clock: Drift,
    fence: Fence,
    contact: Contact,
    pub(super) line: Option<Line>,
    opened: Duration,
    /// Of the last Hello.
    stamp: u64,
    welcomed: bool,
    lost_at: Duration,
    target: Option<usize>,
    tasks: BTreeMap<String, TaskStatus>,
    attempts: BTreeMap<String, u64>,
    next_attempt: u64,
    images: BTreeSet<String>,
}

impl Agent {
    pub(super) fn new(node: usize, chance: &mut Chance, remembers: bool) -> Self {
        let clock = Drift::new(chance);
        Self {
            uid: format!("uid-node{node}"),
            process: 1,
            alive: true,
            journal: chance.permille(700) || remembers,
            clock,
            fence: Fence::new(Epoch(0)),
            contact: Contact::new(clock.shows(0)),
            line: None,
            opened: Duration::ZERO,
            stamp: 0,
            welcomed: false,
            lost_at: Duration::ZERO,
            target: None,
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            next_attempt: 0,
            images: BTreeSet::new(),
        }
    }
}

/// Job in a task's id, as its text is documented.
fn job_of(task: &str) -> String {
    task.split('/').nth(1).expect("a task id").to_owned()
}

fn is_final(status: &TaskStatus) -> bool {
    matches!(status.phase(), Phase::Succeeded | Phase::Failed)
}

impl Sim {
    fn agent_time(&self, node: usize) -> Duration {
        self.agents[node].clock.shows(self.now)
    }

    /// Comes when the agent's own clock shows this.
    fn agent_at(&mut self, node: usize, shown: Duration, timer: Timer) {
        let delay = self.agents[node].clock.world_time(shown).saturating_sub(self.now);
        self.agent_after(node, delay, timer);
    }

    pub(super) fn kill_agent(&mut self, node: usize) {
        if !self.agents[node].alive {
            return;
        }
        if let Some(line) = self.agents[node].line.take() {
            self.agent_closes(line);
        }
        let agent = &mut self.agents[node];
        agent.alive = false;
        agent.process += 1;
        agent.attempts.clear();
        for (task, status) in &agent.tasks {
            if status.phase() == Phase::Pulling {
                self.judge.stops(&agent.uid, &job_of(task));
            }
        }
        let pause = self.chance.between(SECOND, 40 * SECOND);
        self.after(pause, Happening::Heal(Cure::StartAgent(node)));
    }

    pub(super) fn start_agent(&mut self, node: usize) {
        let now = self.agent_time(node);
        let agent = &mut self.agents[node];
        agent.alive = true;
        let highest = if agent.journal {
            agent.fence.highest()
        } else {
            Epoch(0)
        };
        if !agent.journal {
            agent.tasks.clear();
        }
        for task in agent.tasks.values_mut().filter(|task| !is_final(task)) {
            task.set_phase(Phase::Waiting);
        }
        agent.fence = Fence::new(highest);
        agent.contact = Contact::new(now);
        (agent.lost_at, agent.target, agent.welcomed) = (now, None, false);
        let ends = agent.contact.ends();
        self.note(|| format!("agent {node} starts"));
        self.agent_after(node, 10, Timer::Dial);
        self.agent_at(node, ends, Timer::Contact);
    }

    pub(super) fn agent_timer(&mut self, node: usize, process: u64, timer: Timer) {
        if self.agents[node].process != process || !self.agents[node].alive {
            return;
        }
        let now = self.agent_time(node);
        match timer {
            Timer::Dial => self.dial(node),
            Timer::Heartbeat(line) => {
                if self.agents[node].line == Some(line) && self.agents[node].welcomed {
                    self.send_up(line, Up::Heartbeat(now));
                    self.agent_at(node, now + HEARTBEAT, Timer::Heartbeat(line));
                }
            }
            Timer::Patience(line) => {
                let agent = &self.agents[node];
                if agent.line != Some(line) {
                    return;
                }
                let until = if agent.welcomed {
                    agent.contact.last() + PATIENCE
                } else {
                    agent.opened + WELCOME
                };
                if until <= now {
                    self.agent_hangs_up(node, line, None);
                } else {
                    self.agent_at(node, until, Timer::Patience(line));
                }
            }
            Timer::Contact => self.look_at_contact(node, now),
            Timer::Pulled { task, attempt, well } => self.pulled(node, &task, attempt, well),
        }
    }

    fn look_at_contact(&mut self, node: usize, now: Duration) {
        let agent = &mut self.agents[node];
        if agent.contact.tick(now) {
            agent.attempts.clear();
            for (id, task) in agent.tasks.iter_mut().filter(|(_, task)| !is_final(task)) {
                if task.phase() == Phase::Pulling {
                    self.judge.stops(&agent.uid, &job_of(id));
                    task.set_phase(Phase::Suspended);
                }
            }
            self.note(|| format!("agent {node} lost contact for good"));
        } else if agent.contact.state() != kruise_planner::node::contact::State::Lost {
            let ends = agent.contact.ends();
            self.agent_at(node, ends.max(now + Duration::from_millis(1)), Timer::Contact);
        }
    }

    fn dial(&mut self, node: usize) {
        if self.agents[node].line.is_some() {
            return;
        }
        let by_service = self.chance.index(MANAGERS);
        let manager = self.agents[node].target.take().unwrap_or(by_service);
        if !self.managers[manager].alive {
            let delay = self.chance.between(1, 5 * SECOND);
            self.agent_after(node, delay, Timer::Dial);
            return;
        }
        if self.has(Bug::NoEpochCheck) {
            // It remembers none, so that it has none to tell: a leader does not let in whom it could not command.
            self.agents[node].fence = Fence::new(Epoch(0));
        }
        let line = self.open(node, manager);
        let now = self.agent_time(node);
        let agent = &mut self.agents[node];
        (agent.line, agent.opened, agent.welcomed) = (Some(line), now, false);
        let millis = u64::try_from(now.as_millis()).expect("not that long");
        agent.stamp = millis.max(agent.stamp + 1);
        let hello = Up::Hello {
            tasks: agent.tasks.values().cloned().collect(),
            highest: agent.fence.highest().0,
            stamp: agent.stamp,
        };
        self.send_up(line, hello);
        self.agent_at(node, now + WELCOME, Timer::Patience(line));
    }

    pub(super) fn agent_hangs_up(&mut self, node: usize, line: Line, leader: Option<usize>) {
        self.agent_closes(line);
        let now = self.agent_time(node);
        let agent = &mut self.agents[node];
        agent.line = None;
        agent.fence.closed();
        agent.contact.closed();
        if std::mem::take(&mut agent.welcomed) {
            agent.lost_at = now;
        }
        agent.target = leader;
        let jitter = f64::from(u32::try_from(self.chance.between(0, 999)).expect("small")) / 1_000.0;
        let lost_for = now.saturating_sub(self.agents[node].lost_at);
        let pause = if leader.is_some() {
            Duration::from_millis(1)
        } else {
            redial(lost_for, jitter)
        };
        self.agent_at(node, now + pause, Timer::Dial);
    }

    pub(super) fn agent_message(&mut self, node: usize, line: Line, message: Down) {
        let now = self.agent_time(node);
        if self.agents[node].line != Some(line) || !self.agents[node].alive {
            return;
        }
        match message {
            Down::Welcome { epoch } => self.welcome(node, line, epoch),
            Down::End { leader } => self.agent_hangs_up(node, line, leader),
            _ if !self.agents[node].welcomed => self.agent_hangs_up(node, line, None),
            Down::Set { set, sure } => {
                let stamp = (set.stamp > 0).then(|| Duration::from_nanos(set.stamp));
                let envelope = envelope(Kind::Set, set.epoch, set.generation, stamp);
                let rest: Vec<String> = (self.agents[node].tasks.keys())
                    .filter(|id| !set.orders.iter().any(|order| order.task_id == **id))
                    .cloned()
                    .collect();
                if self.order(node, line, &envelope, &set.orders, &rest, sure) {
                    let ended: Vec<TaskStatus> = self.agents[node]
                        .tasks
                        .values()
                        .filter(|task| is_final(task))
                        .cloned()
                        .collect();
                    for status in ended {
                        self.send_up(line, Up::Report(Box::new(status)));
                    }
                }
            }
            Down::Delta { delta, sure } => {
                let stamp = (delta.stamp > 0).then(|| Duration::from_nanos(delta.stamp));
                let envelope = envelope(Kind::Delta, delta.epoch, delta.generation, stamp);
                let cancel: Vec<String> = delta.cancel.into_iter().map(|cancel| cancel.task_id).collect();
                self.order(node, line, &envelope, &delta.add, &cancel, sure);
            }
            Down::Reply { stamp, epoch } => {
                if Epoch(epoch) != self.agents[node].fence.highest() || stamp > now {
                    return self.agent_hangs_up(node, line, None);
                }
                self.agents[node].contact.answered(stamp);
            }
            Down::Probe(probe) => self.answer(node, line, probe.images),
            Down::Saved(ack) => {
                for id in ack.task_ids {
                    if self.agents[node].tasks.get(&id).is_some_and(is_final) {
                        self.forget(node, &id);
                    }
                }
            }
        }
    }

    /// Says which images are there. Now and then somebody else has brought one.
    fn answer(&mut self, node: usize, line: Line, images: Vec<String>) {
        for image in images {
            if self.chance.permille(200) {
                self.agents[node].images.insert(image.clone());
                let uid = self.agents[node].uid.clone();
                self.judge.ends(&uid, &image, true);
            }
            let presence = if self.agents[node].images.contains(&image) {
                Presence::Present
            } else {
                Presence::Absent
            };
            let answer = ProbeAnswer {
                image,
                presence: presence.into(),
                image_id: String::new(),
            };
            self.send_up(line, Up::Answer(answer));
        }
    }

    fn welcome(&mut self, node: usize, line: Line, epoch: u64) {
        let unfenced = self.has(Bug::NoEpochCheck);
        let agent = &mut self.agents[node];
        if unfenced && !agent.welcomed {
            agent.fence = Fence::new(Epoch(0));
        }
        let opened = agent.opened;
        if agent.welcomed || agent.fence.welcome(Epoch(epoch), opened, MAX_ORDER_AGE).is_err() {
            return self.agent_hangs_up(node, line, None);
        }
        let was_lost = agent.contact.state() == kruise_planner::node::contact::State::Lost;
        agent.contact.welcomed(opened, CONTACT_LEASE);
        agent.welcomed = true;
        self.judge.heard(&agent.uid, epoch);
        let ends = agent.contact.ends();
        if was_lost {
            self.agent_at(node, ends, Timer::Contact);
        }
        self.agent_after(node, 0, Timer::Heartbeat(line));
    }

    /// Lets an order through the fence. Whether it was taken.
    fn order(
        &mut self,
        node: usize,
        line: Line,
        envelope: &Envelope,
        add: &[Order],
        cancel: &[String],
        sure: u64,
    ) -> bool {
        let now = self.agent_time(node);
        let checked = self.agents[node].fence.check(envelope, now);
        let refusal = checked.as_ref().err().map_or(Refusal::Unspecified, Refusal::from);
        if checked.is_ok() {
            self.agents[node].fence.taken(envelope);
            for id in cancel {
                self.forget(node, id);
            }
            for order in add {
                self.begin(node, line, order, envelope.epoch.0, sure);
            }
        } else {
            self.note(|| format!("agent {node} refuses {envelope:?}: {refusal:?}"));
        }
        let ack = Ack {
            epoch: envelope.epoch.0,
            generation: envelope.generation.0,
            refusal: refusal.into(),
            message: String::new(),
        };
        self.send_up(line, Up::Ack(ack));
        checked.is_ok()
    }

    fn begin(&mut self, node: usize, line: Line, order: &Order, epoch: u64, sure: u64) {
        let Some(order::Work::PullImage(pull)) = &order.work else {
            return;
        };
        let id = &order.task_id;
        let agent = &mut self.agents[node];
        let status = agent.tasks.entry(id.clone()).or_insert_with(|| TaskStatus {
            task_id: id.clone(),
            image: pull.image.clone(),
            ..TaskStatus::default()
        });
        if is_final(status) || status.phase() == Phase::Pulling {
            return;
        }
        status.set_phase(Phase::Pulling);
        let report = status.clone();
        agent.next_attempt += 1;
        let attempt = agent.next_attempt;
        agent.attempts.insert(id.clone(), attempt);
        let (uid, age) = (agent.uid.clone(), self.now - sure);
        self.note(|| format!("agent {node} begins {id} for epoch {epoch}"));
        let now = self.now;
        self.judge.begins(&uid, &job_of(id), epoch, age, now);
        let most = if self.now < FAULTS_END {
            40 * SECOND
        } else {
            5 * SECOND
        };
        let takes = self.chance.between(200, most);
        let well = !self.chance.permille(40);
        let pulled = Timer::Pulled {
            task: id.clone(),
            attempt,
            well,
        };
        self.agent_after(node, takes, pulled);
        self.send_up(line, Up::Report(Box::new(report)));
    }

    fn pulled(&mut self, node: usize, id: &str, attempt: u64, well: bool) {
        let agent = &mut self.agents[node];
        if agent.attempts.get(id) != Some(&attempt) {
            return;
        }
        agent.attempts.remove(id);
        let status = agent.tasks.get_mut(id).expect("an attempt has its task");
        status.set_phase(if well { Phase::Succeeded } else { Phase::Failed });
        if well {
            agent.images.insert(status.image.clone());
        } else {
            status.set_reason(Reason::NotFound);
        }
        let report = status.clone();
        self.judge.stops(&agent.uid, &job_of(id));
        self.judge.ends(&agent.uid, &report.image, well);
        self.note(|| format!("agent {node} is done with {id}: {well}"));
        if let Some(line) = self.agents[node].line.filter(|_| self.agents[node].welcomed) {
            self.send_up(line, Up::Report(Box::new(report)));
        }
    }

    fn forget(&mut self, node: usize, id: &str) {
        let agent = &mut self.agents[node];
        agent.attempts.remove(id);
        let Some(status) = agent.tasks.remove(id) else {
            return;
        };
        let job = job_of(id);
        if status.phase() == Phase::Pulling {
            self.judge.stops(&agent.uid, &job);
        }
        if is_final(&status) {
            let stored = self.api.jobs.get(&job.as_str().into());
            let of_use = stored.is_some_and(|job| {
                job.spec.image.starts_with("app") && !self.api.reimaged.contains(&job.uid)
            });
            let kept = stored.and_then(|job| job.status.as_ref());
            self.judge.forgets(&job, &agent.uid, &status.image, kept, of_use);
        }
    }
}

fn envelope(kind: Kind, epoch: u64, generation: u64, stamp: Option<Duration>) -> Envelope {
    Envelope {
        kind,
        epoch: Epoch(epoch),
        generation: Generation(generation),
        stamp,
    }
}
