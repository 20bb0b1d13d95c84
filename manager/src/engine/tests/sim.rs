//! Random histories of one job on a few nodes: lost streams, failovers, lost and unanswered writes, lagging watches. The agents here know nothing
//! of how the leader counts; what holds is judged by what they really do and by what is really stored.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kruise_api::ids::{Epoch, JobUid, NodeName, NodeUid};
use kruise_planner::job::NodeSet;
use kruise_proto::dispatch::{Ack, Hello, Order};
use kruise_proto::task::{Phase, Reason, TaskStatus};
use proptest::prelude::*;
use serde_json::json;

use super::world::{config, is_final, job_object, merge, node_object, start, status};
use crate::engine::event::{Attach, Effect, Event, JobWrite, Now, SessionId, ToAgent};
use crate::engine::objects::{JobObject, Listing};
use crate::engine::ports::ApiFailure;
use crate::engine::state::EngineState;
use crate::engine::vitals::Vitals;

const JOB: &str = "uid-a";
const LEASE: Duration = Duration::from_secs(90);
const SILENCE: Duration = Duration::from_secs(30);

/// What happens next. Numbers pick an agent, modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    Attach(usize),
    /// The agent loses its stream; the leader hears of it now or never (until it replaces it or falls over).
    Cut {
        agent: usize,
        noticed: bool,
    },
    /// The agent takes everything that is on its wire.
    Deliver(usize),
    Heartbeat(usize),
    Succeed(usize),
    Fail(usize),
    Pass(u64),
    Write,
    WriteConflicts,
    WriteLost {
        done: bool,
    },
    Fetch,
    Watch,
    FailOver,
    Edit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let agent = 0_usize..8;
    let step = prop_oneof![
        6 => agent.clone().prop_map(Step::Attach),
        2 => (agent.clone(), any::<bool>()).prop_map(|(agent, noticed)| Step::Cut { agent, noticed }),
        8 => agent.clone().prop_map(Step::Deliver),
        4 => agent.clone().prop_map(Step::Heartbeat),
        4 => agent.clone().prop_map(Step::Succeed),
        1 => agent.prop_map(Step::Fail),
        4 => (1_u64..40).prop_map(Step::Pass),
        5 => Just(Step::Write),
        1 => Just(Step::WriteConflicts),
        1 => any::<bool>().prop_map(|done| Step::WriteLost { done }),
        3 => Just(Step::Fetch),
        2 => Just(Step::Watch),
        1 => Just(Step::FailOver),
        1 => Just(Step::Edit),
    ];
    prop::collection::vec(step, 1..120)
}

/// A node's agent, as its contract says.
struct Agent {
    name: NodeName,
    uid: NodeUid,
    session: Option<SessionId>,
    vitals: Arc<Vitals>,
    wire: VecDeque<ToAgent>,
    tasks: BTreeMap<String, TaskStatus>,
    last_contact: Duration,
    /// Images that were pulled to the end.
    has: BTreeSet<String>,
}

impl Agent {
    fn pulls(&self) -> bool {
        self.tasks.values().any(|task| task.phase() == Phase::Pulling)
    }

    fn take(&mut self, order: &Order) {
        let image = match &order.work {
            Some(kruise_proto::dispatch::order::Work::PullImage(pull)) => pull.image.clone(),
            _ => String::new(),
        };
        let fresh = TaskStatus {
            image,
            ..status(&order.task_id, Phase::Pulling)
        };
        let task = self.tasks.entry(order.task_id.clone()).or_insert(fresh);
        if task.phase() == Phase::Suspended {
            task.set_phase(Phase::Pulling);
        }
    }
}

struct Sim {
    state: EngineState,
    epoch: u64,
    now: Now,
    parallelism: usize,
    job: JobObject,
    agents: Vec<Agent>,
    next_session: u64,
    writes: VecDeque<JobWrite>,
    fetches: usize,
    /// Most that a status of this round ever said.
    told: (String, i32),
}

impl Sim {
    fn new(nodes: usize, parallelism: usize) -> Self {
        let now = start();
        let agents = (1..=nodes).map(|i| Agent {
            name: format!("node{i}").as_str().into(),
            uid: format!("uid-node{i}").as_str().into(),
            session: None,
            vitals: Arc::default(),
            wire: VecDeque::new(),
            tasks: BTreeMap::new(),
            last_contact: now.mono,
            has: BTreeSet::new(),
        });
        let mut sim = Self {
            state: EngineState::new(config(), Epoch(1), now, Default::default()),
            epoch: 1,
            now,
            parallelism,
            job: job_object("a", &json!({"parallelism": parallelism})),
            agents: agents.collect(),
            next_session: 1,
            writes: VecDeque::new(),
            fetches: 0,
            told: (String::new(), 0),
        };
        sim.list();
        sim
    }

    fn list(&mut self) {
        self.event(Event::Nodes(Listing::Begin));
        for i in 1..=self.agents.len() {
            self.event(Event::Nodes(Listing::Listed(node_object(&format!("node{i}")))));
        }
        self.event(Event::Nodes(Listing::Complete));
        self.event(Event::Jobs(Listing::Begin));
        let job = self.job.clone();
        self.event(Event::Jobs(Listing::Listed(job)));
        self.event(Event::Jobs(Listing::Complete));
        self.event(Event::NodeImages(Listing::Complete));
    }

    fn event(&mut self, event: Event) {
        let effects = self.state.step(event, self.now);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send { session, message } => {
                    let agent = self
                        .agents
                        .iter_mut()
                        .find(|agent| agent.session == Some(session));
                    if let Some(agent) = agent {
                        agent.wire.push_back(message);
                    }
                }
                Effect::Write { write, .. } => {
                    self.writes.push_back(write);
                    assert!(self.writes.len() <= 1, "one write at a time");
                }
                Effect::WriteImage { .. } => panic!("there are no NodeImages"),
                Effect::Fetch { .. } => self.fetches += 1,
                _ => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Attach(agent) => self.attach(agent % self.agents.len()),
            Step::Cut { agent, noticed } => self.cut(agent % self.agents.len(), *noticed),
            Step::Deliver(agent) => self.deliver(agent % self.agents.len()),
            Step::Heartbeat(agent) => self.heartbeat(agent % self.agents.len()),
            Step::Succeed(agent) => self.end(agent % self.agents.len(), Phase::Succeeded),
            Step::Fail(agent) => self.end(agent % self.agents.len(), Phase::Failed),
            Step::Pass(seconds) => self.pass(*seconds),
            Step::Write => self.write(Ok(true)),
            Step::WriteConflicts => self.write(Err(ApiFailure::Conflict)),
            Step::WriteLost { done } => {
                self.write(if *done { Ok(false) } else { Err(unsure()) });
            }
            Step::Fetch => self.fetch(),
            Step::Watch => {
                let job = self.job.clone();
                self.event(Event::Jobs(Listing::Applied(job)));
            }
            Step::FailOver => self.fail_over(),
            Step::Edit => self.edit(),
        }
        self.check();
    }

    fn attach(&mut self, at: usize) {
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let agent = &mut self.agents[at];
        agent.wire.clear();
        agent.vitals = Arc::new(Vitals::new(self.now.mono, None, None));
        let attach = Attach {
            session,
            node: agent.name.clone(),
            node_uid: agent.uid.clone(),
            peer: String::new(),
            hello: Hello {
                tasks: agent.tasks.values().cloned().collect(),
                ..Hello::default()
            },
            vitals: Arc::clone(&agent.vitals),
        };
        agent.session = Some(session);
        agent.last_contact = self.now.mono;
        self.state.attach(attach, self.now).expect("let in");
        let effects = self.state.settle(self.now);
        self.perform(effects);
    }

    fn cut(&mut self, at: usize, noticed: bool) {
        let agent = &mut self.agents[at];
        agent.wire.clear();
        if let Some(session) = agent.session.take()
            && noticed
        {
            self.event(Event::Detached { session });
        }
    }

    fn deliver(&mut self, at: usize) {
        while let Some(message) = self.agents[at].wire.pop_front() {
            let dropped = self.agents[at].tasks.clone();
            let agent = &mut self.agents[at];
            let generation = match &message {
                ToAgent::Set(set) => {
                    agent
                        .tasks
                        .retain(|id, _| set.orders.iter().any(|order| order.task_id == *id));
                    set.orders.iter().for_each(|order| agent.take(order));
                    set.generation
                }
                ToAgent::Delta(delta) => {
                    delta
                        .cancel
                        .iter()
                        .for_each(|cancel| drop(agent.tasks.remove(&cancel.task_id)));
                    delta.add.iter().for_each(|order| agent.take(order));
                    delta.generation
                }
                ToAgent::Saved(ack) => {
                    ack.task_ids.iter().for_each(|id| drop(agent.tasks.remove(id)));
                    0
                }
                ToAgent::Probe(_) => panic!("none of these agents offers to answer"),
                ToAgent::Close(_) => {
                    agent.session = None;
                    agent.wire.clear();
                    0
                }
            };
            let session = agent.session;
            self.check_dropped(at, &dropped);
            self.check();
            if let (Some(session), true) = (session, generation > 0) {
                let ack = Ack {
                    epoch: self.epoch,
                    generation,
                    ..Ack::default()
                };
                self.event(Event::Ack { session, ack });
            }
        }
    }

    /// A result that an agent has forgotten is stored. After an edit it may be of a round that the leader has left meanwhile.
    fn check_dropped(&self, at: usize, before: &BTreeMap<String, TaskStatus>) {
        let agent = &self.agents[at];
        let gone = before
            .values()
            .filter(|task| !agent.tasks.contains_key(&task.task_id));
        for task in gone.filter(|task| is_final(task)) {
            let of_use = self.job.generation == 1 && !self.job.is_complete();
            assert!(
                !of_use || self.is_stored(&agent.uid),
                "{} was forgotten before it was stored",
                task.task_id
            );
        }
    }

    fn is_stored(&self, uid: &NodeUid) -> bool {
        let outcomes = self
            .job
            .status
            .as_ref()
            .and_then(|status| status.outcomes.clone())
            .unwrap_or_default();
        [outcomes.succeeded, outcomes.failed]
            .iter()
            .any(|set| NodeSet::decode(set).contains(uid))
    }

    fn heartbeat(&mut self, at: usize) {
        let agent = &mut self.agents[at];
        // A session that the leader has replaced or lost answers nothing; here only that of a dead leader is such.
        if agent.session.is_some() {
            agent.last_contact = self.now.mono;
            agent.vitals.answer(self.now.mono);
        }
    }

    fn end(&mut self, at: usize, phase: Phase) {
        let agent = &mut self.agents[at];
        let Some(task) = agent
            .tasks
            .values_mut()
            .find(|task| task.phase() == Phase::Pulling)
        else {
            return;
        };
        task.set_phase(phase);
        if phase == Phase::Failed {
            task.set_reason(Reason::NotFound);
        } else {
            agent.has.insert(task.image.clone());
        }
        let status = Box::new(task.clone());
        if let Some(session) = agent.session {
            self.event(Event::Report { session, status });
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now.mono += Duration::from_secs(seconds);
        self.now.wall += SignedDuration::from_secs(i64::try_from(seconds).expect("small"));
        // Both sides give up a stream without heartbeats long before the lease ends.
        for at in 0..self.agents.len() {
            if self.now.mono >= self.agents[at].last_contact + SILENCE {
                self.cut(at, true);
            }
        }
        for agent in &mut self.agents {
            if self.now.mono >= agent.last_contact + LEASE {
                for task in agent
                    .tasks
                    .values_mut()
                    .filter(|task| task.phase() == Phase::Pulling)
                {
                    task.set_phase(Phase::Suspended);
                }
            }
        }
        let effects = self.state.settle(self.now);
        self.perform(effects);
    }

    /// `Ok(true)`: done and answered. `Ok(false)`: done, the answer is lost. `Err`: not done.
    fn write(&mut self, how: Result<bool, ApiFailure>) {
        let Some(write) = self.writes.pop_front() else {
            return;
        };
        let result = match how {
            Err(ApiFailure::Conflict) => {
                self.bump();
                Err(ApiFailure::Conflict)
            }
            Err(error) => Err(error),
            Ok(answered) => {
                let done = self.apply(&write);
                if answered {
                    done.map(|()| Some(self.job.clone()))
                } else {
                    Err(unsure())
                }
            }
        };
        self.event(Event::Written {
            job: JobUid::from(JOB),
            result,
        });
    }

    fn bump(&mut self) {
        let version: u64 = self.job.version.parse().expect("a number");
        self.job.version = (version + 1).to_string();
    }

    fn apply(&mut self, write: &JobWrite) -> Result<(), ApiFailure> {
        let JobWrite::Status { version, patch, .. } = write else {
            panic!("{write:?}")
        };
        if *version != self.job.version {
            return Err(ApiFailure::Conflict);
        }
        let over = self.job.is_complete();
        assert!(!over, "a job that is over was written");
        let mut status = serde_json::to_value(&self.job.status).expect("json");
        merge(&mut status, patch);
        self.job.status = serde_json::from_value(status).expect("a status");
        self.bump();
        self.check_status();
        Ok(())
    }

    /// Counters are sums of disjoint sets, and never fall within a round.
    fn check_status(&mut self) {
        let status = self.job.status.as_ref().expect("written");
        let ended = status.succeeded + status.failed;
        assert!(ended + status.active <= status.desired, "{status:?}");
        let outcomes = status.outcomes.as_ref().expect("written");
        let round = format!("{} {}", outcomes.round, outcomes.image);
        let before = if self.told.0 == round { self.told.1 } else { 0 };
        assert!(ended >= before, "counters fell from {before} to {ended}");
        self.told = (round, ended);
        let succeeded = NodeSet::decode(&outcomes.succeeded);
        for agent in self.agents.iter().filter(|agent| succeeded.contains(&agent.uid)) {
            assert!(
                agent.has.contains(&outcomes.image),
                "{} counts and has no image",
                agent.name
            );
        }
    }

    fn fetch(&mut self) {
        if self.fetches > 0 {
            self.fetches -= 1;
            let result = Ok(Some(self.job.clone()));
            self.event(Event::Fetched {
                job: JobUid::from(JOB),
                result,
            });
        }
    }

    fn fail_over(&mut self) {
        self.epoch += 1;
        self.state = EngineState::new(config(), Epoch(self.epoch), self.now, Default::default());
        self.writes.clear();
        self.fetches = 0;
        for agent in &mut self.agents {
            agent.session = None;
            agent.wire.clear();
        }
        self.list();
    }

    fn edit(&mut self) {
        if self.job.is_complete() {
            return;
        }
        let next = if self.job.spec.image == "nginx:1" {
            "nginx:2"
        } else {
            "nginx:1"
        };
        self.job.spec.image = next.into();
        self.job.generation += 1;
        self.bump();
    }

    /// The promise: never more nodes pulling for the job than it allows, whatever image.
    fn check(&self) {
        let pulling: Vec<_> = self
            .agents
            .iter()
            .filter(|agent| agent.pulls())
            .map(|agent| agent.name.as_str())
            .collect();
        assert!(pulling.len() <= self.parallelism, "{pulling:?} pull at once");
    }

    /// After the last fault everything comes to its end.
    fn heal(&mut self) {
        for round in 0..400 {
            if self.job.is_complete() {
                return;
            }
            for at in 0..self.agents.len() {
                if self.agents[at].session.is_none() {
                    self.attach(at);
                }
                self.heartbeat(at);
                self.deliver(at);
                self.step(&Step::Succeed(at));
            }
            self.step(&Step::Fetch);
            self.step(&Step::Write);
            self.step(&Step::Watch);
            self.pass(if round % 4 == 0 { 5 } else { 1 });
            self.check();
        }
        panic!("the job does not end: {:?}", self.job.status);
    }
}

fn unsure() -> ApiFailure {
    ApiFailure::Unsure {
        detail: "lost".into(),
        retry_after: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn windows_hold_and_nothing_is_lost(nodes in 1_usize..6, parallelism in 1_usize..4, steps in steps()) {
        let mut sim = Sim::new(nodes, parallelism);
        for step in &steps {
            sim.step(step);
        }
        sim.heal();
        let agents = sim.agents.iter().filter(|agent| agent.pulls()).count();
        prop_assert!(agents <= parallelism);
        let status = sim.job.status.as_ref().expect("written");
        prop_assert_eq!(usize::try_from(status.succeeded + status.failed).expect("positive"), nodes);
    }
}
