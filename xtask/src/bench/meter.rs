//! What a process uses, by the kernel's books.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use kruise_tests::process::Process;
use serde::Serialize;

/// Resident memory of a process, now and at most so far, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

pub(crate) fn memory(process: Process) -> Result<Memory> {
    let path = format!("/proc/{}/status", process.pid);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    Ok(Memory {
        now: field("VmRSS:").context("no VmRSS")?,
        peak: field("VmHWM:").context("no VmHWM")?,
    })
}

/// Time on the processor so far, of all threads that still run, to the nanosecond.
pub(crate) fn cpu(process: Process) -> Result<Duration> {
    let path = format!("/proc/{}/task", process.pid);
    let mut sum = Duration::ZERO;
    for entry in fs::read_dir(&path).with_context(|| format!("cannot list {path}"))? {
        // A thread may end while we look.
        if let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) {
            let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
            sum += Duration::from_nanos(nanos.context("no time in schedstat")?);
        }
    }
    Ok(sum)
}

/// Processor time of the whole machine so far, whoever used it.
pub(crate) fn machine() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy(&text).context("no processor time in /proc/stat")
}

/// User, nice, system, interrupts and what a hypervisor took, in hundredths of a second; neither idle nor waiting.
fn busy(stat: &str) -> Option<Duration> {
    let words: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .map_while(|word| word.parse().ok())
        .collect();
    let ticks = [0, 1, 2, 5, 6, 7].map(|column| words.get(column));
    let sum: u64 = ticks.into_iter().sum::<Option<u64>>()?;
    Some(Duration::from_millis(sum * 10))
}

/// Who used the processors, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Shares {
    /// The manager, or the bare server.
    pub(crate) server: f64,
    pub(crate) agents: f64,
    /// API server and etcd.
    pub(crate) api: f64,
    /// Everybody else on this machine, the kernel's own work among them.
    pub(crate) others: f64,
}

/// Readings of the books at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Books {
    server: Duration,
    agents: Duration,
    api: Duration,
    machine: Duration,
}

impl Books {
    /// Now, with a server that may not have been started yet.
    pub(crate) fn read(server: Option<Process>, agents: Process, api: &[Process]) -> Result<Self> {
        let mut sum = Duration::ZERO;
        for process in api {
            sum += cpu(*process)?;
        }
        Ok(Self {
            server: server.map(cpu).transpose()?.unwrap_or_default(),
            agents: cpu(agents)?,
            api: sum,
            machine: machine()?,
        })
    }

    pub(crate) fn since(self, before: Self) -> Shares {
        let used = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        let (server, agents, api) = (
            used(self.server, before.server),
            used(self.agents, before.agents),
            used(self.api, before.api),
        );
        Shares {
            server,
            agents,
            api,
            others: (used(self.machine, before.machine) - server - agents - api).max(0.0),
        }
    }
}

/// Share of the machine's processors that all processes together use, over the last minute: others at work spoil a measurement.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_default()
}

/// How times spread.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of these values, in whatever unit they have.
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |permille: usize| {
            let place = (values.len() * permille).div_ceil(1000).saturating_sub(1);
            values.get(place).copied().unwrap_or_default()
        };
        Self {
            count: values.len(),
            p50: at(500),
            p99: at(990),
            max: at(1000),
        }
    }
}

/// Milliseconds between two stamps; negative when the second is earlier.
#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds of a benchmark fit well into 52 bits"
)]
pub(crate) fn millis(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processors_are_not_busy() {
        let stat = "cpu  100 10 50 9999 777 3 4 5 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy(stat), Some(Duration::from_millis(1720)));
        assert_eq!(busy("cpu  1 2 3"), None);
    }

    #[test]
    fn a_spread_takes_values_that_were_measured() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p99, spread.max), (100.0, 198.0, 200.0));
        assert_eq!(Spread::of(Vec::new()).count, 0);
    }
}
