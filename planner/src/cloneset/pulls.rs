//! From what is known of one image on one node to whether a pod may be changed: the rules of the pull gate.
//!
//! The gate stays shut while there is hope that the image comes, and opens without it only where nobody can say (no agent) or where a pull takes longer
//! than it may and still moves. What cannot be pulled at all fails it: the pod is left alone and goes on serving.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kruise_api::ids::TaskId;

use super::snapshot::PullState;
use crate::task::{Phase, Progress, Reason, fnv64};

/// An agent that comes back within this time finds the gate as it was.
const AWAY: Duration = Duration::from_secs(30);
/// A pull that fetched something within this time still moves.
const MOVES: Duration = Duration::from_secs(15);
/// Pauses after an image could not be had.
const RETRY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));

/// What is known of one image on one node.
#[derive(Clone, Debug, Default)]
pub struct GateFacts<'a> {
    /// For how long the image has been wanted there.
    pub wanted_for: Duration,
    /// For how long there has been no agent; none while there is one.
    pub away_for: Option<Duration>,
    /// How long it may take in all.
    pub timeout: Duration,
    /// Why the agent could not be asked.
    pub problem: Option<&'a str>,
    /// The order waits for its node's turn in the window of a job.
    pub queued: bool,
    /// What the agent has said.
    pub task: Option<TaskSeen<'a>>,
    /// When it failed, or the problem came up.
    pub failed_at: Option<Timestamp>,
    /// How often in a row it has failed before.
    pub failures: u32,
}

/// A pull as its agent sees it.
#[derive(Clone, Copy, Debug)]
pub struct TaskSeen<'a> {
    /// Where it stands.
    pub phase: Phase,
    /// Why its last attempt failed.
    pub reason: Option<Reason>,
    /// The runtime's words.
    pub message: &'a str,
    /// Bytes.
    pub progress: Progress,
    /// For how long nothing has moved.
    pub still_for: Duration,
    /// When the leader heard of its end.
    pub ended_at: Timestamp,
}

/// Whether a pod may be changed as far as this image is concerned.
#[must_use]
pub fn gate_state(facts: &GateFacts<'_>) -> PullState {
    if let Some(task) = facts.task.filter(|task| task.phase == Phase::Succeeded) {
        return PullState::Present { at: task.ended_at };
    }
    if let Some(failed) = failure(facts) {
        return failed;
    }
    if facts.away_for.is_some_and(|away| away >= AWAY) {
        return PullState::Open;
    }
    let moves = facts
        .task
        .is_some_and(|task| task.progress.bytes_done > 0 && task.still_for < MOVES);
    if moves && facts.wanted_for >= facts.timeout {
        return PullState::Open;
    }
    PullState::Pulling { message: told(facts) }
}

/// When the gate may open although nothing more is heard, counted from now.
#[must_use]
pub fn gate_wake(facts: &GateFacts<'_>) -> Option<Duration> {
    let away = facts.away_for.map(|away| AWAY.saturating_sub(away));
    let late = facts.timeout.saturating_sub(facts.wanted_for);
    let late = (facts.task.is_some() && !late.is_zero()).then_some(late);
    away.into_iter().chain(late).filter(|left| !left.is_zero()).min()
}

/// When an image is asked for again after it failed.
#[must_use]
pub fn retry_at(failed_at: Timestamp, failures: u32) -> Timestamp {
    let pause = RETRY
        .0
        .saturating_mul(2_u32.saturating_pow(failures.min(10)))
        .min(RETRY.1);
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::ZERO);
    failed_at.saturating_add(pause).unwrap_or(failed_at)
}

/// Whether trying again at once is of no use. A full disk may be emptied, and is tried again by the agent itself.
#[must_use]
pub fn cannot_be_had(reason: Reason) -> bool {
    reason.is_final() || reason == Reason::NoSpace
}

fn failure(facts: &GateFacts<'_>) -> Option<PullState> {
    let failed_at = facts.failed_at?;
    let message = match (facts.problem, facts.task) {
        (Some(problem), _) => problem.to_owned(),
        (None, Some(task)) => words(task)?,
        (None, None) => return None,
    };
    Some(PullState::Failed {
        message,
        retry_at: retry_at(failed_at, facts.failures),
    })
}

fn words(task: TaskSeen<'_>) -> Option<String> {
    let reason = task.reason?;
    Some(if task.message.is_empty() {
        reason.to_string()
    } else {
        format!("{reason}: {}", task.message)
    })
}

fn told(facts: &GateFacts<'_>) -> String {
    if facts.away_for.is_some() {
        return "waits for the agent of the node".to_owned();
    }
    if facts.queued {
        return "waits for the node's turn in the pre-download".to_owned();
    }
    let Some(task) = facts.task else {
        return "is asked for".to_owned();
    };
    if let (Phase::Waiting, Some(words)) = (task.phase, words(task)) {
        return format!("{words}; tried again");
    }
    match (task.phase, task.progress) {
        (Phase::Unpacking, _) => "is unpacked".to_owned(),
        (Phase::Pulling, Progress { bytes_total: 0, .. }) => "is pulled".to_owned(),
        (Phase::Pulling, progress) => {
            format!("{} of {} bytes pulled", progress.bytes_done, progress.bytes_total)
        }
        _ => "waits for its turn on the node".to_owned(),
    }
}

/// Identity of one question: which set wants which image there, for the how manyth time.
#[must_use]
pub fn gate_task_id(set: &str, node: &str, image: &str, always: bool, round: u32) -> TaskId {
    let content = fnv64(format!("{node} {image} {always}").as_bytes());
    TaskId::new(format!("gate/{set}/{content:016x}/{round}"))
}

/// Whether a task is a question of this kind.
#[must_use]
pub fn is_gate_task(task: &TaskId) -> bool {
    task.as_str().starts_with("gate/")
}

/// Several images of one pod are there when all are; one that cannot be had, or is not there, holds up the others.
#[must_use]
pub fn of_all(states: impl IntoIterator<Item = PullState>) -> PullState {
    let worse = |one: PullState, other: PullState| match (one, other) {
        (PullState::Failed { message, retry_at }, PullState::Failed { retry_at: later, .. }) => {
            PullState::Failed {
                message,
                retry_at: retry_at.max(later),
            }
        }
        (failed @ PullState::Failed { .. }, _) | (_, failed @ PullState::Failed { .. }) => failed,
        (pulling @ PullState::Pulling { .. }, _) | (_, pulling @ PullState::Pulling { .. }) => pulling,
        (PullState::Present { at }, PullState::Present { at: other }) => {
            PullState::Present { at: at.min(other) }
        }
        (present @ PullState::Present { .. }, PullState::Open)
        | (PullState::Open, present @ PullState::Present { .. }) => present,
        (PullState::Open, PullState::Open) => PullState::Open,
    };
    states.into_iter().reduce(worse).unwrap_or(PullState::Open)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn seen(phase: Phase, reason: Option<Reason>) -> TaskSeen<'static> {
        TaskSeen {
            phase,
            reason,
            message: "words",
            progress: Progress::default(),
            still_for: Duration::ZERO,
            ended_at: at(100),
        }
    }

    fn facts(task: Option<TaskSeen<'static>>) -> GateFacts<'static> {
        GateFacts {
            timeout: Duration::from_secs(600),
            task,
            ..GateFacts::default()
        }
    }

    fn message(state: PullState) -> String {
        match state {
            PullState::Pulling { message } => message,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn present_opens_it() {
        let state = gate_state(&facts(Some(seen(Phase::Succeeded, None))));
        assert_eq!(state, PullState::Present { at: at(100) });
    }

    #[test]
    fn what_cannot_be_had_fails_it_with_a_pause_that_grows() {
        let mut failed = facts(Some(seen(Phase::Failed, Some(Reason::NotFound))));
        failed.failed_at = Some(at(100));
        for (failures, until) in [(0, 110), (1, 120), (2, 140), (9, 400), (90, 400)] {
            failed.failures = failures;
            let expected = PullState::Failed {
                message: "NotFound: words".to_owned(),
                retry_at: at(until),
            };
            assert_eq!(gate_state(&failed), expected);
        }
        for reason in Reason::ALL {
            let alone = matches!(
                reason,
                Reason::Unreachable
                    | Reason::Throttled
                    | Reason::RegistryError
                    | Reason::Timeout
                    | Reason::Stalled
            );
            assert!(!(alone && cannot_be_had(reason)), "{reason}");
        }
        assert!(cannot_be_had(Reason::NoSpace) && cannot_be_had(Reason::Denied));
    }

    #[test]
    fn a_registry_in_trouble_keeps_it_shut_whatever_the_time() {
        let mut shut = facts(Some(seen(Phase::Waiting, Some(Reason::Unreachable))));
        shut.wanted_for = Duration::from_secs(7200);
        assert_eq!(message(gate_state(&shut)), "Unreachable: words; tried again");
    }

    #[test]
    fn a_slow_pull_opens_it_in_the_end_only_while_it_moves() {
        let mut task = seen(Phase::Pulling, None);
        task.progress.bytes_done = 1;
        task.progress.bytes_total = 2;
        let mut slow = facts(Some(task));
        slow.wanted_for = Duration::from_secs(599);
        assert_eq!(message(gate_state(&slow)), "1 of 2 bytes pulled");
        assert_eq!(gate_wake(&slow), Some(Duration::from_secs(1)));
        slow.wanted_for = Duration::from_secs(600);
        assert_eq!(gate_state(&slow), PullState::Open);
        task.still_for = MOVES;
        slow.task = Some(task);
        assert_eq!(message(gate_state(&slow)), "1 of 2 bytes pulled");
    }

    #[test]
    fn without_an_agent_it_opens_after_a_while() {
        let mut away = facts(None);
        away.away_for = Some(Duration::from_secs(29));
        assert_eq!(message(gate_state(&away)), "waits for the agent of the node");
        assert_eq!(gate_wake(&away), Some(Duration::from_secs(1)));
        away.away_for = Some(AWAY);
        assert_eq!(gate_state(&away), PullState::Open);
    }

    #[test]
    fn the_worst_image_of_a_pod_counts() {
        let present = |second| PullState::Present { at: at(second) };
        let pulling = PullState::Pulling {
            message: String::new(),
        };
        let failed = PullState::Failed {
            message: String::new(),
            retry_at: at(5),
        };
        assert_eq!(of_all([present(9), present(3)]), present(3));
        assert_eq!(of_all([present(9), PullState::Open]), present(9));
        assert_eq!(of_all([present(9), pulling.clone()]), pulling);
        assert_eq!(of_all([pulling, failed.clone(), present(1)]), failed);
        assert_eq!(of_all([]), PullState::Open);
    }
}
