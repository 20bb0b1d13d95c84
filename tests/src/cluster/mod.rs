//! The cluster itself: bringing it up, attaching to it, taking it down, and reaching what is in it.

mod access;
mod cgroups;
mod component;
mod config;
mod control_plane;
pub mod dns;
mod down;
mod layout;
mod lock;
mod mounts;
mod network;
mod nodes;
mod pki;
mod ready;
mod up;

use std::fmt;
use std::fs;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub use access::TEST_AGENT;
pub use component::{Component, Record};
pub use down::Removed;
pub use layout::{API_ADDRESS, API_IP, DNS_IP, Layout, REGISTRY, bed_dir, netns_file};
pub use mounts::furnish;
pub use ready::is_ready;

/// Which container runtime the nodes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Containerd {
    /// The machine's own, from its distribution.
    #[default]
    #[serde(rename = "system")]
    System,
    /// Version 2, built from source.
    #[serde(rename = "2")]
    V2,
}

impl FromStr for Containerd {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "system" => Ok(Self::System),
            "2" => Ok(Self::V2),
            other => Err(format!("`system` or `2`, not {other:?}")),
        }
    }
}

impl fmt::Display for Containerd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::V2 { "2" } else { "system" })
    }
}

/// What cluster to bring up.
#[derive(Clone, Debug)]
pub struct Options {
    pub name: String,
    /// With none, there is an API server and nothing else: no controller acts on what is put into it.
    pub nodes: usize,
    pub containerd: Containerd,
    /// Without kubelets a node is a container runtime and nothing else, and no controller acts.
    pub kubelets: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "kruise".to_owned(),
            nodes: 3,
            containerd: Containerd::System,
            kubelets: true,
        }
    }
}

/// What is written down about a cluster, for whoever attaches to it later.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    pub name: String,
    pub nodes: usize,
    pub containerd: Containerd,
    /// The API server's port on the host's loopback.
    pub api_port: u16,
    /// The registry's port on the host's loopback.
    pub registry_port: u16,
}

/// A handle on a cluster. It owns nothing: dropping it leaves the cluster as it is.
#[derive(Clone, Debug)]
pub struct Cluster {
    layout: Layout,
    description: Description,
}

impl Cluster {
    /// Brings a new cluster up and waits until its nodes are ready. A failed attempt is left as it is, so
    /// that one can look; take it down before the next.
    pub async fn up(options: Options) -> Result<Self> {
        up::up(options).await
    }

    /// Attaches to a cluster that is up.
    pub fn attach(name: &str) -> Result<Self> {
        let layout = Layout::new(name)?;
        if !layout.dir.exists() {
            bail!("there is no cluster {name:?}; `cargo xtask cluster up --name {name}` makes it");
        }
        let file = layout.description();
        let text = fs::read(&file)
            .with_context(|| format!("cluster {name:?} is half made; take it down: {}", down_hint(name)))?;
        let description =
            serde_json::from_slice(&text).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self { layout, description })
    }

    /// Takes a cluster down, from whatever state it is in. Answers what there was to remove.
    pub fn down(name: &str) -> Result<Removed> {
        down::down(&Layout::new(name)?)
    }

    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.layout.name
    }

    /// A component by name, such as `apiserver` or `kubelet-node1`.
    pub fn component(&self, name: &str) -> Result<Component> {
        Component::open(&self.layout.components(), name)
    }

    /// Every component, by name.
    pub fn components(&self) -> Result<Vec<Component>> {
        let dir = self.layout.components();
        component::names(&dir)?
            .iter()
            .map(|name| Component::open(&dir, name))
            .collect()
    }
}

/// The command that takes a cluster down.
fn down_hint(name: &str) -> String {
    format!("`cargo xtask cluster down --name {name}`")
}
