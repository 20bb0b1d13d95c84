//! Processes known by pid and start time, so that a reused pid is never taken for the old process.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// One process, for good: the kernel gives a pid again, but never with the same start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Clock ticks between boot and the start of the process (field 22 of /proc/PID/stat).
    pub start: u64,
}

/// What a process is doing, as far as tests care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// Stopped by a signal; it keeps its memory, sockets and locks.
    Paused,
    /// Ended, whether or not its parent has taken note.
    Gone,
}

impl Process {
    /// The process that has this pid now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let (state, start) = stat(pid)?;
        (state != State::Gone).then_some(Self { pid, start })
    }

    #[must_use]
    pub fn state(&self) -> State {
        match stat(self.pid) {
            Some((state, start)) if start == self.start => state,
            _ => State::Gone,
        }
    }

    /// Sends a signal; answers false when the process is gone. The pidfd is opened before the start time
    /// is compared, so the signal cannot hit a process that took over the pid in between.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(false);
        };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("cannot open process {}", self.pid)),
        };
        if self.state() == State::Gone {
            return Ok(false);
        }
        match pidfd_send_signal(fd, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot signal process {}", self.pid)),
        }
    }

    /// Proportional set size in bytes: private pages, plus this process's share of the shared ones.
    pub fn pss(&self) -> Result<u64> {
        let path = format!("/proc/{}/smaps_rollup", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        kib_field(&text, "Pss:").with_context(|| format!("no Pss in {path}"))
    }

    /// Resident set size in bytes.
    pub fn rss(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        kib_field(&text, "VmRSS:").with_context(|| format!("no VmRSS in {path}"))
    }
}

/// Every process that is alive at this moment.
pub fn all() -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let Ok(entry) = entry else { continue };
        if let Some(process) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse().ok())
            .and_then(Process::of)
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// The inode of one of a process's namespaces (`net`, `mnt`), which is the namespace's identity.
#[must_use]
pub fn namespace_of(pid: i32, kind: &str) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// How many files, sockets included, a process has open.
pub fn open_files(pid: i32) -> Result<usize> {
    let folder = format!("/proc/{pid}/fd");
    let listed = fs::read_dir(&folder).with_context(|| format!("cannot list {folder}"))?;
    Ok(listed.count())
}

/// The file that a process executes.
#[must_use]
pub fn executable_of(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn stat(pid: i32) -> Option<(State, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name stands in brackets and may itself hold brackets and spaces: count from its end.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = match fields.next()? {
        "Z" | "X" | "x" => State::Gone,
        "T" | "t" => State::Paused,
        _ => State::Running,
    };
    // Field 3 (the state) was the first after the bracket, so field 22 is 18 further on.
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn kib_field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|l| l.strip_prefix(name))?;
    Some(value.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
