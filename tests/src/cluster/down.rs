//! Taking a cluster down from any state: whole, half made, or with everything in it killed.
//!
//! Nothing here trusts records alone. Whatever runs in the cluster's namespaces, in its cgroups or from its
//! folder belongs to it, and the cluster's name alone says which those are.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;

use super::layout::{Layout, bed_dir, netns_file};
use super::lock::BedLock;
use super::{cgroups, mounts, network};
use crate::process::{self, Process};
use crate::wait::wait_until;

/// What a take-down found and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub processes: usize,
    pub mounts: usize,
    pub namespaces: usize,
    pub cgroups: usize,
    pub folder: bool,
}

impl Removed {
    /// Whether there was nothing at all.
    #[must_use]
    pub fn nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processes,
            mounts,
            namespaces,
            cgroups,
            folder,
        } = self;
        let folder = if *folder { "its folder" } else { "no folder" };
        write!(
            f,
            "{processes} processes, {mounts} mounts, {namespaces} network namespaces, {cgroups} cgroups, {folder}"
        )
    }
}

pub(super) fn down(layout: &Layout) -> Result<Removed> {
    let processes = end_processes(layout)?;
    let _lock = BedLock::acquire()?;
    let removed = Removed {
        processes,
        mounts: remove_mounts(layout)?,
        namespaces: network::remove(layout)?,
        cgroups: cgroups::remove(layout)?,
        folder: remove_folder(layout)?,
    };
    // Only an empty folder goes: other clusters live beside this one.
    let _ = fs::remove_dir(bed_dir());
    Ok(removed)
}

/// Kills until a look at the machine finds nothing more: a shim or a runtime may start a process while it
/// is being killed itself.
fn end_processes(layout: &Layout) -> Result<usize> {
    let mut ended = BTreeSet::new();
    wait_until(
        &format!("the processes of {:?} to end", layout.name),
        Duration::from_secs(20),
        || {
            let alive = members(layout).map_err(|e| format!("{e:#}"))?;
            if alive.is_empty() {
                return Ok(());
            }
            for process in &alive {
                process.signal(Signal::KILL).map_err(|e| format!("{e:#}"))?;
                ended.insert((process.pid, process.start));
            }
            Err(format!("{} alive", alive.len()))
        },
    )?;
    Ok(ended.len())
}

/// Every living process of the cluster.
fn members(layout: &Layout) -> Result<Vec<Process>> {
    let (nets, mounts) = namespaces(layout)?;
    let contained: BTreeSet<i32> = cgroups::members(layout)?.into_iter().collect();
    let own = i32::try_from(std::process::id()).context("a pid fits an i32")?;
    let is_member = |pid: i32| {
        contained.contains(&pid)
            || process::namespace_of(pid, "net").is_some_and(|id| nets.contains(&id))
            || process::namespace_of(pid, "mnt").is_some_and(|id| mounts.contains(&id))
            || process::executable_of(pid).is_some_and(|exe| exe.starts_with(&layout.dir))
    };
    Ok(process::all()?
        .into_iter()
        .filter(|p| p.pid != own && is_member(p.pid))
        .collect())
}

/// The identities of the cluster's network and mount namespaces. The host's own are never among them.
fn namespaces(layout: &Layout) -> Result<(BTreeSet<u64>, BTreeSet<u64>)> {
    let nets = list(Path::new("/run/netns"))
        .into_iter()
        .filter(|name| layout.owns(name))
        .filter_map(|name| pinned(&netns_file(&name), "net"));
    let mounts = list(&layout.pins())
        .into_iter()
        .filter_map(|node| pinned(&layout.mount_namespace(&node), "mnt"));
    Ok((nets.collect(), mounts.collect()))
}

/// The namespace that a file pins; none when the file is a plain one, left by a half-made cluster.
fn pinned(file: &Path, kind: &str) -> Option<u64> {
    let own = fs::metadata(format!("/proc/self/ns/{kind}")).ok()?;
    let pin = fs::metadata(file).ok()?;
    (pin.dev() == own.dev() && pin.ino() != own.ino()).then(|| pin.ino())
}

fn remove_mounts(layout: &Layout) -> Result<usize> {
    let mounts = mounts::mounts_under(&[&layout.dir])?;
    for mount in &mounts {
        unmount(mount, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    Ok(mounts.len())
}

fn remove_folder(layout: &Layout) -> Result<bool> {
    if !layout.dir.exists() {
        return Ok(false);
    }
    // A node's folders hold what containers wrote, with whatever rights; root removes it all the same.
    fs::remove_dir_all(&layout.dir).with_context(|| format!("cannot remove {}", layout.dir.display()))?;
    Ok(true)
}

fn list(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect()
}
