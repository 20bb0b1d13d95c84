//! Watches of what sets are made of.

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kruise_api::clone_set::{CloneSet, names};
use kruise_api::container_recreate_request::{ContainerRecreateRequest, keys};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_planner::cloneset::Gates;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource as _, ResourceExt};

use super::super::event::Event;
use super::super::space::Kind;
use super::Known;
use crate::kubeapi::{self, Broken, Guarded};

/// The API server ends a watch after a random five to ten minutes by itself; a silent one is asked for anew after this.
const WATCH_SECONDS: u32 = 290;
const PAGE: u32 = 500;

fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// All objects of a kind that can be of a set.
pub(super) fn follow(kube: &kubeapi::Api, kind: Kind, gates: Gates) -> BoxStream<'static, Event> {
    let kube = kube.clone();
    match kind {
        Kind::Set => of::<CloneSet>(kube, kind, config(), gates),
        Kind::Pod => of::<Pod>(kube, kind, config(), gates),
        Kind::Claim => of::<PersistentVolumeClaim>(kube, kind, config().labels(names::INSTANCE_ID), gates),
        Kind::Revision => of::<ControllerRevision>(kube, kind, config().labels(names::REVISION_HASH), gates),
        Kind::Job => of::<ImagePullJob>(kube, kind, config().labels(names::REVISION_HASH), gates),
        Kind::Request => {
            of::<ContainerRecreateRequest>(kube, kind, config().labels(keys::RESTART_RUN), gates)
        }
    }
}

/// Whether an object may be of a set: nobody controls it, or a set does.
fn may_be_of_a_set<K: ResourceExt>(object: &K) -> bool {
    let mut owners = object.owner_references().iter();
    owners
        .find(|owner| owner.controller == Some(true))
        .is_none_or(|owner| owner.kind == "CloneSet" && owner.api_version.starts_with("apps.kruise.io/"))
}

fn of<K: Known>(
    kube: kubeapi::Api,
    kind: Kind,
    config: watcher::Config,
    gates: Gates,
) -> BoxStream<'static, Event> {
    let api: Api<Guarded<K>> = Api::all(kube.reader());
    let complain = move |broken: &Broken| {
        if kind == Kind::Set {
            kube.complain::<CloneSet>(broken);
        } else {
            tracing::error!(
                ?kind,
                name = broken.metadata.name,
                error = broken.error,
                "an object cannot be read"
            );
        }
    };
    told(watcher(api, config), kind, gates, complain).boxed()
}

/// Events of a watch by what they mean. An object that cannot be read is told about and left out: it must not stop the others.
fn told<K: Known>(
    events: impl Stream<Item = watcher::Result<watcher::Event<Guarded<K>>>> + Send + 'static,
    kind: Kind,
    gates: Gates,
    complain: impl Fn(&Broken) + Send + 'static,
) -> impl Stream<Item = Event> + Send {
    let one = move |guard: Guarded<K>| match guard.0 {
        Ok(object) if may_be_of_a_set(&object) => Some(Event::Told {
            namespace: object.namespace().unwrap_or_default(),
            object: object.object(&gates),
        }),
        // It may have been of a set before: then its owner changed, and it is gone for us.
        Ok(object) => Some(Event::Deleted {
            kind,
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
        }),
        Err(broken) => {
            complain(&broken);
            None
        }
    };
    events.default_backoff().filter_map(move |event| {
        let told = match event {
            Ok(watcher::Event::Init) => Some(Event::Begin(kind)),
            Ok(watcher::Event::InitApply(guard) | watcher::Event::Apply(guard)) => one(guard),
            Ok(watcher::Event::InitDone) => Some(Event::Complete(kind)),
            Ok(watcher::Event::Delete(guard)) => {
                let meta = guard.meta();
                Some(Event::Deleted {
                    kind,
                    namespace: meta.namespace.clone().unwrap_or_default(),
                    name: meta.name.clone().unwrap_or_default(),
                    uid: meta.uid.clone().unwrap_or_default(),
                })
            }
            Err(error) => {
                tracing::warn!(?kind, %error, "watch failed; it begins again");
                None
            }
        };
        futures::future::ready(told)
    })
}

/// Labels of nodes. A node that went while the watch was away stays known, which does no harm: pods sit on nodes that are there.
pub(super) fn nodes(client: kube::Client) -> BoxStream<'static, Event> {
    let api: Api<PartialObjectMeta<Node>> = Api::all(client);
    watcher(api, config())
        .default_backoff()
        .filter_map(|event| {
            let told = match event {
                Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => Some(Event::Node {
                    name: node.name_any(),
                    labels: Some(node.metadata.labels.unwrap_or_default()),
                }),
                Ok(watcher::Event::Delete(node)) => Some(Event::Node {
                    name: node.name_any(),
                    labels: None,
                }),
                Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => {
                    tracing::warn!(%error, "watch of nodes failed; it begins again");
                    None
                }
            };
            futures::future::ready(told)
        })
        .boxed()
}
