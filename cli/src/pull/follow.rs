//! Staying with a job until it is over.
//!
//! What moves comes from the inspection service; that the job is over, and how, comes from its status. Without the service only
//! the status is shown. The service is tried again and again, so that a change of leader is a pause and no end.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kruise_api::ids::ObjectKey;
use kruise_api::image_pull_job::{ImagePullJob, ImagePullJobStatus};
use kruise_proto::inspect::{JobSummary, WatchTasksRequest, watch_tasks_response::Event};
use kube::Api;

use super::board::Board;
use super::outcome::Outcome;
use super::view::View;
use crate::connect::{self, Cluster};
use crate::exit::chain;
use crate::tasks::refused;

/// Between two looks at the status while no stream tells.
const POLL: Duration = Duration::from_secs(2);

/// Looks at the API that may fail in a row before it is called unreachable.
const PATIENCE: u32 = 15;

/// Which job, and for how long.
pub(super) struct Follower<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) key: &'a ObjectKey,
    pub(super) limit: Option<Duration>,
}

/// Why one stays no longer.
pub(super) enum Ending {
    /// The job is over.
    Over(Outcome),
    /// The job was deleted before it was over.
    Gone,
    /// The time is up.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

impl Follower<'_> {
    pub(super) async fn run(&self, view: &mut dyn View) -> Result<Ending> {
        let limit = async {
            match self.limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ending = self.stay(view) => ending,
            () = limit => Ok(Ending::TimedOut),
            _ = tokio::signal::ctrl_c() => Ok(Ending::Interrupted),
        }
    }

    async fn stay(&self, view: &mut dyn View) -> Result<Ending> {
        let jobs: Api<ImagePullJob> = Api::namespaced(self.cluster.client.clone(), &self.key.namespace);
        let mut board = Board::default();
        let mut image = String::new();
        let (mut blind, mut misses) = (false, 0);
        loop {
            match self.watch(&mut board, view, &mut blind).await {
                Ok(()) => blind = false,
                Err(error) if !blind => {
                    blind = true;
                    view.note(&format!(
                        "no live view, the job's status is shown instead: {}",
                        chain(&error)
                    ));
                }
                Err(_) => {}
            }
            match jobs.get_opt(&self.key.name).await {
                Ok(Some(job)) => {
                    misses = 0;
                    if let Some(outcome) = Outcome::of(self.key, &job, &board) {
                        return Ok(Ending::Over(outcome));
                    }
                    image.clone_from(&job.spec.image);
                    if let Some(status) = job.status.filter(|_| blind) {
                        count(&mut board, view, self.key, &status);
                    }
                }
                Ok(None) => {
                    let seen = Outcome::seen(self.key, &image, &board);
                    return Ok(seen.map_or(Ending::Gone, Ending::Over));
                }
                Err(error) if misses >= PATIENCE => {
                    return Err(error).with_context(|| format!("cannot read job {}; it goes on", self.key));
                }
                Err(_) => misses += 1,
            }
            tokio::time::sleep(if blind { POLL } else { POLL / 8 }).await;
        }
    }

    /// Feeds the board until the stream ends, which it does when the job is over or, for a job just made, not known yet.
    async fn watch(&self, board: &mut Board, view: &mut dyn View, blind: &mut bool) -> Result<()> {
        let mut client = connect::open(self.cluster).await?;
        let request = WatchTasksRequest {
            job: self.key.to_string(),
            node_name: String::new(),
            until_done: true,
        };
        let mut events = client.watch_tasks(request).await.map_err(refused)?.into_inner();
        while let Some(response) = events.message().await.map_err(refused)? {
            if std::mem::take(blind) {
                view.note("the live view is back");
            }
            let Some(event) = response.event else { continue };
            if let Some(change) = board.apply(event) {
                view.changed(board, &change);
            }
        }
        Ok(())
    }
}

/// Shows the counters of the status as if the service had sent them.
fn count(board: &mut Board, view: &mut dyn View, key: &ObjectKey, status: &ImagePullJobStatus) {
    let number = |count: i32| u32::try_from(count).unwrap_or_default();
    let summary = JobSummary {
        job: key.to_string(),
        desired: number(status.desired),
        active: number(status.active),
        succeeded: number(status.succeeded),
        failed: number(status.failed),
        waiting_on: status.message.clone().into_iter().collect(),
        ..Default::default()
    };
    if let Some(change) = board.apply(Event::Job(summary)) {
        view.changed(board, &change);
    }
}

#[cfg(test)]
mod tests;
