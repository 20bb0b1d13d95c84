//! One component of a cluster: a process in namespaces of its own, with a record on disk, so that any
//! later process can stop it, kill it, pause it and start it again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::process::{Process, State};
use crate::wait::wait_until;

/// How long a component may take to end by itself. The API server would drain watches for a minute.
const GRACE: Duration = Duration::from_secs(10);

/// What it takes to start a component, and the process that it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub name: String,
    /// The program and its arguments, as run inside the namespaces.
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// Network namespace to run in; none means the host's.
    pub net: Option<PathBuf>,
    /// Mount namespace to run in; none means the host's.
    pub mount: Option<PathBuf>,
    /// Standard output and error of every run, one after the other.
    pub log: PathBuf,
    pub process: Option<Process>,
}

/// A handle on a component by its record's file.
#[derive(Clone, Debug)]
pub struct Component {
    file: PathBuf,
    record: Record,
}

impl Component {
    /// Writes the record of a component that is yet to be started.
    pub(crate) fn create(dir: &Path, record: Record) -> Result<Self> {
        let this = Self {
            file: file_of(dir, &record.name),
            record,
        };
        this.save()?;
        Ok(this)
    }

    pub(crate) fn open(dir: &Path, name: &str) -> Result<Self> {
        let file = file_of(dir, name);
        if !file.exists() {
            bail!(
                "no component {name:?}; there are: {}",
                names(dir).unwrap_or_default().join(", ")
            );
        }
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let record =
            serde_json::from_slice(&text).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self { file, record })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.name
    }

    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The process of the last start, if there was one. It may be gone.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        self.record.process
    }

    #[must_use]
    pub fn state(&self) -> State {
        self.record.process.map_or(State::Gone, |p| p.state())
    }

    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state() == State::Running
    }

    /// Starts the component unless it is there already, running or paused.
    pub fn start(&mut self) -> Result<()> {
        self.reload()?;
        if self.state() != State::Gone {
            return Ok(());
        }
        let mut child = self
            .command()?
            .spawn()
            .with_context(|| format!("cannot start {}", self.record.name))?;
        let pid = i32::try_from(child.id()).context("a pid fits an i32")?;
        self.record.process = Process::of(pid);
        self.save()?;
        // Somebody has to collect the child when it ends while this process is still there.
        std::thread::spawn(move || child.wait());
        Ok(())
    }

    /// Asks the component to end, and kills it when it has not after a while.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        // A paused process gets its signals when it goes on.
        self.signal(Signal::CONT)?;
        if self.wait_gone(GRACE).is_err() {
            self.kill9()?;
        }
        Ok(())
    }

    /// Kills the component without warning and waits until it is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait_gone(GRACE)
    }

    /// Freezes the component where it stands: its sockets stay open and answer nothing.
    pub fn pause(&mut self) -> Result<()> {
        self.must_signal(Signal::STOP)?;
        self.wait_state(State::Paused)
    }

    /// Lets a paused component go on.
    pub fn resume(&mut self) -> Result<()> {
        self.must_signal(Signal::CONT)?;
        self.wait_state(State::Running)
    }

    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    /// The last lines of its log, for messages.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read(&self.record.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<_> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    fn command(&self) -> Result<Command> {
        let record = &self.record;
        // A session of its own, so that neither a terminal's end nor its ^C reaches the component.
        // `setsid` and `nsenter` both turn into the program, so the child's pid is the component's.
        let mut command = Command::new("setsid");
        if record.net.is_some() || record.mount.is_some() {
            command.arg("nsenter");
        }
        if let Some(net) = &record.net {
            command.arg(format!("--net={}", net.display()));
        }
        if let Some(mount) = &record.mount {
            command.arg(format!("--mount={}", mount.display()));
        }
        if record.net.is_some() || record.mount.is_some() {
            command.arg("--");
        }
        command
            .args(&record.argv)
            .env_clear()
            .envs(&record.env)
            .current_dir("/");
        let log = open_log(&record.log)?;
        let again = log.try_clone().context("cannot share the log")?;
        command.stdin(Stdio::null()).stdout(log).stderr(again);
        Ok(command)
    }

    fn signal(&mut self, signal: Signal) -> Result<bool> {
        self.reload()?;
        self.record.process.map_or(Ok(false), |p| p.signal(signal))
    }

    fn must_signal(&mut self, signal: Signal) -> Result<()> {
        if !self.signal(signal)? {
            bail!("{} is not running", self.record.name);
        }
        Ok(())
    }

    fn wait_gone(&self, timeout: Duration) -> Result<()> {
        let what = format!("{} to end", self.record.name);
        wait_until(&what, timeout, || match self.state() {
            State::Gone => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    fn wait_state(&self, wanted: State) -> Result<()> {
        let what = format!("{} to be {wanted:?}", self.record.name);
        wait_until(&what, GRACE, || match self.state() {
            seen if seen == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    /// Another process may have restarted the component since this handle was made.
    fn reload(&mut self) -> Result<()> {
        let text = fs::read(&self.file).with_context(|| format!("cannot read {}", self.file.display()))?;
        self.record =
            serde_json::from_slice(&text).with_context(|| format!("cannot read {}", self.file.display()))?;
        Ok(())
    }

    fn save(&self) -> Result<()> {
        let text = serde_json::to_vec_pretty(&self.record).context("a record is plain data")?;
        write_whole(&self.file, &text)
    }
}

/// The names of the components that have a record.
pub(crate) fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".json").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Writes a file so that readers see the old content or the new, never half of it.
pub(crate) fn write_whole(file: &Path, content: &[u8]) -> Result<()> {
    let scratch = file.with_extension("new");
    fs::write(&scratch, content).with_context(|| format!("cannot write {}", scratch.display()))?;
    fs::rename(&scratch, file).with_context(|| format!("cannot write {}", file.display()))
}

fn file_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}
