//! The condition Progressing: whether a rollout gets on.

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::{CloneSetCondition, CloneSetStatus, NO_PROGRESS_DEADLINE, conditions, reasons};

use super::draft::Draft;
use super::facts::Facts;
use super::status::find;

impl Facts<'_> {
    /// The condition, unless there is no deadline.
    pub(super) fn progressing(
        &self,
        stored: &CloneSetStatus,
        fresh: &CloneSetStatus,
        draft: &mut Draft,
    ) -> Option<CloneSetCondition> {
        let deadline = self
            .spec
            .progress_deadline_seconds
            .filter(|seconds| *seconds != NO_PROGRESS_DEADLINE)?;
        let old = find(stored, conditions::PROGRESSING);
        let stand = self.stand(stored, fresh, old, i64::from(deadline.max(0)));
        let condition = match (old, stand) {
            (Some(old), stand) if old.reason == stand.reason() && stand != Stand::Progress => old.clone(),
            (old, stand) => {
                let value = stand != Stand::Exceeded;
                let message = stand.message(&self.revisions.update);
                self.condition(old, conditions::PROGRESSING, value, stand.reason(), message)
            }
        };
        if matches!(stand, Stand::Progress | Stand::Going) {
            let since = updated_at(&condition).unwrap_or(self.now);
            let due = since.saturating_add(SignedDuration::from_secs(i64::from(deadline.max(0)) + 1));
            draft.wake_at(due.unwrap_or(self.now));
        }
        Some(condition)
    }

    fn stand(
        &self,
        stored: &CloneSetStatus,
        fresh: &CloneSetStatus,
        old: Option<&CloneSetCondition>,
        deadline: i64,
    ) -> Stand {
        let wanted = self.spec.wanted();
        let all_there = [
            fresh.replicas,
            fresh.updated_replicas,
            fresh.updated_available_replicas,
        ];
        if fresh.current_revision == fresh.update_revision && all_there.iter().all(|count| *count == wanted) {
            return Stand::Available;
        }
        if self.limits.paused {
            return Stand::Paused;
        }
        let expected = fresh.expected_updated_replicas;
        if expected < wanted && expected <= fresh.updated_available_replicas {
            return Stand::PartitionReady;
        }
        let Some(old) = old else { return Stand::Progress };
        // A phase that begins has the whole deadline before it, and progress is what the deadline waits for.
        let rested = [reasons::AVAILABLE, reasons::PAUSED, reasons::PARTITION_AVAILABLE];
        if rested.contains(&old.reason.as_str()) || got_on(stored, fresh) {
            return Stand::Progress;
        }
        let late = updated_at(old)
            .is_some_and(|at| self.now.duration_since(at) > SignedDuration::from_secs(deadline));
        if old.reason == reasons::DEADLINE_EXCEEDED || late {
            return Stand::Exceeded;
        }
        Stand::Going
    }
}

fn updated_at(condition: &CloneSetCondition) -> Option<Timestamp> {
    condition.last_update_time.as_ref().map(|time| time.0)
}

fn got_on(stored: &CloneSetStatus, fresh: &CloneSetStatus) -> bool {
    stored.update_revision != fresh.update_revision
        || stored.updated_replicas != fresh.updated_replicas
        || fresh.ready_replicas > stored.ready_replicas
        || fresh.available_replicas > stored.available_replicas
        || fresh.updated_ready_replicas > stored.updated_ready_replicas
        || fresh.updated_available_replicas > stored.updated_available_replicas
}

/// How a rollout stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Available,
    Paused,
    PartitionReady,
    /// Something got better just now.
    Progress,
    /// Nothing did, and there is time left.
    Going,
    Exceeded,
}

impl Stand {
    const fn reason(self) -> &'static str {
        match self {
            Self::Available => reasons::AVAILABLE,
            Self::Paused => reasons::PAUSED,
            Self::PartitionReady => reasons::PARTITION_AVAILABLE,
            Self::Progress | Self::Going => reasons::UPDATED,
            Self::Exceeded => reasons::DEADLINE_EXCEEDED,
        }
    }

    fn message(self, revision: &str) -> String {
        match self {
            Self::Available => "CloneSet is available".to_owned(),
            Self::Paused => "CloneSet is paused".to_owned(),
            Self::PartitionReady => "CloneSet has been paused due to partition ready".to_owned(),
            Self::Progress | Self::Going => "CloneSet is progressing".to_owned(),
            Self::Exceeded => {
                format!("revision {revision} has made no progress within progressDeadlineSeconds")
            }
        }
    }
}
