//! Tasks as they stand, then every change.
//!
//! The queue of a watcher is its place in the engine's broadcast: a reader that does not keep up falls behind by more than that holds, and
//! is told so.

use std::collections::VecDeque;

use futures::Stream;
use kruise_proto::inspect::{JobSummary, WatchTasksResponse, watch_tasks_response::Event};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tonic::{Code, Status};

use super::status;
use crate::dispatch::refuse;
use crate::engine::event::Change;
use crate::engine::handle::Watched;
use crate::engine::state::TaskFilter;

struct Follower {
    filter: TaskFilter,
    until_done: bool,
    /// What goes out before anything else.
    first: VecDeque<Event>,
    changes: Receiver<Change>,
    /// Last summary of the one job that is watched, so that the same is not told twice.
    summary: Option<JobSummary>,
    over: bool,
}

/// Ends with OK when `until_done` and the job is complete or gone.
pub(super) fn stream(
    watched: Watched,
    filter: TaskFilter,
    until_done: bool,
) -> impl Stream<Item = Result<WatchTasksResponse, Status>> + Send {
    let Watched { tasks, jobs, changes } = watched;
    let over = until_done && jobs.iter().all(|job| job.complete);
    let summary = filter.job.as_ref().and(jobs.first().cloned());
    let first = tasks
        .into_iter()
        .map(Event::Task)
        .chain(jobs.into_iter().map(Event::Job))
        .collect();
    let follower = Follower {
        filter,
        until_done,
        first,
        changes,
        summary,
        over,
    };
    futures::stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        Some((
            item.map(|event| WatchTasksResponse { event: Some(event) }),
            follower,
        ))
    })
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, Status>> {
        if let Some(event) = self.first.pop_front() {
            return Some(Ok(event));
        }
        while !self.over {
            match self.changes.recv().await {
                Ok(change) => {
                    if let Some(event) = self.told(change) {
                        return Some(Ok(event));
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    self.over = true;
                    let message = format!(
                        "{missed} changes were missed; read faster, or watch one job, and start again"
                    );
                    return Some(Err(status(Code::ResourceExhausted, "SLOW_READER", message)));
                }
                Err(RecvError::Closed) => {
                    self.over = true;
                    return Some(Err(refuse::not_leader(None)));
                }
            }
        }
        None
    }

    fn told(&mut self, change: Change) -> Option<Event> {
        match change {
            Change::Task(task) => self
                .filter
                .takes(&task.job, &task.node_name)
                .then(|| Event::Task((*task).clone())),
            Change::Gone { job, node, id } => {
                self.filter.takes(&job, node.as_str()).then_some(Event::Gone(id))
            }
            Change::Job(job) => {
                if !self.filter.takes_job(&job.job) || self.summary.as_ref() == Some(&*job) {
                    return None;
                }
                self.over |= self.until_done && job.complete;
                if self.filter.job.is_some() {
                    self.summary = Some((*job).clone());
                }
                Some(Event::Job((*job).clone()))
            }
            Change::JobGone { job } => {
                self.over |= self.until_done && self.filter.takes_job(&job);
                None
            }
        }
    }
}
