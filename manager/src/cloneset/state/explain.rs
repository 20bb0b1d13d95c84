//! Why a set stands where it stands.

use kruise_api::ids::ObjectKey;
use kruise_planner::cloneset::plan;
use kruise_proto::clone_set::explanation;

use super::super::event::Now;
use super::super::handle::Answer;
use super::super::space::Kind;
use super::super::store::Kept;
use super::{State, snapshot};

impl State {
    /// What would be done for a set by all that is known at this moment, and why no more. It is planned anew: the last plan may be older than
    /// what came of it.
    pub(crate) fn explain(&self, key: &ObjectKey, now: Now) -> Answer {
        if !self.listed.contains(&Kind::Set) {
            return Answer::Starting;
        }
        let space = self.spaces.get(&key.namespace);
        let Some((space, set)) = space.and_then(|space| Some((space, space.sets.get(&key.name)?))) else {
            return Answer::Unknown;
        };
        let state = self.sets.get(set.uid());
        let all_listed = Kind::followed(&self.gates).all(|kind| self.listed.contains(&kind));
        let Some(state) = state.filter(|_| all_listed) else {
            return Answer::Starting;
        };
        let writes = state.holds.writes(&state.unseen, now.wall);
        let reports = self.gates.pull_gate.then(|| self.pulls.reports(set.uid(), now));
        let mut snapshot = snapshot(space, set, &self.nodes, &writes, self.gates, now);
        snapshot.pulls = reports.as_ref();
        let mut told = explanation(&snapshot, &plan(&snapshot));
        told.writing = state.running;
        told.in_place = self.downtimes.told(set.uid());
        Answer::Explained(Box::new(told))
    }
}
