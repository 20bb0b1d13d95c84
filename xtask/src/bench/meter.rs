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
    fn a_spread_takes_values_that_were_measured() {
        let spread = Spread::of((1..=200).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p99, spread.max), (100.0, 198.0, 200.0));
        assert_eq!(Spread::of(Vec::new()).count, 0);
    }
}
