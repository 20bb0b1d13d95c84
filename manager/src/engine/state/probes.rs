//! Questions to agents whether images are there already, and what comes of the answers.
//!
//! Nothing here is truth: a question that was lost with its stream is asked again on the next one, and an answer counts only for the plan that follows.

use jiff::Timestamp;
use kruise_api::ids::{JobUid, NodeName};
use kruise_planner::job::{JobPlan, NodeSet, Probe, ProbeAnswer};
use kruise_proto::dispatch::{self, probe_answer::Presence};

use super::super::event::{Now, SessionId, ToAgent};
use super::EngineState;

/// Most images of one question.
const MOST_IMAGES: usize = 64;

impl EngineState {
    /// Notes whom a plan wants to ask.
    pub(super) fn ask(&mut self, uid: &JobUid, plan: &JobPlan) {
        let Some(entry) = self.jobs.get_mut(uid) else {
            return;
        };
        let Some(image) = &plan.image else { return };
        let (round, of) = &entry.memory.probed;
        if *round != plan.round || of != image.canonical() {
            entry.memory.probes.clear();
            entry.memory.probed = (plan.round, image.canonical().to_owned());
        }
        for node in &plan.probe {
            let Some(agent) = self.agents.get_mut(node) else {
                continue;
            };
            let uid = agent.node_uid.clone();
            let Some(session) = &mut agent.session else {
                continue;
            };
            session.questions.insert(image.canonical().to_owned());
            self.unsynced.insert(node.clone());
            let asked = Probe {
                uid,
                answer: ProbeAnswer::Asked,
            };
            entry.memory.probes.insert(node.clone(), asked);
        }
    }

    /// Sends what a node is to be asked.
    pub(super) fn send_questions(&mut self, node: &NodeName) {
        let Some(session) = self.agents.get_mut(node).and_then(|agent| agent.session.as_mut()) else {
            return;
        };
        let id = session.id;
        let mut images: Vec<String> = std::mem::take(&mut session.questions).into_iter().collect();
        // The rest is asked when these are answered.
        session
            .questions
            .extend(images.split_off(images.len().min(MOST_IMAGES)));
        if !images.is_empty() {
            self.send(id, ToAgent::Probe(dispatch::Probe { images }));
        }
    }

    /// An agent has answered.
    pub(super) fn probed(&mut self, session: SessionId, answer: &dispatch::ProbeAnswer, now: Now) {
        let Some(node) = self.sessions.get(&session).cloned() else {
            return;
        };
        let Some(agent) = self.agents.get(&node) else {
            return;
        };
        let (node_uid, more) = (agent.node_uid.clone(), agent.session.as_ref());
        if more.is_some_and(|session| !session.questions.is_empty()) {
            self.unsynced.insert(node.clone());
        }
        let (told, word) = match answer.presence() {
            Presence::Present => (ProbeAnswer::Present(now.wall), "Present"),
            Presence::Absent => (ProbeAnswer::Absent, "Absent"),
            Presence::Unspecified => (ProbeAnswer::Absent, "Unknown"),
        };
        self.metrics.probed(word);
        let asked: Vec<JobUid> = self
            .jobs
            .iter()
            .filter(|(_, entry)| {
                let probe = entry.memory.probes.get(&node);
                let of_image = entry
                    .order
                    .as_ref()
                    .is_some_and(|order| order.image() == answer.image);
                of_image
                    && probe.is_some_and(|probe| probe.uid == node_uid && probe.answer == ProbeAnswer::Asked)
            })
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in asked {
            if let Some(probe) = self
                .jobs
                .get_mut(&uid)
                .and_then(|entry| entry.memory.probes.get_mut(&node))
            {
                probe.answer = told;
                self.dirty.insert(uid);
            }
        }
    }

    /// A stream has ended: what was asked on it is open again.
    pub(super) fn drop_questions(&mut self, node: &NodeName) {
        for entry in self.jobs.iter_mut() {
            let probes = &mut entry.memory.probes;
            if probes
                .get(node)
                .is_some_and(|probe| probe.answer == ProbeAnswer::Asked)
            {
                probes.remove(node);
            }
        }
    }

    /// Since when there is an answer that no written status contains.
    pub(super) fn unsaved_answer(&self, uid: &JobUid) -> Option<Timestamp> {
        let probes = self.jobs.get(uid)?.memory.probes.values();
        let heard = |probe: &Probe| match probe.answer {
            ProbeAnswer::Present(at) => Some(at),
            ProbeAnswer::Asked | ProbeAnswer::Absent => None,
        };
        probes.filter_map(heard).min()
    }

    /// Forgets answers that the newest status contains.
    pub(super) fn drop_stored_answers(&mut self, uid: &JobUid) {
        let Some(entry) = self
            .jobs
            .get_mut(uid)
            .filter(|entry| !entry.memory.probes.is_empty())
        else {
            return;
        };
        let status = entry.object.status.as_ref();
        let stored = status.and_then(|status| status.outcomes.as_ref());
        let Some(stored) = stored else { return };
        let (round, image) = &entry.memory.probed;
        let same = u32::try_from(stored.round) == Ok(*round) && stored.image == *image;
        let set = NodeSet::decode(&stored.succeeded);
        let is_stored = |probe: &Probe| {
            same && matches!(probe.answer, ProbeAnswer::Present(_)) && set.contains(&probe.uid)
        };
        entry.memory.probes.retain(|_, probe| !is_stored(probe));
    }
}
