//! What is known of a job at this moment: pure state, fed by events, read by the views.

use std::collections::BTreeMap;

use kruise_planner::task::Phase;
use kruise_proto::inspect::JobSummary;
use kruise_proto::inspect::watch_tasks_response::Event;

use crate::human;
use crate::tasks::TaskRow;

/// Nodes of a job and its counters.
#[derive(Debug, Default)]
pub(super) struct Board {
    nodes: BTreeMap<String, TaskRow>,
    summary: Option<JobSummary>,
}

/// What an event changed, for a view to draw.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A node goes on, or starts over in a new round.
    Moved(String),
    /// A node has ended, and had not before.
    Ended(String),
    /// A node's task was taken back before it ended.
    Withdrawn(String),
    /// The counters.
    Counted,
}

impl Board {
    /// Takes an event in. Repetitions, as after a reconnect, change nothing.
    pub(super) fn apply(&mut self, event: Event) -> Option<Change> {
        match event {
            Event::Task(task) => self.task(task.into()),
            Event::Gone(id) => self.gone(&id),
            Event::Job(summary) => {
                let change = self.summary.as_ref() != Some(&summary);
                self.summary = Some(summary);
                change.then_some(Change::Counted)
            }
        }
    }

    fn task(&mut self, row: TaskRow) -> Option<Change> {
        let node = row.node.clone();
        let before = self.nodes.insert(node.clone(), row);
        let row = &self.nodes[&node];
        if before.as_ref() == Some(row) {
            return None;
        }
        let known_end =
            before.is_some_and(|before| before.task_id == row.task_id && before.stage == row.stage);
        match (row.stage.is_final(), known_end) {
            (true, true) => None,
            (true, false) => Some(Change::Ended(node)),
            (false, _) => Some(Change::Moved(node)),
        }
    }

    /// A task that ended and is then forgotten stays on the board: it is what happened.
    fn gone(&mut self, id: &str) -> Option<Change> {
        let (node, row) = self.nodes.iter().find(|(_, row)| row.task_id == id)?;
        if row.stage.is_final() {
            return None;
        }
        let node = node.clone();
        self.nodes.remove(&node);
        Some(Change::Withdrawn(node))
    }

    pub(super) fn node(&self, name: &str) -> Option<&TaskRow> {
        self.nodes.get(name)
    }

    /// Nodes that ended badly, by name.
    pub(super) fn failures(&self) -> impl Iterator<Item = &TaskRow> {
        self.nodes.values().filter(|row| row.stage == Phase::Failed)
    }

    pub(super) fn summary(&self) -> Option<&JobSummary> {
        self.summary.as_ref()
    }
}

/// The counters on one line.
pub(super) fn summary_line(summary: &JobSummary) -> String {
    let JobSummary {
        desired,
        active,
        succeeded,
        failed,
        ..
    } = summary;
    let ended = succeeded + failed;
    let mut line = format!("{ended}/{desired} nodes done, {active} active");
    if *failed > 0 {
        line.push_str(&format!(", {failed} failed"));
    }
    if let Some(reason) = summary.waiting_on.first().filter(|_| !summary.complete) {
        line.push_str(&format!("; waiting: {reason}"));
    }
    line
}

/// How a node goes, without its name.
pub(super) fn moving(row: &TaskRow) -> String {
    let mut parts = vec![row.phase.to_lowercase()];
    if row.stage == Phase::Waiting
        && let Some(seconds) = row.retry_in_seconds
    {
        parts[0] = format!("waiting {seconds:.0} s to try again");
    }
    parts.extend(
        [row.progress(), row.rate()]
            .into_iter()
            .filter(|part| !part.is_empty()),
    );
    if row.stage == Phase::Pulling
        && let Some(left) = human::time_left(row.bytes_done, row.bytes_total, row.bytes_per_second)
    {
        parts.push(format!("{} left", human::duration(left)));
    }
    if row.attempts > 1 {
        parts.push(format!("attempt {}", row.attempts));
    }
    if !row.reason.is_empty() {
        parts.push(format!("after {}", row.reason));
    }
    if !row.attached {
        parts.push("agent away".to_owned());
    }
    parts.join("  ")
}

/// How a node ended, without its name.
pub(super) fn ended(row: &TaskRow) -> String {
    if row.stage == Phase::Failed {
        let attempts = if row.attempts > 1 {
            format!(" after {} attempts", row.attempts)
        } else {
            String::new()
        };
        return format!(
            "failed{attempts}: {}: {}",
            row.reason,
            human::line(&row.message, 200)
        );
    }
    if row.already_present {
        return "done: was there already".to_owned();
    }
    let time = std::time::Duration::from_secs_f64(row.pull_seconds.max(0.0));
    let mut text = format!(
        "done: {} in {}",
        human::bytes(row.bytes_fetched),
        human::duration(time)
    );
    if row.pull_seconds > 0.1 && row.bytes_fetched > 0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        let rate = (row.bytes_fetched as f64 / row.pull_seconds) as u64;
        text.push_str(&format!(", {}/s", human::bytes(rate)));
    }
    text
}

#[cfg(test)]
mod tests {
    use kruise_proto::inspect::Task;
    use kruise_proto::task::{self, TaskStatus};

    use super::*;

    fn event(node: &str, phase: task::Phase, done: u64) -> Event {
        let progress = task::Progress {
            bytes_done: done,
            bytes_total: 100,
            bytes_per_second: 10,
            bytes_known: true,
            ..Default::default()
        };
        Event::Task(Task {
            node_name: node.into(),
            attached: true,
            status: Some(TaskStatus {
                task_id: format!("pull/{node}"),
                phase: phase.into(),
                progress: Some(progress),
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    #[test]
    fn an_end_is_told_once_and_stays() {
        let mut board = Board::default();
        assert_eq!(
            board.apply(event("a", task::Phase::Pulling, 1)),
            Some(Change::Moved("a".into()))
        );
        assert_eq!(board.apply(event("a", task::Phase::Pulling, 1)), None);
        assert_eq!(
            board.apply(event("a", task::Phase::Failed, 1)),
            Some(Change::Ended("a".into()))
        );
        assert_eq!(board.apply(event("a", task::Phase::Failed, 1)), None);
        assert_eq!(board.apply(Event::Gone("pull/a".into())), None);
        assert_eq!(board.failures().count(), 1);
    }

    #[test]
    fn a_task_that_is_taken_back_leaves_the_board() {
        let mut board = Board::default();
        board.apply(event("a", task::Phase::Pulling, 1));
        assert_eq!(
            board.apply(Event::Gone("pull/a".into())),
            Some(Change::Withdrawn("a".into()))
        );
        assert_eq!(board.apply(Event::Gone("pull/a".into())), None);
        assert!(board.node("a").is_none());
    }

    #[test]
    fn counters_change_only_when_they_do() {
        let mut board = Board::default();
        let summary = JobSummary {
            desired: 3,
            active: 2,
            failed: 1,
            waiting_on: vec!["window full".into()],
            ..Default::default()
        };
        assert_eq!(board.apply(Event::Job(summary.clone())), Some(Change::Counted));
        assert_eq!(board.apply(Event::Job(summary.clone())), None);
        assert_eq!(
            summary_line(&summary),
            "1/3 nodes done, 2 active, 1 failed; waiting: window full"
        );
    }

    #[test]
    fn lines_say_what_matters() {
        let row = |phase, done| match event("a", phase, done) {
            Event::Task(task) => TaskRow::from(task),
            _ => unreachable!(),
        };
        assert_eq!(
            moving(&row(task::Phase::Pulling, 35)),
            "pulling  35 B / 100 B (35%)  10 B/s  7s left"
        );
        let mut failed = row(task::Phase::Failed, 0);
        failed.reason = "NotFound".into();
        failed.message = "no such tag\nand more".into();
        assert_eq!(ended(&failed), "failed: NotFound: no such tag");
        let mut done = row(task::Phase::Succeeded, 100);
        done.bytes_fetched = 100 << 20;
        done.pull_seconds = 10.0;
        assert_eq!(ended(&done), "done: 100 MiB in 10s, 10.0 MiB/s");
    }
}
