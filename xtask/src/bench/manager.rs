//! The manager as a process of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use kruise_api::names::DEFAULT_NAMESPACE;
use kruise_tests::fleet::control::{Stamp, stamp};
use kruise_tests::process::Process;
use kruise_tests::wait::wait_until;

use super::bed::{Bed, Programs};
use super::scale::free_address;

/// Longest time from start to leadership: a lease of a killed one has to run out first.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// A running manager. It is killed when dropped.
#[derive(Debug)]
pub(crate) struct Manager {
    child: Child,
    address: SocketAddr,
    metrics: SocketAddr,
    log: PathBuf,
    started: Stamp,
}

/// How it is started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start<'a> {
    /// Lets it log each decision to give an order.
    pub(crate) log_orders: bool,
    /// Leads at once, without a lease.
    pub(crate) alone: bool,
    /// More flags.
    pub(crate) flags: &'a [String],
}

impl Manager {
    pub(crate) fn start(bed: &Bed, programs: &Programs, address: SocketAddr, how: Start<'_>) -> Result<Self> {
        let log = bed.file(&format!("manager-{}.log", stamp()));
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let filter = if how.log_orders {
            "info,kruise_manager::engine::state::planning=debug,kruise_manager::dispatch=warn"
        } else {
            "info"
        };
        let metrics = free_address()?;
        let started = stamp();
        let child = Command::new(&programs.manager)
            .arg(format!("--grpc-addr={address}"))
            .args([
                &format!("--metrics-addr={metrics}"),
                &format!("--enable-leader-election={}", !how.alone),
                "--health-probe-addr=0",
                "--nodeimage-creation-delay=0s",
            ])
            .args(how.flags)
            .env_clear()
            .env("KUBECONFIG", bed.file("manager.conf"))
            .env("KRUISE_LOG", filter)
            .envs([
                ("POD_NAME", "bench-0"),
                ("POD_NAMESPACE", DEFAULT_NAMESPACE),
                ("POD_IP", "127.0.0.1"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .context("cannot start the manager")?;
        Ok(Self {
            child,
            address,
            metrics,
            log,
            started,
        })
    }

    pub(crate) fn process(&self) -> Result<Process> {
        let pid = i32::try_from(self.child.id()).context("a pid fits an i32")?;
        Process::of(pid).with_context(|| format!("the manager has ended; see {}", self.log.display()))
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Stamp {
        self.started
    }

    /// Waits until it accepts connections, and answers when that was.
    pub(crate) fn listens(&self) -> Result<Stamp> {
        wait_until("the manager to listen", LEADS_WITHIN, || {
            TcpStream::connect(self.address)
                .map(drop)
                .map_err(|error| error.to_string())
        })?;
        Ok(stamp())
    }

    /// Waits until it leads, and answers when that was and with which epoch.
    pub(crate) fn leads(&self) -> Result<(Stamp, u64)> {
        let mut found = None;
        wait_until("the manager to lead", LEADS_WITHIN, || {
            self.process().map_err(|error| error.to_string())?;
            found = self.lines("the engine starts").into_iter().next();
            found.as_ref().map(drop).ok_or_else(|| "not yet".to_owned())
        })?;
        let (at, line) = found.context("it was just found")?;
        let epoch = line
            .split("epoch=")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        Ok((at, epoch.with_context(|| format!("no epoch in {line:?}"))?))
    }

    /// Connections that were closed before they were of use, by reason.
    pub(crate) fn closed_early(&self) -> Result<BTreeMap<String, u64>> {
        let mut stream = TcpStream::connect(self.metrics).context("no metrics")?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let closed = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("kruise_grpc_connections_closed_early_total{reason=\"")?;
            let (reason, count) = rest.split_once("\"} ")?;
            Some((reason.to_owned(), count.parse().ok()?))
        });
        Ok(closed.collect())
    }

    /// Lines of the log with these words, each with its time.
    pub(crate) fn lines(&self, words: &str) -> Vec<(Stamp, String)> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines()
            .filter(|line| line.contains(words))
            .filter_map(|line| {
                Some((
                    monotonic(line.split_whitespace().next()?.parse().ok()?)?,
                    line.to_owned(),
                ))
            })
            .collect()
    }

    /// Kills it without warning.
    pub(crate) fn kill9(mut self) -> Result<()> {
        self.child.kill().context("cannot kill the manager")?;
        self.child.wait().map(drop).context("cannot wait for the manager")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Failing means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A moment of the wall clock on the clock of stamps.
fn monotonic(wall: Timestamp) -> Option<Stamp> {
    let (wall_now, now) = (Timestamp::now(), stamp());
    let ago = u64::try_from(wall_now.duration_since(wall).as_nanos()).ok()?;
    now.checked_sub(ago)
}
