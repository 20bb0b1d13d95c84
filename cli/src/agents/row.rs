//! One agent, as a line and as a document.

use std::time::Duration;

use kruise_proto::task::{DiskSpace, Runtime};
use kruise_proto::{inspect, node};
use serde::Serialize;

use crate::human;
use crate::output::{self, Row, cell};
use crate::tasks::seconds;

/// Contact of an agent that has no manager.
const STANDALONE: &str = "None (standalone)";

/// An agent as the manager sees it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentRow {
    node: String,
    node_uid: String,
    state: String,
    desired_generation: u64,
    acknowledged_generation: u64,
    version: String,
    runtime: String,
    runtime_socket: String,
    /// None where the agent cannot read it.
    bytes_free: Option<u64>,
    bytes_used_by_images: u64,
    tasks: u32,
    last_seen_seconds_ago: Option<f64>,
    attached_since: Option<String>,
    boot_id: String,
    peer: String,
}

impl From<inspect::Agent> for AgentRow {
    fn from(agent: inspect::Agent) -> Self {
        let state = state(agent.sync_state()).to_owned();
        let disk = agent.disk.unwrap_or_default();
        let since = agent
            .attached_since
            .and_then(|at| jiff::Timestamp::new(at.seconds, at.nanos).ok());
        Self {
            state,
            node: agent.node_name,
            node_uid: agent.node_uid,
            desired_generation: agent.desired_generation,
            acknowledged_generation: agent.acknowledged_generation,
            version: agent.version,
            runtime: runtime(agent.runtime.as_ref()),
            runtime_socket: agent.runtime.map(|runtime| runtime.socket).unwrap_or_default(),
            bytes_free: free(&disk),
            bytes_used_by_images: disk.bytes_used_by_images,
            tasks: agent.tasks,
            last_seen_seconds_ago: seconds(agent.last_seen_ago.as_ref()).map(|ago| ago.as_secs_f64()),
            attached_since: since.map(|at| at.to_string()),
            boot_id: agent.boot_id,
            peer: agent.peer,
        }
    }
}

/// A state in the words that people see.
pub(crate) fn state(state: inspect::SyncState) -> &'static str {
    match state {
        inspect::SyncState::Synced => "Synced",
        inspect::SyncState::Stale => "Stale",
        inspect::SyncState::NotSent => "NotSent",
        inspect::SyncState::Unspecified => "Unknown",
    }
}

fn runtime(runtime: Option<&Runtime>) -> String {
    runtime
        .map(|runtime| format!("{} {}", runtime.name, runtime.version).trim().to_owned())
        .unwrap_or_default()
}

impl Row for AgentRow {
    const HEADS: (&'static [&'static str], &'static [&'static str]) = (
        &[
            "NODE",
            "STATE",
            "GENERATION",
            "TASKS",
            "RUNTIME",
            "VERSION",
            "SEEN",
        ],
        &["FREE", "IMAGES", "ATTACHED-SINCE", "PEER", "SOCKET", "BOOT-ID"],
    );

    fn cells(&self) -> Vec<String> {
        let seen = self
            .last_seen_seconds_ago
            .map(|ago| human::duration(Duration::from_secs_f64(ago)) + " ago");
        vec![
            self.node.clone(),
            self.state.clone(),
            format!("{}/{}", self.acknowledged_generation, self.desired_generation),
            self.tasks.to_string(),
            cell(self.runtime.as_str()),
            cell(self.version.as_str()),
            seen.unwrap_or_else(|| "never".to_owned()),
        ]
    }

    fn wide(&self) -> Vec<String> {
        vec![
            free_text(self.bytes_free),
            human::bytes(self.bytes_used_by_images),
            cell(self.attached_since.clone().unwrap_or_default()),
            cell(self.peer.as_str()),
            cell(self.runtime_socket.as_str()),
            cell(self.boot_id.as_str()),
        ]
    }
}

impl AgentRow {
    /// Everything about it, one thing a line.
    pub(super) fn text(&self) -> String {
        let (heads, more) = Self::HEADS;
        let heads = heads.iter().chain(more).copied();
        pairs(heads.zip(self.cells().into_iter().chain(self.wide())))
    }
}

/// A file system of no size is one that the agent could not look at; its free space is not known rather than zero.
fn free(disk: &DiskSpace) -> Option<u64> {
    (disk.bytes_total > 0).then_some(disk.bytes_free)
}

fn free_text(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "unknown".to_owned(), human::bytes)
}

fn pairs<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut table = output::plain_table();
    for (name, value) in pairs {
        table.add_row([format!("{name}:"), value]);
    }
    output::trimmed(&table)
}

/// An agent as it sees itself.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeAgent {
    node: String,
    version: String,
    contact: String,
    manager: String,
    last_contact_seconds_ago: Option<f64>,
    epoch: u64,
    generation: u64,
    last_error: String,
    runtime: String,
    runtime_socket: String,
    sockets_tried: Vec<String>,
    /// None where the agent cannot read it.
    bytes_free: Option<u64>,
    bytes_used_by_images: u64,
}

impl From<node::GetAgentResponse> for NodeAgent {
    fn from(agent: node::GetAgentResponse) -> Self {
        let contact = match agent.contact() {
            node::Contact::Attached => "Attached",
            node::Contact::Connecting => "Connecting",
            node::Contact::Lost => "Lost",
            node::Contact::Standalone => STANDALONE,
            node::Contact::Unspecified => "Unknown",
        };
        let disk: DiskSpace = agent.disk.unwrap_or_default();
        Self {
            contact: contact.to_owned(),
            node: agent.node_name,
            version: agent.version,
            manager: agent.manager,
            last_contact_seconds_ago: seconds(agent.last_contact_ago.as_ref()).map(|ago| ago.as_secs_f64()),
            epoch: agent.epoch,
            generation: agent.generation,
            last_error: agent.last_error,
            runtime: runtime(agent.runtime.as_ref()),
            runtime_socket: agent.runtime.map(|runtime| runtime.socket).unwrap_or_default(),
            sockets_tried: agent.sockets_tried,
            bytes_free: free(&disk),
            bytes_used_by_images: disk.bytes_used_by_images,
        }
    }
}

impl NodeAgent {
    /// Everything about it, one thing a line; what does not apply is left out.
    pub(super) fn text(&self) -> String {
        let ago = self
            .last_contact_seconds_ago
            .map(|ago| human::duration(Duration::from_secs_f64(ago)) + " ago");
        let of_manager = |text: String| {
            if self.contact == STANDALONE {
                String::new()
            } else {
                text
            }
        };
        let lines = [
            ("NODE", self.node.clone()),
            ("VERSION", self.version.clone()),
            ("CONTACT", self.contact.clone()),
            ("MANAGER", self.manager.clone()),
            (
                "LAST-CONTACT",
                of_manager(ago.unwrap_or_else(|| "never".to_owned())),
            ),
            ("EPOCH", of_manager(self.epoch.to_string())),
            ("GENERATION", of_manager(self.generation.to_string())),
            ("ERROR", self.last_error.clone()),
            ("RUNTIME", self.runtime.clone()),
            ("SOCKET", self.runtime_socket.clone()),
            ("SOCKETS-TRIED", self.sockets_tried.join(", ")),
            ("FREE", free_text(self.bytes_free)),
            ("IMAGES", human::bytes(self.bytes_used_by_images)),
        ];
        pairs(lines.into_iter().filter(|(_, value)| !value.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_was_never_seen_has_a_line_too() {
        let row = AgentRow::from(inspect::Agent {
            node_name: "node1".into(),
            ..Default::default()
        });
        assert_eq!(row.cells(), ["node1", "Unknown", "0/0", "0", "-", "-", "never"]);
    }

    #[test]
    fn the_text_leaves_out_what_is_not_there() {
        let agent = NodeAgent::from(node::GetAgentResponse {
            node_name: "node1".into(),
            contact: node::Contact::Attached.into(),
            ..Default::default()
        });
        let text = agent.text();
        assert!(text.contains("Attached") && !text.contains("ERROR"), "{text}");
    }
}
