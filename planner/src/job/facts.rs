//! The job, read and sorted: which nodes it is about and where each stands.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::ids::NodeName;
use kruise_api::image_pull_job::options::PullOptions;
use kruise_api::image_pull_job::{ImagePullJobStatus, Outcomes};
use kruise_api::intstr;
use kruise_api::reference::ImageRef;

use super::outcomes::{NodeSet, round_of, stored};
use super::selection::select;
use super::snapshot::{AgentView, JobSnapshot, NodeView, TaskOutcome, TaskState};
use super::status::{self, Counters, Failure, Standing};
use super::times::{earliest, later};
use super::update_order::in_update_order;
use super::waiting::{Deferral, WaitingOn};
use crate::task::{Reason, pull_task_id};

/// What OpenKruise says of a node that does not answer.
const SILENT_TEXT: &str = "node has not responded for a long time";

/// Where one selected node stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stand {
    Succeeded,
    Failed(Option<Failure>),
    InFlight,
    Cancelling,
    Pending,
    Deferred(Deferral),
    Away,
    MayHold,
}

/// The job, read and sorted.
pub(super) struct Facts {
    pub(super) image: ImageRef,
    pub(super) round: u32,
    pub(super) parallelism: u32,
    pub(super) started: Timestamp,
    pub(super) nodes: Vec<(NodeName, Stand)>,
    pub(super) stored: (NodeSet, NodeSet),
    pub(super) deferred_since: BTreeMap<NodeName, Timestamp>,
    pub(super) options: PullOptions,
    /// When the first node becomes old enough.
    pub(super) grown_up: Option<Timestamp>,
    /// Nodes that would have got an order but for the caps of the cluster.
    pub(super) capped: usize,
}

impl Facts {
    pub(super) fn gather(snapshot: &JobSnapshot<'_>) -> Result<Self, WaitingOn> {
        let bad = |field, message: String| WaitingOn::InvalidSpec { field, message };
        let image =
            ImageRef::parse(&snapshot.spec.image).map_err(|error| bad("spec.image", error.to_string()))?;
        let parallelism = intstr::parallelism(snapshot.spec.parallelism.as_ref())
            .map_err(|error| bad("spec.parallelism", error.to_string()))?;
        let options = PullOptions::parse(snapshot.annotations)
            .map_err(|error| bad("metadata.annotations", error.to_string()))?;
        let by_pods = snapshot.spec.pod_selector.is_some();
        let selector = if by_pods {
            "spec.podSelector"
        } else {
            "spec.selector"
        };
        let pods = in_update_order(snapshot.owner, snapshot.pods);
        let selected =
            select(snapshot.spec, snapshot.nodes, &pods).map_err(|error| bad(selector, error.to_string()))?;
        let mut facts = Self {
            round: round_of(&image, snapshot.status),
            stored: stored(&image, snapshot.status),
            image,
            parallelism,
            started: snapshot
                .status
                .and_then(|status| status.start_time.as_ref())
                .map_or(snapshot.now, |time| time.0),
            nodes: Vec::with_capacity(selected.len()),
            deferred_since: BTreeMap::new(),
            options,
            grown_up: None,
            capped: 0,
        };
        for name in selected {
            let stand = facts.stand(snapshot, &name);
            facts.nodes.push((name, stand));
        }
        Ok(facts)
    }

    pub(super) fn stand(&mut self, snapshot: &JobSnapshot<'_>, name: &NodeName) -> Stand {
        let Some(node) = snapshot.nodes.get(name) else {
            return Stand::Away;
        };
        if self.stored.0.contains(&node.uid) {
            return Stand::Succeeded;
        }
        if self.stored.1.contains(&node.uid) {
            return Stand::Failed(None);
        }
        let present = pull_task_id(snapshot.uid, &node.uid, &self.image, self.round);
        match snapshot
            .tasks
            .get(name)
            .map(|task| (&task.state, task.id == present))
        {
            // Of an earlier round: the result counts for nothing, and the slot is free once the order is taken back.
            Some((TaskState::Ended(_), false)) | None => {}
            Some((TaskState::InFlight { .. } | TaskState::Cancelling, false)) => return Stand::Cancelling,
            Some((TaskState::InFlight { .. }, true)) => return Stand::InFlight,
            Some((TaskState::Cancelling, true)) => return Stand::Cancelling,
            Some((TaskState::Ended(TaskOutcome::Succeeded), true)) => return Stand::Succeeded,
            Some((TaskState::Ended(TaskOutcome::Failed { reason, message }), true)) => {
                return Stand::Failed(Some(Failure {
                    reason: *reason,
                    message: message.clone(),
                }));
            }
        }
        if self.is_present(snapshot, name, node) {
            return Stand::Succeeded;
        }
        if node.agent == AgentView::Attached {
            return self
                .deferral(snapshot, name, node)
                .map_or(Stand::Pending, Stand::Deferred);
        }
        let since = *snapshot.memory.deferred_since.get(name).unwrap_or(&snapshot.now);
        if later(since, snapshot.clocks.silent_node) <= snapshot.now {
            return Stand::Failed(Some(Failure {
                reason: Reason::NodeUnreachable,
                message: SILENT_TEXT.to_owned(),
            }));
        }
        self.deferred_since.insert(name.clone(), since);
        let reserving = snapshot
            .clocks
            .reserve_until
            .is_some_and(|until| until > snapshot.now);
        if node.agent == AgentView::MayHold && reserving {
            Stand::MayHold
        } else {
            Stand::Away
        }
    }

    /// What speaks against an order to a node whose agent is there.
    fn deferral(&mut self, snapshot: &JobSnapshot<'_>, name: &NodeName, node: &NodeView) -> Option<Deferral> {
        if let Some(trouble) = node.trouble {
            return Some(Deferral::Trouble(trouble));
        }
        if self.options.defer_cordoned && node.cordoned {
            return Some(Deferral::Cordoned);
        }
        let old_enough = self.options.min_node_age.map(|age| later(node.created, age));
        if let Some(at) = old_enough.filter(|at| *at > snapshot.now) {
            self.grown_up = earliest([self.grown_up, Some(at)]);
            return Some(Deferral::TooYoung);
        }
        let waits_for_pods = snapshot.ready_pods.is_some_and(|nodes| !nodes.contains(name));
        waits_for_pods.then_some(Deferral::PodsNotReady)
    }

    pub(super) fn count(&self) -> Counters {
        let of = |wanted: fn(&Stand) -> bool| self.nodes.iter().filter(|(_, stand)| wanted(stand)).count();
        Counters {
            desired: self.nodes.len(),
            active: of(|stand| matches!(stand, Stand::InFlight | Stand::Cancelling)),
            succeeded: of(|stand| matches!(stand, Stand::Succeeded)),
            failed: of(|stand| matches!(stand, Stand::Failed(_))),
        }
    }

    /// Nodes that are passed over for now.
    fn deferred(&self) -> usize {
        let passed_over = |stand: &Stand| matches!(stand, Stand::Deferred(_) | Stand::Away);
        self.nodes.iter().filter(|(_, stand)| passed_over(stand)).count()
    }

    pub(super) fn status(
        &self,
        snapshot: &JobSnapshot<'_>,
        previous: &ImagePullJobStatus,
        standing: Standing,
        counters: &Counters,
    ) -> ImagePullJobStatus {
        let same_round = previous
            .outcomes
            .as_ref()
            .is_some_and(|outcomes| outcomes.image == self.image.canonical());
        let (mut succeeded, mut failed) = self.stored.clone();
        let mut fresh = BTreeMap::new();
        for (name, stand) in &self.nodes {
            let Some(node) = snapshot.nodes.get(name) else {
                continue;
            };
            match stand {
                Stand::Succeeded => succeeded.insert(&node.uid),
                Stand::Failed(failure) => {
                    failed.insert(&node.uid);
                    if let Some(failure) = failure {
                        fresh.insert(name.clone(), failure.clone());
                    }
                }
                _ => {}
            }
        }
        let failures = status::summarise(if same_round { &previous.failures } else { &[] }, &fresh);
        let over = matches!(standing, Standing::Completed | Standing::DeadlineExceeded);
        let mut status = ImagePullJobStatus {
            start_time: Some(Time(self.started)),
            completion_time: over.then_some(Time(snapshot.now)),
            message: Some(status::message(standing, counters)),
            failed_nodes: status::failed_names(
                self.nodes
                    .iter()
                    .filter(|(_, stand)| matches!(stand, Stand::Failed(_)))
                    .map(|(name, _)| name),
            ),
            observed_generation: Some(snapshot.generation),
            conditions: status::job_conditions(
                &previous.conditions,
                standing,
                snapshot.generation,
                counters,
                &failures,
                snapshot.now,
            ),
            deferred: i32::try_from(self.deferred()).unwrap_or(i32::MAX),
            bytes: snapshot.bytes.filter(|bytes| bytes.total > 0),
            failures,
            outcomes: Some(Outcomes {
                next_round: self.next_round(snapshot),
                round: i32::try_from(self.round).unwrap_or(i32::MAX),
                image: self.image.canonical().to_owned(),
                succeeded: succeeded.encode(),
                failed: failed.encode(),
            }),
            ..ImagePullJobStatus::default()
        };
        status::counters_into(&mut status, counters);
        status
    }
}
