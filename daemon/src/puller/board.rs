//! Where all tasks stand, for those who tell others.
//!
//! The board holds the latest state of each task and nothing older, so a reader that is slow misses steps and no memory is held
//! for it. A [`Follower`] knows what its reader was told and when something is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kruise_api::ids::TaskId;
use kruise_planner::task::Phase;
use kruise_proto::convert;
use kruise_proto::task::TaskStatus;

use super::here::is_here;

/// A task's progress is told at most this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// To a reader of many nodes, progress of less than a hundredth is told at most this often.
const LITTLE_EVERY: Duration = Duration::from_secs(5);

/// Latest state of every task.
#[derive(Clone, Debug, Default)]
pub struct Board(pub BTreeMap<TaskId, Arc<TaskStatus>>);

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A task as it stands now.
    Task(Arc<TaskStatus>),
    /// A task that is no longer held.
    Gone(TaskId),
}

/// What one reader was told.
#[derive(Debug, Default)]
pub struct Follower {
    told: BTreeMap<TaskId, (Arc<TaskStatus>, Duration)>,
    coarse: bool,
}

impl Follower {
    /// A reader that was just told the whole board.
    #[must_use]
    pub fn told(board: &Board, now: Duration) -> Self {
        let told = board
            .0
            .iter()
            .map(|(id, status)| (id.clone(), (Arc::clone(status), now)));
        Self {
            told: told.collect(),
            coarse: false,
        }
    }

    /// The same for a reader of many nodes, who is told neither of every little step nor of pulls that callers on this machine asked for.
    #[must_use]
    pub fn coarse(self) -> Self {
        Self { coarse: true, ..self }
    }

    /// Forgets what was told of tasks that have ended, so that their results are told again.
    pub fn repeat_results(&mut self) {
        self.told
            .retain(|_, (status, _)| !convert::phase_from_number(status.phase).is_final());
    }

    /// What to tell at `now`, and when to ask again at the latest.
    pub fn next(&mut self, board: &Board, now: Duration) -> (Option<News>, Option<Duration>) {
        if let Some(gone) = self.told.keys().find(|id| !board.0.contains_key(id)).cloned() {
            self.told.remove(&gone);
            return (Some(News::Gone(gone)), Some(now));
        }
        let mut later: Option<Duration> = None;
        for (id, status) in board.0.iter().filter(|(id, _)| !(self.coarse && is_here(id))) {
            let due = match self.told.get(id) {
                Some((told, _)) if Arc::ptr_eq(told, status) || told == status => continue,
                Some((told, at)) if only_progress(told, status) => {
                    let little = self.coarse && is_little(told, status);
                    at.saturating_add(if little { LITTLE_EVERY } else { PROGRESS_EVERY })
                }
                _ => now,
            };
            if due <= now {
                self.told.insert(id.clone(), (Arc::clone(status), now));
                return (Some(News::Task(Arc::clone(status))), Some(now));
            }
            later = Some(later.map_or(due, |later| later.min(due)));
        }
        (None, later)
    }
}

/// Whether less than a hundredth came in.
fn is_little(before: &TaskStatus, after: &TaskStatus) -> bool {
    let (before, after) = (
        before.progress.unwrap_or_default(),
        after.progress.unwrap_or_default(),
    );
    let grown = after.bytes_done.saturating_sub(before.bytes_done);
    before.bytes_total == after.bytes_total && grown < after.bytes_total / 100
}

/// Whether nothing but numbers changed.
fn only_progress(before: &TaskStatus, after: &TaskStatus) -> bool {
    let without = |status: &TaskStatus| TaskStatus {
        progress: None,
        pull_time: None,
        bytes_fetched: 0,
        ..status.clone()
    };
    convert::phase_from_number(after.phase) != Phase::Waiting && without(before) == without(after)
}

#[cfg(test)]
mod tests {
    use kruise_proto::task;

    use super::*;

    fn status(id: &str, phase: task::Phase, bytes: u64) -> Arc<TaskStatus> {
        Arc::new(TaskStatus {
            task_id: id.into(),
            phase: phase.into(),
            progress: Some(task::Progress {
                bytes_done: bytes,
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    fn board(tasks: &[(&str, task::Phase, u64)]) -> Board {
        Board(
            tasks
                .iter()
                .map(|(id, phase, bytes)| (TaskId::from(*id), status(id, *phase, *bytes)))
                .collect(),
        )
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn phases_at_once_progress_once_a_second() {
        let pulling = |bytes| board(&[("a", task::Phase::Pulling, bytes)]);
        let mut follower = Follower::default();
        let (news, _) = follower.next(&pulling(0), millis(0));
        assert!(matches!(news, Some(News::Task(_))));
        assert_eq!(follower.next(&pulling(0), millis(100)), (None, None));
        assert_eq!(
            follower.next(&pulling(5), millis(500)),
            (None, Some(millis(1000)))
        );
        let (news, _) = follower.next(&pulling(9), millis(1000));
        assert_eq!(
            news,
            Some(News::Task(status("a", task::Phase::Pulling, 9))),
            "the latest, nothing older"
        );
        let (news, _) = follower.next(&board(&[("a", task::Phase::Succeeded, 9)]), millis(1001));
        assert!(matches!(news, Some(News::Task(_))));
    }

    #[test]
    fn little_progress_is_told_less_often_to_those_who_read_many() {
        let pulling = |bytes| {
            let progress = Some(task::Progress {
                bytes_done: bytes,
                bytes_total: 1000,
                ..Default::default()
            });
            let status = TaskStatus {
                progress,
                ..status("a", task::Phase::Pulling, 0).as_ref().clone()
            };
            Board([(TaskId::from("a"), Arc::new(status))].into())
        };
        let mut follower = Follower::told(&pulling(0), millis(0)).coarse();
        assert_eq!(
            follower.next(&pulling(9), millis(2000)),
            (None, Some(millis(5000)))
        );
        assert!(follower.next(&pulling(10), millis(2000)).0.is_some());
        assert_eq!(
            follower.next(&pulling(12), millis(6999)),
            (None, Some(millis(7000)))
        );
        assert!(follower.next(&pulling(12), millis(7000)).0.is_some());
    }

    #[test]
    fn pulls_of_callers_here_are_not_the_managers_business() {
        let board = board(&[("local/1", task::Phase::Pulling, 0)]);
        let mut coarse = Follower::default().coarse();
        assert_eq!(coarse.next(&board, millis(0)), (None, None));
        assert!(Follower::default().next(&board, millis(0)).0.is_some());
    }

    #[test]
    fn a_task_that_is_forgotten_is_gone_once() {
        let mut follower = Follower::told(&board(&[("a", task::Phase::Failed, 0)]), millis(0));
        let (news, _) = follower.next(&Board::default(), millis(1));
        assert_eq!(news, Some(News::Gone("a".into())));
        assert_eq!(follower.next(&Board::default(), millis(2)), (None, None));
    }

    #[test]
    fn results_can_be_told_again() {
        let board = board(&[("a", task::Phase::Failed, 0), ("b", task::Phase::Pulling, 0)]);
        let mut follower = Follower::told(&board, millis(0));
        follower.repeat_results();
        let (news, _) = follower.next(&board, millis(1));
        assert_eq!(news, Some(News::Task(status("a", task::Phase::Failed, 0))));
        assert_eq!(follower.next(&board, millis(1)), (None, None));
    }
}
