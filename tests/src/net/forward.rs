//! A forwarder from the host's loopback into a cluster's network.
//!
//! It listens before it enters the namespace and connects after it: a socket stays in the namespace where
//! it was made. Only loopback addresses are accepted, so nothing of a cluster is ever reachable from
//! another machine.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;

/// Serves for good; must be called on a process's only thread.
pub fn run(listen: SocketAddr, netns: &Path, to: SocketAddr) -> Result<()> {
    if !listen.ip().is_loopback() {
        bail!("a cluster is reached from this machine only: {listen} is not a loopback address");
    }
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    listener
        .set_nonblocking(true)
        .context("cannot prepare the listener")?;
    super::namespace::enter(netns)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(listener, to))
}

async fn serve(listener: TcpListener, to: SocketAddr) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch the listener")?;
    loop {
        let (mut client, _) = listener.accept().await.context("cannot accept")?;
        tokio::spawn(async move {
            // A target that is away shows to the client as a closed connection, as it would directly.
            if let Ok(mut server) = TcpStream::connect(to).await {
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// A loopback port that is free now.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot find a free port")?;
    Ok(listener
        .local_addr()
        .context("a bound socket has an address")?
        .port())
}
