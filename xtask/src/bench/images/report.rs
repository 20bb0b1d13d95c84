//! Figures beside their targets, what `crictl pull` needed, and what OpenKruise was measured at.

use std::fmt::Write as _;

use serde::Serialize;

use super::fleet::{Broadcast, Writes};
use super::makespan::Makespan;
use super::single::{Pull, Single};
use crate::bench::report::Machine;

/// A run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) nodes: usize,
    pub(crate) single: Single,
    pub(crate) makespans: Vec<Makespan>,
    pub(crate) writes: Writes,
    pub(crate) broadcasts: Vec<Broadcast>,
    /// Average number of processes that wanted a processor in the last minute, at the end.
    pub(crate) load: f64,
}

/// What a figure is to be.
#[derive(Clone, Copy, Debug)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Only told.
    None,
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    target: Target,
    /// The same by `crictl pull`.
    crictl: Option<f64>,
}

impl Report {
    pub(crate) fn new(nodes: usize) -> Self {
        Self {
            machine: Machine::here(),
            nodes,
            single: Single::default(),
            makespans: Vec::new(),
            writes: Writes::default(),
            broadcasts: Vec::new(),
            load: 0.0,
        }
    }

    /// For people. Of repeated measurements the middle one counts; all are in the JSON.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<62} {:>9} {:<4} {:>9} {:>9}\n",
            "", "measured", "", "target", "crictl"
        );
        for row in self.rows() {
            let _ = writeln!(text, "{}", row.line());
        }
        text += "OpenKruise, measured on the same kind of bed: efficiency about 0.12 at 0.5 s; 6 API writes per node and 6 more;\n\
                 5,001 nodes: last order after 165 s, with 9,675 API writes before any node answers\n";
        text
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = self.single_rows();
        for run in &self.makespans {
            let of = format!(
                "{} nodes, parallelism {}, {} s on the way",
                run.nodes, run.case.parallelism, run.case.seconds
            );
            rows.push(Row {
                what: format!("{of}: makespan"),
                value: run.makespan,
                unit: "s",
                target: Target::None,
                crictl: Some(run.crictl_sum / count(run.case.parallelism)),
            });
            rows.push(row(
                format!("{of}: efficiency"),
                run.efficiency,
                "",
                Target::AtLeast(0.9),
            ));
            let minutes = (run.makespan / 60.0).ceil().max(1.0) - 1.0;
            let allowed = Target::AtMost(10.0 + 2.0 * minutes);
            rows.push(row(
                format!("{of}: API writes"),
                count(run.api_writes),
                "",
                allowed,
            ));
        }
        let writes = &self.writes;
        rows.push(row(
            format!("{} nodes, {:.0} s: API writes", writes.agents, writes.seconds),
            count(writes.api_writes),
            "",
            Target::AtMost(10.0),
        ));
        for cast in &self.broadcasts {
            let what = format!("{} nodes, no limit: last order after", cast.agents);
            rows.push(row(what, median(&cast.last_order), "s", Target::AtMost(1.0)));
        }
        rows
    }

    fn single_rows(&self) -> Vec<Row> {
        let single = &self.single;
        let of = |field: fn(&Pull) -> f64| median(&single.ours.iter().map(field).collect::<Vec<_>>());
        let (ours, crictl) = (of(|pull| pull.seconds), median(&single.crictl));
        let name = format!("pull of {} MB", single.image_bytes >> 20);
        let updates = of(|pull| count(pull.told.updates) / pull.seconds.max(f64::MIN_POSITIVE));
        let true_ones = single
            .ours
            .iter()
            .filter(|pull| !pull.told.fell && pull.told.last == pull.told.total && pull.told.total > 0)
            .count();
        vec![
            Row {
                what: format!("{name}: time"),
                value: ours,
                unit: "s",
                target: Target::AtMost(crictl * 1.03),
                crictl: Some(crictl),
            },
            row(
                format!("{name}: processor time of the agent, of the pull's time"),
                of(|pull| pull.cpu_seconds / pull.seconds * 100.0),
                "%",
                Target::AtMost(0.5),
            ),
            row(
                format!("{name}: most memory of the agent"),
                of(|pull| mega(pull.peak_bytes)),
                "MB",
                Target::AtMost(20.0),
            ),
            row(
                format!("{name}: updates per second"),
                updates,
                "",
                Target::AtLeast(1.0),
            ),
            row(
                format!("{name}: longest time without one"),
                of(|pull| pull.told.longest_gap),
                "s",
                Target::None,
            ),
            row(
                format!("{name}: pulls whose bytes never fell and ended at the total"),
                count(true_ones),
                "",
                Target::AtLeast(count(single.ours.len())),
            ),
        ]
    }
}

fn row(what: String, value: f64, unit: &'static str, target: Target) -> Row {
    Row {
        what,
        value,
        unit,
        target,
        crictl: None,
    }
}

impl Row {
    fn line(&self) -> String {
        let (target, missed) = match self.target {
            Target::AtMost(most) => (format!("<= {most:.2}"), self.value > most),
            Target::AtLeast(least) => (format!(">= {least:.2}"), self.value < least),
            Target::None => (String::new(), false),
        };
        let crictl = self.crictl.map(|value| format!("{value:.2}")).unwrap_or_default();
        format!(
            "{:<62} {:>9.2} {:<4} {target:>9} {crictl:>9}{}",
            self.what,
            self.value,
            self.unit,
            if missed { "  missed" } else { "" }
        )
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "a number of things")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a process")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::{Target, row};

    #[test]
    fn what_misses_its_target_says_so() {
        let missed = |value, target| row("x".to_owned(), value, "s", target).line().ends_with("missed");
        assert!(missed(1.1, Target::AtMost(1.0)) && missed(0.8, Target::AtLeast(0.9)));
        assert!(!missed(1.0, Target::AtMost(1.0)) && !missed(0.9, Target::AtLeast(0.9)));
        assert!(!missed(1.0, Target::None));
    }
}
