//! `cargo xtask bench cloneset`: how long a plan for a CloneSet takes, what a rollout costs the manager, and how much memory many pods do.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::bed::{Bed, Programs};
use super::rollout::{Bench, Crowd, Rollout};
use crate::repo;

/// Milliseconds of a plan over ten thousand pods that finds nothing to do.
const NO_OP_MS: f64 = 5.0;
/// Milliseconds of one that acts.
const ACTING_MS: f64 = 15.0;
/// How much longer ten times as many pods may take.
const GROWTH: f64 = 12.0;

/// How much more a pod's event may cost with ten times as many pods.
const EVENT_GROWTH: f64 = 2.0;
/// Writes of the manager to a pod that changes in place.
const WRITES: f64 = 4.0;
/// Pods per second of a rollout: five times what four writes a pod at 30 a second come to.
const PACE: f64 = 37.5;
/// Bytes of a manager beside the crowd of pods.
const STEADY: u64 = 200_000_000;
/// Most memory while listing them, over that.
const PEAK: f64 = 1.3;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rollouts in place with so many pods each, at a real API server with played kubelets.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    rollouts: Vec<usize>,
    /// Pods beside which the manager's memory is measured, rounded up to thousands; 0 measures none.
    #[arg(long, default_value_t = 50_000)]
    crowd: usize,
    /// Nodes beside them.
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    /// Size of each of these pods.
    #[arg(long, default_value_t = 10)]
    pod_kilobytes: usize,
    /// Only the planner, without an API server.
    #[arg(long)]
    planner_only: bool,
    /// Leave the planner out.
    #[arg(long, conflicts_with = "planner_only")]
    no_planner: bool,
    /// Name of the API server's cluster.
    #[arg(long, default_value = "bench")]
    name: String,
    /// Leave it up, and use it when it is.
    #[arg(long)]
    keep: bool,
    /// Folder with a kruise-manager to use, instead of building it.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Fail when a figure misses its target.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let figures = if args.no_planner { json!({}) } else { planner()? };
    let mut missed = missed(&figures);
    let (mut rollouts, mut crowd) = (Vec::new(), None);
    if !args.planner_only {
        let programs = match &args.programs {
            Some(folder) => Programs::in_folder(folder),
            None => Programs::build()?,
        };
        let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
        (rollouts, crowd) = runtime.block_on(measure(args, &programs))?;
        missed.extend(missed_by_rollouts(&rollouts));
        missed.extend(crowd.as_ref().map(missed_by_crowd).unwrap_or_default());
    }
    let report = json!({
        "planner": figures,
        "rollouts": rollouts,
        "crowd": crowd,
        "targets": {
            "noOpMs": NO_OP_MS, "actingMs": ACTING_MS, "ratio": GROWTH, "growthPerPodEvent": EVENT_GROWTH,
            "writesPerPod": WRITES, "podsPerSecond": PACE, "steadyBytes": STEADY, "peakOverSteady": PEAK,
        },
        "missed": missed,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    if args.strict && !missed.is_empty() {
        bail!("{} targets missed", missed.len());
    }
    Ok(())
}

async fn measure(args: &Args, programs: &Programs) -> Result<(Vec<Rollout>, Option<Crowd>)> {
    let bed = Bed::up(&args.name, 0, args.keep).await?;
    let bench = Bench::new(&bed, programs).await?;
    let mut rollouts = Vec::new();
    for &pods in &args.rollouts {
        eprintln!("a rollout of {pods} pods ...");
        rollouts.push(bench.rollout(pods).await?);
    }
    if args.crowd == 0 {
        return Ok((rollouts, None));
    }
    eprintln!("{} nodes and {} pods ...", args.nodes, args.crowd);
    let crowd = bench.crowd(args.nodes, args.crowd, args.pod_kilobytes).await?;
    Ok((rollouts, Some(crowd)))
}

fn missed_by_rollouts(rollouts: &[Rollout]) -> Vec<String> {
    let mut missed = Vec::new();
    for rollout in rollouts {
        let (pods, writes, pace) = (rollout.pods, rollout.writes_per_pod, rollout.pods_per_second);
        if writes > WRITES {
            missed.push(format!("{pods} pods: {writes} writes a pod, target {WRITES}"));
        }
        if pods == 1_000 && pace < PACE {
            missed.push(format!("{pods} pods: {pace} a second, target {PACE}"));
        }
    }
    if let (Some(small), Some(large)) = (rollouts.first(), rollouts.last()) {
        let growth = large.cpu_us_per_pod_event / small.cpu_us_per_pod_event;
        if growth > EVENT_GROWTH {
            missed.push(format!(
                "an event of a pod costs {growth} times as much with {} pods, target {EVENT_GROWTH}",
                large.pods
            ));
        }
    }
    missed
}

fn missed_by_crowd(crowd: &Crowd) -> Vec<String> {
    let mut missed = Vec::new();
    if crowd.memory.now > STEADY {
        missed.push(format!(
            "{} bytes beside {} pods, target {STEADY}",
            crowd.memory.now, crowd.pods
        ));
    }
    if crowd.peak_over_steady > PEAK {
        missed.push(format!(
            "{} times as much while listing, target {PEAK}",
            crowd.peak_over_steady
        ));
    }
    missed
}

/// Milliseconds of plans, from the planner's own benchmark.
fn planner() -> Result<Value> {
    let mut bench = repo::cargo();
    bench.args([
        "bench",
        "--quiet",
        "--package",
        "kruise-planner",
        "--bench",
        "cloneset",
    ]);
    let output = bench
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo bench")?;
    if !output.status.success() {
        bail!("cargo bench ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .rfind(|line| line.starts_with('{'))
        .context("the benchmark printed no figures")?;
    serde_json::from_str(line).context("the benchmark's figures are not readable")
}

/// Targets that were missed, as texts.
fn missed(figures: &Value) -> Vec<String> {
    let mut missed = Vec::new();
    for (name, case) in figures.as_object().into_iter().flatten() {
        let median = case
            .pointer("/10000/medianMs")
            .and_then(Value::as_f64)
            .unwrap_or(f64::INFINITY);
        let ratio = case.get("ratio").and_then(Value::as_f64).unwrap_or(f64::INFINITY);
        let target = if name == "noOp" { NO_OP_MS } else { ACTING_MS };
        if median > target {
            missed.push(format!(
                "{name}: {median} ms over 10,000 pods, target {target} ms"
            ));
        }
        if ratio > GROWTH {
            missed.push(format!(
                "{name}: {ratio} times as long for ten times as many pods, target {GROWTH}"
            ));
        }
    }
    missed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::meter::Memory;

    #[test]
    fn rollouts_and_crowds_have_targets() {
        let rollout = |pods, pods_per_second, cpu_us_per_pod_event, writes_per_pod| Rollout {
            pods,
            seconds: 1.0,
            pods_per_second,
            cpu_seconds: 1.0,
            cpu_us_per_pod_event,
            writes_per_pod,
            memory: Memory::default(),
            load: 0.0,
        };
        let good = [
            rollout(1_000, 50.0, 100.0, 3.0),
            rollout(10_000, 30.0, 190.0, 4.0),
        ];
        assert_eq!(missed_by_rollouts(&good), Vec::<String>::new());
        let bad = [
            rollout(1_000, 30.0, 100.0, 4.5),
            rollout(10_000, 30.0, 210.0, 4.0),
        ];
        assert_eq!(missed_by_rollouts(&bad).len(), 3);
        let crowd = |now, peak_over_steady| Crowd {
            nodes: 1,
            pods: 1,
            pod_kilobytes: 1,
            memory: Memory { now, peak: now },
            peak_over_steady,
            load: 0.0,
        };
        assert!(missed_by_crowd(&crowd(STEADY, PEAK)).is_empty());
        assert_eq!(missed_by_crowd(&crowd(STEADY + 1, 1.4)).len(), 2);
    }

    #[test]
    fn what_misses_its_target_is_told() {
        let good = json!({"noOp": {"10000": {"medianMs": 4.9}, "ratio": 11.0}, "reCreate": {"10000": {"medianMs": 14.0}, "ratio": 12.0}});
        assert!(missed(&good).is_empty());
        let bad = json!({"noOp": {"10000": {"medianMs": 5.1}, "ratio": 13.0}, "reCreate": {}});
        assert_eq!(missed(&bad).len(), 4);
    }
}
