//! Puts the daemon together and takes it down again.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kruise_planner::node::contact::DEFAULT_LEASE;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::agent::{Agent, Parts};
use crate::args::Args;
use crate::clock::Clock;
use crate::journal::Journal;
use crate::metrics::Metrics;
use crate::runtime::{Link, sockets, supervisor};
use crate::session::transport::Tcp;
use crate::session::trust::Secret;
use crate::{http, node_api, session};

/// Time for everything to end after a signal, well within the 30 s of the kubelet.
const GRACE: Duration = Duration::from_secs(10);

/// Runs until a signal comes.
///
/// # Errors
/// Something that the daemon cannot do without is not there.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // Pull secrets pass through this process: nobody may read its memory.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("the process cannot be made not dumpable")?;
    // One thread is plenty for a few streams, and it keeps the agent small.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(serve(args));
    // A lookup of a name may hang in its own thread.
    runtime.shutdown_timeout(Duration::from_millis(100));
    done
}

async fn serve(args: &Args) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let clock = Clock::boot();
    let (link_sender, link) = watch::channel(Link::Down { tried: Vec::new() });
    let metrics = Arc::new(Metrics::default());
    let agent = if args.standalone {
        Agent::alone(
            args.settings()?,
            clock.clone(),
            link.clone(),
            Arc::clone(&metrics),
        )
    } else {
        agent(args, &clock, link.clone(), Arc::clone(&metrics))?
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let servers = servers(args, &clock, &link, &agent, metrics, stopped).await?;
    tokio::spawn(supervisor::run(
        sockets::candidates(&args.socket_file),
        link_sender,
    ));
    let (node, socket) = (node_name(args), args.node_socket.display());
    let version = env!("CARGO_PKG_VERSION");
    if args.standalone {
        tracing::info!(node, version, %socket, "agent runs without a manager");
    } else {
        tracing::info!(node, version, lease = ?DEFAULT_LEASE, "agent runs");
    }
    let ended = tokio::select! {
        ended = agent.run() => ended.map_err(anyhow::Error::from),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    let down = async {
        agent.stop().await;
        drop(stop);
        let _ = servers.await;
    };
    match tokio::time::timeout(GRACE, down).await {
        Ok(()) if args.standalone => tracing::info!("stopped"),
        Ok(()) => tracing::info!("stopped; running pulls go on where they are after the next start"),
        Err(_) => tracing::warn!("stopped before everything had ended"),
    }
    ended
}

fn agent(
    args: &Args,
    clock: &Clock,
    link: watch::Receiver<Link>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Agent> {
    let settings = args.settings()?;
    let config = session::Config {
        node_name: args.node_name.clone(),
        boot_id: boot_id(),
        manager: args.manager.clone(),
        server_name: args.manager_server_name.clone(),
        ca: Secret::File(args.manager_ca.clone()),
        token: Secret::File(args.token.clone()),
        max_workers: settings
            .slots
            .and_then(|slots| u32::try_from(slots).ok())
            .unwrap_or(0),
    };
    let journal = Journal::open(&args.state_dir);
    let parts = Parts {
        clock: clock.clone(),
        link,
        journal,
        transport: Arc::new(Tcp),
        metrics,
    };
    Ok(Agent::new(config, settings, parts))
}

/// Starts both servers. What is returned ends when they have.
async fn servers(
    args: &Args,
    clock: &Clock,
    link: &watch::Receiver<Link>,
    agent: &Agent,
    metrics: Arc<Metrics>,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let pages = http::router(http::Sources {
        clock: clock.clone(),
        puller: agent.puller().clone(),
        link: link.clone(),
        view: agent.view(),
        metrics,
        started: clock.now_mono(),
    });
    let listener = match args.addr.as_str() {
        "" => None,
        address => Some(
            http::listen(address)
                .await
                .with_context(|| format!("cannot listen on {address}"))?,
        ),
    };
    let socket = socket(args)?;
    let routes = node_api::routes(node_api::Sources {
        node_name: node_name(args),
        clock: clock.clone(),
        board: agent.puller().board(),
        puller: agent.puller().clone(),
        link: link.clone(),
        view: agent.view(),
    })
    .await?;
    Ok(tokio::spawn(async move {
        let node = Server::builder()
            .initial_stream_window_size(64 << 10)
            .initial_connection_window_size(64 << 10)
            .add_routes(routes)
            .serve_with_incoming(UnixListenerStream::new(socket));
        let pages = async {
            match listener {
                Some(listener) => axum::serve(listener, pages).await,
                None => std::future::pending().await,
            }
        };
        // Neither has anything worth waiting for: probes and watches are simply cut.
        tokio::select! {
            _ = stopped => {}
            ended = node => tracing::warn!(?ended, "the node service ended"),
            ended = pages => tracing::warn!(?ended, "health and metrics ended"),
        }
    }))
}

/// In a cluster a restart of the pod may find the socket of its predecessor. Alone on a machine, whoever listens there is somebody else's agent.
fn socket(args: &Args) -> anyhow::Result<UnixListener> {
    let path = &args.node_socket;
    anyhow::ensure!(
        !(args.standalone && UnixStream::connect(path).is_ok()),
        "another agent listens at {}; ask that one, or give --node-socket another path",
        path.display()
    );
    node_api::socket::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

/// As given, else that of the machine.
fn node_name(args: &Args) -> String {
    if args.node_name.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        return name.trim().to_owned();
    }
    args.node_name.clone()
}

/// Of this boot of the node; empty where the kernel does not tell.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
