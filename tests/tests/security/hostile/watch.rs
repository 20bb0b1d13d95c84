//! What is watched while others attack: the leader's memory, and how honest callers fare.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use kruise_proto::inspect::inspect_service_client::InspectServiceClient;
use kruise_proto::inspect::{ListAgentsRequest, SyncState};
use kruise_tests::cluster::netns_file;
use kruise_tests::net::spawn_in_namespace;
use kruise_tests::process::Process;
use kruise_tests::product::Product;
use tonic::Request;

use crate::call::channel;
use crate::leader::Target;

/// Samples the resident set of a process.
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    before: u64,
    thread: JoinHandle<u64>,
}

/// By how much a process has grown at most.
pub(crate) struct Growth {
    before: u64,
    most: u64,
}

impl Growth {
    pub(crate) fn bytes(&self) -> u64 {
        self.most.saturating_sub(self.before)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "{:.1} MiB before, {:.1} at most, +{:.1}",
            mib(self.before),
            mib(self.most),
            mib(self.bytes())
        )
    }
}

impl Sampler {
    pub(crate) fn start(process: Process) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let before = process.rss()?;
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut most = before;
            while !stopped.load(Ordering::Relaxed) {
                most = most.max(process.rss().unwrap_or_default());
                std::thread::sleep(Duration::from_millis(50));
            }
            most
        });
        Ok(Self { stop, before, thread })
    }

    pub(crate) fn stop(self) -> Growth {
        self.stop.store(true, Ordering::Relaxed);
        Growth {
            before: self.before,
            most: self.thread.join().expect("it only reads"),
        }
    }
}

/// Asks the leader again and again for its agents, from another address than the attackers'.
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Answers>>,
}

/// How it was answered.
#[derive(Default)]
pub(crate) struct Answers {
    times: Vec<Duration>,
    /// How often an agent was missing, or had attached anew.
    pub(crate) detached: usize,
}

impl Answers {
    pub(crate) fn p99(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = times.len() * 99 / 100;
        times
            .get(at.min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or(Duration::MAX)
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.times.iter().max().copied().unwrap_or_default();
        write!(
            f,
            "{} calls answered, p99 {:.1?}, slowest {most:.1?}, {} times an agent was away",
            self.times.len(),
            self.p99(),
            self.detached
        )
    }
}

impl Probe {
    pub(crate) fn start(product: &Product, target: &Target, token: String) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, target) = (Arc::clone(&stop), target.clone());
        let nodes = product.cluster.nodes();
        let namespace = netns_file(&product.cluster.layout().node_namespace("node3"));
        let thread = spawn_in_namespace(&namespace, move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(ask(&target, &token, &nodes, &stopped))
        });
        Ok(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Result<Answers> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the probe panicked"))?
    }
}

async fn ask(target: &Target, token: &str, nodes: &[String], stop: &AtomicBool) -> Result<Answers> {
    let mut client = InspectServiceClient::new(channel(target).await?);
    let mut since: BTreeMap<String, Option<prost_types::Timestamp>> = BTreeMap::new();
    let mut answers = Answers::default();
    while !stop.load(Ordering::Relaxed) {
        let mut request = Request::new(ListAgentsRequest::default());
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {token}").parse()?);
        let began = Instant::now();
        let agents = client.list_agents(request).await?.into_inner().agents;
        answers.times.push(began.elapsed());
        for node in nodes {
            let agent = agents.iter().find(|agent| agent.node_name == *node);
            let attached = agent.filter(|agent| agent.sync_state() != SyncState::NotSent);
            let now = attached.and_then(|agent| agent.attached_since);
            let first = *since.entry(node.clone()).or_insert(now);
            answers.detached += usize::from(now.is_none() || now != first);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(answers)
}
