//! The sliding window: who gets a free slot, who has to give one back, and why the others wait.

use std::collections::BTreeMap;
use std::time::Duration;

use kruise_api::ids::NodeName;

use super::facts::{Facts, Stand};
use super::plan::in_flight;
use super::snapshot::{AgentView, JobSnapshot, NodeView, TaskState};
use super::status::{Counters, Failure};
use super::times::until;
use super::waiting::{Deferral, WaitingOn};
use crate::task::Reason;

/// Nodes without an agent that are named one by one.
const AWAY_NAMED: usize = 5;

impl Facts {
    /// Orders of nodes that are selected no longer, and of rounds that are over.
    pub(super) fn superseded(&self, snapshot: &JobSnapshot<'_>) -> Vec<(NodeName, &'static str)> {
        let present: BTreeMap<&NodeName, &Stand> =
            self.nodes.iter().map(|(name, stand)| (name, stand)).collect();
        in_flight(snapshot)
            .filter_map(|node| match present.get(node) {
                None => Some((node.clone(), "node left the selection")),
                Some(Stand::InFlight) => None,
                Some(_) => Some((node.clone(), "superseded")),
            })
            .collect()
    }

    /// The deadline has passed: whatever has not ended has failed.
    pub(super) fn fail_the_rest(&mut self) -> Vec<(NodeName, &'static str)> {
        let mut cancel = Vec::new();
        for (name, stand) in &mut self.nodes {
            if matches!(stand, Stand::Succeeded | Stand::Failed(_)) {
                continue;
            }
            if *stand == Stand::InFlight {
                cancel.push((name.clone(), "job exceeds activeDeadlineSeconds"));
            }
            *stand = Stand::Failed(Some(Failure {
                reason: Reason::DeadlineExceeded,
                message: "job exceeds activeDeadlineSeconds".to_owned(),
            }));
        }
        cancel
    }

    /// Agents that a new leader waits for before it hands out anything. Each may hold an order of this job, also on a node that is not selected any
    /// more; once all have attached, or the grace is over, only selected nodes keep slots.
    pub(super) fn awaited(snapshot: &JobSnapshot<'_>) -> usize {
        let grace = snapshot.clocks.grace_until;
        if grace.is_none_or(|until| until <= snapshot.now) {
            return 0;
        }
        let may_hold = |node: &&NodeView| node.agent == AgentView::MayHold;
        snapshot.nodes.values().filter(may_hold).count()
    }

    /// Hands out the free slots in order. A slot is taken by an order in flight or being taken back, whatever node it is on, and kept for
    /// each agent that may still hold an order of an earlier leader.
    pub(super) fn fill(&mut self, snapshot: &JobSnapshot<'_>) -> Vec<NodeName> {
        let may_hold = self
            .nodes
            .iter()
            .filter(|(_, stand)| *stand == Stand::MayHold)
            .count();
        if Self::awaited(snapshot) > 0 {
            return Vec::new();
        }
        let held = snapshot
            .tasks
            .values()
            .filter(|task| matches!(task.state, TaskState::InFlight { .. } | TaskState::Cancelling))
            .count();
        let window = (self.parallelism as usize).saturating_sub(held + may_hold);
        let free = window.min(snapshot.room.as_ref().map_or(usize::MAX, |room| room.orders));
        let mut assign = Vec::new();
        // Where somebody waits comes first. A node that has as much to do as it runs at once comes after the others: there an order would only wait.
        for (urgent, busy) in [(true, false), (true, true), (false, false), (false, true)] {
            if urgent && snapshot.memory.urgent.is_empty() {
                continue;
            }
            for (name, stand) in &mut self.nodes {
                if assign.len() == free {
                    break;
                }
                let is_busy = snapshot.nodes.get(name).is_some_and(|node| node.busy);
                let is_urgent = snapshot.memory.urgent.contains(name);
                if *stand == Stand::Pending && is_busy == busy && is_urgent == urgent {
                    *stand = Stand::InFlight;
                    assign.push(name.clone());
                }
            }
        }
        let pending = self.nodes.iter().filter(|(_, stand)| *stand == Stand::Pending);
        self.capped = pending.count().min(window - free);
        assign
    }

    /// Urgent nodes that will get a slot of this window, and have none yet. A paused job holds up nobody.
    pub(super) fn urgent_pending(&self, snapshot: &JobSnapshot<'_>) -> Vec<NodeName> {
        if self.parallelism == 0 || snapshot.memory.urgent.is_empty() {
            return Vec::new();
        }
        let urgent = self.nodes.iter().filter(|(name, stand)| {
            snapshot.memory.urgent.contains(name) && matches!(stand, Stand::Pending | Stand::MayHold)
        });
        urgent.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn waiting(&self, snapshot: &JobSnapshot<'_>, counters: &Counters) -> Vec<WaitingOn> {
        let mut waiting = Vec::new();
        let of = |wanted: Stand| self.nodes.iter().filter(|(_, stand)| *stand == wanted).count();
        let pending = of(Stand::Pending);
        let may_hold = of(Stand::MayHold);
        let awaited = Self::awaited(snapshot);
        let kept = match snapshot.clocks.reserve_until {
            Some(then) if may_hold > 0 => Some((may_hold, then)),
            _ => snapshot
                .clocks
                .grace_until
                .filter(|_| awaited > 0 && pending > 0)
                .map(|then| (awaited, then)),
        };
        if self.parallelism == 0 {
            waiting.push(WaitingOn::Paused);
        } else if let Some((agents, until_then)) = kept {
            let left = until(snapshot.now, until_then);
            waiting.push(WaitingOn::Reserved { agents, left });
        } else if self.capped > 0 {
            waiting.push(WaitingOn::Capped {
                cap: snapshot
                    .room
                    .as_ref()
                    .map(|room| room.cap.clone())
                    .unwrap_or_default(),
                nodes: self.capped,
            });
        } else if pending > 0 {
            let in_flight = counters.active;
            waiting.push(WaitingOn::WindowFull {
                in_flight,
                parallelism: self.parallelism,
                pending,
            });
        }
        waiting.extend(self.deferrals());
        let away = self.nodes.iter().filter(|(_, stand)| *stand == Stand::Away);
        for (name, _) in away.clone().take(AWAY_NAMED) {
            let since = self
                .deferred_since
                .get(name)
                .map_or(Duration::ZERO, |since| until(*since, snapshot.now));
            waiting.push(WaitingOn::AgentAway {
                node: name.clone(),
                since,
            });
        }
        let more = away.count().saturating_sub(AWAY_NAMED);
        if more > 0 {
            waiting.push(WaitingOn::MoreAway { nodes: more });
        }
        if counters.desired == 0 {
            waiting.push(if snapshot.young_nodes {
                WaitingOn::YoungNodes
            } else {
                WaitingOn::NoNodes
            });
        }
        let next = self
            .next_round(snapshot)
            .filter(|_| counters.ended() == counters.desired);
        if let Some(next) = next.filter(|_| counters.desired > 0) {
            waiting.push(WaitingOn::NextRound {
                left: until(snapshot.now, next.0),
            });
        }
        waiting
    }

    /// Nodes that are passed over although their agent is there, by why.
    fn deferrals(&self) -> Vec<WaitingOn> {
        let mut by_reason: BTreeMap<Deferral, (NodeName, usize)> = BTreeMap::new();
        for (name, stand) in &self.nodes {
            if let Stand::Deferred(why) = stand {
                by_reason.entry(*why).or_insert_with(|| (name.clone(), 0)).1 += 1;
            }
        }
        let waiting = |(why, (node, nodes))| WaitingOn::Deferred { why, node, nodes };
        by_reason.into_iter().map(waiting).collect()
    }
}
