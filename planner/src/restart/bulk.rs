//! Restart of many pods by a run of requests: how a request went, and whose turn is next under a budget.

use std::collections::BTreeSet;

use kruise_api::container_recreate_request::{ContainerRecreateRequest, Phase};

/// How a request of a run went so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It is not over; for people.
    Runs(String),
    /// All its containers have been restarted.
    Succeeded,
    /// A container was not restarted; for people.
    Failed(String),
}

impl Came {
    /// Reads a request.
    #[must_use]
    pub fn of(request: &ContainerRecreateRequest) -> Self {
        let status = request.status.as_ref();
        let Some(status) = status.filter(|status| status.completion_time.is_some()) else {
            let states = status.map(|status| status.container_recreate_states.as_slice());
            let mut states = states.unwrap_or_default().iter();
            let waits = states.find(|state| !state.message.is_empty());
            return Self::Runs(waits.map_or_else(
                || "being restarted".to_owned(),
                |state| format!("{}: {}", state.name, state.message),
            ));
        };
        let mut states = status.container_recreate_states.iter();
        if let Some(failed) = states.find(|state| state.phase == Phase::Failed) {
            return Self::Failed(format!("{}: {}", failed.name, failed.message));
        }
        match status.message.as_ref().filter(|message| !message.is_empty()) {
            Some(message) => Self::Failed(message.clone()),
            None => Self::Succeeded,
        }
    }

    /// Whether the request is not over.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        matches!(self, Self::Runs(_))
    }
}

/// Where a pod stands in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Its turn has not come.
    Waits,
    /// Its request is not over.
    Runs,
    /// Its request is over, or it needs none.
    Over,
}

/// A pod of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Name.
    pub name: &'a str,
    /// Whether it serves, whatever the reason why not.
    pub available: bool,
    /// Where it stands.
    pub turn: Turn,
}

impl Candidate<'_> {
    const fn is_down(&self) -> bool {
        !self.available || matches!(self.turn, Turn::Runs)
    }
}

/// Pods that are down or about to be.
#[must_use]
pub fn down(pods: &[Candidate<'_>]) -> usize {
    pods.iter().filter(|pod| pod.is_down()).count()
}

/// Pods to begin with now. A pod counts as down when it does not serve or its request runs, whatever the reason; one that is down anyway goes first,
/// since its restart takes nobody away.
#[must_use]
pub fn next<'a>(pods: &[Candidate<'a>], max_unavailable: usize) -> Vec<&'a str> {
    let at_work = pods.iter().filter(|pod| pod.turn == Turn::Runs).count();
    let mut free = max_unavailable.saturating_sub(down(pods));
    let mut room = max_unavailable.saturating_sub(at_work);
    let waiting: BTreeSet<(bool, &str)> = pods
        .iter()
        .filter(|pod| pod.turn == Turn::Waits)
        .map(|pod| (pod.available, pod.name))
        .collect();
    let mut next = Vec::new();
    for (available, name) in waiting {
        let costs = usize::from(available);
        if room == 0 || free < costs {
            break;
        }
        room -= 1;
        free -= costs;
        next.push(name);
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods<'a>(all: &[(&'a str, bool, Turn)]) -> Vec<Candidate<'a>> {
        all.iter()
            .map(|(name, available, turn)| Candidate {
                name,
                available: *available,
                turn: *turn,
            })
            .collect()
    }

    #[test]
    fn never_more_down_than_may_be() {
        use Turn::{Over, Runs, Waits};
        let none: [&str; 0] = [];
        let ready = pods(&[("a", true, Waits), ("b", true, Waits), ("c", true, Waits)]);
        assert_eq!(next(&ready, 1), ["a"]);
        assert_eq!(next(&ready, 2), ["a", "b"]);
        assert_eq!(next(&ready, 0), none);
        // A request that has not stopped anything yet will.
        let begun = pods(&[("a", true, Runs), ("b", true, Waits), ("c", true, Waits)]);
        assert_eq!(next(&begun, 1), none);
        assert_eq!(next(&begun, 2), ["b"]);
        let done = pods(&[("a", true, Over), ("b", true, Waits)]);
        assert_eq!(next(&done, 1), ["b"]);
        let unready = pods(&[("a", false, Over), ("b", true, Waits)]);
        assert_eq!(next(&unready, 1), none, "restarted, not ready yet");
    }

    #[test]
    fn a_pod_that_is_down_already_goes_first_and_holds_the_others_up() {
        use Turn::Waits;
        let mixed = pods(&[("a", true, Waits), ("b", false, Waits), ("c", true, Waits)]);
        assert_eq!(next(&mixed, 1), ["b"]);
        assert_eq!(next(&mixed, 2), ["b", "a"]);
        let all_down = pods(&[("a", false, Waits), ("b", false, Waits)]);
        assert_eq!(next(&all_down, 1), ["a"], "no more at work than may be down");
    }
}
