//! Requests under leaders that forget, agents that start again, and a kubelet that takes its time. Whatever happens, no request stops a
//! container twice, no instance but the bound one is stopped, no write breaks a promise, and in the end all is over.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::facts::{ContainerFacts, Exit, Step, TaskFacts};
use super::super::node::{self, Instance, State};
use super::super::*;
use super::world::{World, at, seconds, set_status, status_of, strategy};

#[derive(Clone, Copy, Debug)]
enum Move {
    /// The leader plans and its write is stored.
    Lead,
    /// The leader plans and its write is lost.
    LoseWrite,
    /// Another leader: memory and facts are gone until the agent attaches.
    NewLeader,
    /// The agent looks and, if it may, begins or ends a stop.
    Act,
    /// The agent starts again from its journal.
    Restart,
    /// What the agent knows reaches the leader.
    Tell,
    /// The kubelet starts what has ended.
    Kubelet,
    /// The kubelet tells what runs.
    Status,
    /// A container crashes by itself.
    Crash(usize),
    /// Time passes.
    Wait,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => Just(Move::Lead),
        1 => Just(Move::LoseWrite),
        1 => Just(Move::NewLeader),
        5 => Just(Move::Act),
        1 => Just(Move::Restart),
        3 => Just(Move::Tell),
        3 => Just(Move::Kubelet),
        3 => Just(Move::Status),
        1 => (0..2_usize).prop_map(Move::Crash),
        2 => Just(Move::Wait),
    ];
    prop::collection::vec(one, 10..80)
}

struct Sim {
    world: World,
    /// What the agent holds, as in its journal.
    order: Option<OrderPlan>,
    facts: Vec<ContainerFacts>,
    runtime: BTreeMap<String, (u32, bool)>,
    stops: BTreeMap<String, Vec<String>>,
}

const NAMES: [(&str, &str); 2] = [("web", "web-0"), ("agent", "agent-0")];

impl Sim {
    fn new(ordered: bool, force: bool) -> Self {
        let mut world = World::new(&NAMES);
        strategy(&mut world.request).ordered_recreate = ordered;
        strategy(&mut world.request).force_recreate = force;
        let mut sim = Self {
            world,
            order: None,
            facts: Vec::new(),
            runtime: NAMES
                .iter()
                .map(|(name, _)| ((*name).to_owned(), (0, true)))
                .collect(),
            stops: BTreeMap::new(),
        };
        sim.status();
        sim
    }

    fn instance(&self, name: &str) -> Instance {
        let (count, runs) = self.runtime[name];
        Instance {
            id: format!("{name}-{count}"),
            state: if runs { State::Running } else { State::Exited },
            restart_count: count,
            started_at: Some(at(self.world.now - 1)),
            exit: (!runs).then_some(Exit {
                code: 137,
                finished_at: Some(at(self.world.now)),
            }),
        }
    }

    fn status(&mut self) {
        for (name, (count, runs)) in self.runtime.clone() {
            let status = status_of(
                &name,
                &format!("{name}-{count}"),
                i32::try_from(count).expect("small"),
                runs,
            );
            set_status(self.world.pod.as_mut().expect("a pod"), status);
        }
    }

    fn act(&mut self) {
        let Some(order) = self.order.clone() else { return };
        for (facts, target) in self.facts.iter_mut().zip(&order.targets) {
            if facts.step == Step::Stopping && self.runtime[&facts.name].1 {
                // The stop that was begun takes effect.
                self.runtime.get_mut(&facts.name).expect("known").1 = false;
            }
            let (count, runs) = self.runtime[&facts.name];
            let seen = Instance {
                id: format!("{}-{count}", facts.name),
                state: if runs { State::Running } else { State::Exited },
                restart_count: count,
                started_at: Some(at(self.world.now - 1)),
                exit: (!runs).then_some(Exit {
                    code: 137,
                    finished_at: Some(at(self.world.now)),
                }),
            };
            node::look(facts, target, &order.rules, Some(&seen), at(self.world.now));
        }
        if let Some(index) = node::next(&self.facts, &order.rules, order.released) {
            let instance = self.instance(&self.facts[index].name);
            let facts = &mut self.facts[index];
            assert_eq!(
                facts.bound.as_deref(),
                Some(instance.id.as_str()),
                "only the bound instance is stopped"
            );
            let stops = self.stops.entry(facts.name.clone()).or_default();
            if !stops.contains(&instance.id) {
                stops.push(instance.id);
            }
            facts.stop_began = Some(at(self.world.now));
            facts.step = Step::Stopping;
        }
    }

    fn lead(&mut self, stored: bool) {
        let kept = (self.world.request.clone(), self.world.memory.clone());
        let plan = self.world.step();
        if !stored {
            (self.world.request, self.world.memory) = kept;
        }
        match plan.intent {
            Intent::Order(new) => match &mut self.order {
                Some(old) => old.released = new.released,
                None => {
                    self.facts = new
                        .targets
                        .iter()
                        .map(|target| ContainerFacts::new(target.name.clone()))
                        .collect();
                    self.order = Some(new);
                }
            },
            Intent::Freeze => {
                if let Some(order) = &mut self.order {
                    order.released = 0;
                }
            }
            Intent::Forget => self.order = None,
        }
    }

    fn step(&mut self, step: Move) {
        match step {
            Move::Lead => self.lead(true),
            Move::LoseWrite => self.lead(false),
            Move::NewLeader => {
                self.world.memory = Memory::default();
                self.world.facts = None;
            }
            Move::Act => self.act(),
            Move::Restart => {}
            Move::Tell => {
                self.world.facts = self.order.as_ref().map(|_| TaskFacts {
                    containers: self.facts.clone(),
                    refused: String::new(),
                });
            }
            Move::Kubelet => {
                for (count, runs) in self.runtime.values_mut().filter(|(_, runs)| !runs) {
                    *count += 1;
                    *runs = true;
                }
            }
            Move::Status => self.status(),
            Move::Crash(index) => self.runtime.get_mut(NAMES[index].0).expect("known").1 = false,
            Move::Wait => self.world.now += 2,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn each_container_is_stopped_at_most_once_and_all_comes_to_an_end(
        ordered: bool, force: bool, moves in moves()
    ) {
        let mut sim = Sim::new(ordered, force);
        for step in moves {
            sim.step(step);
        }
        for _ in 0..12 {
            for step in [Move::Lead, Move::Act, Move::Act, Move::Kubelet, Move::Status, Move::Act, Move::Tell, Move::Wait] {
                sim.step(step);
            }
        }
        prop_assert!(sim.world.status().completion_time.is_some(), "{:?}", sim.world.request.status);
        for (name, stops) in &sim.stops {
            prop_assert!(stops.len() <= 1, "{name} was stopped as {stops:?}");
        }
    }
}

#[test]
fn the_slack_of_the_simulation_is_below_every_time_out() {
    assert!(seconds(24) < RESPONSE_TIMEOUT);
}
