//! `cargo xtask test`: everything that is checked before a change lands, or one level of it.

mod bed;
mod count;

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use kruise_tests::cmd;
use kruise_tests::tools::{self, Setup};

use crate::codegen;
use crate::repo::{self, workspace};
use count::{Counts, run_tests};

/// Clusters of the tests; taken down before and after.
const CLUSTER: &str = "kruise-test";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which level; all of them when left out (but not soak).
    #[arg(value_enum)]
    level: Option<Level>,
    /// Only tests whose name contains this word.
    filter: Option<String>,
    /// Leave the cluster up afterwards, and use one that is up already.
    #[arg(long)]
    keep: bool,
}

/// Levels, the least powerful first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Formatting, lints, documentation, generated files.
    Lint,
    /// Tables, properties and in-process servers.
    Unit,
    /// The cluster itself: whether what the other tests rely on is true.
    Bed,
    /// On the real cluster, side by side.
    E2e,
    /// On the real cluster, one after the other: forged identities, hostile clients, secrets that must not leak.
    Security,
    /// On the real cluster, one after the other: killed, paused and cut-off parts.
    Faults,
    /// Histories by seed, models and repeated faults, in full number. By hand only.
    Soak,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let levels = match args.level {
        Some(level) => vec![level],
        None => vec![
            Level::Lint,
            Level::Unit,
            Level::Bed,
            Level::E2e,
            Level::Security,
            Level::Faults,
        ],
    };
    let began = Instant::now();
    tools::install(Setup { containerd_2: false })?;
    let mut report = vec![("set-up", began.elapsed(), Counts::default())];
    let mut bed = None;
    for level in levels {
        if level.needs_cluster() && bed.is_none() {
            let began = Instant::now();
            bed = Some(bed::Bed::up(CLUSTER, args.keep)?);
            report.push(("cluster and install", began.elapsed(), Counts::default()));
        }
        let began = Instant::now();
        let counts = level.run(args.filter.as_deref())?;
        report.push((level.name(), began.elapsed(), counts));
    }
    if let Some(bed) = bed {
        bed.down()?;
    }
    conclude(&report)
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Lint => "lint",
            Self::Unit => "unit",
            Self::Bed => "bed",
            Self::E2e => "e2e",
            Self::Security => "security",
            Self::Faults => "faults",
            Self::Soak => "soak",
        }
    }

    fn needs_cluster(self) -> bool {
        !matches!(self, Self::Lint | Self::Unit)
    }

    fn run(self, filter: Option<&str>) -> Result<Counts> {
        match self {
            Self::Lint => lint(),
            Self::Unit => run_tests(workspace("test").args(UNIT).args(filter)),
            Self::Bed => run_tests(&mut on_bed("bed", 4, filter)),
            Self::E2e => run_tests(&mut on_bed("e2e", 4, filter)),
            Self::Security => run_tests(&mut on_bed("security", 1, filter)),
            Self::Faults => run_tests(&mut on_bed("faults", 1, filter)),
            Self::Soak => {
                let mut counts = run_tests(&mut played(filter))?;
                counts += run_tests(
                    on_bed("faults", 1, filter)
                        .arg("--include-ignored")
                        .env("KRUISE_SOAK", "1"),
                )?;
                Ok(counts)
            }
        }
    }
}

/// Every test that needs no cluster. Files of integration tests are named, because those of the cluster are not among them.
const UNIT: [&str; 17] = [
    "--lib",
    "--bins",
    "--test",
    "tidy",
    "--test",
    "chart",
    "--test",
    "argocd",
    "--test",
    "alerts",
    "--test",
    "compatible",
    "--test",
    "containerd",
    "--test",
    "standalone",
    "--no-fail-fast",
];

/// The tests of one file on the cluster, so many at once.
fn on_bed(file: &str, at_once: usize, filter: Option<&str>) -> Command {
    let mut command = workspace("test");
    command.args(["--test", file]).args(filter);
    command.args(["--", "--test-threads", &at_once.to_string()]);
    // Whoever names a test wants it.
    if filter.is_some() {
        command.arg("--include-ignored");
    }
    command.env("KRUISE_BED", CLUSTER);
    command
}

/// The histories and models of soak. They need no cluster.
fn played(filter: Option<&str>) -> Command {
    let mut command = workspace("test");
    command.args(["--lib", "--no-fail-fast", "--"]);
    match filter {
        Some(word) => command.arg(word),
        None => command.args(["every_history", "model::"]),
    };
    command.env("KRUISE_SOAK", "1");
    command
}

fn lint() -> Result<Counts> {
    cmd::show(repo::cargo().args(["fmt", "--all", "--check"]))?;
    codegen::check()?;
    cmd::show(workspace("clippy").args(["--all-targets", "--", "-D", "warnings"]))?;
    cmd::show(
        workspace("doc")
            .arg("--no-deps")
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(Counts {
        passed: 4,
        ..Counts::default()
    })
}

fn conclude(report: &[(&str, Duration, Counts)]) -> Result<()> {
    let mut all = Counts::default();
    println!(
        "\n{:<22}{:>10}{:>10}{:>10}",
        "level", "seconds", "passed", "failed"
    );
    for (name, time, counts) in report {
        println!(
            "{name:<22}{:>10.1}{:>10}{:>10}",
            time.as_secs_f64(),
            counts.passed,
            counts.failed
        );
        all += *counts;
    }
    println!("\n{} passed, {} failed", all.passed, all.failed);
    if all.failed > 0 {
        bail!("{} tests failed", all.failed);
    }
    Ok(())
}
