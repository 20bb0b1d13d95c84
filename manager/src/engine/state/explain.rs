//! Why a job stands where it stands, for people who ask.

use kruise_api::ids::{JobUid, NodeName, ObjectKey};
use kruise_api::reference::ImageRef;
use kruise_api::{image_pull_job, intstr};
use kruise_planner::job;
use kruise_proto::convert::to_duration;
use kruise_proto::inspect;

use super::super::event::Now;
use super::EngineState;
use super::jobs::JobEntry;
use super::orders;

/// Most nodes that are named.
const MOST_NODES: usize = 100;

impl EngineState {
    /// What the last plan of a job came to and why, node by node. None when there is no such job.
    pub(crate) fn explain(
        &self,
        key: &ObjectKey,
        node: Option<&NodeName>,
        now: Now,
    ) -> Option<inspect::ExplainJobResponse> {
        let uid = self.jobs.uid(key)?;
        let entry = self.jobs.get(uid)?;
        let standings = self.with_snapshot(uid, now, job::explain)?;
        let wanted = |standing: &job::NodeStanding| match node {
            Some(node) => standing.node == *node,
            None => !standing.ended,
        };
        let (named, left_out): (Vec<_>, Vec<_>) = standings
            .into_iter()
            .filter(wanted)
            .enumerate()
            .partition(|(number, _)| *number < MOST_NODES);
        let nodes = named.into_iter().map(|(_, standing)| inspect::NodeStanding {
            node_name: standing.node.to_string(),
            state: standing.state.to_owned(),
            message: standing.message,
            place: small(standing.place),
        });
        let complete = entry.object.is_complete();
        Some(inspect::ExplainJobResponse {
            job: Some(self.summary(uid, entry)),
            waiting: if complete { Vec::new() } else { reasons(entry) },
            settings: Some(self.settings(uid, entry, now)),
            nodes: nodes.collect(),
            nodes_left_out: small(left_out.len()),
            failures: failures(entry),
            next_look_in: entry
                .wake
                .filter(|_| !complete)
                .and_then(|at| std::time::Duration::try_from(at.duration_since(now.wall)).ok())
                .map(to_duration),
        })
    }

    fn settings(&self, uid: &JobUid, entry: &JobEntry, now: Now) -> inspect::Settings {
        let object = &entry.object;
        let spec = &object.spec;
        let image = ImageRef::parse(&spec.image).ok();
        let round = image
            .as_ref()
            .map_or(1, |image| job::round_of(image, object.status.as_ref()));
        let options = image_pull_job::options::PullOptions::parse(&object.annotations).unwrap_or_default();
        let deadline = self.jobs.get(uid).and_then(|entry| entry.deadline);
        inspect::Settings {
            image: image.map_or_else(|| spec.image.clone(), |image| image.canonical().to_owned()),
            parallelism: intstr::parallelism(spec.parallelism.as_ref()).unwrap_or(0),
            always_pull: spec.always_pulls(),
            attempt_timeout: Some(to_duration(std::time::Duration::from_secs(
                spec.pull_policy.timeout().into(),
            ))),
            backoff_limit: spec.pull_policy.retries(),
            deadline_left: deadline.map(|at| to_duration(at.saturating_sub(now.mono))),
            priority: orders::priority_of(object, &options),
            round,
        }
    }
}

fn reasons(entry: &JobEntry) -> Vec<inspect::WaitingReason> {
    entry
        .waiting
        .iter()
        .map(|waiting| inspect::WaitingReason {
            reason: waiting.word.to_owned(),
            message: waiting.text.clone(),
            nodes: small(waiting.nodes),
        })
        .collect()
}

fn failures(entry: &JobEntry) -> Vec<inspect::FailureCount> {
    let status = entry.object.status.iter();
    status
        .flat_map(|status| &status.failures)
        .map(|failure| inspect::FailureCount {
            reason: failure.reason.clone(),
            nodes: u32::try_from(failure.count).unwrap_or(0),
            example_node: failure.node.clone(),
            example_message: failure.message.clone(),
        })
        .collect()
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
