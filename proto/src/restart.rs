//! Restarts: messages to planner types and back.

use std::time::Duration;

use kruise_planner::restart::OrderPlan;
use kruise_planner::restart::facts::{ContainerFacts, Exit, Step, Successor, TaskFacts};
use kruise_planner::restart::node::{Rules, Target};

use crate::convert::{from_duration, from_timestamp, to_duration, to_timestamp};
use crate::dispatch::{RestartContainers, restart_containers};
use crate::task::{ContainerRestart, RestartStatus, TaskStatus, container_restart};

/// Most text of one field that is taken from a peer.
const MAX_TEXT: usize = 1024;

/// The message of an order.
#[must_use]
pub fn order_message(order: &OrderPlan, pod: String, requested_by: String) -> RestartContainers {
    RestartContainers {
        requested_by,
        pod,
        pod_uid: order.pod_uid.clone(),
        pod_ips: order.pod_ips.clone(),
        runtime: order.runtime.clone(),
        grace: Some(to_duration(order.rules.grace)),
        fail_fast: order.rules.fail_fast,
        min_started: Some(to_duration(order.rules.min_started)),
        released: u32::try_from(order.released).unwrap_or(u32::MAX),
        targets: order.targets.iter().map(target_message).collect(),
    }
}

fn target_message(target: &Target) -> restart_containers::Target {
    restart_containers::Target {
        name: target.name.clone(),
        id: target.id.clone(),
        restart_count: target.restart_count,
        force: target.force,
    }
}

/// What an order says of the containers, as an agent reads it.
#[must_use]
pub fn order_parts(message: &RestartContainers) -> (Vec<Target>, Rules) {
    let duration = |duration: &Option<prost_types::Duration>| {
        duration
            .as_ref()
            .and_then(from_duration)
            .unwrap_or(Duration::ZERO)
    };
    let target = |target: &restart_containers::Target| Target {
        name: target.name.clone(),
        id: target.id.clone(),
        restart_count: target.restart_count,
        force: target.force,
    };
    let rules = Rules {
        fail_fast: message.fail_fast,
        min_started: duration(&message.min_started),
        grace: duration(&message.grace),
    };
    (message.targets.iter().map(target).collect(), rules)
}

/// Facts as they travel.
#[must_use]
pub fn facts_message(facts: &ContainerFacts) -> ContainerRestart {
    ContainerRestart {
        name: facts.name.clone(),
        step: step_number(facts.step).into(),
        bound_id: facts.bound.clone().unwrap_or_default(),
        killed: facts.killed,
        elsewhere: facts.elsewhere,
        hook_error: facts.hook_error.clone(),
        hook_fallback: facts.hook_fallback.clone(),
        error: facts.error.clone(),
        hook_began: facts.hook_began.map(to_timestamp),
        stop_began: facts.stop_began.map(to_timestamp),
        exit: facts.exit.map(|exit| container_restart::Exit {
            code: exit.code,
            finished_at: exit.finished_at.map(to_timestamp),
        }),
        successor: facts
            .successor
            .as_ref()
            .map(|successor| container_restart::Successor {
                id: successor.id.clone(),
                restart_count: successor.restart_count,
                started_at: successor.started_at.map(to_timestamp),
                settled: successor.settled,
            }),
    }
}

fn step_number(step: Step) -> container_restart::Step {
    match step {
        Step::Waiting => container_restart::Step::Waiting,
        Step::Missing => container_restart::Step::Missing,
        Step::Hook => container_restart::Step::Hook,
        Step::Stopping => container_restart::Step::Stopping,
        Step::Stopped => container_restart::Step::Stopped,
        Step::Running => container_restart::Step::Running,
        Step::Failed => container_restart::Step::Failed,
    }
}

/// Facts as they arrived; none for a task of another kind.
#[must_use]
pub fn task_facts(status: &TaskStatus) -> Option<TaskFacts> {
    let restart = status.restart.as_ref()?;
    let ended = crate::convert::phase_from_number(status.phase).is_final();
    Some(TaskFacts {
        containers: restart.containers.iter().map(container_facts).collect(),
        refused: if ended {
            text(&status.message)
        } else {
            String::new()
        },
    })
}

/// The part of a task's status that is about its containers.
#[must_use]
pub fn status_message(requested_by: &str, pod: &str, facts: &[ContainerFacts]) -> RestartStatus {
    RestartStatus {
        requested_by: requested_by.to_owned(),
        pod: pod.to_owned(),
        containers: facts.iter().map(facts_message).collect(),
    }
}

fn container_facts(message: &ContainerRestart) -> ContainerFacts {
    use container_restart::Step as Number;
    let time = |time: &Option<prost_types::Timestamp>| time.as_ref().and_then(from_timestamp);
    let step = match message.step() {
        Number::Unspecified | Number::Waiting => Step::Waiting,
        Number::Missing => Step::Missing,
        Number::Hook => Step::Hook,
        Number::Stopping => Step::Stopping,
        Number::Stopped => Step::Stopped,
        Number::Running => Step::Running,
        Number::Failed => Step::Failed,
    };
    ContainerFacts {
        name: text(&message.name),
        step,
        bound: Some(text(&message.bound_id)).filter(|id| !id.is_empty()),
        killed: message.killed,
        elsewhere: message.elsewhere,
        hook_error: text(&message.hook_error),
        hook_fallback: text(&message.hook_fallback),
        error: text(&message.error),
        hook_began: time(&message.hook_began),
        stop_began: time(&message.stop_began),
        exit: message.exit.as_ref().map(|exit| Exit {
            code: exit.code,
            finished_at: time(&exit.finished_at),
        }),
        successor: message.successor.as_ref().map(|successor| Successor {
            id: text(&successor.id),
            restart_count: successor.restart_count,
            started_at: time(&successor.started_at),
            settled: successor.settled,
        }),
    }
}

/// Text of a peer, cut to what is of use.
fn text(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn facts_survive_the_wire() {
        let time = Some(Timestamp::from_second(1_800_000_000).expect("in range"));
        for step in [
            Step::Waiting,
            Step::Missing,
            Step::Hook,
            Step::Stopping,
            Step::Stopped,
            Step::Running,
            Step::Failed,
        ] {
            let facts = ContainerFacts {
                step,
                bound: Some("w1".to_owned()),
                killed: true,
                elsewhere: true,
                hook_error: "h".to_owned(),
                hook_fallback: "10.0.0.7:443".to_owned(),
                error: "e".to_owned(),
                hook_began: time,
                stop_began: time,
                exit: Some(Exit {
                    code: 137,
                    finished_at: time,
                }),
                successor: Some(Successor {
                    id: "w2".to_owned(),
                    restart_count: 1,
                    started_at: time,
                    settled: true,
                }),
                ..ContainerFacts::new("web")
            };
            let status = TaskStatus {
                restart: Some(status_message("ns/r", "ns/p", std::slice::from_ref(&facts))),
                ..TaskStatus::default()
            };
            assert_eq!(task_facts(&status).expect("a restart").containers, [facts]);
        }
        assert_eq!(task_facts(&TaskStatus::default()), None);
    }
}
