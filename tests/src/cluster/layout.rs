//! Where everything of a cluster is, derived from its name alone, so that a take-down also works when
//! nothing was written down.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// The control plane's address on the bridge. Each cluster has its own network, so all use the same.
pub const API_IP: &str = "10.90.0.1";
/// The API server inside the cluster's network.
pub const API_ADDRESS: &str = "10.90.0.1:6443";
/// The registry as image references name it.
pub const REGISTRY: &str = "10.90.0.1:5000";
/// The cluster DNS Service.
pub const DNS_IP: &str = "10.96.0.10";
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
pub(crate) const POD_RANGE: &str = "10.91.0.0/16";

/// The sandbox image, by reference.
pub(crate) const PAUSE_IMAGE: (&str, &str) = ("pause", "3.10");

/// Host folders that each node has for itself, and the folder of the node that stands in for each.
pub(crate) const PRIVATE: [(&str, &str); 3] = [("run", "/run"), ("lib", "/var/lib"), ("log", "/var/log")];

/// The places of one cluster.
#[derive(Clone, Debug)]
pub struct Layout {
    pub name: String,
    pub dir: PathBuf,
}

impl Layout {
    /// The places of the cluster of this name. Refuses names and folders that cannot work.
    pub fn new(name: &str) -> Result<Self> {
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if name.is_empty() || name.len() > 20 || !plain || name.starts_with('-') || name.ends_with('-') {
            bail!("a cluster's name is up to 20 lower-case letters, digits and inner dashes, not {name:?}");
        }
        let root = bed_dir();
        for (_, hidden) in PRIVATE {
            if root.starts_with(hidden) {
                bail!(
                    "KRUISE_BED_DIR {} lies in {hidden}, which each node hides",
                    root.display()
                );
            }
        }
        Ok(Self {
            name: name.to_owned(),
            dir: root.join(name),
        })
    }

    /// The network namespace of the control plane.
    #[must_use]
    pub fn control_plane(&self) -> String {
        format!("{}-cp", self.name)
    }

    /// The name of a node's network namespace, which its cgroups carry too.
    #[must_use]
    pub fn node_namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Whether a network namespace or cgroup of this name is this cluster's. The match is exact up to the
    /// node's number, so that clusters `a` and `a-b` never take each other down.
    #[must_use]
    pub fn owns(&self, name: &str) -> bool {
        let Some(part) = name.strip_prefix(&self.name).and_then(|r| r.strip_prefix('-')) else {
            return false;
        };
        let number = part.strip_prefix("node").unwrap_or("");
        part == "cp" || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    }

    #[must_use]
    pub fn description(&self) -> PathBuf {
        self.dir.join("cluster.json")
    }

    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.dir.join("log")
    }

    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.jsonl")
    }

    #[must_use]
    pub fn components(&self) -> PathBuf {
        self.dir.join("components")
    }

    /// Links to the tools, and this cluster's own copy of the helper program.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    #[must_use]
    pub fn helper(&self) -> PathBuf {
        self.bin().join("xtask")
    }

    /// Spares people crictl's warnings that it has no settings.
    #[must_use]
    pub fn crictl_config(&self) -> PathBuf {
        self.dir.join("crictl.yaml")
    }

    #[must_use]
    pub fn kubeconfig(&self, who: &str) -> PathBuf {
        self.dir.join("kube").join(format!("{who}.conf"))
    }

    #[must_use]
    pub fn pki(&self, file: &str) -> PathBuf {
        self.dir.join("pki").join(file)
    }

    /// The folder of pinned mount namespaces.
    #[must_use]
    pub fn pins(&self) -> PathBuf {
        self.dir.join("ns")
    }

    #[must_use]
    pub fn mount_namespace(&self, node: &str) -> PathBuf {
        self.pins().join(node)
    }

    /// A node's own folder: its private directories and its configuration.
    #[must_use]
    pub fn node(&self, node: &str) -> PathBuf {
        self.dir.join(node)
    }
}

/// Where the clusters' state is kept: `KRUISE_BED_DIR`, else a folder that survives a reboot's cleaning.
#[must_use]
pub fn bed_dir() -> PathBuf {
    env::var_os("KRUISE_BED_DIR").map_or_else(|| PathBuf::from("/var/tmp/kruise-rs"), PathBuf::from)
}

/// The file that names a network namespace.
#[must_use]
pub fn netns_file(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// A node's name from its number, counted from 1.
#[must_use]
pub(crate) fn node_name(number: usize) -> String {
    format!("node{number}")
}

/// A node's address on the bridge.
#[must_use]
pub(crate) fn node_ip(number: usize) -> String {
    format!("10.90.1.{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owns_only_its_own_namespaces() {
        let layout = Layout::new("a").unwrap();
        for (name, own) in [
            ("a-cp", true),
            ("a-node1", true),
            ("a-node12", true),
            ("a-b-cp", false),
            ("a-node", false),
            ("ab-cp", false),
            ("a-nodex", false),
        ] {
            assert_eq!(layout.owns(name), own, "{name}");
        }
    }

    #[test]
    fn refuses_names_that_cannot_be_namespaces() {
        for bad in ["", "A", "a b", "-a", "a-", "a/b", "a-name-that-is-far-too-long"] {
            assert!(Layout::new(bad).is_err(), "{bad:?}");
        }
    }
}
