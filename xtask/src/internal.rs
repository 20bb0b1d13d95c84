//! Subcommands that people do not call: the helper processes of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use kruise_tests::{cluster, net};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Carry connections from the host's loopback into a network namespace.
    Forward {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        netns: PathBuf,
        #[arg(long)]
        to: SocketAddr,
    },
    /// Answer the cluster's DNS queries.
    Dns {
        #[arg(long)]
        kubeconfig: PathBuf,
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Put a node's own folders in place, inside its new mount namespace.
    FurnishNode {
        #[arg(long)]
        home: PathBuf,
    },
}

pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Forward { listen, netns, to } => net::forward::run(listen, &netns, to),
        Command::Dns { kubeconfig, listen } => cluster::dns::run(&kubeconfig, listen),
        Command::FurnishNode { home } => cluster::furnish(&home),
    }
}
