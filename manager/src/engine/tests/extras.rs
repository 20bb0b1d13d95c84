//! More of what tests do with the small cluster: questions, caps, pods.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kruise_api::ids::Epoch;
use kruise_planner::job::{Caps, PodPhase, PodView};
use kruise_proto::dispatch::{ProbeAnswer, probe_answer::Presence};

use super::world::{World, config};
use crate::engine::config::EngineConfig;
use crate::engine::event::Event;
use crate::engine::state::EngineState;

impl World {
    /// A node answers the question that it was asked.
    pub(super) fn answer(&mut self, node: &str, present: bool) {
        let image = self.told(node).probes.last().expect("was asked").clone();
        let mut answer = ProbeAnswer {
            image,
            ..ProbeAnswer::default()
        };
        answer.set_presence(if present {
            Presence::Present
        } else {
            Presence::Absent
        });
        let session = self.session(node);
        self.event(Event::Probed { session, answer });
    }

    /// From now on no more than so many pulls at once.
    pub(super) fn cap(&mut self, total: u32) {
        let config = EngineConfig {
            caps: Caps {
                total: Some(total),
                per_registry: None,
            },
            ..config()
        };
        self.state = EngineState::new(config, Epoch(7), self.now, Default::default());
        self.list();
        self.event(Event::AgentNodes(BTreeSet::new()));
    }
}

/// A pod that runs and is Ready.
pub(super) fn pod(name: &str, node: &str) -> PodView {
    PodView {
        name: name.to_owned(),
        node: node.into(),
        phase: PodPhase::Running,
        ready: true,
        ready_since: None,
        deletion_cost: 0,
        restarts: 0,
        created: Timestamp::UNIX_EPOCH,
    }
}
