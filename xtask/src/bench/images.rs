//! `cargo xtask bench images`: what a pull costs and how fast a job gets its images onto nodes, beside what `crictl pull` needs for the same bytes.
//!
//! The nodes are real container runtimes with the real agent as it is shipped, without kubelets: on a machine of few cores those would be what is
//! measured. The links are slower than the machine, so that time is spent on the way and not on its processors.

mod agents;
mod fleet;
mod makespan;
mod report;
mod single;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use kruise_tests::registry::Front;

use self::report::Report;
use super::bed::{Bed, Programs};
use super::jobs::Jobs;
use super::manager::{Manager, Start};
use super::{meter, scale};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Nodes of the jobs on real runtimes.
    #[arg(long, default_value_t = 20)]
    nodes: usize,
    /// Numbers of played agents: the API writes of a job are counted with the first, the last order is timed with the last.
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    agents: Vec<usize>,
    /// Size of the image of single pulls, in MB.
    #[arg(long, default_value_t = 1024)]
    single_mb: u64,
    /// Single pulls of each kind.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Name of the bed's cluster.
    #[arg(long, default_value = "bench-images")]
    name: String,
    /// Leave it up, and use it when it is.
    #[arg(long)]
    keep: bool,
    /// Folder with kruise-manager, kruise-daemon and fleet to use, instead of building them.
    #[arg(long)]
    programs: Option<PathBuf>,
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
    let bed = Bed::up(&args.name, args.nodes, args.keep).await?;
    let front = Front::start(&bed.cluster).await?;
    let jobs = Jobs::new(bed.cluster.client().await?);
    let mut report = Report::new(args.nodes);

    eprintln!("single pulls (load {:.1}) ...", meter::load());
    report.single = single::run(&bed, programs, &front, args.single_mb << 20, args.rounds).await?;

    let targets = bed.targets(args.nodes).await?;
    let address = scale::free_address()?;
    let how = Start {
        alone: true,
        ..Start::default()
    };
    let manager = Manager::start(&bed, programs, address, how)?;
    manager.leads()?;
    let agents = agents::start(&bed, programs, address, &targets)?;
    for case in makespan::CASES {
        eprintln!("{case:?} (load {:.1}) ...", meter::load());
        report
            .makespans
            .push(makespan::run(&bed, &jobs, &front, &agents, case).await?);
    }
    drop(agents);

    for (place, &count) in args.agents.iter().enumerate() {
        eprintln!("{count} played agents (load {:.1}) ...", meter::load());
        jobs.clear().await?;
        let targets = bed.targets(count).await?;
        let ca = bed.trust_bundle()?;
        let mut fleet = scale::agents(programs, &address.to_string(), &ca, &targets)?;
        scale::in_sync(&mut fleet, 0)?;
        if place == 0 {
            report.writes = fleet::writes(&bed, &jobs, &mut fleet, count).await?;
        }
        report
            .broadcasts
            .push(fleet::broadcast(&jobs, &mut fleet, count, args.rounds).await?);
    }
    report.load = meter::load();
    drop(manager);
    Ok(report)
}
