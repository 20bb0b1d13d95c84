//! What may happen next.

use std::time::Duration;

use super::agent::{Task, Up};
use super::leader::{Core, Trouble};
use super::slots::{Job, Planner};
use super::walk::{Bug, Rules};
use super::world::{NODES, REQUEST, Wire, World, at};

/// Messages of one direction that may be taken out of turn.
const AHEAD: usize = 2;
const PATIENCE: Duration = Duration::from_secs(2);

/// What becomes of a message.
#[derive(Clone, Copy)]
enum Fate {
    Arrives,
    Doubled,
    Lost,
}

impl World {
    /// All worlds that may come right after this one.
    pub(super) fn successors(&self, rules: &Rules, planner: &mut Planner) -> Vec<Self> {
        let mut found = Vec::new();
        for leader in 0..2 {
            self.leader_steps(leader, rules, planner, &mut found);
        }
        for node in 0..rules.nodes {
            self.agent_steps(node, rules, planner, &mut found);
            self.message_steps(node, rules, planner, &mut found);
        }
        self.tick(rules, planner, &mut found);
        for world in &mut found {
            if world.budget.kills + world.budget.pauses + world.budget.messages == 0
                || world.now > rules.faults_until
            {
                world.hurry_writes(rules, planner);
            }
            world.tidy(rules);
            world.judge(rules);
        }
        found
    }

    fn but(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut world = self.clone();
        change(&mut world);
        world
    }

    /// Time passes, when what must come before it has come. Leaders that run renew, agents in contact get their heartbeats answered.
    fn tick(&self, rules: &Rules, planner: &mut Planner, found: &mut Vec<Self>) {
        let late_write = self.leaders.iter().any(|leader| {
            let write = leader.core.as_ref().and_then(|core| core.write);
            write.is_some_and(|write| write.answer.is_none() && self.now >= write.sent + REQUEST)
        });
        if late_write || self.now >= rules.horizon {
            return;
        }
        let mut world = self.clone();
        if self.is_busy(rules) {
            if world.budget.slow == 0 {
                return;
            }
            world.budget.slow -= 1;
        }
        world.now += 1;
        let now = world.now;
        for leader in 0..2 {
            if world.runs(leader) {
                world.elect(leader);
            }
        }
        for node in 0..NODES {
            world.heartbeat(node, rules);
            world.agents[node].tick(now);
            world.lose_patience(node);
        }
        for leader in 0..2 {
            world.notice(leader, rules);
            world.settle(leader, rules, planner);
        }
        found.push(world);
    }

    /// An agent gives a stream up on which nothing was answered for two ticks, or whose leader is no more.
    fn lose_patience(&mut self, node: usize) {
        let Some(wire) = self.wires[node].iter().find(|wire| wire.open) else {
            return;
        };
        let agent = &self.agents[node];
        let heard = agent.opened.max(if agent.welcomed {
            agent.contact.last()
        } else {
            Duration::ZERO
        });
        if self.leaders[wire.leader].dead || heard + PATIENCE <= at(self.now) {
            self.hang_up(node);
        }
    }

    /// A leader that runs learns which streams have ended, and gives those up on which nothing came for two ticks.
    fn notice(&mut self, leader: usize, rules: &Rules) {
        if !self.runs(leader) {
            return;
        }
        for node in 0..NODES {
            let Some(core) = &mut self.leaders[leader].core else {
                return;
            };
            let desk = &mut core.desks[node];
            let Some(session) = &desk.session else { continue };
            let wire = session.wire;
            let alive =
                (self.wires[node].iter()).any(|line| line.id == wire && line.leader == leader && line.open);
            let silent = at(desk.answered) + PATIENCE <= at(self.now);
            if silent || !alive && !self.cut[node] {
                core.detach(node);
                if rules.has(Bug::SlotFreedAtLoss) {
                    core.desks[node].slot = None;
                }
            }
        }
    }

    /// Whether anything could happen at once: a message under way, an agent without a stream while somebody leads, a write.
    fn is_busy(&self, rules: &Rules) -> bool {
        let leads = (0..2).any(|leader| self.runs(leader) && self.leads(leader));
        let writes = self
            .leaders
            .iter()
            .any(|leader| leader.core.as_ref().is_some_and(|core| core.write.is_some()));
        writes
            || (0..rules.nodes).any(|node| {
                let open = self.wires[node].iter().any(|wire| wire.open);
                let under_way = self.wires[node].iter().any(|wire| {
                    let up = !wire.up.is_empty() && self.runs(wire.leader);
                    up || wire.open && !wire.down.is_empty()
                });
                !self.cut[node] && (under_way || !open && leads)
            })
    }

    fn heartbeat(&mut self, node: usize, rules: &Rules) {
        let Some(wire) = self.wires[node].iter().find(|wire| wire.open) else {
            return;
        };
        let (leader, id) = (wire.leader, wire.id);
        if self.cut[node] || !self.agents[node].welcomed || !self.runs(leader) {
            return;
        }
        if !self.leads(leader) && !rules.has(Bug::NoLeaseCheck) {
            return;
        }
        let now = self.now;
        let Some(core) = &mut self.leaders[leader].core else {
            return;
        };
        let Some(session) = core.session_of(node, id) else {
            return;
        };
        session.stamp = Some(now);
        core.desks[node].answered = now;
        self.agents[node].contact.answered(at(now));
    }

    fn leader_steps(&self, leader: usize, rules: &Rules, planner: &mut Planner, found: &mut Vec<Self>) {
        let state = &self.leaders[leader];
        let leads = state.core.is_some() && !state.dead;
        let early = self.now <= rules.faults_until;
        if leads && !state.paused && self.budget.pauses > 0 && early {
            found.push(self.but(|world| {
                world.budget.pauses -= 1;
                world.leaders[leader].paused = true;
            }));
        }
        if state.paused {
            // It acts before it looks at its lease again, which is the next tick's business.
            found.push(self.but(|world| {
                world.leaders[leader].paused = false;
                world.settle(leader, rules, planner);
            }));
        }
        if leads && self.budget.kills > 0 && early {
            found.push(self.but(|world| {
                world.budget.kills -= 1;
                world.die(leader);
            }));
        }
        let write = state.core.as_ref().and_then(|core| core.write);
        if write.is_some_and(|write| write.answer.is_none()) {
            found.push(self.but(|world| {
                world.apply(leader);
                world.after_write(leader, rules, planner);
            }));
            if self.budget.messages > 0 {
                for done in [true, false] {
                    found.push(self.but(|world| {
                        world.budget.messages -= 1;
                        if done {
                            world.apply(leader);
                        }
                        let core = world.leaders[leader].core.as_mut().expect("it writes");
                        core.write.as_mut().expect("looked").answer = Some(Err(Trouble::Unsure));
                        world.after_write(leader, rules, planner);
                    }));
                }
            }
        }
    }

    /// That a write is late matters to nobody but a leader that is stopped meanwhile.
    fn hurry_writes(&mut self, rules: &Rules, planner: &mut Planner) {
        for leader in 0..2 {
            for _ in 0..3 {
                let write = self.leaders[leader].core.as_ref().and_then(|core| core.write);
                if self.budget.messages == 0
                    && !rules.late_writes
                    && self.runs(leader)
                    && write.is_some_and(|write| write.answer.is_none())
                {
                    self.apply(leader);
                    self.after_write(leader, rules, planner);
                }
            }
        }
    }

    fn after_write(&mut self, leader: usize, rules: &Rules, planner: &mut Planner) {
        if self.leaders[leader].dead {
            self.read_answer(leader);
        }
        self.settle(leader, rules, planner);
    }

    fn agent_steps(&self, node: usize, rules: &Rules, planner: &mut Planner, found: &mut Vec<Self>) {
        let open = self.wires[node].iter().find(|wire| wire.open);
        if self.agents[node].pulls() {
            found.push(self.but(|world| {
                let agent = &mut world.agents[node];
                (agent.task, agent.has_image) = (Some(Task::Done), true);
                if let Some(wire) = world.wires[node].iter_mut().find(|wire| wire.open)
                    && world.agents[node].welcomed
                {
                    wire.up.push(Up::Done);
                    world.hurry(node, rules, planner);
                }
            }));
        }
        match open {
            Some(_) if self.budget.closes > 0 => found.push(self.but(|world| {
                world.budget.closes -= 1;
                world.hang_up(node);
            })),
            Some(_) => {}
            None => {
                for leader in 0..2 {
                    let state = &self.leaders[leader];
                    let stray = !(self.runs(leader) && self.leads(leader));
                    let may = state.core.is_some() && !state.dead && (!stray || self.budget.strays > 0);
                    if may && !self.cut[node] {
                        found.push(self.but(|world| {
                            world.budget.strays -= u8::from(stray);
                            world.dial(node, leader);
                        }));
                    }
                }
            }
        }
        if self.budget.cuts > 0 && !self.cut[node] && self.now <= rules.faults_until {
            found.push(self.but(|world| {
                world.budget.cuts -= 1;
                world.cut[node] = true;
            }));
        }
        if self.cut[node] {
            found.push(self.but(|world| world.cut[node] = false));
        }
        if self.budget.restarts > 0 && self.now <= rules.faults_until + 4 {
            for journal in [true, false] {
                found.push(self.but(|world| {
                    world.budget.restarts -= 1;
                    world.hang_up(node);
                    world.agents[node].restart(world.now, journal);
                }));
            }
        }
    }

    fn hang_up(&mut self, node: usize) {
        self.agents[node].close();
        for wire in &mut self.wires[node] {
            wire.open = false;
            wire.down.clear();
        }
    }

    fn dial(&mut self, node: usize, leader: usize) {
        let used = |id: u8| {
            self.wires[node].iter().any(|wire| wire.id == id)
                || self.leaders.iter().any(|leader| {
                    let session = leader
                        .core
                        .as_ref()
                        .and_then(|core| core.desks[node].session.as_ref());
                    session.is_some_and(|session| session.wire == id)
                })
        };
        let id = (0..u8::MAX).find(|id| !used(*id)).expect("few streams");
        let hello = self.agents[node].dial(self.now);
        self.wires[node].push(Wire {
            id,
            leader,
            open: true,
            stamped: false,
            up: vec![hello],
            down: Vec::new(),
        });
    }

    fn message_steps(&self, node: usize, rules: &Rules, planner: &mut Planner, found: &mut Vec<Self>) {
        if self.cut[node] {
            return;
        }
        for (number, wire) in self.wires[node].iter().enumerate() {
            let fates = |place: usize| {
                let free = place == 0;
                let faults = self.budget.messages > 0;
                [
                    (Fate::Arrives, free || faults, !free),
                    (Fate::Doubled, faults, true),
                    (Fate::Lost, faults, true),
                ]
            };
            for place in 0..wire.down.len().min(AHEAD) {
                for (fate, _, costs) in fates(place).into_iter().filter(|(_, may, _)| *may) {
                    found.push(self.but(|world| {
                        world.budget.messages -= u8::from(costs);
                        world.deliver_down(node, number, place, fate, rules, planner);
                    }));
                }
            }
            // A Hello may get lost with its stream, and be overtaken by that of a later one.
            let is_hello = |wire: &Wire| matches!(wire.up.first(), Some(Up::Hello(_)));
            if is_hello(wire) && !wire.open {
                found.push(self.but(|world| world.wires[node][number].up.clear()));
            }
            let overtakes = u8::from(is_hello(wire) && self.wires[node][..number].iter().any(is_hello));
            if overtakes > self.budget.overtakes || !self.runs(wire.leader) {
                continue;
            }
            for place in 0..wire.up.len().min(AHEAD) {
                for (fate, _, costs) in fates(place).into_iter().filter(|(_, may, _)| *may) {
                    found.push(self.but(|world| {
                        world.budget.messages -= u8::from(costs);
                        world.budget.overtakes -= overtakes;
                        world.deliver_up(node, number, place, fate, rules, planner);
                    }));
                }
            }
        }
    }

    fn deliver_down(
        &mut self,
        node: usize,
        number: usize,
        place: usize,
        fate: Fate,
        rules: &Rules,
        planner: &mut Planner,
    ) {
        let wire = &mut self.wires[node][number];
        let message = match fate {
            Fate::Arrives => wire.down.remove(place),
            Fate::Doubled => wire.down[place],
            Fate::Lost => {
                wire.down.remove(place);
                return;
            }
        };
        let before = self.agents[node].clone();
        if rules.has(Bug::NoEpochCheck) && !before.welcomed {
            self.agents[node].fence = crate::node::fence::Fence::new(kruise_api::ids::Epoch(0));
        }
        match self.agents[node].receive(message, self.now) {
            Ok(Some(answer)) => {
                let wire = &mut self.wires[node][number];
                let at_once = wire.up.is_empty();
                wire.up.push(answer);
                // A result that the leader was told before it took the set is told again.
                let set = matches!(message, super::agent::Down::Set { .. });
                if set && answer_is_yes(answer) && self.agents[node].task == Some(Task::Done) {
                    wire.up.push(Up::Done);
                }
                if at_once {
                    self.hurry(node, rules, planner);
                }
            }
            Ok(None) => {}
            Err(()) => self.hang_up(node),
        }
        self.judge_message(node, &before, message);
    }

    /// Answers and reports arrive at once where nothing is in their way: that they are late is no more than that they were made later.
    fn hurry(&mut self, node: usize, rules: &Rules, planner: &mut Planner) {
        if self.cut[node] || self.budget.messages > 0 {
            return;
        }
        while let Some(number) = self.wires[node]
            .iter()
            .position(|wire| wire.open && !wire.up.is_empty())
        {
            if !self.runs(self.wires[node][number].leader) {
                return;
            }
            self.deliver_up(node, number, 0, Fate::Arrives, rules, planner);
        }
    }

    fn deliver_up(
        &mut self,
        node: usize,
        number: usize,
        place: usize,
        fate: Fate,
        rules: &Rules,
        planner: &mut Planner,
    ) {
        let wire = &mut self.wires[node][number];
        let message = match fate {
            Fate::Arrives => wire.up.remove(place),
            Fate::Doubled => wire.up[place],
            Fate::Lost => {
                wire.up.remove(place);
                return;
            }
        };
        let (leader, id, now) = (wire.leader, wire.id, self.now);
        let has_session = self.leaders[leader]
            .core
            .as_mut()
            .is_some_and(|core| core.session_of(node, id).is_some());
        match message {
            Up::Hello(_) if has_session => {}
            Up::Hello(held) => {
                let leads = self.leads(leader) || rules.has(Bug::NoLeaseCheck);
                let overtaken = self.wires[node][number].stamped && !rules.has(Bug::NoStamp);
                if !leads || overtaken {
                    self.wires[node][number].up.clear();
                    if self.wires[node][number].open {
                        self.hang_up(node);
                    }
                    return;
                }
                let earlier = self.wires[node][..=number].iter_mut();
                for wire in earlier.filter(|wire| wire.leader == leader) {
                    wire.stamped = true;
                }
                self.with_core(leader, rules, planner, |core, out| {
                    core.attach(node, id, held, now, out);
                    if rules.has(Bug::LostResultsNamed)
                        && let Some(session) = core.session_of(node, id)
                    {
                        session.names_everything();
                    }
                });
            }
            other if has_session => {
                self.with_core(leader, rules, planner, |core, _| core.hear(node, other, now));
            }
            _ => {}
        }
    }

    /// Forgets what nobody will ever look at again, so that worlds that behave alike are equal.
    fn tidy(&mut self, rules: &Rules) {
        for leader in 0..2 {
            self.forget_what_is_fenced(leader, rules);
        }
        for node in 0..NODES {
            let leaders = &self.leaders;
            self.wires[node].retain(|wire| {
                let leader = &leaders[wire.leader];
                let session = leader
                    .core
                    .as_ref()
                    .and_then(|core| core.desks[node].session.as_ref());
                let heard = session.is_some_and(|session| session.wire == wire.id)
                    || matches!(wire.up.first(), Some(Up::Hello(_)));
                wire.open || !leader.dead && heard && !wire.up.is_empty()
            });
            // What was accepted matters to Hellos that are under way only.
            for wire in &mut self.wires[node] {
                wire.stamped &= wire.up.iter().any(|message| matches!(message, Up::Hello(_)));
            }
        }
    }
}

impl World {
    /// A leader whose lease ran out while it was paused sends no order any more, whatever it remembers; only a write may come home.
    fn forget_what_is_fenced(&mut self, leader: usize, rules: &Rules) {
        let state = &self.leaders[leader];
        if !state.paused || self.leads(leader) || rules.has(Bug::NoLeaseCheck) {
            return;
        }
        let state = &mut self.leaders[leader];
        if let Some(core) = state.core.as_mut().filter(|core| core.write.is_none()) {
            *core = Core::new(core.epoch, false, 0, Job::default());
        }
    }
}

fn answer_is_yes(answer: Up) -> bool {
    matches!(answer, Up::Ack { taken: true, .. })
}
