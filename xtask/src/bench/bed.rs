//! What a benchmark of the control plane runs in: an API server with the chart's objects and nothing that acts on them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kruise_api::names::{DEFAULT_NAMESPACE, TRUST_CONFIGMAP};
use kruise_tests::cluster::{Cluster, Options};
use kruise_tests::cmd;
use kruise_tests::fleet::control::Target;
use kruise_tests::fleet::{nodes, tokens};
use kruise_tests::process::Process;
use serde_json::json;

use crate::repo::{cargo, host, root, target};

/// Programs that are measured, and that measure.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) manager: PathBuf,
    pub(crate) daemon: PathBuf,
    pub(crate) fleet: PathBuf,
}

impl Programs {
    /// Built as they are shipped: optimised and static.
    pub(crate) fn build() -> Result<Self> {
        let host = host()?;
        eprintln!("building the manager and the fleet (release, static) ...");
        // Apart, because features that only the fleet wants would change the manager.
        for words in [
            &["kruise-manager", "--package", "kruise-daemon", "--bins"][..],
            &["kruise-tests", "--features", "fleet", "--bin", "fleet"],
        ] {
            let mut build = cargo();
            build
                .args([
                    "build",
                    "--quiet",
                    "--release",
                    "--locked",
                    "--target",
                    &host,
                    "--package",
                ])
                .args(words)
                .env("RUSTFLAGS", "-C target-feature=+crt-static");
            cmd::show(&mut build)?;
        }
        Ok(Self::in_folder(&target()?.join(host).join("release")))
    }

    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self {
            manager: folder.join("kruise-manager"),
            daemon: folder.join("kruise-daemon"),
            fleet: folder.join("fleet"),
        }
    }
}

/// The API server, and files for the programs.
#[derive(Debug)]
pub(crate) struct Bed {
    pub(crate) cluster: Cluster,
    keep: bool,
}

impl Bed {
    /// Brings it up, or attaches to one that is up. Its nodes are container runtimes and nothing else.
    pub(crate) async fn up(name: &str, nodes: usize, keep: bool) -> Result<Self> {
        let cluster = match Cluster::attach(name) {
            Ok(cluster) => cluster,
            Err(_) => {
                Cluster::down(name).context("cannot take what is left of a cluster down")?;
                let options = Options {
                    name: name.to_owned(),
                    nodes,
                    kubelets: false,
                    ..Options::default()
                };
                Cluster::up(options).await?
            }
        };
        let bed = Self { cluster, keep };
        bed.install()?;
        bed.kubeconfig().await?;
        Ok(bed)
    }

    /// The chart's objects. No controller is there to make pods of them.
    fn install(&self) -> Result<()> {
        let mut helm = self.cluster.tool("helm");
        helm.args(["upgrade", "--install", "kruise"])
            .arg(root().join("deploy/chart"));
        helm.args(["--namespace", DEFAULT_NAMESPACE, "--create-namespace"]);
        // The API server could reach nobody behind the Service, and would wait for each answer in vain.
        helm.args(["--set", "webhookConfiguration.enabled=false"]);
        cmd::run(&mut helm).map(drop)
    }

    /// A kubeconfig with the rights that the manager has in a cluster.
    async fn kubeconfig(&self) -> Result<()> {
        let token = nodes::account_token(&self.cluster, "kruise-manager", tokens::ISSUER).await?;
        let server = format!("https://127.0.0.1:{}", self.cluster.description().api_port);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": server, "certificate-authority": self.cluster.layout().pki("ca.crt")}}],
            "users": [{"name": "manager", "user": {"token": token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "manager"}}],
        });
        self.write("manager.conf", &config.to_string()).map(drop)
    }

    /// Nodes, pods and tokens for so many agents, in a file.
    pub(crate) async fn targets(&self, count: usize) -> Result<PathBuf> {
        let targets: Vec<Target> = nodes::provide(&self.cluster, count).await?;
        let mut text = String::new();
        for target in &targets {
            text += &serde_json::to_string(target)?;
            text.push('\n');
        }
        self.write("targets.jsonl", &text)
    }

    /// The processes that are the API.
    pub(crate) fn api(&self) -> Result<Vec<Process>> {
        ["apiserver", "etcd"]
            .into_iter()
            .map(|name| {
                let process = self.cluster.component(name)?.process();
                process.with_context(|| format!("{name} does not run"))
            })
            .collect()
    }

    /// The trust bundle that agents need, in a file; a manager has to have run.
    pub(crate) fn trust_bundle(&self) -> Result<PathBuf> {
        let path = r"jsonpath={.data.ca\.crt}";
        let words = [
            "get",
            "configmap",
            "-n",
            DEFAULT_NAMESPACE,
            TRUST_CONFIGMAP,
            "-o",
            path,
        ];
        self.write("manager-ca.crt", &self.cluster.kubectl(&words)?)
    }

    /// A file in the bed's own folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.cluster.layout().dir.join("bench").join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = self.file(name);
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/"))).context("cannot make a folder")?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let name = self.cluster.name();
        if self.keep {
            eprintln!("the bed is still up; `cargo xtask cluster down --name {name}` takes it down");
        } else if let Err(error) = Cluster::down(name) {
            eprintln!("cannot take {name} down: {error:#}");
        }
    }
}
