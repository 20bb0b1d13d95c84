//! A fleet of agents, or a bare server to compare with, in a process of its own. Started by `cargo xtask bench`; speaks lines of JSON.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command line tool: printing is what it does"
)]

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use kruise_tests::fleet::agents::{Agents, Plan};
use kruise_tests::fleet::control::{Answer, Request, Target};
use kruise_tests::fleet::floor::{Floor, SelfSigned};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[derive(Debug, Parser)]
enum Command {
    /// Play agents.
    Agents {
        /// `IP:port` of the manager.
        #[arg(long)]
        manager: SocketAddr,
        /// File with its certificate authority.
        #[arg(long)]
        ca: PathBuf,
        /// File with a line of JSON per agent.
        #[arg(long)]
        targets: PathBuf,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Spreads the first dials, in milliseconds.
        #[arg(long, default_value_t = 5000)]
        ramp: u64,
    },
    /// Serve agents as barely as possible.
    Floor {
        #[arg(long)]
        listen: String,
        /// Number of the leadership.
        #[arg(long, default_value_t = 1)]
        epoch: u64,
        /// File with the certificate; made if it is missing.
        #[arg(long)]
        ca: PathBuf,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    match Command::parse() {
        Command::Agents {
            manager,
            ca,
            targets,
            seed,
            ramp,
        } => {
            let text = fs::read_to_string(&targets).context("cannot read the targets")?;
            let targets: Vec<Target> = text
                .lines()
                .map(serde_json::from_str)
                .collect::<Result<_, _>>()
                .context("a target is a line of JSON")?;
            let plan = Plan {
                manager,
                ca: fs::read_to_string(&ca).context("cannot read the certificate authority")?,
                seed,
                ramp: Duration::from_millis(ramp),
            };
            let agents = Agents::start(&plan, targets);
            talk(async |request| agents.answer(request).await).await
        }
        Command::Floor { listen, epoch, ca } => {
            let floor = Floor::new(epoch);
            let identity = SelfSigned::at(&ca)?;
            let serving = floor.clone().serve(&listen, &identity).await?;
            tokio::select! {
                ended = serving => ended,
                ended = talk(async |request| floor.answer(request).await) => ended,
            }
        }
    }
}

/// Answers questions until standard input ends.
async fn talk(answer: impl AsyncFn(Request) -> Answer) -> Result<()> {
    say(&Answer::default())?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let request = serde_json::from_str(&line).with_context(|| format!("no question: {line}"))?;
        say(&answer(request).await)?;
    }
    Ok(())
}

fn say(answer: &Answer) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
