//! Managers: the planner's elector, the engine's real state, and a session as in `dispatch` around each stream.

mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::{Epoch, JobUid, ObjectKey};
use kruise_planner::lease::{Elector, Next, Outcome, Seen, State, Timing, Write};
use kruise_proto::dispatch::{DesiredDelta, DesiredSet, Hello, ResultAck};
use kruise_proto::task::Phase;

use super::super::world::config;
use super::chance::{Chance, Drift};
use super::faults::Cure;
use super::world::{Bug, Down, Happening, Line, SECOND, Sim, Up};
use crate::engine::event::{Attach, Effect, Event, JobWrite, Now, SessionId, ToAgent};
use crate::engine::objects::Listing;
use crate::engine::ports::ApiFailure;
use crate::engine::state::EngineState;
use crate::engine::vitals::Vitals;

const REQUEST: u64 = 4 * SECOND;

#[derive(Debug)]
pub(super) enum Input {
    Elect,
    /// The request has reached the API server (which runs on when the manager does not).
    LeaseArrives(LeaseRequest),
    LeaseTimeout(u64),
    Lease(LeaseAnswer),
    Message(Line, Up),
    Closed(Line),
    /// Of the watches of a leadership.
    News(u64, Event),
    Written(Event),
    WriteArrives(JobUid, JobWrite),
    FetchArrives(JobUid, ObjectKey),
    Wake(u64),
    LookAround,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseRequest {
    number: u64,
    sent: Duration,
    write: Option<Write>,
    dies: u64,
}

#[derive(Debug)]
pub(super) struct LeaseAnswer {
    number: u64,
    sent: Duration,
    found: Option<Seen>,
    write: Option<(Write, Option<String>)>,
}

pub(super) struct Manager {
    pub(super) process: u64,
    pub(super) alive: bool,
    pub(super) paused: bool,
    backlog: VecDeque<Input>,
    clock: Drift,
    /// What its wall clock is wrong by, in milliseconds.
    skew: u64,
    election: State,
    /// The request under way.
    asked: Option<LeaseRequest>,
    requests: u64,
    pub(super) engine: Option<EngineState>,
    epoch: u64,
    sessions: BTreeMap<SessionId, Session>,
    wake: Option<u64>,
    pub(super) watched_until: u64,
    /// Jobs that it has been told are over.
    over: BTreeSet<String>,
}

/// As in `dispatch::session`.
struct Session {
    line: Line,
    vitals: Arc<Vitals>,
    stamp: u64,
    first_set_sent: bool,
    held: VecDeque<ToAgent>,
    stale: bool,
    /// Of tasks that have ended.
    results: Vec<String>,
}

impl Manager {
    pub(super) fn new(chance: &mut Chance) -> Self {
        Self {
            process: 1,
            alive: true,
            paused: false,
            backlog: VecDeque::new(),
            clock: Drift::new(chance),
            skew: chance.between(0, 7_200 * SECOND),
            election: State::new(),
            asked: None,
            requests: 0,
            engine: None,
            epoch: 0,
            sessions: BTreeMap::new(),
            wake: None,
            watched_until: 0,
            over: BTreeSet::new(),
        }
    }

    pub(super) fn watches(&self) -> bool {
        self.alive && self.engine.is_some()
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    fn elector(&self, index: usize) -> Elector {
        Elector {
            name: format!("manager{index}_{}", self.process),
            address: index.to_string(),
            timing: Timing::default(),
        }
    }
}

impl Sim {
    fn manager_time(&self, manager: usize) -> Now {
        Now {
            mono: self.managers[manager].clock.shows(self.now),
            wall: self.wall(),
        }
    }

    /// Whether the lease is provably its own at this instant.
    fn leads(&self, manager: usize) -> bool {
        let own = &self.managers[manager];
        match &own.election {
            State::Leading(leading) => {
                let unchecked = self.has(Bug::NoLeaseCheck);
                own.engine.is_some()
                    && (unchecked || own.clock.shows(self.now) < leading.deadline(&Timing::default()))
            }
            State::Following(_) => false,
        }
    }

    pub(super) fn kill_manager(&mut self, manager: usize, noticed: bool) {
        let own = &mut self.managers[manager];
        if !own.alive {
            return;
        }
        (own.alive, own.paused, own.engine, own.asked) = (false, false, None, None);
        own.process += 1;
        own.backlog.clear();
        own.over.clear();
        let sessions = std::mem::take(&mut own.sessions);
        let lines: Vec<Line> = (self.streams.iter())
            .filter(|(_, stream)| stream.manager == manager && stream.manager_open)
            .map(|(line, _)| *line)
            .collect();
        drop(sessions);
        for line in lines {
            self.streams.get_mut(&line).expect("just listed").manager_open = false;
            // A machine that vanishes says no goodbye.
            if noticed && self.chance.permille(800) {
                self.send_down(line, Down::End { leader: None });
            }
        }
        let pause = self.chance.between(SECOND, 30 * SECOND);
        self.after(pause, Happening::Heal(Cure::StartManager(manager)));
    }

    pub(super) fn start_manager(&mut self, manager: usize) {
        let own = &mut self.managers[manager];
        (own.alive, own.election) = (true, State::new());
        self.note(|| format!("manager {manager} starts"));
        self.tell_manager(manager, 1, Input::Elect);
    }

    pub(super) fn wake_manager(&mut self, manager: usize, process: u64) {
        if self.managers[manager].process != process {
            return;
        }
        self.note(|| format!("manager {manager} wakes up"));
        self.managers[manager].paused = false;
        // Whatever waits is taken in any order of its kinds; within a stream and a watch the order stays.
        while let Some(input) = self.managers[manager].backlog.pop_front() {
            self.manager_input(manager, process, input);
        }
    }

    pub(super) fn manager_input(&mut self, manager: usize, process: u64, input: Input) {
        // What has left a process goes on without it.
        match input {
            Input::LeaseArrives(request) => return self.lease_arrives(manager, process, request),
            Input::WriteArrives(job, write) => return self.api_write(manager, process, job, &write),
            Input::FetchArrives(job, key) => return self.fetch_arrives(manager, process, job, &key),
            _ => {}
        }
        let own = &mut self.managers[manager];
        if own.process != process || !own.alive {
            return;
        }
        if own.paused {
            return own.backlog.push_back(input);
        }
        match input {
            Input::Elect => self.elect(manager),
            Input::LeaseTimeout(number) => self.lease_timeout(manager, number),
            Input::Lease(answer) => self.lease_answered(manager, answer),
            Input::Message(line, message) => self.session_message(manager, line, message),
            Input::Closed(line) => self.session_ends(manager, line),
            Input::News(epoch, event) if epoch == self.managers[manager].epoch => {
                self.engine_event(manager, event);
            }
            Input::News(..) => {}
            Input::Written(event) => self.engine_event(manager, event),
            Input::Wake(at) if self.managers[manager].wake == Some(at) => {
                self.managers[manager].wake = None;
                self.settle(manager);
            }
            Input::Wake(_) => {}
            Input::LookAround => self.look_around(manager),
            Input::LeaseArrives(_) | Input::WriteArrives(..) | Input::FetchArrives(..) => {}
        }
    }

    fn elect(&mut self, manager: usize) {
        let now = self.manager_time(manager);
        let own = &self.managers[manager];
        let next = own.elector(manager).tick(&own.election, now.mono);
        self.follow(manager, next);
    }

    fn follow(&mut self, manager: usize, next: Next) {
        let write = match next {
            Next::Wait => {
                let pause = self.chance.between(2_000, 2_400);
                return self.tell_manager(manager, pause, Input::Elect);
            }
            Next::Lose(_) if self.has(Bug::NoLeaseCheck) => {
                return self.tell_manager(manager, 2 * SECOND, Input::Elect);
            }
            Next::Lose(loss) => {
                self.note(|| format!("manager {manager} ends: {loss}"));
                return self.kill_manager(manager, true);
            }
            Next::Read => None,
            Next::Write(write) => Some(write),
        };
        let sent = self.manager_time(manager).mono;
        let own = &mut self.managers[manager];
        own.requests += 1;
        let request = LeaseRequest {
            number: own.requests,
            sent,
            write,
            dies: self.now + REQUEST,
        };
        own.asked = Some(request.clone());
        let number = request.number;
        let delay = self.latency();
        self.tell_manager(manager, delay, Input::LeaseArrives(request));
        self.tell_manager(manager, REQUEST, Input::LeaseTimeout(number));
    }

    fn lease_arrives(&mut self, manager: usize, process: u64, request: LeaseRequest) {
        if self.now >= request.dies {
            return;
        }
        let LeaseRequest {
            number, sent, write, ..
        } = request;
        let found = self.api.lease.clone();
        let write = write.map(|write| {
            let version = self.lease_write(&write);
            (write, version)
        });
        let answer = LeaseAnswer {
            number,
            sent,
            found,
            write,
        };
        self.lease_answer(manager, process, answer);
    }

    fn lease_timeout(&mut self, manager: usize, number: u64) {
        let own = &mut self.managers[manager];
        if own.asked.as_ref().is_none_or(|asked| asked.number != number) {
            return;
        }
        let asked = own.asked.take().expect("just looked");
        let next = match asked.write {
            Some(write) => self.wrote(manager, &write, Outcome::Unknown, asked.sent),
            None => Next::Wait,
        };
        self.follow(manager, next);
    }

    fn lease_answered(&mut self, manager: usize, answer: LeaseAnswer) {
        let own = &mut self.managers[manager];
        if own
            .asked
            .as_ref()
            .is_none_or(|asked| asked.number != answer.number)
        {
            return;
        }
        own.asked = None;
        let next = match answer.write {
            Some((write, version)) => {
                let outcome = version.map_or(Outcome::Conflict, Outcome::Done);
                self.wrote(manager, &write, outcome, answer.sent)
            }
            None => {
                let now = self.manager_time(manager);
                let own = &mut self.managers[manager];
                let wall = u64::try_from(now.wall.as_millisecond()).expect("later than 1970");
                let (state, next) = own.elector(manager).read(
                    std::mem::take(&mut own.election),
                    answer.found,
                    now.mono,
                    wall - 3_600 * SECOND + own.skew,
                );
                own.election = state;
                next
            }
        };
        self.follow(manager, next);
    }

    fn wrote(&mut self, manager: usize, write: &Write, outcome: Outcome, sent: Duration) -> Next {
        let now = self.manager_time(manager);
        let own = &mut self.managers[manager];
        let election = std::mem::take(&mut own.election);
        let (state, next) = own
            .elector(manager)
            .wrote(election, write, outcome, sent, now.mono);
        own.election = state;
        let begins = match &own.election {
            State::Leading(leading) if own.engine.is_none() => Some(leading.epoch),
            _ => None,
        };
        if let (Some(epoch), Next::Wait) = (begins, &next) {
            self.begin_to_lead(manager, epoch, now);
        }
        next
    }

    fn begin_to_lead(&mut self, manager: usize, epoch: Epoch, now: Now) {
        self.note(|| format!("manager {manager} leads with epoch {epoch}"));
        self.judge.failovers += 1;
        let own = &mut self.managers[manager];
        own.engine = Some(EngineState::new(config(), epoch, now, Default::default()));
        own.epoch = epoch.0;
        own.wake = None;
        own.watched_until = self.now;
        // Lists as of a moment a little later, then changes.
        let mut news = vec![Event::NodeImages(Listing::Complete), Event::Nodes(Listing::Begin)];
        news.extend(
            self.api
                .nodes
                .iter()
                .cloned()
                .map(|node| Event::Nodes(Listing::Listed(node))),
        );
        news.push(Event::Nodes(Listing::Complete));
        news.push(Event::Jobs(Listing::Begin));
        news.extend(
            self.api
                .jobs
                .values()
                .cloned()
                .map(|job| Event::Jobs(Listing::Listed(job))),
        );
        news.push(Event::Jobs(Listing::Complete));
        let at = self.watch_time(manager);
        for event in news {
            self.tell_manager(manager, at - self.now, Input::News(epoch.0, event));
        }
        let nodes = self.api.nodes.iter().map(|node| node.name.clone()).collect();
        let delay = self.chance.between(10, 6 * SECOND);
        self.tell_manager(manager, delay, Input::News(epoch.0, Event::AgentNodes(nodes)));
        self.tell_manager(manager, SECOND, Input::LookAround);
    }

    /// Sessions look at their clocks, and now and then a watch begins anew.
    fn look_around(&mut self, manager: usize) {
        if self.managers[manager].engine.is_none() {
            return;
        }
        let now = self.manager_time(manager).mono;
        let config = config();
        let (mut stale, mut lost) = (Vec::new(), Vec::new());
        for (id, session) in &mut self.managers[manager].sessions {
            let silence = now.saturating_sub(session.vitals.last_heard());
            if silence >= config.lost_after() {
                lost.push(session.line);
            } else if silence >= config.stale_after() && !session.stale {
                session.stale = true;
                stale.push(*id);
            }
        }
        for session in stale {
            self.engine_event(manager, Event::Stale { session, stale: true });
        }
        for line in lost {
            self.end_session(manager, line, None);
        }
        if self.now < super::world::FAULTS_END && self.chance.permille(10) {
            let (at, epoch) = (self.watch_time(manager), self.managers[manager].epoch);
            let mut news = vec![Event::Jobs(Listing::Begin)];
            news.extend(
                self.api
                    .jobs
                    .values()
                    .cloned()
                    .map(|job| Event::Jobs(Listing::Listed(job))),
            );
            news.push(Event::Jobs(Listing::Complete));
            for event in news {
                self.tell_manager(manager, at - self.now, Input::News(epoch, event));
            }
        }
        self.tell_manager(manager, SECOND, Input::LookAround);
    }

    fn engine_event(&mut self, manager: usize, event: Event) {
        self.learn(manager, &event);
        let now = self.manager_time(manager);
        if let Some(engine) = &mut self.managers[manager].engine {
            engine.apply(event, now);
            self.settle(manager);
        }
    }

    /// What the leader cannot say that it has not been told.
    fn learn(&mut self, manager: usize, event: &Event) {
        let object = match event {
            Event::Jobs(Listing::Listed(job) | Listing::Applied(job)) => job,
            Event::Written {
                result: Ok(Some(job)),
                ..
            }
            | Event::Fetched {
                result: Ok(Some(job)),
                ..
            } => job,
            _ => return,
        };
        if object.is_complete() {
            self.managers[manager].over.insert(object.uid.to_string());
        }
    }

    fn settle(&mut self, manager: usize) {
        let now = self.manager_time(manager);
        let Some(engine) = &mut self.managers[manager].engine else {
            return;
        };
        let effects = engine.settle(now);
        let wake = engine.next_wake(now);
        for effect in effects {
            self.perform(manager, effect);
        }
        let Some(wake) = wake else { return };
        let at = self.managers[manager].clock.world_time(wake).max(self.now + 2);
        let own = &mut self.managers[manager];
        if own.wake.is_none_or(|known| known > at) {
            own.wake = Some(at);
            self.tell_manager(manager, at - self.now, Input::Wake(at));
        }
    }

    fn perform(&mut self, manager: usize, effect: Effect) {
        match effect {
            Effect::Send { session, message } => self.pass_on(manager, session, message),
            Effect::Write { job, write, .. } => {
                if self.has(Bug::AckBeforeWrite) {
                    self.acknowledge_all(manager);
                }
                if !self.leads(manager) {
                    let result = Err(ApiFailure::NotLeading);
                    return self.tell_manager(manager, 1, Input::Written(Event::Written { job, result }));
                }
                let lost = self.now < super::world::FAULTS_END && self.chance.permille(30);
                if lost {
                    let result = Err(super::api::unsure());
                    return self.tell_manager(
                        manager,
                        REQUEST,
                        Input::Written(Event::Written { job, result }),
                    );
                }
                let delay = self.latency();
                self.tell_manager(manager, delay, Input::WriteArrives(job, write));
            }
            Effect::Fetch { job, key } => {
                let delay = self.latency();
                self.tell_manager(manager, delay, Input::FetchArrives(job, key));
            }
            Effect::Publish(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// See [`Bug::AckBeforeWrite`].
    fn acknowledge_all(&mut self, manager: usize) {
        let sessions = &mut self.managers[manager].sessions;
        let results: Vec<(Line, Vec<String>)> = sessions
            .values_mut()
            .map(|session| (session.line, std::mem::take(&mut session.results)))
            .collect();
        for (line, task_ids) in results {
            self.send_down(line, Down::Saved(ResultAck { task_ids }));
        }
    }

    fn fetch_arrives(&mut self, manager: usize, process: u64, job: JobUid, key: &ObjectKey) {
        let found = self.api.jobs.values().find(|job| job.key == *key).cloned();
        let delay = self.latency();
        let result = Ok(found);
        let input = Input::Written(Event::Fetched { job, result });
        self.after(
            delay,
            Happening::ToManager {
                manager,
                process,
                input: Box::new(input),
            },
        );
    }
}
