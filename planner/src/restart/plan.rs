//! The leader's plan for all requests of one pod.
//!
//! It answers, for each request: what its agent shall hold, which one write is next, what is told in events, and what it waits for. The same
//! snapshot gives the same plan; nothing of a request changes after its completionTime.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kruise_api::container_recreate_request::conversion::grace_condition;
use kruise_api::container_recreate_request::{
    ContainerRecreateRequest, ContainerRecreateRequestStatus, Phase, admission, keys,
};

use super::lock::{self, Holder};
use super::notes::{notes, waits_on};
use super::order::{Turn, admit, order};
use super::outcome::{EventNote, Intent, OrderPlan, PodPlan, RequestPlan, Write, texts};
use super::view::{AgentView, PodSnapshot, RequestView};
use super::{RESPONSE_TIMEOUT, queue, states};

/// After the drain, for the kubelet's and the proxies' slack.
const DRAIN_SLACK: Duration = Duration::from_millis(100);
/// A watch may lag behind what a request was made about; until then nothing is concluded from what is missing.
const LAG: Duration = Duration::from_secs(2);
/// Least time between two status writes that only tell how far the containers are. A request that the leader had to complete itself has cost one
/// write already, so its beginning is told after this time as well; and so is what a new leader finds.
const PROGRESS: Duration = Duration::from_secs(10);

/// Plans all requests of one pod.
#[must_use]
pub fn plan(snapshot: &PodSnapshot<'_>) -> PodPlan {
    let mut planner = Planner {
        snapshot,
        wake: BTreeSet::new(),
    };
    let line = queue::line(snapshot.requests);
    let mut requests = BTreeMap::new();
    let mut has_head = false;
    for request in line {
        let is_head = !has_head;
        let plan = planner.unfinished(request, is_head);
        // One that ends in this very step lets the next one begin in it.
        has_head |= !ends(&plan);
        requests.insert(request.uid().to_owned(), plan);
    }
    for request in snapshot.requests {
        if !requests.contains_key(request.uid()) {
            requests.insert(request.uid().to_owned(), planner.finished(request));
        }
    }
    PodPlan {
        requests,
        wake: planner.wake.first().copied(),
    }
}

fn ends(plan: &RequestPlan) -> bool {
    matches!(&plan.write, Some(Write::Status(status)) if status.completion_time.is_some())
}

struct Planner<'a> {
    snapshot: &'a PodSnapshot<'a>,
    wake: BTreeSet<Timestamp>,
}

impl<'a> Planner<'a> {
    fn now(&self) -> Timestamp {
        self.snapshot.now
    }

    /// Whether a moment has come; if not, it is looked at again then.
    fn is_due(&mut self, at: Timestamp) -> bool {
        if at <= self.now() {
            return true;
        }
        self.wake.insert(at);
        false
    }

    /// The pod that the request is about, if it is the one that has the name now.
    fn pod_of(&self, request: &RequestView<'_>) -> Option<&'a Pod> {
        let uid = request.label(keys::POD_UID);
        self.snapshot
            .pod
            .filter(|pod| uid.is_none_or(|uid| pod.metadata.uid.as_deref() == Some(uid)))
    }

    /// A request that has ended or is being deleted: the lock, the labels, its deletion.
    fn finished(&mut self, request: &RequestView<'_>) -> RequestPlan {
        let mut plan = RequestPlan::default();
        let active = request.label(keys::ACTIVE).is_some();
        if request.has_finalizer() {
            let holder = Holder::request(request.key());
            let held = self
                .pod_of(request)
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .filter(|pod| lock::has_gate(pod) && lock::holders(pod).contains(&holder));
            plan.write = Some(match held {
                Some(_) => Write::Unlock(holder),
                None => Write::Clean {
                    report: request.facts.is_some() && !request.is_deleting(),
                },
            });
        } else if request.is_deleting() {
            // The API server takes it away.
        } else if active {
            plan.write = Some(Write::Clean {
                report: request.facts.is_some(),
            });
        } else if let Some(ttl) = request.object.spec.ttl_seconds_after_finished {
            let ended = request.completed().unwrap_or_else(|| self.now());
            let at = later(ended, Duration::from_secs(u64::try_from(ttl).unwrap_or(0)));
            if self.is_due(at) {
                plan.write = Some(Write::Delete);
            }
        }
        plan
    }

    fn unfinished(&mut self, request: &RequestView<'_>, is_head: bool) -> RequestPlan {
        let Some(pod) = self.pod_of(request) else {
            return self.without_pod(request);
        };
        if request.is_admitted() && pod.metadata.deletion_timestamp.is_some() {
            return self.complete(request, Some(texts::POD_GONE), texts::POD_GONE);
        }
        let object = match self.admitted(request, pod) {
            Ok(object) => object,
            Err(denied) => {
                if request.facts.is_some() || self.is_due(later(request.created(), LAG)) {
                    return self.complete(request, Some(&denied), &denied);
                }
                return held(denied);
            }
        };
        let turn = Turn {
            request,
            object: &object,
            pod,
        };
        let mut plan = self.admitted_plan(&turn, is_head);
        // What a webhook would have filled in is stored beside the work, which does not wait for it.
        if !request.is_admitted() {
            if !ends(&plan) {
                plan.write = Some(admit(request.object, &object));
            }
            plan.admitted = Some(Box::new(object.into_owned()));
        }
        plan
    }

    /// A watch may not have seen yet what a request was made about: a pod is given up only after a while.
    fn without_pod(&mut self, request: &RequestView<'_>) -> RequestPlan {
        if request.facts.is_none() && !self.is_due(later(request.created(), LAG)) {
            return held("waits for its pod to be seen".to_owned());
        }
        if request.is_admitted() {
            return self.complete(request, Some(texts::POD_GONE), texts::POD_GONE);
        }
        let text = format!("no found Pod named {}", request.object.spec.pod_name);
        self.complete(request, Some(&text), &text)
    }

    /// The request with all that a webhook fills in.
    fn admitted<'b>(
        &self,
        request: &RequestView<'b>,
        pod: &Pod,
    ) -> Result<Cow<'b, ContainerRecreateRequest>, String> {
        if request.is_admitted() {
            return restored(request);
        }
        if let Some(admitted) = &request.memory.admitted {
            return Ok(Cow::Borrowed(admitted));
        }
        let subject = admission::Subject {
            pod: Some(pod),
            node_exists: self.snapshot.agent != AgentView::NoNode,
            virtual_node: self.snapshot.virtual_node,
        };
        admission::create(request.object, &subject)
            .map(Cow::Owned)
            .map_err(|denied| denied.message)
    }

    fn admitted_plan(&mut self, turn: &Turn<'_>, is_head: bool) -> RequestPlan {
        let request = turn.request;
        if let Some(seconds) = request.object.spec.active_deadline_seconds {
            let at = later(
                request.created(),
                Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            );
            if self.is_due(at) {
                return self.complete(request, Some(texts::DEADLINE), texts::DEADLINE);
            }
        }
        if !is_head {
            return queued(request);
        }
        let order = match order(turn) {
            Ok(order) => order,
            Err(text) => return self.complete(request, Some(&text), &text),
        };
        if self.snapshot.agent == AgentView::NoNode {
            let text = format!("failed to get Node {}: not found", order.node);
            return self.complete(request, Some(&text), &text);
        }
        let head_since = request.memory.head_since.unwrap_or(self.now());
        let mut plan = self.turn(turn, order, head_since);
        plan.head_since = Some(head_since);
        plan
    }

    /// It is this request's turn.
    fn turn(&mut self, turn: &Turn<'_>, order: OrderPlan, head_since: Timestamp) -> RequestPlan {
        let request = turn.request;
        if request.facts.is_none() {
            let since = head_since.max(request.created());
            let started = request.status().is_some_and(|status| {
                status
                    .container_recreate_states
                    .iter()
                    .any(|state| state.is_killed || state.phase.is_final())
            });
            if !started && self.is_due(later(since, RESPONSE_TIMEOUT + self.drain_time(turn))) {
                return self.complete(request, Some(texts::NO_ANSWER), texts::NO_ANSWER);
            }
        }
        if let Some(plan) = self.drain(turn) {
            return plan;
        }
        self.work(turn, order)
    }

    /// How long the drain takes: nobody answers for the request meanwhile.
    fn drain_time(&self, turn: &Turn<'_>) -> Duration {
        let seconds = turn.object.spec.strategy().unready_grace_period_seconds;
        Duration::from_secs(
            seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .unwrap_or(0),
        )
    }

    /// The pod is taken out of service first, if that is wanted. None once it is out for long enough.
    fn drain(&mut self, turn: &Turn<'_>) -> Option<RequestPlan> {
        let request = turn.request;
        turn.object.spec.strategy().unready_grace_period_seconds?;
        let gated = lock::has_gate(turn.pod);
        if let Some(grace) = request
            .status()
            .and_then(ContainerRecreateRequestStatus::drained_since)
        {
            let until = later(grace.last_transition_time.0, self.drain_time(turn) + DRAIN_SLACK);
            if !gated || request.facts.is_some() || self.is_due(until) {
                return None;
            }
            return Some(held("waits for the end of unreadyGracePeriodSeconds".to_owned()));
        }
        let mut plan = held("takes the pod out of service".to_owned());
        let holder = Holder::request(request.key());
        plan.write = Some(if gated && !request.has_finalizer() {
            Write::AddFinalizer
        } else if gated && !lock::is_held_by(turn.pod, &holder) {
            Write::Lock(holder)
        } else {
            let mut status = self.recreating(turn);
            status.conditions.push(grace_condition(self.now()));
            Write::Status(Box::new(status))
        });
        if !gated {
            plan.events.push(EventNote {
                container: None,
                reason: "NoReadinessGate",
                warning: true,
                message: format!(
                    "the pod has no readiness gate {}, so it stays in service: unreadyGracePeriodSeconds is not waited for",
                    keys::POD_READY
                ),
            });
        }
        Some(plan)
    }

    /// The agent works, or is to begin.
    fn work(&mut self, turn: &Turn<'_>, mut order: OrderPlan) -> RequestPlan {
        let request = turn.request;
        if let Some(refused) = request
            .facts
            .map(|facts| &facts.refused)
            .filter(|text| !text.is_empty())
        {
            return self.complete(request, Some(refused), refused);
        }
        let status = self.recreating(turn);
        let strategy = turn.object.spec.strategy();
        let failed = status
            .container_recreate_states
            .iter()
            .find(|state| state.phase == Phase::Failed);
        if let Some(failed) = failed.filter(|_| strategy.fails_fast()) {
            let text = format!("not executed: container {} failed", failed.name);
            return self.complete(request, None, &text);
        }
        if status
            .container_recreate_states
            .iter()
            .all(|state| state.phase.is_final())
        {
            return self.complete(request, None, "");
        }
        order.released = states::released(
            &status.container_recreate_states,
            strategy.ordered_recreate,
            strategy.fails_fast(),
        );
        RequestPlan {
            write: self.progress(request, &status),
            events: notes(request),
            waiting: waits_on(&status.container_recreate_states, self.snapshot.agent, request),
            intent: Intent::Order(order),
            ..RequestPlan::default()
        }
    }

    /// The status of a request that runs.
    fn recreating(&self, turn: &Turn<'_>) -> ContainerRecreateRequestStatus {
        let request = turn.request;
        let stored = request
            .status()
            .cloned()
            .unwrap_or_else(|| ContainerRecreateRequestStatus::new(Phase::Recreating));
        let containers = &request.object.spec.containers;
        ContainerRecreateRequestStatus {
            phase: Phase::Recreating,
            container_recreate_states: states::derive(
                containers,
                &stored.container_recreate_states,
                request.facts,
                Some(turn.pod),
            ),
            container_status_snapshot: states::snapshot(
                containers,
                &stored.container_status_snapshot,
                request.facts,
                Some(turn.pod),
            ),
            ..stored
        }
    }

    /// The write of a request that goes on: its beginning at once, the rest now and then.
    fn progress(
        &mut self,
        request: &RequestView<'_>,
        status: &ContainerRecreateRequestStatus,
    ) -> Option<Write> {
        let stored = request.status();
        if stored == Some(status) {
            return None;
        }
        let begun = stored.is_some_and(|stored| stored.phase == Phase::Recreating);
        let failed_anew = status.container_recreate_states.iter().any(|state| {
            state.phase == Phase::Failed
                && !stored.is_some_and(|stored| stored.container_recreate_states.contains(state))
        });
        let due = match request.memory.last_write {
            _ if failed_anew => self.now(),
            last if begun => {
                let since = last.or(request.memory.head_since);
                later(since.unwrap_or(self.now()), PROGRESS)
            }
            _ if request.annotation(keys::ADMITTED).is_some() || !request.is_admitted() => {
                later(request.created(), PROGRESS)
            }
            _ => self.now(),
        };
        self.is_due(due).then(|| Write::Status(Box::new(status.clone())))
    }

    /// Ends a request: what has not ended fails with `text`.
    fn complete(&self, request: &RequestView<'_>, message: Option<&str>, text: &str) -> RequestPlan {
        let stored = request
            .status()
            .cloned()
            .unwrap_or_else(|| ContainerRecreateRequestStatus::new(Phase::Completed));
        let containers = &request.object.spec.containers;
        let pod = self.pod_of(request);
        let mut ended = states::derive(containers, &stored.container_recreate_states, request.facts, pod);
        states::finish(&mut ended, text);
        let status = ContainerRecreateRequestStatus {
            phase: Phase::Completed,
            completion_time: Some(Time(self.now())),
            message: message.map(str::to_owned),
            container_recreate_states: ended,
            container_status_snapshot: states::snapshot(
                containers,
                &stored.container_status_snapshot,
                request.facts,
                pod,
            ),
            conditions: stored.conditions,
        };
        // The agent keeps its task until the end is stored, and begins nothing new from now on.
        RequestPlan {
            intent: Intent::Freeze,
            write: Some(Write::Status(Box::new(status))),
            events: notes(request),
            head_since: request.memory.head_since,
            waiting: "its end is being stored".to_owned(),
            ..RequestPlan::default()
        }
    }
}

/// A request that a leader has admitted has its instances in an annotation.
fn restored<'b>(request: &RequestView<'b>) -> Result<Cow<'b, ContainerRecreateRequest>, String> {
    let containers = &request.object.spec.containers;
    if containers
        .iter()
        .all(|container| container.status_context.is_some())
    {
        return Ok(Cow::Borrowed(request.object));
    }
    let known: Vec<admission::Admitted> = request
        .annotation(keys::ADMITTED)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut object = request.object.clone();
    for container in &mut object.spec.containers {
        if container.status_context.is_none() {
            let found = known.iter().find(|admitted| admitted.name == container.name);
            let missing = || format!("{}: no containerID of {}", texts::NO_RUNTIME, container.name);
            container.status_context = Some(found.ok_or_else(missing)?.context.clone());
        }
    }
    Ok(Cow::Owned(object))
}

fn held(waiting: String) -> RequestPlan {
    RequestPlan {
        intent: Intent::Freeze,
        waiting,
        ..RequestPlan::default()
    }
}

/// A request that waits for others of its pod.
fn queued(request: &RequestView<'_>) -> RequestPlan {
    let mut plan = held("waits for an earlier request of the pod".to_owned());
    if request.status().is_none() {
        let status = ContainerRecreateRequestStatus::new(Phase::Pending);
        plan.write = Some(Write::Status(Box::new(status)));
    }
    plan
}

fn later(at: Timestamp, span: Duration) -> Timestamp {
    jiff::SignedDuration::try_from(span)
        .ok()
        .and_then(|span| at.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}
