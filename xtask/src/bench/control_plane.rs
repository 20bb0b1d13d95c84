//! `cargo xtask bench control-plane`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::bed::{Bed, Programs};
use super::jobs::Jobs;
use super::report::Report;
use super::scale::Measure;
use super::{baseline, meter};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Numbers of agents, in ascending order.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    agents: Vec<usize>,
    /// How often the manager is killed and a job is given to all, with each number of agents.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Orders given one by one.
    #[arg(long, default_value_t = 200)]
    orders: usize,
    /// Name of the API server's cluster.
    #[arg(long, default_value = "bench")]
    name: String,
    /// Leave it up, and use it when it is: the next run then begins with its nodes.
    #[arg(long)]
    keep: bool,
    /// Only the manager, not the bare server to compare with.
    #[arg(long)]
    no_floor: bool,
    /// Folder with a kruise-manager and a fleet to use, instead of building them.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// A flag for the manager, such as --manager-flag=--max-agents-attaching-per-second=2000.
    #[arg(long = "manager-flag", allow_hyphen_values = true)]
    manager_flags: Vec<String>,
    /// Where to write the figures as JSON, beside standard output.
    #[arg(long)]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let programs = match &args.programs {
        Some(folder) => Programs::in_folder(folder),
        None => Programs::build()?,
    };
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    let report = runtime.block_on(measure(args, &programs))?;
    let json = serde_json::to_string_pretty(&report)?;
    if let Some(file) = &args.json {
        fs::write(file, &json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{json}\n\n{}", report.table());
    Ok(())
}

async fn measure(args: &Args, programs: &Programs) -> Result<Report> {
    let bed = Bed::up(&args.name, 0, args.keep).await?;
    let jobs = Jobs::new(bed.cluster.client().await?);
    let mut report = Report::new();
    report.put = jobs.put_latency(args.orders).await?;
    for &agents in &args.agents {
        eprintln!("{agents} agents (load {:.1}) ...", meter::load());
        let measure = Measure {
            bed: &bed,
            programs,
            jobs: &jobs,
            agents,
            rounds: args.rounds,
            orders: args.orders,
            flags: &args.manager_flags,
        };
        report.scales.push(measure.run().await?);
        if !args.no_floor {
            let targets = bed.file("targets.jsonl");
            report
                .floors
                .push(baseline::floor(&bed, programs, &targets, agents, args.orders)?);
        }
    }
    Ok(report)
}
