//! Watches as streams of what the engine is told.
//!
//! Only the leader watches. A leader must begin from a list that is as new as its leadership, whatever it had cached before; a replica that does not
//! lead would thus keep its caches for nothing, at the price of one more watch per kind.

use std::collections::BTreeMap;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use kruise_api::ids::{JobUid, NodeUid};
use kruise_api::image_pull_job::ImagePullJob;
use kruise_api::node_image::NodeImage;
use kruise_planner::job::PodView;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};

use super::super::objects::{JobObject, Listing, NodeImageObject, NodeObject};
use super::lite::{NodeLite, PodLite};
use crate::kubeapi::{self, Guarded};

/// Seconds after which a watch ends and goes on where it was. The client gives up on a silent connection 5 s later, so that a watch that
/// hangs is noticed within a minute.
const WATCH_SECONDS: u32 = 50;
/// Objects per page of a list: nodes may have tens of KB each.
const PAGE: u32 = 250;
/// Leaves pods out that sit on no node or have ended.
const RUNNING_PODS: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

pub(crate) fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// All jobs.
pub(super) fn jobs(kube: kubeapi::Api) -> BoxStream<'static, Listing<JobObject, JobUid>> {
    let api: Api<Guarded<ImagePullJob>> = Api::all(kube.reader());
    let convert = move |guard: Guarded<ImagePullJob>| match guard.0 {
        Ok(job) => JobObject::try_from(job)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(broken) => {
            kube.complain::<ImagePullJob>(&broken);
            Ok(None)
        }
    };
    listing(watcher(api, config()), convert).boxed()
}

/// All nodes.
pub(super) fn nodes(client: kube::Client) -> BoxStream<'static, Listing<NodeObject, NodeUid>> {
    let api: Api<DeserializeGuard<NodeLite>> = Api::all(client);
    let listing = listing(
        watcher(api, config()),
        |guard: DeserializeGuard<NodeLite>| match guard.0 {
            Ok(node) => NodeObject::try_from(node)
                .map(Some)
                .map_err(|error| error.to_string()),
            Err(broken) => Err(format!(
                "{}: {}",
                broken.metadata.name.unwrap_or_default(),
                broken.error
            )),
        },
    );
    listing.boxed()
}

/// All NodeImages. A cluster that does not know the kind has none of them, and nobody waits for it.
pub(super) fn node_images(kube: kubeapi::Api) -> BoxStream<'static, Listing<NodeImageObject, NodeUid>> {
    let api: Api<Guarded<NodeImage>> = Api::all(kube.reader());
    let mut absent = false;
    let events = watcher(api, config()).inspect(move |event| {
        if let Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) = event
            && status.is_not_found()
            && !std::mem::replace(&mut absent, true)
        {
            tracing::warn!("the cluster does not know NodeImages; none are served");
        }
    });
    let convert = move |guard: Guarded<NodeImage>| match guard.0 {
        Ok(image) => NodeImageObject::try_from(image)
            .map(Some)
            .map_err(|error| error.to_string()),
        Err(broken) => {
            kube.complain::<NodeImage>(&broken);
            Ok(None)
        }
    };
    listing(events, convert).boxed()
}

/// Events of a watch by what they mean. An object that cannot be read is logged and left out: it must not stop the others. So is, without a word, one that
/// is none of ours.
pub(crate) fn listing<K, T, U>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    convert: impl Fn(K) -> Result<Option<T>, String> + Send + 'static,
) -> impl Stream<Item = Listing<T, U>> + Send
where
    K: Resource<DynamicType = ()> + Send,
    T: Send,
    U: for<'a> From<&'a str> + Send,
{
    events.default_backoff().filter_map(move |event| {
        let kind = K::kind(&());
        let readable = |object| {
            convert(object)
                .inspect_err(|error| tracing::error!(%kind, error, "an object cannot be read"))
                .ok()
                .flatten()
        };
        let told = match event {
            Ok(watcher::Event::Init) => Some(Listing::Begin),
            Ok(watcher::Event::InitApply(object)) => readable(object).map(Listing::Listed),
            Ok(watcher::Event::InitDone) => Some(Listing::Complete),
            Ok(watcher::Event::Apply(object)) => readable(object).map(Listing::Applied),
            Ok(watcher::Event::Delete(object)) => object
                .meta()
                .uid
                .as_deref()
                .map(|uid| Listing::Deleted(U::from(uid))),
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.is_not_found() => {
                tracing::debug!(%kind, "the cluster does not know this kind");
                Some(Listing::Complete)
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "watch failed; it begins again");
                None
            }
        };
        futures::future::ready(told)
    })
}

/// Pods that sit on a node, in order of their names, after each change.
pub(super) fn pods(
    client: kube::Client,
    namespace: &str,
    selector: &str,
) -> BoxStream<'static, Vec<PodView>> {
    let api: Api<DeserializeGuard<PodLite>> = Api::namespaced(client, namespace);
    let config = config().labels(selector).fields(RUNNING_PODS);
    let mut pods: BTreeMap<String, PodView> = BTreeMap::new();
    let mut listing = None;
    watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let changed = match event {
                Ok(event) => follow(event, &mut pods, &mut listing),
                Err(error) => {
                    tracing::warn!(%error, "watch of pods failed; it begins again");
                    false
                }
            };
            futures::future::ready(changed.then(|| pods.values().cloned().collect()))
        })
        .boxed()
}

type Pods = BTreeMap<String, PodView>;

/// Whether the pods are another set now.
fn follow(
    event: watcher::Event<DeserializeGuard<PodLite>>,
    pods: &mut Pods,
    listing: &mut Option<Pods>,
) -> bool {
    let entry = |guard: DeserializeGuard<PodLite>| guard.0.ok().map(|pod| (pod.name(), pod.view()));
    match event {
        watcher::Event::Init => {
            *listing = Some(Pods::new());
            false
        }
        watcher::Event::InitApply(guard) => {
            if let (Some((name, Some(pod))), Some(listing)) = (entry(guard), listing) {
                listing.insert(name, pod);
            }
            false
        }
        watcher::Event::InitDone => {
            *pods = listing.take().unwrap_or_default();
            true
        }
        watcher::Event::Apply(guard) => match entry(guard) {
            Some((name, Some(pod))) => pods.insert(name, pod.clone()) != Some(pod),
            Some((name, None)) => pods.remove(&name).is_some(),
            None => false,
        },
        watcher::Event::Delete(guard) => guard
            .meta()
            .name
            .as_ref()
            .is_some_and(|name| pods.remove(name).is_some()),
    }
}
