//! Breaking and narrowing the links of nodes, from the control plane's end.

use std::process::Command;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::cmd;

impl Cluster {
    /// Cuts a node off from everything else. No connection is closed by it: the others hear nothing, and the
    /// node itself gets "no route to host" once its neighbour has not answered for some seconds.
    pub fn cut(&self, node: &str) -> Result<()> {
        self.ip_link(node, "down")
    }

    /// Ends a [`Cluster::cut`]. Connections that nobody gave up meanwhile go on.
    pub fn heal(&self, node: &str) -> Result<()> {
        self.ip_link(node, "up")
    }

    /// Limits what a node receives, in megabits per second.
    pub fn rate_limit(&self, node: &str, megabits: u32) -> Result<()> {
        let rate = format!("{megabits}mbit");
        self.tc(
            node,
            &["replace"],
            &["root", "tbf", "rate", &rate, "burst", "256kb", "latency", "50ms"],
        )
    }

    /// Ends a [`Cluster::rate_limit`]; without one it does nothing.
    pub fn unlimit(&self, node: &str) -> Result<()> {
        // Removing what is not there is refused; putting the default there first makes both cases one.
        self.tc(node, &["replace"], &["root", "pfifo"])?;
        self.tc(node, &["del"], &["root"])
    }

    fn ip_link(&self, node: &str, state: &str) -> Result<()> {
        let link = self.link_of(node)?;
        let namespace = self.layout().control_plane();
        cmd::run(Command::new("ip").args(["-n", &namespace, "link", "set", &link, state])).map(drop)
    }

    fn tc(&self, node: &str, verb: &[&str], rest: &[&str]) -> Result<()> {
        let link = self.link_of(node)?;
        let namespace = self.layout().control_plane();
        let mut command = Command::new("tc");
        command
            .args(["-n", &namespace, "qdisc"])
            .args(verb)
            .args(["dev", &link])
            .args(rest);
        cmd::run(&mut command).map(drop)
    }
}
