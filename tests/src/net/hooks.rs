//! A server that preStop hooks call: it counts them, and answers nobody until it is told to.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::spawn_in_namespace;
use crate::cluster::{API_IP, Cluster, netns_file};

/// Calls so far, by path.
type Calls = Arc<Mutex<BTreeMap<String, usize>>>;

/// A running server. Dropping it ends every call.
#[derive(Debug)]
pub struct Hooks {
    address: SocketAddr,
    calls: Calls,
    open: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Hooks {
    /// Listens on a free port of the control plane's address, which pods reach.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let (open, opened) = watch::channel(false);
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let calls = Calls::default();
        let counted = Arc::clone(&calls);
        let thread = spawn_in_namespace(&netns_file(&cluster.layout().control_plane()), move || {
            let listener = TcpListener::bind((API_IP, 0)).context("cannot listen")?;
            let _ = tell.send(listener.local_addr().context("a bound socket has an address")?);
            run(listener, &counted, &opened, stopped)
        });
        let address = told
            .recv_timeout(Duration::from_secs(5))
            .context("the server of hooks did not start")?;
        Ok(Self {
            address,
            calls,
            open,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A container's lifecycle whose hook calls this server.
    #[must_use]
    pub fn lifecycle(&self, path: &str) -> Value {
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        json!({"preStop": {"httpGet": {"host": host, "port": port, "path": format!("/{path}")}}})
    }

    /// How often a path was called.
    #[must_use]
    pub fn calls(&self, path: &str) -> usize {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.get(path).copied().unwrap_or_default()
    }

    /// Answers who waits, and from now on everybody at once.
    pub fn answer(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    listener: TcpListener,
    calls: &Calls,
    open: &watch::Receiver<bool>,
    stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accept = async {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(calls), open.clone()));
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stopped => {}
        }
        Ok(())
    })
}

async fn serve(stream: TcpStream, calls: Calls, mut open: watch::Receiver<bool>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let path = line
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/')
        .to_owned();
    {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        *calls.entry(path).or_default() += 1;
    }
    open.wait_for(|open| *open).await?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        .await?;
    Ok(())
}
