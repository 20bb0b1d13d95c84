//! The watches behind the directory.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod as WholePod, ServiceAccount};
use kube::core::{NamespaceResourceScope, ObjectMeta, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::{Directory, Pod, Table, Tables};
use crate::clock::Monotonic;

/// Seconds after which a watch ends and goes on where it was, so that one that hangs is noticed within a minute.
const WATCH_SECONDS: u32 = 50;
const PAGE: u32 = 500;

/// Whose pods.
#[derive(Clone, Debug)]
pub(in super::super) struct Agents {
    pub(in super::super) namespace: String,
    pub(in super::super) service_account: String,
}

/// Keeps the directory up to date until `stop`.
pub(in super::super) async fn run(
    directory: Arc<Directory>,
    client: kube::Client,
    agents: Agents,
    clock: Monotonic,
    stop: CancellationToken,
) {
    let Agents {
        namespace,
        service_account,
    } = agents;
    let config = || watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    // Not by label: whatever runs under the account can have a token of it.
    let pods = watcher(
        Api::<PodLite>::namespaced(client.clone(), &namespace),
        config().fields(&format!("spec.serviceAccountName={service_account}")),
    );
    let nodes = watcher(Api::<PartialObjectMeta<Node>>::all(client.clone()), config());
    let account = watcher(
        Api::<PartialObjectMeta<ServiceAccount>>::namespaced(client, &namespace),
        config().fields(&format!("metadata.name={service_account}")),
    );
    let watches = async {
        tokio::join!(
            follow(
                "Pod",
                pods,
                &directory,
                &clock,
                |tables| &mut tables.pods,
                PodLite::read
            ),
            follow(
                "Node",
                nodes,
                &directory,
                &clock,
                |tables| &mut tables.nodes,
                |node| node.metadata.name.clone().unwrap_or_default()
            ),
            follow(
                "ServiceAccount",
                account,
                &directory,
                &clock,
                |tables| &mut tables.account,
                |_| ()
            ),
        )
    };
    tokio::select! {
        // Nothing is lost by dropping watches.
        _ = watches => {}
        () = stop.cancelled() => {}
    }
}

/// Brings one table up to date with one watch, for good.
async fn follow<K: Resource, V: PartialEq>(
    kind: &str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    directory: &Directory,
    clock: &Monotonic,
    table: impl Fn(&mut Tables) -> &mut Table<V>,
    read: impl Fn(&K) -> V,
) {
    let mut events = std::pin::pin!(events.default_backoff());
    while let Some(event) = events.next().await {
        let mut tables = directory.tables();
        let table = table(&mut tables);
        match event {
            Ok(Event::Init) => table.begin_list(),
            Ok(Event::InitDone) => table.end_list(),
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                if let Some(uid) = object.meta().uid.clone() {
                    table.apply(uid, read(&object));
                }
            }
            Ok(Event::Delete(object)) => {
                if let Some(uid) = &object.meta().uid {
                    table.remove(uid);
                }
            }
            Err(error) => {
                table.doubt(clock.now());
                tracing::warn!(kind, %error, "the watch for tokens failed; it begins again");
            }
        }
    }
}

/// A pod with only the fields that we read.
#[derive(Clone, Debug, Deserialize)]
struct PodLite {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: Option<String>,
}

impl PodLite {
    fn read(&self) -> Pod {
        Pod {
            name: self.metadata.name.clone().unwrap_or_default(),
            node: self.spec.node_name.clone().unwrap_or_default(),
            ends: self.metadata.deletion_timestamp.as_ref().map(|time| time.0),
            over: matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed")),
        }
    }
}

impl Resource for PodLite {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        WholePod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        WholePod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        WholePod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        WholePod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
