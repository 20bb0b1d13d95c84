//! A node's mount namespace: the node sees the machine's file system, except that a few folders are its
//! own. So a hostPath volume such as /run/containerd means that node's folder, as on a real node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};

use super::layout::{Layout, PRIVATE, bed_dir};
use crate::cmd;

/// Folders that must exist in a node before its first pod: mount points of hostPath volumes and what the
/// runtime expects.
const FOLDERS: [&str; 9] = [
    "run/netns",
    "run/containerd",
    "run/kruise",
    "run/lock",
    "lib/containerd",
    "lib/kubelet",
    "lib/cni",
    "lib/kruise-daemon",
    "log/pods",
];

/// Kernel settings that the kubelet writes if they differ. They belong to the machine, so a node gets
/// files in their place that already hold what the kubelet wants.
const SHADOWED: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Makes the private place where mount namespaces are pinned; the kernel pins them nowhere else.
pub(crate) fn make_pins(layout: &Layout) -> Result<()> {
    let pins = layout.pins();
    fs::create_dir_all(&pins).with_context(|| format!("cannot create {}", pins.display()))?;
    mount_bind(&pins, &pins).context("cannot mount the folder of namespaces")?;
    mount_change(&pins, MountPropagationFlags::PRIVATE).context("cannot make it private")
}

/// Makes a node's folders and its mount namespace. The inner half, [`furnish`], runs in the helper
/// program, since a process with threads cannot change its own mount namespace.
pub(crate) fn make(layout: &Layout, node: &str) -> Result<()> {
    let home = layout.node(node);
    for folder in FOLDERS {
        fs::create_dir_all(home.join(folder)).with_context(|| format!("cannot create {folder} of {node}"))?;
    }
    for (setting, value) in SHADOWED {
        fs::write(shadow(&home, setting), value).with_context(|| format!("cannot write {setting}"))?;
    }
    let pin = layout.mount_namespace(node);
    fs::write(&pin, "").with_context(|| format!("cannot create {}", pin.display()))?;
    cmd::run(
        Command::new("unshare")
            .arg(format!("--mount={}", pin.display()))
            .args(["--propagation", "slave"])
            .arg(layout.helper())
            .args(["internal", "furnish-node", "--home"])
            .arg(&home),
    )
    .map(drop)
}

/// Inside a node's new mount namespace: puts the node's own folders in place.
pub fn furnish(home: &Path) -> Result<()> {
    drop_foreign_mounts()?;
    for (own, place) in PRIVATE {
        mount_bind(home.join(own), place).with_context(|| format!("cannot mount {place}"))?;
    }
    for (setting, _) in SHADOWED {
        let place = Path::new("/proc/sys").join(setting);
        if place.exists() {
            mount_bind(shadow(home, setting), &place).with_context(|| format!("cannot mount {setting}"))?;
        }
    }
    // Containers get mounts from the node (HostToContainer) and the runtime's mounts must reach them.
    mount_change("/", MountPropagationFlags::SHARED | MountPropagationFlags::REC)
        .context("cannot share the node's mounts with its containers")
}

/// A new mount namespace begins as a copy, pinned namespaces of other clusters included; the copies would
/// keep those alive after their clusters are gone.
fn drop_foreign_mounts() -> Result<()> {
    for mount in mounts_under(&[Path::new("/run/netns"), &bed_dir()])? {
        unmount(&mount, UnmountFlags::DETACH)
            .with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    Ok(())
}

/// Mount points below the given folders, innermost first. The folders themselves do not count: one may be
/// a disk of its own.
pub(crate) fn mounts_under(folders: &[&Path]) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mounts")?;
    let mut found: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(PathBuf::from)
        .filter(|point| {
            folders
                .iter()
                .any(|folder| point != folder && point.starts_with(folder))
        })
        .collect();
    found.reverse();
    Ok(found)
}

fn shadow(home: &Path, setting: &str) -> PathBuf {
    home.join(format!("sysctl-{}", setting.replace('/', "-")))
}
