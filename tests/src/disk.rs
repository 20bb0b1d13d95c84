//! Small file systems on a node, for tests of full disks.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cluster::Cluster;

/// A file system of a chosen size over a folder of a node. Dropping it gives the folder back.
#[derive(Debug)]
pub struct SmallDisk {
    cluster: Cluster,
    node: String,
    path: String,
}

impl SmallDisk {
    /// Mounts an empty file system of `bytes` over `path`, one of the node's own folders, for processes and
    /// containers that start from now on; whoever has the folder open keeps the old one.
    pub fn mount(cluster: &Cluster, node: &str, path: &str, bytes: u64) -> Result<Self> {
        let below = cluster.node_path(node, path)?;
        fs::create_dir_all(&below).with_context(|| format!("cannot create {}", below.display()))?;
        let options = format!("size={bytes},mode=0755");
        cluster.node_exec(node, &["mount", "-t", "tmpfs", "-o", &options, "small", path])?;
        Ok(Self {
            cluster: cluster.clone(),
            node: node.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Fills the file system up to so many free bytes.
    pub fn fill(&self, leave: u64) -> Result<()> {
        let free = self.free()?;
        let size = free.saturating_sub(leave).to_string();
        self.cluster
            .node_exec(&self.node, &["fallocate", "-l", &size, &self.ballast()])
            .map(drop)
    }

    /// Removes what [`SmallDisk::fill`] wrote.
    pub fn relieve(&self) -> Result<()> {
        self.cluster
            .node_exec(&self.node, &["rm", "-f", &self.ballast()])
            .map(drop)
    }

    /// Free bytes.
    pub fn free(&self) -> Result<u64> {
        let text = self
            .cluster
            .node_exec(&self.node, &["stat", "-f", "-c", "%a %S", &self.path])?;
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(blocks)), Some(Ok(size))) = (numbers.next(), numbers.next()) else {
            anyhow::bail!("cannot read the free space from {text:?}");
        };
        Ok(blocks * size)
    }

    fn ballast(&self) -> String {
        PathBuf::from(&self.path).join(".ballast").display().to_string()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a program of the node may still have a file open.
        if let Err(error) = self.cluster.node_exec(&self.node, &["umount", "-l", &self.path]) {
            eprintln!("cannot unmount {} of {}: {error:#}", self.path, self.node);
        }
    }
}
