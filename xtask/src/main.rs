//! `cargo xtask`: set-up, the test cluster, and everything else that is done to this repository.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tooling runs on people's machines in real time; nothing here decides anything"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command line tool: printing is what it does"
)]

mod bench;
mod cluster;
mod codegen;
mod demo;
mod deploy;
mod images;
mod internal;
mod repo;
mod setup;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Build, test and try kruise-rs on a real cluster on this machine.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install and build whatever the test cluster needs; with everything in place this takes seconds.
    Setup(setup::Args),
    /// Bring the test cluster up, look at it, enter it, take it down.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Build the product's images from local binaries and push them to a cluster's registry.
    Images(images::Args),
    /// Install the chart into a cluster, with images of this tree, and wait until it is ready.
    Deploy(deploy::Args),
    /// See it work: cluster, install, pulls with live progress, proof, and where to look next.
    Demo(demo::Args),
    /// Check everything, or one level: what a change must pass before it lands.
    Test(test::Args),
    /// Measure, and say what was to be reached.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Make the files that are made from code: gRPC bindings, CRDs, reference pages.
    Codegen(codegen::Args),
    /// The small servers of a cluster, which run from a copy of this program.
    #[command(subcommand, hide = true)]
    Internal(internal::Command),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line of causes: a backtrace would tell about this program, not about the cluster.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Setup(args) => setup::run(args),
        Command::Cluster(command) => cluster::run(command),
        Command::Images(args) => images::run(&args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Demo(args) => demo::run(args),
        Command::Test(args) => test::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Codegen(args) => codegen::run(args),
        Command::Internal(command) => internal::run(command),
    }
}
