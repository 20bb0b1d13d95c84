//! Showing a board: bars on a terminal, lines elsewhere.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use kruise_planner::task::Phase;
use tokio::time::Instant;

use super::board::{Board, Change, ended, moving, summary_line};
use crate::human;
use crate::tasks::TaskRow;

/// Draws changes as they come.
pub(super) trait View {
    /// Something that is about no node.
    fn note(&mut self, text: &str);
    /// The board after a change.
    fn changed(&mut self, board: &Board, change: &Change);
    /// Leaves the terminal as it was, with what ended above.
    fn close(&mut self);
}

/// Bars of nodes that are being served are this many at most; the counters show the rest.
const MOST_BARS: usize = 20;

/// One bar per node at work, one for the whole job below them.
pub(super) struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    nodes: BTreeMap<String, ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let all = MultiProgress::new();
        let total = all.add(ProgressBar::no_length());
        total.set_style(style("{spinner} {elapsed_precise} {wide_msg}"));
        total.set_message("waiting for the manager to look at the job");
        total.enable_steady_tick(Duration::from_millis(250));
        Self {
            all,
            total,
            nodes: BTreeMap::new(),
        }
    }

    fn line(&self, text: &str) {
        // A terminal that cannot be written to is no reason to give up on the job.
        let _ = self.all.println(text);
    }

    fn remove(&mut self, node: &str) {
        if let Some(bar) = self.nodes.remove(node) {
            bar.finish_and_clear();
            self.all.remove(&bar);
        }
    }

    fn draw(&mut self, row: &TaskRow) {
        if !self.nodes.contains_key(&row.node) && self.nodes.len() >= MOST_BARS {
            return;
        }
        let (all, total) = (&self.all, &self.total);
        let bar = self.nodes.entry(row.node.clone()).or_insert_with(|| {
            let bar = all.insert_before(total, ProgressBar::new(1));
            bar.set_style(style("{prefix:16} [{bar:24}] {wide_msg}"));
            bar.set_prefix(human::line(&row.node, 16));
            bar
        });
        let length = row.bytes_total.max(1);
        bar.set_length(length);
        bar.set_position(row.bytes_done.min(length));
        bar.set_message(moving(row));
    }
}

/// The templates are constants of this file; a wrong one is found by the test below.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

impl View for Bars {
    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn changed(&mut self, board: &Board, change: &Change) {
        match change {
            Change::Moved(node) => {
                if let Some(row) = board.node(node) {
                    self.draw(row);
                }
            }
            Change::Ended(node) => {
                self.remove(node);
                if let Some(row) = board.node(node) {
                    self.line(&format!("{node:16} {}", ended(row)));
                }
            }
            Change::Withdrawn(node) => self.remove(node),
            Change::Counted => {
                if let Some(summary) = board.summary() {
                    self.total.set_message(summary_line(summary));
                }
            }
        }
    }

    fn close(&mut self) {
        for bar in self.nodes.values() {
            bar.finish_and_clear();
        }
        self.nodes.clear();
        self.total.finish_and_clear();
    }
}

/// A node that only moves gets a line so often at most.
const QUIET: Duration = Duration::from_secs(2);

/// A line per change of phase, and one now and then in between.
pub(super) struct Plain<W> {
    out: W,
    nodes: BTreeMap<String, (Phase, u32, Instant)>,
    summary: String,
}

impl<W: Write> Plain<W> {
    pub(super) fn new(out: W) -> Self {
        Self {
            out,
            nodes: BTreeMap::new(),
            summary: String::new(),
        }
    }

    fn line(&mut self, text: &str) {
        // A closed pipe is no reason to give up on the job.
        let _ = writeln!(self.out, "{text}");
    }

    fn due(&mut self, row: &TaskRow) -> bool {
        let now = Instant::now();
        let last = self.nodes.get(&row.node);
        let due = last.is_none_or(|&(phase, attempts, at)| {
            phase != row.stage || attempts != row.attempts || now.duration_since(at) >= QUIET
        });
        if due {
            self.nodes
                .insert(row.node.clone(), (row.stage, row.attempts, now));
        }
        due
    }
}

impl<W: Write> View for Plain<W> {
    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn changed(&mut self, board: &Board, change: &Change) {
        match change {
            Change::Moved(node) => {
                if let Some(row) = board.node(node)
                    && self.due(row)
                {
                    self.line(&format!("{node}  {}", moving(row)));
                }
            }
            Change::Ended(node) => {
                self.nodes.remove(node);
                if let Some(row) = board.node(node) {
                    self.line(&format!("{node}  {}", ended(row)));
                }
            }
            Change::Withdrawn(node) => self.line(&format!("{node}  withdrawn")),
            Change::Counted => {
                let Some(summary) = board.summary() else { return };
                // Counters only: what is waited for changes each second, and nodes have lines of their own.
                let line = format!(
                    "{}/{} nodes done",
                    summary.succeeded + summary.failed,
                    summary.desired
                );
                if line != self.summary {
                    self.summary.clone_from(&line);
                    self.line(&line);
                }
            }
        }
    }

    fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use kruise_proto::inspect::watch_tasks_response::Event;
    use kruise_proto::inspect::{JobSummary, Task};
    use kruise_proto::task::{self, TaskStatus};

    use super::*;

    fn event(phase: task::Phase) -> Event {
        let status = TaskStatus {
            task_id: "t".into(),
            phase: phase.into(),
            already_present: true,
            ..Default::default()
        };
        Event::Task(Task {
            node_name: "node1".into(),
            attached: true,
            status: Some(status),
            ..Default::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn lines_come_with_each_phase_and_seldom_in_between() {
        let (mut board, mut view) = (Board::default(), Plain::new(Vec::new()));
        let mut done = 0;
        let mut feed = |phase| {
            let mut event = event(phase);
            if let Event::Task(task) = &mut event
                && let Some(status) = &mut task.status
            {
                done += 1;
                status.progress = Some(task::Progress {
                    bytes_done: done,
                    bytes_known: true,
                    ..Default::default()
                });
            }
            let change = board.apply(event).unwrap();
            view.changed(&board, &change);
        };
        feed(task::Phase::Pulling);
        feed(task::Phase::Pulling);
        tokio::time::advance(QUIET).await;
        feed(task::Phase::Pulling);
        feed(task::Phase::Succeeded);
        let counted = board
            .apply(Event::Job(JobSummary {
                desired: 1,
                succeeded: 1,
                ..Default::default()
            }))
            .unwrap();
        view.changed(&board, &counted);
        let text = String::from_utf8(view.out).unwrap();
        assert_eq!(
            text,
            "node1  pulling  1 B\nnode1  pulling  3 B\nnode1  done: was there already\n1/1 nodes done\n"
        );
    }

    #[test]
    fn templates_are_sound() {
        for template in [
            "{spinner} {elapsed_precise} {wide_msg}",
            "{prefix:16} [{bar:24}] {wide_msg}",
        ] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
