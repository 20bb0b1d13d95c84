//! The programs that a cluster is made of: which versions, and where their builds are kept.
//!
//! A build lives at `CACHE/TOOL-VERSION/PROGRAM`. It is moved there whole when it is done, so a file that
//! exists is a finished one and later calls cost a look at the disk.

mod install;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use install::{Setup, install};

/// The Kubernetes version of the cluster.
pub const KUBERNETES: &str = "1.34.3";

/// The names that the one Kubernetes binary answers to.
pub const KUBE_PROGRAMS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
];

/// A program built from a Go module by its package path.
#[derive(Debug)]
pub struct GoTool {
    pub program: &'static str,
    pub package: &'static str,
    pub version: &'static str,
}

/// What people and tests call beside kubectl.
pub const GO_TOOLS: [GoTool; 3] = [
    GoTool {
        program: "crictl",
        package: "sigs.k8s.io/cri-tools/cmd/crictl",
        version: "1.34.0",
    },
    GoTool {
        program: "grpcurl",
        package: "github.com/fullstorydev/grpcurl/cmd/grpcurl",
        version: "1.9.4",
    },
    GoTool {
        program: "helm",
        package: "helm.sh/helm/v3/cmd/helm",
        version: "3.22.0",
    },
];

/// The newer container runtime, for clusters that ask for it.
pub const CONTAINERD_2: [GoTool; 3] = [
    containerd_2("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
    containerd_2(
        "containerd-shim-runc-v2",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    containerd_2("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
];

const fn containerd_2(program: &'static str, package: &'static str) -> GoTool {
    GoTool {
        program,
        package,
        version: "2.2.9",
    }
}

/// Where builds are kept: `KRUISE_CACHE_DIR`, else `~/.cache/kruise-rs`.
pub fn cache_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("KRUISE_CACHE_DIR") {
        return Ok(PathBuf::from(dir));
    }
    let home = env::var_os("HOME").context("neither KRUISE_CACHE_DIR nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cache/kruise-rs"))
}

/// The folder of one tool's finished build.
pub fn build_dir(tool: &str, version: &str) -> Result<PathBuf> {
    Ok(cache_dir()?.join(format!("{tool}-{version}")))
}

impl GoTool {
    /// The finished program. containerd's three programs share a folder, so that containerd finds its
    /// shim beside itself.
    pub fn path(&self) -> Result<PathBuf> {
        let folder = if self.package.contains("/containerd/v2/") {
            "containerd"
        } else {
            self.program
        };
        Ok(build_dir(folder, self.version)?.join(self.program))
    }
}

/// One of the Kubernetes programs, by the name it goes by.
pub fn kube_program(name: &str) -> Result<PathBuf> {
    Ok(build_dir("kube", KUBERNETES)?.join(name))
}

/// The static sandbox process.
pub fn pause_program() -> Result<PathBuf> {
    Ok(build_dir("pause", "1")?.join("pause"))
}

/// Fails with advice when something that a cluster needs is not there yet.
pub fn require(containerd_2: bool) -> Result<()> {
    let mut needed = vec![kube_program("kube")?, pause_program()?];
    for tool in GO_TOOLS
        .iter()
        .chain(CONTAINERD_2.iter().filter(|_| containerd_2))
    {
        needed.push(tool.path()?);
    }
    needed.extend(install::DEBIAN.iter().map(|(file, _)| PathBuf::from(file)));
    let missing: Vec<_> = needed
        .iter()
        .filter(|p| !p.exists())
        .map(|p| p.display().to_string())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let flag = if containerd_2 { " --containerd 2" } else { "" };
    bail!(
        "not installed: {}; run `cargo xtask setup{flag}`",
        missing.join(", ")
    );
}

/// The repository's folder of sources for the cluster's own programs.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster")
}
