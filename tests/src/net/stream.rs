//! Cutting what goes between a node's agent and managers on other nodes, one way or both, and nothing else.

use std::process::Command;

use anyhow::Result;
use kruise_api::names;

use super::Direction;
use crate::cluster::Cluster;
use crate::cmd;

impl Cluster {
    /// Drops the packets between the pods of a node and the managers' gRPC port on other nodes. Connections stay open until somebody gives them up.
    pub fn cut_stream(&self, node: &str, direction: Direction) -> Result<()> {
        self.heal_stream(node)?;
        for rule in self.rules(node, direction)? {
            cmd::run(&mut self.mangle(node, "-I", &rule))?;
        }
        Ok(())
    }

    /// Ends a [`Cluster::cut_stream`]; without one it does nothing.
    pub fn heal_stream(&self, node: &str) -> Result<()> {
        for rule in self.rules(node, Direction::Both)? {
            while self.mangle(node, "-C", &rule).output()?.status.success() {
                cmd::run(&mut self.mangle(node, "-D", &rule))?;
            }
        }
        Ok(())
    }

    fn rules(&self, node: &str, direction: Direction) -> Result<Vec<Vec<String>>> {
        let pods = self.pod_range(node)?;
        let port = names::MANAGER_GRPC_PORT.to_string();
        let rule = |end: [&str; 2], port_of: &str| {
            [end[0], end[1], "-p", "tcp", port_of, &port, "-j", "DROP"]
                .map(str::to_owned)
                .to_vec()
        };
        let to_server = rule(["-s", &pods], "--dport");
        let to_client = rule(["-d", &pods], "--sport");
        Ok(match direction {
            Direction::ToServer => vec![to_server],
            Direction::ToClient => vec![to_client],
            Direction::Both => vec![to_server, to_client],
        })
    }

    /// A chain that nobody else in a node's network writes rules into, and where addresses of Services have been replaced by those of pods.
    fn mangle(&self, node: &str, verb: &str, rule: &[String]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.layout().node_namespace(node)])
            .args(["iptables", "-w", "5", "-t", "mangle", verb, "FORWARD"])
            .args(rule);
        command
    }
}
