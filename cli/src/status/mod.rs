//! `kruisectl status`: who leads, which managers answer, which agents are in sync, which jobs run.

mod gather;
mod report;

use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;

use self::gather::gather;
use self::report::Report;
use crate::args::{Format, Global, ResultFormat, StatusArgs};
use crate::connect::Cluster;
use crate::exit::{Code, Usage, chain};
use crate::human;
use crate::output;

/// Between two looks with `--wait`.
const PAUSE: Duration = Duration::from_secs(1);

/// Shows the state once, or waits until all agents are in sync.
pub(crate) async fn run(global: &Global, args: &StatusArgs) -> Result<Code> {
    if global.socket.is_some() {
        let text =
            "status is about a cluster; `kruisectl agents --socket PATH` shows the agent of this machine";
        return Err(Usage(text.into()).into());
    }
    let cluster = Cluster::new(global).await?;
    if !args.wait {
        let report = gather(&cluster).await?;
        put(&report, args.output)?;
        return Ok(if report.is_well() {
            Code::Success
        } else {
            Code::NodesFailed
        });
    }
    tokio::select! {
        ended = wait(&cluster, args) => ended,
        _ = tokio::signal::ctrl_c() => Ok(Code::Interrupted),
    }
}

/// Looks again and again, and tells what is waited for whenever that changes. Nothing is given up before the time is over: an installation that is just
/// being made has neither leader nor certificates at first.
async fn wait(cluster: &Cluster, args: &StatusArgs) -> Result<Code> {
    let end = Instant::now() + args.timeout;
    let mut told = String::new();
    loop {
        let looked = tokio::time::timeout_at(end, gather(cluster)).await;
        let waiting_for = match &looked {
            Ok(Ok(report)) if report.in_sync() => {
                put(report, args.output)?;
                return Ok(Code::Success);
            }
            Ok(Ok(report)) => report.not_in_sync(),
            Ok(Err(error)) => chain(error),
            Err(_) => told.clone(),
        };
        if waiting_for != told {
            eprintln!("waiting: {waiting_for}");
            told = waiting_for;
        }
        if Instant::now() + PAUSE >= end {
            if let Ok(Ok(report)) = &looked {
                put(report, args.output)?;
            }
            eprintln!("not in sync after {}", human::duration(args.timeout));
            return Ok(Code::TimedOut);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn put(report: &Report, format: ResultFormat) -> Result<()> {
    match format {
        ResultFormat::Text => output::put(&report.text()),
        ResultFormat::Json => output::put(&output::document(report, Format::Json)?),
    }
}

#[cfg(test)]
mod tests;
