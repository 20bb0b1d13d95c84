//! The cluster's own network: a namespace per node and one for the control plane, joined by a bridge.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::layout::{API_IP, Layout, SERVICE_RANGE, netns_file, node_ip, node_name};
use crate::cmd;
use crate::net::in_namespace;

/// The bridge in the control plane's namespace.
const BRIDGE: &str = "br0";

/// The control plane's end of a node's link. It hangs on the bridge; taking it down cuts the node off.
pub(crate) fn link_of(number: usize) -> String {
    format!("v{number}-a")
}

/// Makes the namespaces and everything that connects them.
pub(crate) fn make(layout: &Layout, nodes: usize) -> Result<()> {
    let cp = layout.control_plane();
    add_namespace(&cp)?;
    ip(Some(&cp), &format!("link add {BRIDGE} type bridge"))?;
    ip(Some(&cp), &format!("link set {BRIDGE} up"))?;
    ip(Some(&cp), &format!("addr add {API_IP}/16 dev {BRIDGE}"))?;
    // A packet to a Service must find some route before kube-proxy's rules see and rewrite it.
    ip(Some(&cp), &format!("route add {SERVICE_RANGE} dev {BRIDGE}"))?;
    for number in 1..=nodes {
        add_node(layout, number)?;
    }
    Ok(())
}

fn add_node(layout: &Layout, number: usize) -> Result<()> {
    let (cp, node) = (layout.control_plane(), layout.node_namespace(&node_name(number)));
    let (link, address) = (link_of(number), node_ip(number));
    add_namespace(&node)?;
    ip(
        None,
        &format!("link add {link} netns {cp} type veth peer name eth0 netns {node}"),
    )?;
    ip(Some(&cp), &format!("link set {link} master {BRIDGE} up"))?;
    ip(Some(&node), "link set eth0 up")?;
    ip(Some(&node), &format!("addr add {address}/16 dev eth0"))?;
    ip(Some(&node), &format!("route add default via {API_IP}"))?;
    ip(
        Some(&cp),
        &format!("route add {} via {address}", pod_range(number)),
    )
}

/// The pods of one node.
pub(crate) fn pod_range(number: usize) -> String {
    format!("10.91.{number}.0/24")
}

fn add_namespace(name: &str) -> Result<()> {
    ip(None, &format!("netns add {name}"))?;
    ip(Some(name), "link set lo up")?;
    in_namespace(&netns_file(name), || {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("cannot switch forwarding on")
    })
}

/// Runs `ip` with these words, in a namespace or outside of all.
pub(crate) fn ip(namespace: Option<&str>, words: &str) -> Result<()> {
    let mut command = Command::new("ip");
    if let Some(namespace) = namespace {
        command.args(["-n", namespace]);
    }
    cmd::run(command.args(words.split(' '))).map(drop)
}

/// Removes this cluster's network namespaces, and the folder of namespaces when it was the last.
pub(crate) fn remove(layout: &Layout) -> Result<usize> {
    let folder = Path::new("/run/netns");
    let mut removed = 0;
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if layout.owns(&name) {
            ip(None, &format!("netns del {name}"))?;
            removed += 1;
        }
    }
    // `ip netns add` makes the folder a mount of its own the first time; an empty one serves nobody.
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()) {
        let _ = rustix::mount::unmount(folder, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir(folder);
    }
    Ok(removed)
}
