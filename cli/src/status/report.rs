//! What was found, as text and as a document.

use kruise_api::image_pull_job::ImagePullJob;
use serde::Serialize;

use crate::human;

/// Nodes and jobs that are named in the text; the document has all of them.
const NAMED: usize = 10;

/// The state of an installation.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// Pod.
    pub(super) leader: String,
    pub(super) epoch: u64,
    /// None where the user may not see them.
    pub(super) managers: Option<Vec<Manager>>,
    pub(super) agents: Agents,
    /// In progress; none where the user may not see them.
    pub(super) jobs: Option<Vec<Job>>,
    /// What could not be found out, and why.
    pub(super) unknown: Vec<String>,
}

/// A replica.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manager {
    pub(super) pod: String,
    pub(super) leads: bool,
    pub(super) ready: bool,
    pub(super) answers: bool,
    /// Why it does not answer.
    pub(super) problem: String,
}

/// Agents by state.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agents {
    pub(super) synced: usize,
    pub(super) stale: usize,
    pub(super) not_sent: usize,
    pub(super) not_in_sync: Vec<Laggard>,
}

/// A node whose agent is not in sync.
#[derive(Debug, Serialize)]
pub(super) struct Laggard {
    pub(super) node: String,
    pub(super) state: String,
}

/// A job that is not over.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Job {
    job: String,
    image: String,
    desired: i32,
    active: i32,
    succeeded: i32,
    failed: i32,
    message: String,
}

impl Job {
    /// Nothing for a job that is over.
    pub(super) fn in_progress(job: ImagePullJob) -> Option<Self> {
        let status = job.status.unwrap_or_default();
        if status.completion_time.is_some() || job.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let (namespace, name) = (job.metadata.namespace, job.metadata.name);
        Some(Self {
            job: format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default()),
            image: job.spec.image,
            desired: status.desired,
            active: status.active,
            succeeded: status.succeeded,
            failed: status.failed,
            message: status.message.unwrap_or_default(),
        })
    }
}

impl Report {
    /// Whether every agent has what is wanted of it.
    pub(super) fn in_sync(&self) -> bool {
        self.agents.not_in_sync.is_empty()
    }

    /// The same, and every replica that is to be seen answers.
    pub(super) fn is_well(&self) -> bool {
        let managers = self.managers.as_deref().unwrap_or_default();
        self.in_sync() && managers.iter().all(|manager| manager.answers && manager.ready)
    }

    /// Who is waited for, on one line.
    pub(super) fn not_in_sync(&self) -> String {
        let Agents { stale, not_sent, .. } = self.agents;
        let named = (self.agents.not_in_sync.iter().take(NAMED)).map(|laggard| laggard.node.as_str());
        let named = named.collect::<Vec<_>>().join(", ");
        let more = self.agents.not_in_sync.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        format!("{stale} agents stale, {not_sent} not attached: {named}{more}")
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![format!("leader:    {} (epoch {})", self.leader, self.epoch)];
        if let Some(managers) = &self.managers {
            let answer = managers.iter().filter(|manager| manager.answers).count();
            lines.push(format!("managers:  {answer} of {} answer", managers.len()));
            for manager in managers
                .iter()
                .filter(|manager| !manager.answers || !manager.ready)
            {
                let why = if manager.answers {
                    "is not ready"
                } else {
                    &manager.problem
                };
                lines.push(format!("           {}: {}", manager.pod, human::line(why, 160)));
            }
        }
        let Agents {
            synced,
            stale,
            not_sent,
            ..
        } = self.agents;
        lines.push(format!(
            "agents:    {synced} synced, {stale} stale, {not_sent} not attached"
        ));
        let more = |count: usize| (count > NAMED).then(|| format!("           and {} more", count - NAMED));
        for laggard in self.agents.not_in_sync.iter().take(NAMED) {
            lines.push(format!("           {} {}", laggard.node, laggard.state));
        }
        lines.extend(more(self.agents.not_in_sync.len()));
        if let Some(jobs) = &self.jobs {
            lines.push(format!("jobs:      {} in progress", jobs.len()));
            for job in jobs.iter().take(NAMED) {
                lines.push(job.line());
            }
            lines.extend(more(jobs.len()));
        }
        lines.extend(self.unknown.iter().map(|text| format!("not seen:  {text}")));
        lines.join("\n") + "\n"
    }
}

impl Job {
    fn line(&self) -> String {
        let ended = self.succeeded + self.failed;
        let failed = if self.failed > 0 {
            format!(", {} failed", self.failed)
        } else {
            String::new()
        };
        format!(
            "           {}: {ended}/{} nodes done, {} active{failed}",
            self.job, self.desired, self.active
        )
    }
}
