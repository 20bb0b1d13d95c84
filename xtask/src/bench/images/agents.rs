//! The agent as it is shipped, one process per node of the bed.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kruise_tests::fleet::control::Target;
use kruise_tests::process::Process;
use kruise_tests::wait::wait_until;

use crate::bench::bed::{Bed, Programs};
use crate::bench::scale::free_address;

/// For the first contact of all agents with runtime and manager.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A running agent. It is killed when dropped.
#[derive(Debug)]
pub(super) struct Agent {
    child: Child,
    /// Node of the bed whose runtime it uses.
    pub(super) node: String,
    socket: PathBuf,
}

impl Agent {
    /// Starts one for a node, with these flags beside those of its place.
    fn start(bed: &Bed, programs: &Programs, node: &str, flags: &[String]) -> Result<Self> {
        let place = bed.file(node);
        fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
        let socket = place.join("agent.sock");
        let log = File::create(place.join("agent.log")).context("cannot write the agent's log")?;
        let runtime = bed.cluster.containerd_socket(node);
        let child = Command::new(&programs.daemon)
            .arg(format!("--socket-file={}", runtime.display()))
            .arg(format!("--node-socket={}", socket.display()))
            .args(flags)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", programs.daemon.display()))?;
        Ok(Self {
            child,
            node: node.to_owned(),
            socket,
        })
    }

    /// One that works without a manager, ready to pull.
    pub(super) fn alone(bed: &Bed, programs: &Programs, node: &str) -> Result<Self> {
        let agent = Self::start(bed, programs, node, &["--standalone".to_owned()])?;
        wait_until("the agent's runtime", READY_WITHIN, || {
            let told = agent.told(bed).map_err(|error| format!("{error:#}"))?;
            told.contains("\"runtime\"").then_some(()).ok_or(told)
        })?;
        Ok(agent)
    }

    pub(super) fn process(&self) -> Result<Process> {
        let pid = i32::try_from(self.child.id()).context("a pid fits an i32")?;
        Process::of(pid).with_context(|| format!("the agent of {} has ended", self.node))
    }

    /// A call of its node service.
    pub(super) fn call(&self, bed: &Bed, method: &str, request: &str) -> Command {
        let mut call = bed.cluster.tool("grpcurl");
        call.args(["-plaintext", "-unix", "-d", request])
            .arg(&self.socket)
            .arg(format!("kruise.node.v1.NodeService/{method}"));
        call
    }

    fn told(&self, bed: &Bed) -> Result<String> {
        kruise_tests::cmd::run(&mut self.call(bed, "GetAgent", "{}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Failing means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the agent of each node of the bed, in the name of one target each, and waits until all are attached.
pub(super) fn start(
    bed: &Bed,
    programs: &Programs,
    manager: SocketAddr,
    targets: &Path,
) -> Result<Vec<Agent>> {
    let ca = bed.trust_bundle()?;
    let text = fs::read_to_string(targets).context("cannot read the targets")?;
    let mut agents = Vec::new();
    for (node, line) in bed.cluster.nodes().iter().zip(text.lines()) {
        let target: Target = serde_json::from_str(line).context("a target is a line of JSON")?;
        let token = bed.write(&format!("{node}/token"), &target.token)?;
        let flags = [
            format!("--node-name={}", target.node),
            format!("--manager={manager}"),
            format!("--manager-ca={}", ca.display()),
            format!("--token={}", token.display()),
            format!("--state-dir={}", bed.file(node).join("state").display()),
            format!("--addr={}", free_address()?),
        ];
        agents.push(Agent::start(bed, programs, node, &flags)?);
    }
    for agent in &agents {
        wait_until(&format!("the agent of {}", agent.node), READY_WITHIN, || {
            let told = agent.told(bed).map_err(|error| format!("{error:#}"))?;
            told.contains("CONTACT_ATTACHED").then_some(()).ok_or(told)
        })?;
    }
    Ok(agents)
}

/// How long `crictl pull` takes, as whoever types it sees it.
pub(super) fn crictl_pull(bed: &Bed, node: &str, image: &str) -> Result<Duration> {
    let begun = Instant::now();
    kruise_tests::cmd::run(crictl(bed, node).args(["pull", image]))?;
    Ok(begun.elapsed())
}

/// Takes an image off a node, so that the disk is not full of them.
pub(super) fn remove(bed: &Bed, node: &str, image: &str) -> Result<()> {
    kruise_tests::cmd::run(crictl(bed, node).args(["rmi", image])).map(drop)
}

fn crictl(bed: &Bed, node: &str) -> Command {
    let socket = bed.cluster.containerd_socket(node);
    let mut crictl = bed.cluster.tool("crictl");
    crictl
        .env("CRI_CONFIG_FILE", bed.cluster.layout().crictl_config())
        .arg(format!("--runtime-endpoint=unix://{}", socket.display()))
        .arg(format!("--image-endpoint=unix://{}", socket.display()))
        .arg("--timeout=10m");
    crictl
}
