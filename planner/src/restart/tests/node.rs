//! Steps of the node.

use std::time::Duration;

use super::super::facts::{ContainerFacts, Exit, Step};
use super::super::node::{Instance, Rules, State, Target, look, next, runs_hook, stop_time};
use super::world::{at, seconds};

const RULES: Rules = Rules {
    fail_fast: true,
    min_started: Duration::from_secs(3),
    grace: Duration::from_secs(30),
};

fn target(force: bool) -> Target {
    Target {
        name: "web".to_owned(),
        id: "w1".to_owned(),
        restart_count: 0,
        force,
    }
}

fn instance(id: &str, state: State) -> Instance {
    Instance {
        id: id.to_owned(),
        state,
        restart_count: 1,
        started_at: (state == State::Running).then(|| at(10)),
        exit: (state == State::Exited).then_some(Exit {
            code: 1,
            finished_at: Some(at(9)),
        }),
    }
}

/// Facts after looks at a series of instances, at second 12.
fn after(force: bool, seen: &[Option<Instance>]) -> ContainerFacts {
    let mut facts = ContainerFacts::new("web");
    for seen in seen {
        look(&mut facts, &target(force), &RULES, seen.as_ref(), at(12));
    }
    facts
}

#[test]
fn first_look() {
    // What is there, whether forced; step, bound, killed, elsewhere.
    let rows = [
        (None, false, Step::Missing, None, false, false),
        (None, true, Step::Missing, None, false, false),
        (
            Some(("w1", State::Running)),
            false,
            Step::Waiting,
            Some("w1"),
            false,
            false,
        ),
        (
            Some(("w1", State::Created)),
            false,
            Step::Waiting,
            Some("w1"),
            false,
            false,
        ),
        (
            Some(("w1", State::Unknown)),
            false,
            Step::Waiting,
            Some("w1"),
            false,
            false,
        ),
        (
            Some(("w1", State::Exited)),
            false,
            Step::Stopped,
            Some("w1"),
            true,
            false,
        ),
        (
            Some(("w2", State::Running)),
            false,
            Step::Running,
            Some("w1"),
            false,
            true,
        ),
        (
            Some(("w2", State::Exited)),
            false,
            Step::Stopped,
            Some("w1"),
            false,
            true,
        ),
        (
            Some(("w2", State::Running)),
            true,
            Step::Waiting,
            Some("w2"),
            false,
            false,
        ),
        (
            Some(("w2", State::Created)),
            true,
            Step::Waiting,
            Some("w2"),
            false,
            false,
        ),
        (
            Some(("w2", State::Exited)),
            true,
            Step::Stopped,
            Some("w2"),
            true,
            false,
        ),
    ];
    for (seen, force, step, bound, killed, elsewhere) in rows {
        let name = format!("{seen:?} {force}");
        let facts = after(force, &[seen.map(|(id, state)| instance(id, state))]);
        assert_eq!(
            (facts.step, facts.bound.as_deref(), facts.killed, facts.elsewhere),
            (step, bound, killed, elsewhere),
            "{name}"
        );
    }
}

#[test]
fn an_instance_is_bound_once() {
    let mut facts = after(true, &[Some(instance("w2", State::Running))]);
    facts.stop_began = Some(at(11));
    look(
        &mut facts,
        &target(true),
        &RULES,
        Some(&instance("w3", State::Running)),
        at(12),
    );
    assert_eq!(
        facts.step,
        Step::Running,
        "the successor is not stopped, however it is forced"
    );
    assert!(facts.killed);
    assert_eq!(facts.bound.as_deref(), Some("w2"));
    assert_eq!(next(&[facts], &RULES, 1), None);
}

#[test]
fn a_successor_settles_after_its_time_and_not_at_it() {
    let settled = |second| {
        let mut facts = ContainerFacts::new("web");
        let seen = instance("w2", State::Running);
        look(&mut facts, &target(false), &RULES, Some(&seen), at(second));
        facts.successor.expect("a successor").settled
    };
    assert!(!settled(13), "3 s are not more than 3 s");
    assert!(settled(14));
    assert!(!settled(5), "a clock that was set back");
}

#[test]
fn a_successor_that_crashes_is_waited_for_again() {
    let mut facts = after(
        false,
        &[
            Some(instance("w1", State::Exited)),
            Some(instance("w2", State::Running)),
        ],
    );
    assert_eq!(facts.step, Step::Running);
    look(
        &mut facts,
        &target(false),
        &RULES,
        Some(&instance("w2", State::Exited)),
        at(12),
    );
    assert_eq!(facts.step, Step::Stopped);
    assert!(!facts.successor.as_ref().expect("known").settled);
    look(&mut facts, &target(false), &RULES, None, at(12));
    assert_eq!(facts.step, Step::Stopped, "cleared away, and still waited for");
}

#[test]
fn one_after_the_other_in_order() {
    let with = |steps: &[Step]| -> Vec<ContainerFacts> {
        let facts = |step: &Step| ContainerFacts {
            step: *step,
            ..ContainerFacts::new("x")
        };
        steps.iter().map(facts).collect()
    };
    let ignore = Rules {
        fail_fast: false,
        ..RULES
    };
    use Step::{Failed, Hook, Missing, Running, Stopped, Stopping, Waiting};
    let rows = [
        (vec![Waiting, Waiting], 2, RULES, Some(0)),
        (vec![Stopped, Waiting], 2, RULES, Some(1)),
        (vec![Running, Waiting], 1, RULES, None),
        (vec![Missing, Waiting], 2, RULES, None),
        (vec![Failed, Waiting], 2, RULES, None),
        (vec![Failed, Waiting], 2, ignore, Some(1)),
        (vec![Hook, Waiting], 2, RULES, Some(0)),
        (vec![Stopping, Waiting], 2, RULES, Some(0)),
        (vec![Running, Stopped], 2, RULES, None),
        (vec![Waiting], 0, RULES, None),
    ];
    for (steps, released, rules, want) in rows {
        assert_eq!(
            next(&with(&steps), &rules, released),
            want,
            "{steps:?} {released}"
        );
    }
}

#[test]
fn hooks_and_what_is_left_for_the_stop() {
    assert_eq!(stop_time(seconds(30), None, at(0)), seconds(30));
    assert_eq!(stop_time(seconds(30), Some(at(0)), at(12)), seconds(18));
    assert_eq!(stop_time(seconds(5), Some(at(0)), at(12)), seconds(2));
    assert_eq!(stop_time(seconds(0), None, at(0)), seconds(2));
    assert_eq!(
        stop_time(seconds(30), Some(at(9)), at(0)),
        seconds(30),
        "a clock that was set back"
    );
    let mut facts = ContainerFacts::new("web");
    assert!(runs_hook(&facts, seconds(30)));
    assert!(!runs_hook(&facts, seconds(0)), "no grace, no hook");
    facts.hook_began = Some(at(0));
    assert!(!runs_hook(&facts, seconds(30)), "never twice");
    facts.hook_began = None;
    facts.stop_began = Some(at(0));
    assert!(!runs_hook(&facts, seconds(30)), "not after the stop");
}
