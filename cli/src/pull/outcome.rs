//! How a job ended, from its status and from what was seen on the way.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kruise_api::ids::ObjectKey;
use kruise_api::image_pull_job::ImagePullJob;
use serde::Serialize;

use super::board::Board;
use crate::human;
use crate::output;

/// The result of a job, as it is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    job: String,
    image: String,
    desired: i32,
    succeeded: i32,
    failed: i32,
    /// From start to completion by the API server's clock.
    seconds: Option<f64>,
    message: String,
    failures: Vec<Failure>,
}

/// One node that does not have the image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    node: String,
    reason: String,
    message: String,
}

impl Outcome {
    /// The outcome of a job that is over; nothing while it is not.
    pub(super) fn of(key: &ObjectKey, job: &ImagePullJob, board: &Board) -> Option<Self> {
        let status = job.status.as_ref()?;
        let end = status.completion_time.as_ref()?;
        let seconds = status.start_time.as_ref().map(|start| since(start.0, end.0));
        let mut failures: BTreeMap<&str, (String, String)> = BTreeMap::new();
        // Where all failed for one reason, that of the others is known as well.
        let only = match status.failures.as_slice() {
            [summary] if summary.count == status.failed => {
                (summary.reason.clone(), format!("as on {}", summary.node))
            }
            _ => Default::default(),
        };
        for name in &status.failed_nodes {
            failures.insert(name, only.clone());
        }
        // The status tells one node of each reason; what was seen on the way tells the others.
        for summary in &status.failures {
            failures.insert(&summary.node, (summary.reason.clone(), summary.message.clone()));
        }
        for row in board
            .failures()
            .filter(|row| status.failed_nodes.contains(&row.node))
        {
            failures.insert(&row.node, (row.reason.clone(), row.message.clone()));
        }
        let failures = failures.into_iter().filter(|(node, _)| !node.is_empty());
        Some(Self {
            job: key.to_string(),
            image: job.spec.image.clone(),
            desired: status.desired,
            succeeded: status.succeeded,
            failed: status.failed,
            seconds,
            message: status.message.clone().unwrap_or_default(),
            failures: failures
                .map(|(node, (reason, message))| Failure {
                    node: node.to_owned(),
                    reason,
                    message,
                })
                .collect(),
        })
    }

    /// The outcome of a job that was deleted as soon as it was over, from its last counters.
    pub(super) fn seen(key: &ObjectKey, image: &str, board: &Board) -> Option<Self> {
        let summary = board.summary().filter(|summary| summary.complete)?;
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let failures = board.failures().map(|row| Failure {
            node: row.node.clone(),
            reason: row.reason.clone(),
            message: row.message.clone(),
        });
        Some(Self {
            job: key.to_string(),
            image: image.to_owned(),
            desired: number(summary.desired),
            succeeded: number(summary.succeeded),
            failed: number(summary.failed),
            seconds: None,
            message: String::new(),
            failures: failures.collect(),
        })
    }

    /// Whether every selected node has the image.
    pub(super) fn all_well(&self) -> bool {
        self.failed == 0 && self.succeeded >= self.desired
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Self {
            job,
            image,
            desired,
            succeeded,
            failed,
            ..
        } = self;
        let time = self.seconds.map(|seconds| {
            format!(
                " after {}",
                human::duration(std::time::Duration::from_secs_f64(seconds.max(0.0)))
            )
        });
        let time = time.unwrap_or_default();
        if *desired == 0 {
            return format!("{job}: no node is selected, nothing was pulled\n");
        }
        if self.all_well() {
            return format!("{job}: {image} is on all {desired} nodes{time}\n");
        }
        let left = desired - succeeded - failed;
        let mut text = format!("{job}: {image} is on {succeeded} of {desired} nodes{time}, {failed} failed");
        if left > 0 {
            text.push_str(&format!(", {left} never had their turn"));
        }
        if !self.message.is_empty() {
            text.push_str(&format!(" ({})", self.message));
        }
        text.push('\n');
        let mut table = output::plain_table();
        for failure in &self.failures {
            let reason = output::cell(failure.reason.as_str());
            table.add_row([failure.node.clone(), reason, human::line(&failure.message, 160)]);
        }
        if !self.failures.is_empty() {
            text.push_str(&output::trimmed(&table));
        }
        text
    }
}

fn since(start: Timestamp, end: Timestamp) -> f64 {
    end.duration_since(start).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kruise_api::image_pull_job::{FailureSummary, ImagePullJobSpec, ImagePullJobStatus};

    use super::*;

    fn over(desired: i32, succeeded: i32, failed: &[&str]) -> ImagePullJob {
        let mut job = ImagePullJob::new(
            "x",
            ImagePullJobSpec {
                image: "app:1".into(),
                ..Default::default()
            },
        );
        let at = |second| Some(Time(Timestamp::new(second, 0).unwrap()));
        job.status = Some(ImagePullJobStatus {
            start_time: at(100),
            completion_time: at(112),
            desired,
            succeeded,
            failed: i32::try_from(failed.len()).unwrap(),
            failed_nodes: failed.iter().map(|&name| name.to_owned()).collect(),
            failures: failed
                .first()
                .map(|&node| FailureSummary {
                    reason: "NotFound".into(),
                    count: 2,
                    node: node.into(),
                    message: "no such tag".into(),
                })
                .into_iter()
                .collect(),
            ..Default::default()
        });
        job
    }

    fn outcome(job: &ImagePullJob) -> Outcome {
        Outcome::of(&ObjectKey::new("ns", "x"), job, &Board::default()).unwrap()
    }

    #[test]
    fn a_job_that_runs_has_no_outcome() {
        let mut job = over(1, 1, &[]);
        job.status.as_mut().unwrap().completion_time = None;
        assert!(Outcome::of(&ObjectKey::new("ns", "x"), &job, &Board::default()).is_none());
    }

    #[test]
    fn success_is_one_line() {
        let outcome = outcome(&over(3, 3, &[]));
        assert!(outcome.all_well());
        assert_eq!(outcome.text(), "ns/x: app:1 is on all 3 nodes after 12s\n");
    }

    #[test]
    fn every_failed_node_has_a_line() {
        let outcome = outcome(&over(4, 1, &["a", "b"]));
        assert!(!outcome.all_well());
        let text = outcome.text();
        assert!(
            text.starts_with("ns/x: app:1 is on 1 of 4 nodes after 12s, 2 failed, 1 never had their turn\n"),
            "{text}"
        );
        let lines: Vec<Vec<_>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines,
            [
                vec!["a", "NotFound", "no", "such", "tag"],
                vec!["b", "NotFound", "as", "on", "a"]
            ]
        );
    }

    #[test]
    fn a_reason_that_nobody_has_told_is_not_made_up() {
        let mut job = over(4, 1, &["a", "b"]);
        job.status.as_mut().unwrap().failures[0].count = 1;
        let text = outcome(&job).text();
        let last: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["b", "-"]);
    }

    #[test]
    fn no_node_is_no_failure() {
        let outcome = outcome(&over(0, 0, &[]));
        assert!(outcome.all_well());
        assert!(outcome.text().contains("no node is selected"));
    }
}
