//! `kruisectl`: pulls images onto nodes and shows what agents do, for people.
//!
//! Nothing here decides anything: the custom resource is created in the API, and what is shown comes from the manager's inspection
//! service ([`connect`]), from a node's own socket, or from the job's status.
#![allow(clippy::print_stderr, reason = "this program talks to a person at a terminal")]

mod agents;
mod args;
mod connect;
mod convert;
#[cfg(test)]
mod documented;
mod documents;
mod exit;
mod explain;
#[cfg(test)]
mod fake;
mod human;
mod images;
mod inplace;
mod output;
mod plan;
mod pull;
mod recreate;
mod restart_container;
mod rollout;
mod status;
mod tasks;
mod validate;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(anyhow::Error::new(error).context("cannot start the asynchronous runtime")),
    };
    done.unwrap_or_else(|error| exit::report(&error)).into()
}

async fn run(cli: Cli) -> anyhow::Result<exit::Code> {
    match cli.command {
        Command::Pull(args) => pull::run(&cli.global, args).await,
        Command::Follow(args) => pull::follow(&cli.global, args).await,
        Command::Explain(args) => explain::run(&cli.global, args).await,
        Command::Rollout(args) => rollout::run(&cli.global, args).await,
        Command::ScaleDown(args) => rollout::scale_down(&cli.global, args).await,
        Command::Restart(args) => recreate::run(&cli.global, *args).await,
        Command::Agents(args) => agents::run(&cli.global, args).await,
        Command::Tasks(args) => tasks::run(&cli.global, args).await,
        Command::Status(args) => status::run(&cli.global, &args).await,
        Command::Images(args) => images::run(&cli.global, &args).await,
        Command::RestartContainer(args) => restart_container::run(&cli.global, args).await,
        Command::Validate(args) => validate::run(&args),
        Command::InPlace(args) => inplace::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Plan(args) => plan::run(&cli.global, *args).await,
        Command::Version => {
            output::put(concat!("kruisectl ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(exit::Code::Success)
        }
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kruisectl", &mut script);
            output::put(&String::from_utf8_lossy(&script))?;
            Ok(exit::Code::Success)
        }
    }
}
