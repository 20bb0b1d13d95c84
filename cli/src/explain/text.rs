//! The answer for people.

use std::fmt::Write as _;

use super::{Explanation, Node};
use crate::human;
use crate::output::{cell, plain_table, trimmed};

impl Explanation {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let policy = if self.always_pull {
            "Always"
        } else {
            "IfNotPresent"
        };
        writeln!(
            out,
            "{}: {}, {policy}, parallelism {}, priority {}",
            self.job,
            cell(&self.image),
            self.parallelism,
            self.priority
        )?;
        writeln!(
            out,
            "{} nodes: {} have it, {} failed, {} at work, {} to go",
            self.desired,
            self.succeeded,
            self.failed,
            self.active,
            self.desired
                .saturating_sub(self.succeeded + self.failed + self.active)
        )?;
        if let Some(left) = self.deadline_left_seconds.filter(|_| !self.complete) {
            writeln!(
                out,
                "its deadline is in {}",
                human::duration(std::time::Duration::from_secs(left))
            )?;
        }
        if self.complete {
            writeln!(out, "it is over; nothing waits")?;
        }
        for waiting in &self.waiting {
            writeln!(out, "{}: {}", waiting.reason, cell(&waiting.message))?;
        }
        for failure in &self.failures {
            let (nodes, message) = (failure.nodes, cell(&failure.message));
            writeln!(
                out,
                "{} on {nodes} node(s), such as {}: {message}",
                failure.reason, failure.node
            )?;
        }
        if !self.nodes.is_empty() {
            writeln!(out, "\n{}", table(&self.nodes).trim_end())?;
        }
        if self.nodes_left_out > 0 {
            writeln!(out, "and {} more", self.nodes_left_out)?;
        }
        Ok(())
    }
}

fn table(nodes: &[Node]) -> String {
    let mut table = plain_table();
    table.set_header(["NODE", "STATE", "PLACE", "WHY"]);
    for node in nodes {
        let place = if node.place > 0 {
            node.place.to_string()
        } else {
            "-".to_owned()
        };
        table.add_row([cell(&node.name), cell(&node.state), place, cell(&node.message)]);
    }
    trimmed(&table)
}
