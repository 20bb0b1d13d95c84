//! One cgroup per node and hierarchy: the root of its pods. The first version of cgroups has a hierarchy
//! per controller, the second a single one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::layout::Layout;
use crate::wait::wait_until;

const ROOT: &str = "/sys/fs/cgroup";

/// Makes the cgroup of a node in every hierarchy.
pub(crate) fn make(layout: &Layout, node: &str) -> Result<()> {
    // `unified` is the second version beside the first, without controllers that a kubelet could use.
    for hierarchy in hierarchies()?.into_iter().filter(|h| !h.ends_with("unified")) {
        let group = hierarchy.join(layout.node_namespace(node));
        fs::create_dir_all(&group).with_context(|| format!("cannot create {}", group.display()))?;
        // A new cpuset of the first version is empty, and an empty one takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (parent, own) = (hierarchy.join(file), group.join(file));
            if parent.exists() && own.exists() {
                let value = fs::read_to_string(&parent)
                    .with_context(|| format!("cannot read {}", parent.display()))?;
                fs::write(&own, value.trim()).with_context(|| format!("cannot write {}", own.display()))?;
            }
        }
    }
    Ok(())
}

/// The pids of everything in the cgroups of this cluster's nodes.
pub(crate) fn members(layout: &Layout) -> Result<Vec<i32>> {
    let mut pids = Vec::new();
    for group in groups(layout)? {
        for folder in tree(&group) {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()));
        }
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Removes the cgroups of this cluster's nodes. They must be empty.
pub(crate) fn remove(layout: &Layout) -> Result<usize> {
    let groups = groups(layout)?;
    for group in &groups {
        // The kernel takes a moment to let go of processes that just ended.
        wait_until(
            &format!("{} to be empty", group.display()),
            Duration::from_secs(10),
            || {
                for folder in tree(group) {
                    fs::remove_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
                }
                Ok(())
            },
        )?;
    }
    Ok(groups.len())
}

fn groups(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        for entry in
            fs::read_dir(&hierarchy).with_context(|| format!("cannot list {}", hierarchy.display()))?
        {
            let entry = entry?;
            if layout.owns(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Every hierarchy that is mounted: runc makes groups in all of them.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(root).with_context(|| format!("cannot list {ROOT}"))? {
        let path = entry?.path();
        // Links are second names of a hierarchy.
        if path.is_dir() && !path.is_symlink() {
            found.push(path);
        }
    }
    Ok(found)
}

/// A cgroup and all below it, children before parents.
fn tree(group: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(tree(&entry.path()));
        }
    }
    if group.exists() {
        found.push(group.to_owned());
    }
    found
}
