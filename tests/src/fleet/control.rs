//! What a benchmark and a fleet say to each other: a line of JSON each way, one question at a time, over the fleet's standard input and output.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::process::Process;

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.
pub type Stamp = u64;

/// The clock of all stamps.
#[must_use]
pub fn stamp() -> Stamp {
    let time = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// An agent to be played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    pub node: String,
    pub token: String,
}

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub enum Request {
    /// To agents: wait until every one has taken the whole set of a leader with a higher epoch than this.
    InSync { above_epoch: u64, within_ms: u64 },
    /// To agents: wait until so many orders of an image have come.
    Orders {
        image: String,
        count: usize,
        within_ms: u64,
    },
    /// To agents: wait until so many containers have been stopped.
    Stops { count: usize, within_ms: u64 },
    /// To agents: wait until nobody holds a task, that is until every result has been acknowledged.
    Idle { within_ms: u64 },
    /// To agents: how they stand now.
    State,
    /// To the floor: an order of this image to so many agents.
    Broadcast { image: String, count: usize },
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// When things happened, in order of time.
    pub stamps: Vec<Stamp>,
    /// How many agents are attached.
    pub attached: usize,
    /// Tasks that agents hold.
    pub tasks: usize,
    /// Lowest and highest epoch of attached agents.
    pub epochs: Option<(u64, u64)>,
    /// Last words of agents that are not attached.
    pub errors: BTreeMap<String, usize>,
    /// Why the question has no answer.
    pub problem: Option<String>,
}

/// A fleet that was started by this process. It ends with its standard input.
#[derive(Debug)]
pub struct Fleet {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Fleet {
    /// Starts the program with these arguments and waits for its first line.
    pub fn start(program: &Path, arguments: &[String]) -> Result<(Self, Answer)> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("the output was asked for")?);
        let mut fleet = Self { child, input, output };
        let first = fleet.answer()?;
        Ok((fleet, first))
    }

    /// Asks and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        let mut line = serde_json::to_vec(request).context("a question is plain data")?;
        line.push(b'\n');
        let input = self.input.as_mut().context("the fleet was told to end")?;
        input.write_all(&line).context("the fleet is gone")?;
        let answer = self.answer()?;
        match answer.problem {
            Some(problem) => bail!("{request:?}: {problem}; errors: {:?}", answer.errors),
            None => Ok(answer),
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("the fleet is gone")? == 0 {
            bail!("the fleet has ended: {:?}", self.child.wait());
        }
        serde_json::from_str(&line).with_context(|| format!("the fleet said {line:?}"))
    }

    /// The process.
    pub fn process(&self) -> Result<Process> {
        let pid = i32::try_from(self.child.id()).context("a pid fits an i32")?;
        Process::of(pid).context("the fleet is gone")
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Its connections are cut at once, as by the end of a machine.
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
