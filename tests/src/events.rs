//! A node's container runtime events, as they happen: what started, what ended, which image came.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use containerd_client::events as messages;
use containerd_client::services::v1::events_client::EventsClient;
use containerd_client::services::v1::{PublishRequest, SubscribeRequest};
use containerd_client::types::Envelope;
use jiff::Timestamp;
use prost::Message;
use tokio::task::JoinHandle;
use tonic::Request;
use tonic::transport::Channel;

use crate::cluster::Cluster;
use crate::wait::{Seen, not_yet, wait_for};

/// The topic of the event that every subscription begins with.
const HELLO: &str = "/kruise-tests/subscribed";

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
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(listen(EventsClient::new(channel.clone()), seen.clone()));
        let this = Self { seen, task };
        this.announce(EventsClient::new(channel)).await?;
        Ok(this)
    }

    /// Waits until the subscription stands. The runtime answers nothing until there is an event, so one is
    /// published until it comes back.
    async fn announce(&self, mut client: EventsClient<Channel>) -> Result<()> {
        let mark = messages::ContentDelete {
            digest: "subscribed".to_owned(),
        };
        let event = prost_types::Any {
            type_url: "containerd.events.ContentDelete".to_owned(),
            value: mark.encode_to_vec(),
        };
        wait_for(
            "the runtime's event stream",
            Duration::from_secs(10),
            async || {
                let mut request = Request::new(PublishRequest {
                    topic: HELLO.to_owned(),
                    event: Some(event.clone()),
                });
                request
                    .metadata_mut()
                    .insert("containerd-namespace", "k8s.io".parse()?);
                client.publish(request).await.context("cannot publish an event")?;
                if self.task.is_finished() {
                    not_yet("the runtime closed the stream")
                } else if self.all().is_empty() {
                    not_yet("nothing came")
                } else {
                    Ok(Seen::Done(()))
                }
            },
        )
        .await
    }

    /// Everything so far, in order.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of one topic whose summary contains this.
    #[must_use]
    pub fn of(&self, topic: &str, part: &str) -> Vec<Event> {
        self.all()
            .into_iter()
            .filter(|e| e.topic == topic && e.summary.contains(part))
            .collect()
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

async fn listen(mut client: EventsClient<Channel>, seen: Arc<Mutex<Vec<Event>>>) {
    let filters = vec!["namespace==k8s.io".to_owned()];
    let Ok(stream) = client.subscribe(SubscribeRequest { filters }).await else {
        return;
    };
    let mut stream = stream.into_inner();
    while let Ok(Some(envelope)) = stream.message().await {
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(event(envelope));
    }
}

fn event(envelope: Envelope) -> Event {
    let time = envelope
        .timestamp
        .and_then(|t| Timestamp::new(t.seconds, t.nanos).ok());
    let summary = envelope
        .event
        .map(|any| summary(&any.type_url, &any.value))
        .unwrap_or_default();
    Event {
        time: time.unwrap_or(Timestamp::UNIX_EPOCH),
        heard: Instant::now(),
        topic: envelope.topic,
        summary,
    }
}

/// The telling fields of the events that tests look at; the bare type of all others.
fn summary(type_url: &str, value: &[u8]) -> String {
    let kind = type_url.rsplit(['/', '.']).next().unwrap_or_default();
    let known = match kind {
        "ImageCreate" | "ImageUpdate" | "ImageDelete" => Image::decode(value).map(|e| e.name),
        "ContainerCreate" => {
            messages::ContainerCreate::decode(value).map(|e| format!("{} {}", e.id, e.image))
        }
        "ContainerDelete" => messages::ContainerDelete::decode(value).map(|e| e.id),
        "TaskStart" => {
            messages::TaskStart::decode(value).map(|e| format!("{} pid {}", e.container_id, e.pid))
        }
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

/// The part that the events of images share; the client library has no types for them.
#[derive(Clone, PartialEq, Message)]
struct Image {
    #[prost(string, tag = "1")]
    name: String,
}
