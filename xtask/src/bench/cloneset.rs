//! `cargo xtask bench cloneset`: how long a plan for a CloneSet takes.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::repo;

/// Milliseconds of a plan over ten thousand pods that finds nothing to do.
const NO_OP_MS: f64 = 5.0;
/// Milliseconds of one that acts.
const ACTING_MS: f64 = 15.0;
/// How much longer ten times as many pods may take.
const GROWTH: f64 = 12.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail when a figure misses its target.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
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
    let figures: Value = serde_json::from_str(line).context("the benchmark's figures are not readable")?;
    let missed = missed(&figures);
    let report = json!({
        "planner": figures,
        "targets": {"noOpMs": NO_OP_MS, "actingMs": ACTING_MS, "ratio": GROWTH},
        "missed": missed,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    if args.strict && !missed.is_empty() {
        bail!("{} targets missed", missed.len());
    }
    Ok(())
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
    use super::missed;
    use serde_json::json;

    #[test]
    fn what_misses_its_target_is_told() {
        let good = json!({"noOp": {"10000": {"medianMs": 4.9}, "ratio": 11.0}, "reCreate": {"10000": {"medianMs": 14.0}, "ratio": 12.0}});
        assert!(missed(&good).is_empty());
        let bad = json!({"noOp": {"10000": {"medianMs": 5.1}, "ratio": 13.0}, "reCreate": {}});
        assert_eq!(missed(&bad).len(), 4);
    }
}
