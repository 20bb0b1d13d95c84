//! `cargo xtask deploy`: the chart in the test cluster, with images of this tree.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context, Result};
use kruise_api::names::DEFAULT_NAMESPACE;
use kruise_tests::cluster::{Cluster, REGISTRY};
use kruise_tests::cmd;
use kruise_tests::node_login;

use crate::images;
use crate::repo::{build, root};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster to install into.
    #[arg(long, default_value = "kruise")]
    name: String,
    /// A value of the chart, for example manager.replicas=1; may be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
}

/// Tests wait for dead nodes, and the cluster is as old as its nodes.
const VALUES: [&str; 2] = [
    "manager.agentContactLease=30s",
    "manager.nodeImageCreationDelay=0s",
];

pub(crate) fn run(args: &Args) -> Result<()> {
    install_with(&args.name, &args.set)?;
    let cluster = Cluster::attach(&args.name)?;
    print!(
        "{}",
        cluster.kubectl(&["get", "pods", "-n", DEFAULT_NAMESPACE, "-o", "wide"])?
    );
    Ok(())
}

/// Installs or upgrades, and waits until every pod is ready.
pub(crate) fn install(name: &str) -> Result<()> {
    install_with(name, &[])
}

fn install_with(name: &str, set: &[String]) -> Result<()> {
    let cluster = Cluster::attach(name)?;
    let images = images::push(&cluster)?;
    kruisectl(&cluster)?;
    let logins = node_login::prepare(&cluster)?;
    let mut helm = cluster.tool("helm");
    helm.args(["upgrade", "--install", "kruise"])
        .arg(root().join("deploy/chart"));
    helm.args(["--namespace", DEFAULT_NAMESPACE, "--create-namespace"]);
    helm.args([
        "--wait",
        "--timeout",
        "180s",
        "--set",
        &format!("image.registry={REGISTRY}"),
    ]);
    for value in VALUES.iter().copied().chain(logins.iter().map(String::as_str)) {
        helm.args(["--set", value]);
    }
    for image in &images {
        // As text, because a hash may look like a number.
        helm.args([
            "--set-string",
            &format!("{0}.image.tag={1}", image.part, image.tag),
        ]);
    }
    for value in set {
        helm.args(["--set", value]);
    }
    eprintln!("installing the chart into cluster {name:?} ...");
    if let Err(error) = cmd::run(&mut helm).and_then(|_| rolled_out(&cluster)) {
        // Anything but a time-out is said in full by helm itself.
        let slow = ["deadline", "timed out", "not ready"]
            .iter()
            .any(|word| format!("{error:#}").contains(word));
        if slow {
            eprint!("{}", why_not(&cluster));
        }
        return Err(error).with_context(|| format!("cannot install into cluster {name:?}"));
    }
    Ok(())
}

/// Helm is content with most agents; here every one counts.
fn rolled_out(cluster: &Cluster) -> Result<()> {
    for workload in ["deployment/kruise-controller-manager", "daemonset/kruise-daemon"] {
        cluster.kubectl(&[
            "rollout",
            "status",
            "-n",
            DEFAULT_NAMESPACE,
            workload,
            "--timeout",
            "120s",
        ])?;
    }
    Ok(())
}

/// Puts `kruisectl` beside the cluster's other tools and answers where.
pub(crate) fn kruisectl(cluster: &Cluster) -> Result<PathBuf> {
    let program = build(&["kruisectl"])?.join("kruisectl");
    let link = cluster.layout().bin().join("kruisectl");
    if !link.exists() {
        // A link to nothing counts as not there, but is in the way.
        let _ = std::fs::remove_file(&link);
        symlink(&program, &link).with_context(|| format!("cannot link {}", link.display()))?;
    }
    Ok(link)
}

/// What one would look at first.
fn why_not(cluster: &Cluster) -> String {
    let look = |words: &[&str]| {
        cluster
            .kubectl(words)
            .unwrap_or_else(|error| format!("{error:#}\n"))
    };
    let namespace = ["-n", DEFAULT_NAMESPACE];
    let mut text = look(&["get", "pods", namespace[0], namespace[1], "-o", "wide"]);
    text += &look(&[
        "get",
        "events",
        namespace[0],
        namespace[1],
        "--field-selector",
        "type=Warning",
    ]);
    for part in ["controller-manager", "daemon"] {
        text += &look(&[
            "logs",
            namespace[0],
            namespace[1],
            "-l",
            &format!("control-plane={part}"),
            "--tail",
            "10",
            "--prefix",
        ]);
    }
    text
}
