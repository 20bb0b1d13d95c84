//! The walk over all states, breadth first.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::slots::Planner;
use super::world::{NODES, World};

/// Faults that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// A leader stops for as long as it likes, and wakes up.
    pub(super) pauses: u8,
    /// A leader ends at once.
    pub(super) kills: u8,
    /// A node loses contact, for as long as it likes.
    pub(super) cuts: u8,
    /// An agent starts again.
    pub(super) restarts: u8,
    /// An agent gives a good stream up.
    pub(super) closes: u8,
    /// A message, or the answer to a write, is lost, doubled or overtaken.
    pub(super) messages: u8,
    /// A Hello arrives before that of an earlier stream.
    pub(super) overtakes: u8,
    /// An agent dials a leader that is paused or deposed.
    pub(super) strays: u8,
    /// A tick passes while something could happen at once.
    pub(super) slow: u8,
}

/// Something that is left out, to see that the walk notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bug {
    AckBeforeWrite,
    SlotFreedAtLoss,
    /// A set names results that the agent has lost.
    LostResultsNamed,
    /// A leader never looks at its lease.
    NoLeaseCheck,
    /// An agent obeys whoever welcomed it last.
    NoEpochCheck,
    /// A leader takes the Hello that came last for the latest.
    NoStamp,
}

#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// So many of the nodes have an agent.
    pub(super) nodes: usize,
    pub(super) parallelism: u8,
    pub(super) horizon: u8,
    /// No new fault after this tick.
    pub(super) faults_until: u8,
    pub(super) bugs: &'static [Bug],
    /// Writes are under way for as long as they may be.
    pub(super) late_writes: bool,
}

impl Rules {
    pub(super) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }
}

/// What a walk saw.
#[derive(Debug)]
struct Seen {
    states: usize,
    over: usize,
    cut_short: bool,
}

fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// Visits all states, at most so many. Two states with the same 64-bit hash count as one: at a million states that hides one with a chance of
/// 1 in 30 million.
fn walk(budget: Budget, rules: &Rules, most: usize) -> Result<Seen, String> {
    let mut planner = Planner::default();
    let first = World::new(budget, rules, &mut planner);
    let mut parents: BTreeMap<u64, u64> = BTreeMap::new();
    parents.insert(fingerprint(&first), 0);
    let mut queue = VecDeque::from([first]);
    let mut seen = Seen {
        states: 1,
        over: 0,
        cut_short: false,
    };
    while let Some(world) = queue.pop_front() {
        let from = fingerprint(&world);
        for next in world.successors(rules, &mut planner) {
            let to = fingerprint(&next);
            if parents.contains_key(&to) {
                continue;
            }
            parents.insert(to, from);
            if let Some(violation) = &next.violation {
                return Err(format!("{violation}\n{}", story(budget, rules, &parents, to)));
            }
            seen.states += 1;
            seen.over += usize::from(next.job.over);
            if seen.states >= most {
                seen.cut_short = true;
                return Ok(seen);
            }
            queue.push_back(next);
        }
    }
    Ok(seen)
}

/// How a state came about, by walking there again.
fn story(budget: Budget, rules: &Rules, parents: &BTreeMap<u64, u64>, to: u64) -> String {
    let mut path = vec![to];
    while let Some(from) = path
        .last()
        .and_then(|at| parents.get(at))
        .filter(|from| **from != 0)
    {
        path.push(*from);
    }
    let mut planner = Planner::default();
    let mut world = World::new(budget, rules, &mut planner);
    let mut lines = vec![line(&world)];
    for wanted in path.iter().rev().skip(1) {
        let next = world.successors(rules, &mut planner);
        let Some(next) = next.into_iter().find(|next| fingerprint(next) == *wanted) else {
            break;
        };
        world = next;
        lines.push(line(&world));
    }
    lines.join("\n")
}

fn line(world: &World) -> String {
    let agents: Vec<String> = (world.agents.iter().zip(&world.wires).zip(&world.cut))
        .map(|((agent, wires), cut)| {
            let wires: Vec<String> = wires
                .iter()
                .map(|wire| {
                    format!(
                        "{}{}>{} up{:?} down{:?}",
                        wire.id,
                        if wire.open { "" } else { "x" },
                        wire.leader,
                        wire.up,
                        wire.down
                    )
                })
                .collect();
            format!(
                "{:?}{}{{{}}}",
                agent.task,
                if *cut { " cut" } else { "" },
                wires.join("; ")
            )
        })
        .collect();
    let leaders: Vec<String> = world
        .leaders
        .iter()
        .map(|leader| {
            let state = if leader.dead {
                "dead"
            } else if leader.paused {
                "paused"
            } else {
                "runs"
            };
            let core = leader.core.as_ref().map(|core| {
                let desks: Vec<String> = core
                    .desks
                    .iter()
                    .map(|desk| format!("{:?}/{}", desk.slot, desk.session.is_some()))
                    .collect();
                format!("{} {}", core.epoch, desks.join(" "))
            });
            format!("{state} {}", core.unwrap_or_default())
        })
        .collect();
    format!(
        "{}: {} | {} | job {:?}",
        world.now,
        agents.join(" "),
        leaders.join(" | "),
        world.job
    )
}

const NONE: Budget = Budget {
    pauses: 0,
    kills: 0,
    cuts: 0,
    restarts: 0,
    closes: 0,
    messages: 0,
    overtakes: 0,
    strays: 0,
    slow: 0,
};

/// States of one walk in the ordinary run. With `KRUISE_SOAK` set all of them are visited, or two million.
const MOST: usize = 20_000;
const MOST_IN_SOAK: usize = 2_000_000;

fn soak() -> bool {
    std::env::var_os("KRUISE_SOAK").is_some()
}

/// Faults happen in the first tick; then it goes on for so many ticks.
fn explore(budget: Budget, parallelism: u8, after: u8, bugs: &'static [Bug]) -> Result<Seen, String> {
    let rules = Rules {
        nodes: NODES,
        parallelism,
        horizon: 1 + after,
        faults_until: 1,
        bugs,
        late_writes: budget.restarts > 0,
    };
    let most = if soak() { MOST_IN_SOAK } else { MOST };
    walk(budget, &rules, if bugs.is_empty() { most } else { MOST * 10 })
}

fn holds(name: &str, budget: Budget, after: u8) {
    for parallelism in [1, 2] {
        let seen = explore(budget, parallelism, after, &[])
            .unwrap_or_else(|story| panic!("{name}, parallelism {parallelism}: {story}"));
        println!("{name}, parallelism {parallelism}: {seen:?}");
        assert!(
            seen.cut_short || seen.over > 0,
            "{name}: jobs come to their end: {seen:?}"
        );
    }
}

/// Ticks until a cut agent has stopped by itself and its slot is free.
const CONTACT_ENDS: u8 = 5;
/// Ticks until, besides, another leader has taken over before.
const LEADER_CHANGES: u8 = 8;

#[test]
fn windows_hold_without_faults() {
    holds("no fault", NONE, 2);
}

#[test]
fn windows_hold_when_a_leader_dies() {
    holds("kill", Budget { kills: 1, ..NONE }, LEADER_CHANGES);
}

#[test]
fn windows_hold_when_a_leader_sleeps_and_wakes_up() {
    holds("pause", Budget { pauses: 1, ..NONE }, LEADER_CHANGES);
    if soak() {
        let budget = Budget {
            pauses: 1,
            strays: 1,
            ..NONE
        };
        holds("pause, and an agent that goes back", budget, LEADER_CHANGES);
    }
}

#[test]
fn windows_hold_when_a_node_is_cut_off() {
    holds("cut", Budget { cuts: 1, ..NONE }, CONTACT_ENDS);
}

#[test]
fn nothing_is_lost_when_an_agent_starts_again() {
    holds("restart", Budget { restarts: 1, ..NONE }, 2);
    let budget = Budget {
        closes: 1,
        restarts: 1,
        overtakes: 1,
        ..NONE
    };
    holds("restart, and a Hello that is overtaken", budget, 2);
}

#[test]
fn nothing_depends_on_a_single_message() {
    holds("message", Budget { messages: 1, ..NONE }, 2);
    if soak() {
        let budget = Budget {
            messages: 1,
            slow: 2,
            ..NONE
        };
        holds("late messages", budget, 4);
    }
}

#[test]
fn two_faults_at_once() {
    if !soak() {
        return;
    }
    let kills = Budget { kills: 1, ..NONE };
    holds("kill and cut", Budget { cuts: 1, ..kills }, LEADER_CHANGES);
    holds(
        "kill and restart",
        Budget {
            restarts: 1,
            overtakes: 1,
            ..kills
        },
        LEADER_CHANGES,
    );
}

/// An agent that has pulled dials again, loses its memory while its Hello is under way, and begins anew; then that Hello arrives.
#[test]
fn a_hello_that_was_overtaken_and_is_believed_is_noticed() {
    let budget = Budget {
        closes: 1,
        restarts: 1,
        overtakes: 1,
        ..NONE
    };
    // Two nodes and three ticks are enough to see it, and few enough to see it soon.
    let rules = |bugs| Rules {
        nodes: 2,
        parallelism: 1,
        horizon: 3,
        faults_until: 1,
        bugs,
        late_writes: true,
    };
    let story = walk(budget, &rules(&[Bug::NoStamp]), MOST_IN_SOAK).expect_err("a violation");
    assert!(story.starts_with("I1"), "{story}");
    let seen = walk(budget, &rules(&[]), MOST_IN_SOAK).expect("none with the stamp");
    assert!(!seen.cut_short, "{seen:?}");
}

fn notices(budget: Budget, bugs: &'static [Bug], violation: &str) {
    let story = explore(budget, 1, LEADER_CHANGES, bugs).expect_err("a violation");
    assert!(story.starts_with(violation), "{story}");
}

#[test]
fn a_slot_that_is_freed_with_its_stream_is_noticed() {
    notices(Budget { cuts: 1, ..NONE }, &[Bug::SlotFreedAtLoss], "I1");
}

#[test]
fn a_lost_result_that_is_ordered_anew_is_noticed() {
    let budget = Budget { restarts: 1, ..NONE };
    notices(budget, &[Bug::LostResultsNamed], "I1");
}

#[test]
fn an_acknowledgement_before_the_write_is_noticed() {
    notices(Budget { kills: 1, ..NONE }, &[Bug::AckBeforeWrite], "I7");
}

/// The lease check of the leader and the epoch check of the agent stand in for each other; without both, a deposed leader commands.
#[test]
fn a_deposed_leader_that_is_obeyed_is_noticed() {
    let budget = Budget {
        pauses: 1,
        strays: 1,
        closes: 1,
        ..NONE
    };
    notices(budget, &[Bug::NoLeaseCheck, Bug::NoEpochCheck], "I6");
}
