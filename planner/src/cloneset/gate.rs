//! The pull gate: a pod goes on serving until its new images are on its node. And who is passed over for the time being.

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::UpdatePolicy;

use super::candidates::Target;
use super::draft::Draft;
use super::facts::{Facts, Member};
use super::plan::PullWish;
use super::pod::LifecycleState;
use super::reason::Reason;
use super::snapshot::{PullReport, PullState};
use super::way::Way;

/// So long a report that an image is there counts. The kubelet may remove an unused image after two minutes.
const FRESH: SignedDuration = SignedDuration::from_secs(60);

/// Event of a set whose pods cannot be updated for want of an image.
const PULL_FAILED: &str = "FailedPullImage";

impl Facts<'_> {
    /// What is known of the images of a pod's next revision. None when nobody is to be waited for.
    fn pull<'s>(
        &'s self,
        member: &'s Member<'_>,
        target: Target,
    ) -> Option<(&'s [String], &'s str, Option<&'s PullState>)> {
        let reports = self.snapshot.pulls?;
        let node = member.view.node.as_deref()?;
        let Way::InPlace { images, .. } = self.way(member, target) else {
            return None;
        };
        if images.is_empty() || self.policy == UpdatePolicy::ReCreate {
            return None;
        }
        let current = |report: &&PullReport| report.revision == self.target_name(target);
        let report = reports.get(&member.view.name).filter(current);
        Some((images, node, report.map(|report| &report.state)))
    }

    /// Whether images of this pod have been asked for: it keeps its turn.
    pub(super) fn pull_has_begun(&self, member: &Member<'_>, target: Target) -> bool {
        matches!(self.pull(member, target), Some((_, _, Some(_))))
    }

    /// Whether a pod may be touched as far as its images are concerned. Asks for them otherwise.
    pub(super) fn is_gate_open(&self, member: &Member<'_>, target: Target, draft: &mut Draft) -> bool {
        let Some((images, node, state)) = self.pull(member, target) else {
            return true;
        };
        // A pod whose containers are being changed already has nothing to lose any more.
        if member.view.state == LifecycleState::Updating {
            return true;
        }
        let message = match state {
            Some(PullState::Open) => return true,
            Some(PullState::Present { at }) if self.now.duration_since(*at) <= FRESH => return true,
            Some(PullState::Pulling { message }) => message.clone(),
            Some(PullState::Present { .. }) => "is looked for again".to_owned(),
            Some(PullState::Failed { .. }) | None => "is asked for".to_owned(),
        };
        draft.pulls.push(PullWish {
            pod: member.view.name.clone(),
            node: node.to_owned(),
            revision: self.target_name(target).to_owned(),
            images: images.to_vec(),
        });
        draft.pod_waits(
            Reason::PullGate,
            &member.view.name,
            format!("{}: {message}", images.join(", ")),
        );
        false
    }

    /// Whether nothing can be done for a pod now, so that it sorts last and uses no budget.
    pub(super) fn is_deferred(&self, member: &Member<'_>, target: Target) -> bool {
        self.deferred(member, target).is_some()
    }

    fn deferred(&self, member: &Member<'_>, target: Target) -> Option<(Reason, String, Option<Timestamp>)> {
        let name = &member.view.name;
        if let Some(hold) = self
            .snapshot
            .writes
            .held
            .get(name)
            .filter(|hold| hold.until > self.now)
        {
            return Some((Reason::WriteFailed, hold.message.clone(), Some(hold.until)));
        }
        if self.policy == UpdatePolicy::InPlaceOnly
            && let Way::Impossible { why } = self.way(member, target)
        {
            return Some((Reason::InPlaceImpossible, why.clone(), None));
        }
        if let Some((images, _, Some(PullState::Failed { message, retry_at }))) = self.pull(member, target)
            && *retry_at > self.now
        {
            return Some((
                Reason::PullFailed,
                format!("{}: {message}", images.join(", ")),
                Some(*retry_at),
            ));
        }
        None
    }

    pub(super) fn explain_deferred(&self, member: &Member<'_>, target: Target, draft: &mut Draft) {
        let Some((reason, message, until)) = self.deferred(member, target) else {
            return;
        };
        if reason == Reason::InPlaceImpossible {
            let text = format!("the policy is InPlaceOnly, but not possible in place: {message}");
            draft.update_problem.get_or_insert(text);
        }
        if let Some(until) = until {
            draft.wake_at(until);
        }
        // One tells of all: the others are named with the set's reasons.
        if reason == Reason::PullFailed && !draft.events.iter().any(|event| event.reason == PULL_FAILED) {
            draft.warn(
                PULL_FAILED,
                format!("pod {} goes on as it is: {message}", member.view.name),
            );
        }
        // Upkeep has said this of a pod that it wanted to touch too.
        if reason != Reason::WriteFailed {
            draft.pod_waits(reason, &member.view.name, message);
        }
    }
}
