//! A node's container runtime events, as they happen: what started, what ended, which image came.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use containerd_client::events as messages;
use containerd_client::services::v1::events_client::EventsClient;
use containerd_client::services::v1::{Envelope, SubscribeRequest};
use jiff::Timestamp;
use prost::Message;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::wait::{Seen, not_yet, wait_for};

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// When the runtime says that it happened.
    pub time: Timestamp,
    /// When this process heard of it.
    pub heard: Instant,
    /// Such as `/tasks/exit`.
    pub topic: String,
    /// What it is about: an image's name, a container's id and exit status, ...
    pub summary: String,
}

/// A subscription; it ends when dropped, or with the runtime.
#[derive(Debug)]
pub struct Events {
    seen: Arc<Mutex<Vec<Event>>>,
    task: JoinHandle<()>,
}

impl Events {
    /// Subscribes to everything that the runtime of a node does for Kubernetes.
    pub async fn subscribe(cluster: &Cluster, node: &str) -> Result<Self> {
        let socket = cluster.containerd_socket(node);
        let channel = containerd_client::connect(&socket)
            .await
            .with_context(|| format!("cannot connect to {}", socket.display()))?;
        let filters = vec!["namespace==k8s.io".to_owned()];
        let stream = EventsClient::new(channel)
            .subscribe(SubscribeRequest { filters })
            .await
            .context("cannot subscribe to the runtime's events")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, mut stream) = (seen.clone(), stream.into_inner());
        let task = tokio::spawn(async move {
            while let Ok(Some(envelope)) = stream.message().await {
                kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(event(envelope));
            }
        });
        Ok(Self { seen, task })
    }

    /// Everything so far, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Those of one topic whose summary contains this.
    #[must_use]
    pub fn of(&self, topic: &str, part: &str) -> Vec<Event> {
        self.all().into_iter().filter(|e| e.topic == topic && e.summary.contains(part)).collect()
    }

    /// Waits for an event of a topic whose summary contains this, past ones included.
    pub async fn wait(&self, topic: &str, part: &str, timeout: Duration) -> Result<Event> {
        wait_for(&format!("{topic} with {part:?}"), timeout, || async {
            match self.of(topic, part).into_iter().next() {
                Some(event) => Ok(Seen::Done(event)),
                None => not_yet(format!("{} events, none of them", self.all().len())),
            }
        })
        .await
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn event(envelope: Envelope) -> Event {
    let time = envelope.timestamp.and_then(|t| Timestamp::new(t.seconds, t.nanos).ok());
    let summary = envelope.event.map(|any| summary(&any.type_url, &any.value)).unwrap_or_default();
    Event { time: time.unwrap_or(Timestamp::UNIX_EPOCH), heard: Instant::now(), topic: envelope.topic, summary }
}

/// The telling fields of the events that tests look at; the bare type of all others.
fn summary(type_url: &str, value: &[u8]) -> String {
    let kind = type_url.rsplit(['/', '.']).next().unwrap_or_default();
    let known = match kind {
        "ImageCreate" => messages::ImageCreate::decode(value).map(|e| e.name),
        "ImageUpdate" => messages::ImageUpdate::decode(value).map(|e| e.name),
        "ImageDelete" => messages::ImageDelete::decode(value).map(|e| e.name),
        "ContainerCreate" => messages::ContainerCreate::decode(value).map(|e| format!("{} {}", e.id, e.image)),
        "ContainerDelete" => messages::ContainerDelete::decode(value).map(|e| e.id),
        "TaskStart" => messages::TaskStart::decode(value).map(|e| format!("{} pid {}", e.container_id, e.pid)),
        "TaskExit" => messages::TaskExit::decode(value)
            .map(|e| format!("{} {} status {}", e.container_id, e.id, e.exit_status)),
        "TaskDelete" => messages::TaskDelete::decode(value)
            .map(|e| format!("{} {} status {}", e.container_id, e.id, e.exit_status)),
        "TaskOOM" => messages::TaskOom::decode(value).map(|e| e.container_id),
        "ContentDelete" => messages::ContentDelete::decode(value).map(|e| e.digest),
        _ => Ok(String::new()),
    };
    let known = known.unwrap_or_default();
    if known.is_empty() { kind.to_owned() } else { known }
}
