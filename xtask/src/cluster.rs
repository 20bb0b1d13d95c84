//! `cargo xtask cluster`: the test cluster by hand.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Subcommand;
use k8s_openapi::api::core::v1::Node;
use kruise_tests::cluster::{Cluster, Containerd, Options, is_ready};
use kruise_tests::process::State;
use kube::api::{Api, ListParams};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring a cluster up and wait until its nodes are ready.
    Up {
        #[command(flatten)]
        which: Which,
        #[arg(long, default_value_t = 3)]
        nodes: usize,
        /// The container runtime of the nodes: the system's, or version 2.
        #[arg(long, default_value_t, value_name = "system|2")]
        containerd: Containerd,
    },
    /// Take a cluster down, from whatever state it is in.
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// Print what a shell needs to use a cluster: eval "$(cargo xtask cluster env)".
    Env {
        #[command(flatten)]
        which: Which,
    },
    /// Show a cluster's components and nodes.
    Status {
        #[command(flatten)]
        which: Which,
    },
    /// Stop, kill, pause or start one component, such as kubelet-node1; `status` lists them.
    Component {
        #[command(flatten)]
        which: Which,
        component: String,
        action: Action,
    },
    /// Run a program on a node: in its network, with its file system.
    Exec {
        #[command(flatten)]
        which: Which,
        /// Such as node1.
        node: String,
        #[arg(last = true, required = true)]
        argv: Vec<String>,
    },
}

/// What to do with a component.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Action {
    Start,
    /// Ask it to end, and kill it if it does not.
    Stop,
    Restart,
    /// Kill it without warning.
    Kill,
    /// Freeze it where it stands.
    Pause,
    Resume,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// Clusters of different names stand side by side.
    #[arg(long, default_value = "kruise")]
    name: String,
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Up {
            which,
            nodes,
            containerd,
        } => wait(up(Options {
            name: which.name,
            nodes,
            containerd,
            ..Options::default()
        })),
        Command::Down { which } => down(&which.name),
        Command::Env { which } => env(&which.name),
        Command::Status { which } => wait(status(&which.name)),
        Command::Component {
            which,
            component,
            action,
        } => act(&which.name, &component, action),
        Command::Exec { which, node, argv } => exec(&which.name, &node, &argv),
    }
}

async fn up(options: Options) -> Result<()> {
    let begun = Instant::now();
    let cluster = Cluster::up(options).await?;
    let (name, nodes) = (cluster.name(), cluster.nodes().len());
    eprintln!(
        "cluster {name:?}: {nodes} nodes ready after {:.1?}",
        begun.elapsed()
    );
    eprintln!("use it:       eval \"$(cargo xtask cluster env --name {name})\"");
    eprintln!("take it down: cargo xtask cluster down --name {name}");
    Ok(())
}

fn down(name: &str) -> Result<()> {
    let removed = Cluster::down(name)?;
    if removed.nothing() {
        eprintln!("there is no cluster {name:?} and nothing of one");
    } else {
        eprintln!("cluster {name:?} is gone: {removed}");
    }
    Ok(())
}

fn env(name: &str) -> Result<()> {
    let cluster = Cluster::attach(name)?;
    let (ports, layout) = (cluster.description(), cluster.layout());
    let mut text = String::new();
    for (name, value) in cluster.tool_env() {
        writeln!(text, "export {name}='{}'", value.display())?;
    }
    write!(
        text,
        "export PATH='{}':\"$PATH\"\n\
         export KRUISE_BED='{name}'\n\
         # kubectl get nodes,pods -A\n\
         # cargo xtask cluster exec --name {name} node1 -- crictl images\n\
         # cargo xtask cluster exec --name {name} node1 -- bash\n\
         # API server: https://127.0.0.1:{}   registry: http://127.0.0.1:{}\n\
         # logs: {}\n",
        layout.bin().display(),
        ports.api_port,
        ports.registry_port,
        layout.logs().display(),
    )?;
    say(&text)
}

async fn status(name: &str) -> Result<()> {
    let cluster = Cluster::attach(name)?;
    let mut table = format!("{:<20} {:<8} PID\n", "COMPONENT", "STATE");
    for component in cluster.components()? {
        let state = match component.state() {
            State::Running => "running",
            State::Paused => "paused",
            State::Gone => "stopped",
        };
        let pid = component
            .process()
            .filter(|p| p.state() != State::Gone)
            .map(|p| p.pid.to_string());
        writeln!(
            table,
            "{:<20} {state:<8} {}",
            component.name(),
            pid.as_deref().unwrap_or("-")
        )?;
    }
    say(&table)?;
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    let asked = tokio::time::timeout(Duration::from_secs(5), nodes.list(&ListParams::default())).await;
    let list = asked
        .context("the API server does not answer")?
        .context("the API server does not answer")?;
    let mut table = format!("\n{:<20} READY\n", "NODE");
    for node in list {
        let ready = if is_ready(&node) { "yes" } else { "no" };
        writeln!(table, "{:<20} {ready}", node.metadata.name.unwrap_or_default())?;
    }
    say(&table)
}

/// Prints at once. Whoever stops reading early, such as `head`, has what they wanted.
fn say(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print"),
    }
}

fn act(name: &str, component: &str, action: Action) -> Result<()> {
    let mut component = Cluster::attach(name)?.component(component)?;
    match action {
        Action::Start => component.start(),
        Action::Stop => component.stop(),
        Action::Restart => component.restart(),
        Action::Kill => component.kill9(),
        Action::Pause => component.pause(),
        Action::Resume => component.resume(),
    }
}

/// Turns into the program, so that its exit status, signals and terminal are the caller's.
fn exec(name: &str, node: &str, argv: &[String]) -> Result<()> {
    let mut command = Cluster::attach(name)?.node_command(node, argv)?;
    Err(command.exec()).context("cannot enter the node")
}

fn wait<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?
        .block_on(work)
}
