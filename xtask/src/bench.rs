//! `cargo xtask bench`: measurements, with their targets and with what the same machine can do at best.

mod baseline;
mod bed;
mod cloneset;
mod control_plane;
mod images;
mod jobs;
mod manager;
mod meter;
mod report;
mod restart;
mod rollout;
mod scale;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The manager with thousands of agents: memory, storms, broadcasts, latency, CPU per order, API writes.
    ControlPlane(control_plane::Args),
    /// Pulls on real container runtimes beside those of crictl: jobs, single pulls, bytes told; and jobs over thousands of played agents.
    Images(images::Args),
    /// CloneSets: how long a plan takes, what a rollout costs the manager, and how much memory many pods do, beside the targets.
    Cloneset(cloneset::Args),
    /// Restarts in place: step by step on a real cluster beside what the runtime does by hand, and many at once on simulated nodes.
    Restart(restart::Args),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::ControlPlane(args) => control_plane::run(args),
        Command::Images(args) => images::run(args),
        Command::Cloneset(args) => cloneset::run(args),
        Command::Restart(args) => restart::run(args),
    }
}
