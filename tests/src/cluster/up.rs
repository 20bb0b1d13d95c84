//! Bringing a cluster up: first everything that only takes files and namespaces, then the processes, each
//! as soon as what it needs is there.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::layout::{Layout, PAUSE_IMAGE, netns_file, node_name};
use super::lock::BedLock;
use super::{
    Cluster, Component, Containerd, Description, Options, Record, cgroups, component, control_plane,
    down_hint, mounts, network, nodes, pki,
};
use crate::net::forward::free_port;
use crate::registry::{ImageSpec, LayerSpec};
use crate::tools::{self, CONTAINERD_2, GO_TOOLS};

/// More nodes than this do not fit the address plan, nor any machine this is meant for.
const MAX_NODES: usize = 50;

pub(super) async fn up(options: Options) -> Result<Cluster> {
    let layout = Layout::new(&options.name)?;
    let cluster = prepare(layout, &options)?;
    let name = cluster.name().to_owned();
    start(&cluster, options.kubelets).await.with_context(|| {
        let logs = cluster.layout.logs();
        format!(
            "cluster {name:?} did not come up; logs: {}; then {}",
            logs.display(),
            down_hint(&name)
        )
    })?;
    Ok(cluster)
}

/// Everything up to the first process.
fn prepare(layout: Layout, options: &Options) -> Result<Cluster> {
    if options.nodes > MAX_NODES {
        bail!("a cluster has up to {MAX_NODES} nodes, not {}", options.nodes);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("a cluster makes network and mount namespaces, which takes root");
    }
    tools::require(options.containerd == Containerd::V2)?;
    let helper = helper_program()?;
    let _lock = BedLock::acquire()?;
    if layout.dir.exists() {
        bail!(
            "there is a cluster {:?} already; take it down first: {}",
            layout.name,
            down_hint(&layout.name)
        );
    }
    for folder in [
        layout.dir.clone(),
        layout.logs(),
        layout.components(),
        layout.bin(),
    ] {
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let description = Description {
        name: layout.name.clone(),
        nodes: options.nodes,
        containerd: options.containerd,
        api_port: free_port()?,
        registry_port: free_port()?,
    };
    // Written first, so that a half-made cluster can be looked at with the usual commands.
    let text = serde_json::to_vec_pretty(&description).context("a description is plain data")?;
    component::write_whole(&layout.description(), &text)?;
    // A copy, so that building the helper anew neither fails on a busy file nor changes a running cluster.
    fs::copy(&helper, layout.helper()).with_context(|| format!("cannot copy {}", helper.display()))?;
    link_tools(&layout, options.containerd)?;
    let crictl = "runtime-endpoint: unix:///run/containerd/containerd.sock\ntimeout: 10\n";
    fs::write(layout.crictl_config(), crictl).context("cannot write crictl's settings")?;
    pki::make(&layout, options.nodes, description.api_port)?;
    network::make(&layout, options.nodes)?;
    mounts::make_pins(&layout)?;
    for number in 1..=options.nodes {
        mounts::make(&layout, &node_name(number))?;
        cgroups::make(&layout, &node_name(number))?;
    }
    Ok(Cluster { layout, description })
}

async fn start(cluster: &Cluster, kubelets: bool) -> Result<()> {
    control_plane::start_storage(cluster)?;
    control_plane::start_apiserver(cluster)?;
    if cluster.description().nodes == 0 {
        // An API server alone, in which nothing acts by itself: no controller, no scheduler, no collector of garbage.
        return cluster.wait_api().await.map(drop);
    }
    nodes::start_runtimes(cluster)?;
    if !kubelets {
        cluster.wait_registry().await?;
        nodes::wait_runtimes(cluster).await?;
        return cluster.wait_api().await.map(drop);
    }
    // The sandbox image must be there before the first pod; it is pushed while the API server starts.
    push_pause(cluster).await?;
    let client = cluster.wait_api().await?;
    control_plane::start_controllers(cluster)?;
    nodes::start_agents(cluster).await?;
    control_plane::start_dns(cluster, &client).await?;
    cluster.wait_ready(Duration::from_secs(60)).await?;
    control_plane::start_proxy(cluster)
}

async fn push_pause(cluster: &Cluster) -> Result<()> {
    let (name, tag) = PAUSE_IMAGE;
    let pause = LayerSpec::files(vec![("/pause", tools::pause_program()?, 0o755)]);
    let spec = ImageSpec::new(name, tag).layer(pause).entrypoint(["/pause"]);
    cluster.wait_registry().await?;
    cluster
        .registry()
        .push(&spec)
        .await
        .context("cannot push the sandbox image")?;
    Ok(())
}

/// The program with the `internal` subcommands: this one, or the one that a test names.
fn helper_program() -> Result<PathBuf> {
    if let Some(path) = env::var_os("KRUISE_XTASK") {
        return Ok(PathBuf::from(path));
    }
    let own = env::current_exe().context("cannot find this program's own file")?;
    if let Some(own) = xtask_at(&own) {
        return Ok(own);
    }
    bail!("set KRUISE_XTASK to the built xtask program: it holds the cluster's own small servers")
}

/// The file to start again, if it is `xtask`. Cargo puts a newer build in the place of a running one, whose own file then counts
/// as deleted; the newer one has the same subcommands.
fn xtask_at(own: &Path) -> Option<PathBuf> {
    let name = own.file_name()?.to_str()?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    (name == "xtask").then(|| own.with_file_name(name))
}

fn link_tools(layout: &Layout, containerd: Containerd) -> Result<()> {
    let mut programs = vec![tools::kube_program("kubectl")?];
    for tool in GO_TOOLS
        .iter()
        .chain(CONTAINERD_2.iter().filter(|_| containerd == Containerd::V2))
    {
        programs.push(tool.path()?);
    }
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        symlink(&program, layout.bin().join(name))
            .with_context(|| format!("cannot link {}", program.display()))?;
    }
    Ok(())
}

/// What a component is, before it becomes a record.
pub(super) struct Spec<'a> {
    pub(super) name: String,
    pub(super) program: &'a Path,
    pub(super) args: Vec<String>,
    /// The network namespace by name; none for a process of the host's network.
    pub(super) netns: Option<String>,
    /// The node whose file system it sees.
    pub(super) node: Option<&'a str>,
}

/// Records a component and starts it.
pub(super) fn launch(layout: &Layout, spec: Spec<'_>) -> Result<Component> {
    let mut argv = vec![spec.program.display().to_string()];
    argv.extend(spec.args);
    // A home of its own: nobody's registry credentials or client settings get into the cluster.
    let env = BTreeMap::from([
        ("PATH".to_owned(), search_path(layout)),
        ("HOME".to_owned(), layout.dir.display().to_string()),
    ]);
    let record = Record {
        argv,
        env,
        net: spec.netns.map(|name| netns_file(&name)),
        mount: spec.node.map(|node| layout.mount_namespace(node)),
        log: layout.logs().join(format!("{}.log", spec.name)),
        process: None,
        name: spec.name,
    };
    let mut component = Component::create(&layout.components(), record)?;
    component.start()?;
    Ok(component)
}

/// The cluster's tools before the system's.
pub(super) fn search_path(layout: &Layout) -> String {
    format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        layout.bin().display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cargo_replaced_meanwhile_is_found_in_its_place() {
        let found = |path: &str| xtask_at(Path::new(path));
        assert_eq!(found("/t/debug/xtask"), Some(PathBuf::from("/t/debug/xtask")));
        assert_eq!(
            found("/t/debug/xtask (deleted)"),
            Some(PathBuf::from("/t/debug/xtask"))
        );
        assert_eq!(found("/t/debug/deps/e2e-12ab"), None);
    }
}
