//! What the status of a set says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kruise_api::clone_set::{CloneSetCondition, CloneSetStatus, conditions};

use super::action::Action;
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::pod::Readiness;

impl Facts<'_> {
    /// The full status, about the pods as they are before this plan is carried out.
    pub(super) fn status(&self, draft: &mut Draft) -> CloneSetStatus {
        let stored = self.snapshot.set.status.clone().unwrap_or_default();
        let count = |test: &dyn Fn(&Member<'_>) -> bool| {
            let pods = self.members.iter().filter(|member| test(member)).count();
            i32::try_from(pods).unwrap_or(i32::MAX)
        };
        let wanted = self.spec.wanted();
        let mut status = CloneSetStatus {
            observed_generation: self.snapshot.set.metadata.generation,
            replicas: count(&|_| true),
            ready_replicas: count(&|member| member.ready),
            available_replicas: count(&|member| member.available),
            updated_replicas: count(&|member| member.updated),
            updated_ready_replicas: count(&|member| member.updated && member.ready),
            updated_available_replicas: count(&|member| member.updated && member.available),
            expected_updated_replicas: self.expected_updated(),
            current_revision: self.revisions.current.clone(),
            update_revision: self.revisions.update.clone(),
            collision_count: Some(self.revisions.collision_count),
            conditions: Vec::new(),
            label_selector: selector_text(&self.spec.selector),
            instance_seq: self.instance_seq(draft),
            restart: draft.restart.take().or_else(|| stored.restart.clone()),
        };
        // Ready or not: what counts is that no pod comes from an older revision any more.
        if status.updated_replicas == wanted && status.replicas == wanted {
            status.current_revision.clone_from(&status.update_revision);
        }
        if status.available_replicas != status.ready_replicas {
            self.wake_for_availability(draft);
        }
        status.conditions = self.conditions(&stored, &status, draft);
        super::restart::coalesce(&stored, &mut status);
        status
    }

    /// 0 when the partition cannot be read: then no pod is updated.
    fn expected_updated(&self) -> i32 {
        i32::try_from(self.limits.replicas - self.limits.partition).unwrap_or(i32::MAX)
    }

    /// The highest number that was ever given out, for the day on which no pod and no claim remembers it.
    fn instance_seq(&self, draft: &Draft) -> Option<i64> {
        let given = draft.actions.iter().filter_map(|action| match action {
            Action::CreatePod { instance_seq, .. } => *instance_seq,
            _ => None,
        });
        let last = given.max().unwrap_or(0).max(self.last_number);
        (last > 0).then_some(last)
    }

    /// The first pod that is ready and not yet available becomes so then.
    fn wake_for_availability(&self, draft: &mut Draft) {
        let seconds = self.min_ready();
        if seconds == 0 {
            return;
        }
        let young = self
            .members
            .iter()
            .filter(|member| member.serves() && !member.available);
        let since = young.filter_map(|member| match member.view.ready {
            Readiness::Ready { since } => since,
            Readiness::Absent | Readiness::NotReady => None,
        });
        if let Some(since) = since.min() {
            let at = since.saturating_add(jiff::SignedDuration::from_secs(seconds));
            draft.wake_at(at.unwrap_or(self.now));
        }
    }

    fn conditions(
        &self,
        stored: &CloneSetStatus,
        fresh: &CloneSetStatus,
        draft: &mut Draft,
    ) -> Vec<CloneSetCondition> {
        let writes = self.snapshot.writes;
        let update_failure = draft
            .update_problem
            .clone()
            .or_else(|| writes.update_failure.clone());
        let update_reason = if draft.update_problem.is_some() {
            "InPlaceImpossible"
        } else {
            "WriteFailed"
        };
        let known = [
            conditions::FAILED_SCALE,
            conditions::FAILED_UPDATE,
            conditions::PROGRESSING,
        ];
        let others = stored
            .conditions
            .iter()
            .filter(|condition| !known.contains(&condition.kind.as_str()));
        let mut all: Vec<CloneSetCondition> = others.cloned().collect();
        let scale = writes.scale_failure.clone().map(|text| ("WriteFailed", text));
        all.extend(self.failure(stored, conditions::FAILED_SCALE, scale));
        let update = update_failure.map(|text| (update_reason, text));
        all.extend(self.failure(stored, conditions::FAILED_UPDATE, update));
        all.extend(self.progressing(stored, fresh, draft));
        all
    }

    /// A condition that is there exactly as long as the failure is.
    fn failure(
        &self,
        stored: &CloneSetStatus,
        kind: &str,
        failure: Option<(&'static str, String)>,
    ) -> Option<CloneSetCondition> {
        let (reason, message) = failure?;
        let old = find(stored, kind);
        if let Some(same) =
            old.filter(|old| old.status == "True" && old.reason == reason && old.message == message)
        {
            return Some(same.clone());
        }
        Some(self.condition(old, kind, true, reason, message))
    }

    pub(super) fn condition(
        &self,
        old: Option<&CloneSetCondition>,
        kind: &str,
        value: bool,
        reason: &str,
        message: String,
    ) -> CloneSetCondition {
        let status = if value { "True" } else { "False" };
        let since = old
            .filter(|old| old.status == status)
            .and_then(|old| old.last_transition_time.clone());
        CloneSetCondition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            last_update_time: Some(Time(whole_seconds(self.now))),
            last_transition_time: Some(since.unwrap_or(Time(whole_seconds(self.now)))),
            reason: reason.to_owned(),
            message,
        }
    }
}

/// Times in the API have whole seconds; with others the same status would be written again and again.
pub(super) fn whole_seconds(at: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(at.as_second()).unwrap_or(at)
}

pub(super) fn find<'s>(status: &'s CloneSetStatus, kind: &str) -> Option<&'s CloneSetCondition> {
    status.conditions.iter().find(|condition| condition.kind == kind)
}

/// The selector as text, requirements sorted by key, as Kubernetes writes it.
#[must_use]
pub fn selector_text(selector: &LabelSelector) -> String {
    let exact = selector.match_labels.iter().flatten();
    let mut parts: Vec<(&str, String)> = exact
        .map(|(key, value)| (key.as_str(), format!("{key}={value}")))
        .collect();
    for rule in selector.match_expressions.iter().flatten() {
        let mut values = rule.values.clone().unwrap_or_default();
        values.sort();
        let (key, values) = (&rule.key, values.join(","));
        let text = match rule.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        };
        parts.push((key, text));
    }
    parts.sort_by(|a, b| a.0.cmp(b.0));
    parts
        .into_iter()
        .map(|(_, text)| text)
        .collect::<Vec<_>>()
        .join(",")
}
