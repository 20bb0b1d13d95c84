//! Figures beside their targets and beside the floor of the machine.

use std::fmt::Write as _;
use std::fs;

use serde::Serialize;

use super::baseline::Floor;
use super::meter::Spread;
use super::scale::{Scale, per};

/// A run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// A small write at the API server, in milliseconds.
    pub(crate) put: Spread,
    pub(crate) scales: Vec<Scale>,
    pub(crate) floors: Vec<Floor>,
}

/// Where it ran.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processors: usize,
    pub(crate) model: String,
    pub(crate) kernel: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo");
        let model = model
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            model: model.unwrap_or_default().to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// One line of the table.
struct Row {
    what: String,
    value: f64,
    unit: &'static str,
    target: Option<f64>,
    floor: Option<f64>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            machine: Machine::here(),
            put: Spread::default(),
            scales: Vec::new(),
            floors: Vec::new(),
        }
    }

    /// For people. Of repeated measurements the middle one counts; all are in the JSON.
    pub(crate) fn table(&self) -> String {
        let mut rows = Vec::new();
        for scale in &self.scales {
            rows.extend(rows_of(scale, self.floor(scale.agents)));
        }
        if let [.., small, large] = self.scales.as_slice() {
            rows.extend(self.growth(small, large));
        }
        let mut text = format!(
            "{:<58} {:>10} {:<5} {:>9}  {:<4} {:>9} {:>6}\n",
            "", "measured", "", "target", "", "floor", "ratio"
        );
        for row in rows {
            let _ = writeln!(text, "{}", row.line());
        }
        let _ = writeln!(
            text,
            "a small write at the API server: p50 {:.1} ms, p99 {:.1} ms",
            self.put.p50, self.put.p99
        );
        text
    }

    fn floor(&self, agents: usize) -> Option<&Floor> {
        self.floors.iter().find(|floor| floor.agents == agents)
    }

    fn growth(&self, small: &Scale, large: &Scale) -> Vec<Row> {
        let times = per(large.agents) / per(small.agents);
        let more = per(large.agents - small.agents);
        let slope = |large: u64, small: u64| mega(large.saturating_sub(small)) * 1e3 / more;
        let floors = self.floor(small.agents).zip(self.floor(large.agents));
        let pair = format!("{} to {}", small.agents, large.agents);
        let growth = |what: &str, small: f64, large: f64| Row {
            what: format!("{pair}: growth of {what} over linear"),
            value: large / small / times,
            unit: "x",
            target: Some(1.2),
            floor: None,
        };
        let storm = |scale: &Scale| median(scale.storms_without_lease.iter().map(|storm| storm.cpu.server));
        let order = |scale: &Scale| {
            median(scale.broadcasts.iter().map(|cast| cast.cpu_us_per_order)) * per(scale.agents)
        };
        let task = |scale: &Scale| {
            median(scale.broadcasts.iter().map(|cast| cast.cpu_us_per_task)) * per(scale.agents)
        };
        let span = |scale: &Scale| median(scale.broadcasts.iter().map(|cast| cast.last));
        vec![
            Row {
                what: format!("{pair}: memory per idle agent"),
                value: slope(large.idle.now, small.idle.now),
                unit: "KB",
                target: Some(60.0),
                floor: floors.map(|(small, large)| slope(large.idle.now, small.idle.now)),
            },
            growth(
                "memory",
                mega(small.idle.now - small.empty.now),
                mega(large.idle.now - large.empty.now),
            ),
            growth("processor time of a storm", storm(small), storm(large)),
            growth("processor time of a job's orders", order(small), order(large)),
            growth("processor time of a whole job", task(small), task(large)),
            growth("time to the last order", span(small), span(large)),
        ]
    }
}

fn rows_of(scale: &Scale, floor: Option<&Floor>) -> Vec<Row> {
    let parts = [
        memory_rows(scale, floor),
        storm_rows(scale, floor),
        job_rows(scale, floor),
    ];
    parts.into_iter().flatten().collect()
}

fn row_of(
    scale: &Scale,
    what: &str,
    value: f64,
    unit: &'static str,
    target: Option<f64>,
    floor: Option<f64>,
) -> Row {
    Row {
        what: format!("{} agents: {what}", scale.agents),
        value,
        unit,
        target,
        floor,
    }
}

fn memory_rows(scale: &Scale, floor: Option<&Floor>) -> Vec<Row> {
    let row = |what, value, unit, target, floor| row_of(scale, what, value, unit, target, floor);
    let kilo = |now: u64, empty: u64| mega(now.saturating_sub(empty)) * 1e3 / per(scale.agents);
    vec![
        row(
            "memory of the manager without agents",
            mega(scale.empty.now),
            "MB",
            None,
            floor.map(|floor| mega(floor.empty.now)),
        ),
        row(
            "memory per idle agent",
            kilo(scale.idle.now, scale.empty.now),
            "KB",
            None,
            floor.map(|floor| kilo(floor.idle.now, floor.empty.now)),
        ),
        row(
            "idle, processor time per agent and second",
            scale.idle_cpu_us,
            "us",
            None,
            None,
        ),
    ]
}

fn storm_rows(scale: &Scale, floor: Option<&Floor>) -> Vec<Row> {
    let row = |what, value, unit, target, floor| row_of(scale, what, value, unit, target, floor);
    let storms = |field: fn(&super::scale::Storm) -> f64| median(scale.storms.iter().map(field));
    let at_once =
        |field: fn(&super::scale::Storm) -> f64| median(scale.storms_without_lease.iter().map(field));
    vec![
        row(
            "killed, all in sync after the new one leads",
            storms(|storm| storm.all) / 1e3,
            "s",
            Some(10.0),
            None,
        ),
        row(
            "killed, all in sync after one that leads at once listens",
            at_once(|storm| storm.all) / 1e3,
            "s",
            Some(10.0),
            floor.map(|floor| floor.storm / 1e3),
        ),
        row(
            "killed, processor time until then",
            at_once(|storm| storm.cpu.server),
            "s",
            None,
            floor.map(|floor| floor.storm_cpu.server),
        ),
        row(
            "killed, the same of the agents' process",
            at_once(|storm| storm.cpu.agents),
            "s",
            None,
            floor.map(|floor| floor.storm_cpu.agents),
        ),
        row(
            "killed, the same of API server and etcd",
            at_once(|storm| storm.cpu.api),
            "s",
            None,
            floor.map(|floor| floor.storm_cpu.api),
        ),
        row(
            "killed, the same of everybody else on the machine",
            at_once(|storm| storm.cpu.others),
            "s",
            None,
            floor.map(|floor| floor.storm_cpu.others),
        ),
        row(
            "killed, most memory",
            storms(|storm| mega(storm.peak)),
            "MB",
            None,
            None,
        ),
    ]
}

fn job_rows(scale: &Scale, floor: Option<&Floor>) -> Vec<Row> {
    let row = |what, value, unit, target, floor| row_of(scale, what, value, unit, target, floor);
    let casts = |field: fn(&super::scale::Broadcast) -> f64| median(scale.broadcasts.iter().map(field));
    vec![
        row(
            "one job for all, last order after the request",
            casts(|cast| cast.last) / 1e3,
            "s",
            Some(1.0),
            floor.map(|floor| floor.broadcast / 1e3),
        ),
        row(
            "one job for all, first to last order",
            casts(|cast| cast.span) / 1e3,
            "s",
            None,
            None,
        ),
        row(
            "one order, p50 from the decision",
            scale.single.from_decision.p50,
            "ms",
            None,
            floor.map(|floor| floor.single.p50),
        ),
        row(
            "one order, p99 from the decision",
            scale.single.from_decision.p99,
            "ms",
            Some(5.0),
            floor.map(|floor| floor.single.p99),
        ),
        row(
            "one order, p50 from the request",
            scale.single.from_request.p50,
            "ms",
            None,
            None,
        ),
        row(
            "processor time per order",
            casts(|cast| cast.cpu_us_per_order),
            "us",
            Some(40.0),
            floor.map(|floor| floor.cpu_us_per_order),
        ),
        row(
            "processor time per task, to the stored result",
            casts(|cast| cast.cpu_us_per_task),
            "us",
            None,
            None,
        ),
        row(
            "API writes of the manager per job",
            casts(|cast| per_count(cast.manager_writes)),
            "",
            Some(12.0),
            None,
        ),
        row(
            "API requests of agents",
            casts(|cast| per_count(cast.agent_requests)),
            "",
            Some(0.0),
            None,
        ),
    ]
}

impl Row {
    fn line(&self) -> String {
        let target = self.target.map(|target| format!("{target}")).unwrap_or_default();
        let met = match self.target {
            Some(target) if self.value <= target => "ok",
            Some(_) => "MISS",
            None => "",
        };
        let floor = self.floor.map(|floor| format!("{floor:.2}")).unwrap_or_default();
        let ratio = self
            .floor
            .filter(|floor| *floor > 0.0)
            .map(|floor| format!("{:.2}", self.value / floor));
        format!(
            "{:<58} {:>10.2} {:<5} {target:>9}  {met:<4} {floor:>9} {:>6}",
            self.what,
            self.value,
            self.unit,
            ratio.unwrap_or_default()
        )
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values.collect()).p50
}

#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
fn mega(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
fn per_count(count: usize) -> f64 {
    count as f64
}
