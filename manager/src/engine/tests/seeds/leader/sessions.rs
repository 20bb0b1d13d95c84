//! The streams of agents, as a leader sees them.

use std::time::Duration;

use super::*;

impl Sim {
    /// As `dispatch::session` does: stamp first, then the lease, then the message.
    pub(super) fn pass_on(&mut self, manager: usize, id: SessionId, message: ToAgent) {
        let leads = self.leads(manager);
        let now = self.now;
        let Some(session) = self.managers[manager].sessions.get_mut(&id) else {
            return;
        };
        let (line, stamp) = (session.line, session.stamp);
        let is_order = matches!(message, ToAgent::Set(_) | ToAgent::Delta(_));
        if is_order && stamp == 0 && session.first_set_sent {
            return session.held.push_back(message);
        }
        if is_order && !leads {
            return self.end_session(manager, line, None);
        }
        match message {
            ToAgent::Set(set) => {
                session.first_set_sent = true;
                let orders = set.orders.iter().map(|order| order.task_id.clone()).collect();
                self.judge_orders(manager, orders, true);
                let set = DesiredSet { stamp, ..set };
                self.send_down(line, Down::Set { set, sure: now });
            }
            ToAgent::Delta(delta) => {
                let orders = delta.add.iter().map(|order| order.task_id.clone()).collect();
                self.judge_orders(manager, orders, false);
                let delta = DesiredDelta { stamp, ..delta };
                self.send_down(line, Down::Delta { delta, sure: now });
            }
            ToAgent::Saved(ack) => self.send_down(line, Down::Saved(ack)),
            ToAgent::Probe(probe) => self.send_down(line, Down::Probe(probe)),
            ToAgent::Close(_) => self.end_session(manager, line, None),
        }
    }

    /// I3. A set also names results, which is no order.
    pub(super) fn judge_orders(&self, manager: usize, orders: Vec<String>, is_set: bool) {
        for id in orders {
            let job = id.split('/').nth(1).expect("a task id");
            self.judge
                .sends(job, self.managers[manager].over.contains(job) && !is_set);
        }
    }

    pub(super) fn session_id(&self, manager: usize, line: Line) -> Option<SessionId> {
        let sessions = &self.managers[manager].sessions;
        sessions
            .iter()
            .find(|(_, session)| session.line == line)
            .map(|(id, _)| *id)
    }

    pub(super) fn session_message(&mut self, manager: usize, line: Line, message: Up) {
        if !self.streams.get(&line).is_some_and(|stream| stream.manager_open) {
            return;
        }
        let now = self.manager_time(manager);
        match (message, self.session_id(manager, line)) {
            (
                Up::Hello {
                    tasks,
                    highest,
                    stamp,
                },
                None,
            ) => self.attach(
                manager,
                line,
                Hello {
                    tasks,
                    highest_epoch: highest,
                    boot_id: "boot".into(),
                    answers_probes: true,
                    stamp,
                    ..Hello::default()
                },
            ),
            (Up::Heartbeat(stamp), Some(id)) => self.heartbeat(manager, id, stamp, now),
            (Up::Ack(ack), Some(session)) => self.engine_event(manager, Event::Ack { session, ack }),
            (Up::Answer(answer), Some(session)) => {
                self.engine_event(manager, Event::Probed { session, answer });
            }
            (Up::Report(status), Some(session)) => {
                let phase = status.phase();
                if let Some(own) = self.managers[manager].sessions.get_mut(&session)
                    && matches!(phase, Phase::Succeeded | Phase::Failed)
                {
                    own.results.push(status.task_id.clone());
                }
                // Progress may be dropped when there is much to do; results never are.
                if matches!(phase, Phase::Succeeded | Phase::Failed) || !self.chance.permille(50) {
                    self.engine_event(manager, Event::Report { session, status });
                }
            }
            _ => {}
        }
    }

    pub(super) fn attach(&mut self, manager: usize, line: Line, hello: Hello) {
        let leader = self.known_leader(manager);
        if !self.leads(manager) {
            return self.refuse(line, leader);
        }
        let now = self.manager_time(manager);
        let node = self.streams[&line].node;
        let vitals = Arc::new(Vitals::new(now.mono, None, None));
        let session = SessionId(line.0);
        let attach = Attach {
            session,
            node: self.api.nodes[node].name.clone(),
            node_uid: self.api.nodes[node].uid.clone(),
            peer: String::new(),
            hello,
            vitals: Arc::clone(&vitals),
        };
        let own = &mut self.managers[manager];
        let epoch = own.epoch;
        let Some(engine) = &mut own.engine else { return };
        if let Err(refused) = engine.attach(attach, now) {
            self.note(|| format!("manager {manager} refuses {node}: {refused}"));
            return self.refuse(line, None);
        }
        let fresh = Session {
            line,
            vitals,
            stamp: 0,
            first_set_sent: false,
            held: VecDeque::new(),
            stale: false,
            results: Vec::new(),
        };
        own.sessions.insert(session, fresh);
        self.note(|| format!("agent {node} attaches to {manager}"));
        self.send_down(line, Down::Welcome { epoch });
        self.settle(manager);
    }

    pub(super) fn known_leader(&self, manager: usize) -> Option<usize> {
        let own = &self.managers[manager];
        let now = own.clock.shows(self.now);
        own.elector(manager)
            .leader(&own.election, now)
            .and_then(|record| record.address.parse().ok())
    }

    pub(super) fn refuse(&mut self, line: Line, leader: Option<usize>) {
        self.streams.get_mut(&line).expect("a stream").manager_open = false;
        self.send_down(line, Down::End { leader });
    }

    pub(super) fn heartbeat(&mut self, manager: usize, id: SessionId, stamp: Duration, now: Now) {
        let leads = self.leads(manager);
        let own = &mut self.managers[manager];
        let epoch = own.epoch;
        let session = own.sessions.get_mut(&id).expect("just found");
        session.vitals.hear(now.mono, None, None);
        session.stamp = u64::try_from(stamp.as_nanos()).expect("small");
        let line = session.line;
        let was_stale = std::mem::take(&mut session.stale);
        if leads {
            session.vitals.answer(now.mono);
        }
        if was_stale {
            let event = Event::Stale {
                session: id,
                stale: false,
            };
            self.engine_event(manager, event);
        }
        if !leads {
            return;
        }
        self.send_down(line, Down::Reply { stamp, epoch });
        let held = self.managers[manager]
            .sessions
            .get_mut(&id)
            .map(|session| std::mem::take(&mut session.held));
        for message in held.into_iter().flatten() {
            self.pass_on(manager, id, message);
        }
    }

    /// The manager ends a stream.
    pub(super) fn end_session(&mut self, manager: usize, line: Line, leader: Option<usize>) {
        self.refuse(line, leader);
        self.session_ends(manager, line);
    }

    pub(super) fn session_ends(&mut self, manager: usize, line: Line) {
        if let Some(stream) = self.streams.get_mut(&line) {
            stream.manager_open = false;
        }
        if let Some(session) = self.session_id(manager, line) {
            let gone = self.managers[manager].sessions.remove(&session);
            if let Some(gone) = gone.filter(|_| self.has(Bug::SlotFreedAtLoss)) {
                gone.vitals.answer(Duration::ZERO);
            }
            self.engine_event(manager, Event::Detached { session });
        }
    }
}
