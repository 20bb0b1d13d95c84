//! A plan while it is being made.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kruise_api::clone_set::RestartStatus;

use super::action::Action;
use super::plan::{PlanEvent, PullWish};
use super::reason::{Reason, Waiting};

/// A plan while it is being made.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) actions: Vec<Action>,
    pub(super) events: Vec<PlanEvent>,
    pub(super) pulls: Vec<PullWish>,
    /// How far the restart of all pods is, where that was looked at.
    pub(super) restart: Option<RestartStatus>,
    /// Why the update step failed, as far as it is decided here.
    pub(super) update_problem: Option<String>,
    /// Upkeep of pods by name, as indices of the actions.
    upkeep: BTreeMap<String, usize>,
    superseded: BTreeSet<usize>,
    waiting: BTreeMap<(Reason, String), Vec<String>>,
    wake: Option<Timestamp>,
}

impl Draft {
    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Upkeep of a pod, which its update may make needless.
    pub(super) fn keep_up(&mut self, pod: &str, action: Action) {
        self.upkeep.insert(pod.to_owned(), self.actions.len());
        self.actions.push(action);
    }

    /// The update of a pod: one write per pod and pass, since the second would be refused for the version that the first has made.
    pub(super) fn update(&mut self, pod: &str, action: Action) {
        self.superseded.extend(self.upkeep.get(pod));
        self.actions.push(action);
    }

    /// What is to be done, first things first.
    pub(super) fn actions(&mut self) -> Vec<Action> {
        let superseded = std::mem::take(&mut self.superseded);
        let mut index = 0;
        self.actions.retain(|_| {
            index += 1;
            !superseded.contains(&(index - 1))
        });
        std::mem::take(&mut self.actions)
    }

    /// The set waits.
    pub(super) fn wait(&mut self, reason: Reason, message: impl Into<String>) {
        self.waiting.entry((reason, message.into())).or_default();
    }

    /// A pod waits. Pods with the same reason and message are shown together.
    pub(super) fn pod_waits(&mut self, reason: Reason, pod: &str, message: impl Into<String>) {
        self.waiting
            .entry((reason, message.into()))
            .or_default()
            .push(pod.to_owned());
    }

    /// Pods wait, if there are any.
    pub(super) fn pods_wait(&mut self, reason: Reason, pods: impl Iterator<Item = String>, message: String) {
        let mut pods = pods.peekable();
        if pods.peek().is_some() {
            self.waiting.entry((reason, message)).or_default().extend(pods);
        }
    }

    /// Plan again then, if not before.
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    pub(super) fn wake_in(&mut self, now: Timestamp, seconds: i64) {
        self.wake_at(
            now.saturating_add(SignedDuration::from_secs(seconds))
                .unwrap_or(now),
        );
    }

    pub(super) fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push(PlanEvent {
            warning: true,
            reason,
            message,
        });
    }

    pub(super) fn tell(&mut self, reason: &'static str, message: String) {
        self.events.push(PlanEvent {
            warning: false,
            reason,
            message,
        });
    }

    pub(super) fn waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|((reason, message), pods)| Waiting {
                reason,
                pods,
                message,
            })
            .collect()
    }

    /// Never in the past, which would spin.
    pub(super) fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        let soonest = now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(now);
        self.wake.map(|wake| wake.max(soonest))
    }
}
