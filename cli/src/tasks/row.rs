//! One task, as a line and as a document.

use std::time::Duration;

use kruise_planner::task::{Phase, Progress};
use kruise_proto::convert;
use kruise_proto::inspect;
use kruise_proto::task::TaskStatus;
use serde::Serialize;

use crate::human;
use crate::output::{Row, cell};

/// A task on its node. Every field is always there, zero or not, so that scripts need no special cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRow {
    pub(crate) job: String,
    pub(crate) node: String,
    pub(crate) attached: bool,
    pub(crate) task_id: String,
    pub(crate) image: String,
    pub(crate) phase: String,
    pub(crate) attempts: u32,
    pub(crate) bytes_known: bool,
    pub(crate) bytes_done: u64,
    pub(crate) bytes_total: u64,
    pub(crate) bytes_per_second: u64,
    pub(crate) layers_done: u32,
    pub(crate) layers_total: u32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) image_id: String,
    pub(crate) already_present: bool,
    pub(crate) bytes_fetched: u64,
    pub(crate) pull_seconds: f64,
    pub(crate) retry_in_seconds: Option<f64>,
    #[serde(skip)]
    pub(crate) stage: Phase,
}

impl From<inspect::Task> for TaskRow {
    fn from(task: inspect::Task) -> Self {
        let row = Self::on_node(&task.node_name, task.status.unwrap_or_default());
        Self {
            job: task.job,
            attached: task.attached,
            ..row
        }
    }
}

impl TaskRow {
    /// As the agent itself tells it, which does not know of jobs.
    pub(crate) fn on_node(node: &str, status: TaskStatus) -> Self {
        let stage = convert::phase_from_number(status.phase);
        let progress: Progress = status.progress.unwrap_or_default().into();
        Self {
            job: String::new(),
            node: node.to_owned(),
            attached: true,
            task_id: status.task_id,
            image: status.image,
            phase: format!("{stage:?}"),
            attempts: status.attempts,
            bytes_known: progress.bytes_known,
            bytes_done: progress.bytes_done,
            bytes_total: progress.bytes_total,
            bytes_per_second: progress.bytes_per_second,
            layers_done: progress.layers_done,
            layers_total: progress.layers_total,
            reason: convert::reason_from_number(status.reason)
                .map(|reason| reason.to_string())
                .unwrap_or_default(),
            message: status.message,
            image_id: status.image_id,
            already_present: status.already_present,
            bytes_fetched: status.bytes_fetched,
            pull_seconds: seconds(status.pull_time.as_ref())
                .unwrap_or_default()
                .as_secs_f64(),
            retry_in_seconds: seconds(status.retry_in.as_ref()).map(|time| time.as_secs_f64()),
            stage,
        }
    }

    /// `35.0 MiB / 100 MiB (35%)`, as far as it is known.
    pub(crate) fn progress(&self) -> String {
        match (
            self.bytes_known,
            human::percent(self.bytes_done, self.bytes_total),
        ) {
            (true, Some(percent)) => format!(
                "{} / {} ({percent}%)",
                human::bytes(self.bytes_done),
                human::bytes(self.bytes_total)
            ),
            (true, None) if self.bytes_done > 0 => human::bytes(self.bytes_done),
            _ => String::new(),
        }
    }

    /// `10.0 MiB/s`, while it moves.
    pub(crate) fn rate(&self) -> String {
        if self.stage == Phase::Pulling && self.bytes_per_second > 0 {
            format!("{}/s", human::bytes(self.bytes_per_second))
        } else {
            String::new()
        }
    }

    /// Heads for lines that come one at a time.
    pub(super) fn fixed_heads(wide: bool) -> String {
        let (heads, more) = Self::HEADS;
        let heads: Vec<_> = heads
            .iter()
            .chain(more.iter().filter(|_| wide))
            .map(|&head| head.to_owned())
            .collect();
        Self::fixed(&heads)
    }

    /// A line that comes alone, in columns of fixed width.
    pub(super) fn fixed(cells: &[String]) -> String {
        const WIDTHS: [usize; 7] = [28, 16, 10, 28, 11, 8, 16];
        let padded = cells.iter().enumerate().map(|(n, text)| {
            let width = WIDTHS.get(n).copied().unwrap_or_default();
            format!("{text:width$}")
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    }
}

impl Row for TaskRow {
    const HEADS: (&'static [&'static str], &'static [&'static str]) = (
        &["JOB", "NODE", "PHASE", "PROGRESS", "RATE", "ATTEMPTS", "REASON"],
        &["IMAGE", "TASK", "MESSAGE"],
    );

    fn cells(&self) -> Vec<String> {
        let away = if self.attached { "" } else { " (away)" };
        vec![
            cell(self.job.as_str()),
            cell(format!("{}{away}", self.node)),
            self.phase.clone(),
            cell(self.progress()),
            cell(self.rate()),
            self.attempts.to_string(),
            cell(self.reason.as_str()),
        ]
    }

    fn wide(&self) -> Vec<String> {
        vec![
            cell(self.image.as_str()),
            self.task_id.clone(),
            cell(human::line(&self.message, 120)),
        ]
    }
}

/// A duration of the wire; one below zero is none.
pub(crate) fn seconds(time: Option<&prost_types::Duration>) -> Option<Duration> {
    time.and_then(|time| Duration::try_from(*time).ok())
}

#[cfg(test)]
mod tests {
    use kruise_proto::task;

    use super::*;

    fn status() -> TaskStatus {
        TaskStatus {
            task_id: "pull/x".into(),
            phase: task::Phase::Pulling.into(),
            progress: Some(task::Progress {
                bytes_done: 35 << 20,
                bytes_total: 100 << 20,
                bytes_per_second: 10 << 20,
                bytes_known: true,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn progress_is_shown_as_far_as_it_is_known() {
        let row = TaskRow::on_node("node1", status());
        assert_eq!(row.progress(), "35.0 MiB / 100 MiB (35%)");
        assert_eq!(row.rate(), "10.0 MiB/s");
        let blind = TaskRow {
            bytes_known: false,
            ..row.clone()
        };
        assert_eq!(blind.progress(), "");
        let no_total = TaskRow {
            bytes_total: 0,
            ..row.clone()
        };
        assert_eq!(no_total.progress(), "35.0 MiB");
        let ended = TaskRow {
            stage: Phase::Succeeded,
            ..row
        };
        assert_eq!(ended.rate(), "");
    }

    #[test]
    fn a_document_has_its_zeros() {
        let text = serde_json::to_string(&TaskRow::on_node("n", TaskStatus::default())).unwrap();
        for field in [
            r#""bytesDone":0"#,
            r#""reason":"""#,
            r#""retryInSeconds":null"#,
            r#""phase":"Waiting""#,
        ] {
            assert!(text.contains(field), "{field} in {text}");
        }
    }
}
