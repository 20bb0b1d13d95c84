//! A witness of pods: follows every version of every pod of a namespace by a watch of its own, and knows nothing of the product.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::Api;
use kube::runtime::watcher::{self, watcher};
use tokio::task::JoinHandle;

use super::Product;

/// One pod as one version shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub uid: String,
    pub ip: String,
    pub node: String,
    pub image: String,
    pub restarts: i32,
    pub ready: bool,
    pub leaving: bool,
}

/// What was seen from a moment on.
#[derive(Debug, Default)]
struct Record {
    now: BTreeMap<String, Seen>,
    fewest_ready: usize,
    most: usize,
    /// Versions, in order, as `name ready/all` for messages.
    story: Vec<String>,
    broken: Option<String>,
    /// When each pod was first seen with each image.
    images: BTreeMap<(String, String), Instant>,
}

/// See the module.
#[derive(Debug)]
pub struct Witness {
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Witness {
    /// Begins; what is there when this returns is the first thing seen. `app` is the value of that label.
    pub async fn begin(product: &Product, app: &str) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(product.client.clone(), &product.namespace);
        let config = watcher::Config::default().labels(&format!("app={app}"));
        let mut events = watcher(api, config).boxed();
        let mut first = BTreeMap::new();
        loop {
            match events.next().await.context("the watch ended")?? {
                watcher::Event::InitApply(pod) => {
                    first.insert(pod.name_any(), Seen::of(&pod));
                }
                watcher::Event::InitDone => break,
                _ => {}
            }
        }
        let mut record = Record {
            now: first,
            ..Record::default()
        };
        record.fewest_ready = record.ready();
        record.most = record.staying().count();
        let record = Arc::new(Mutex::new(record));
        let task = tokio::spawn({
            let record = Arc::clone(&record);
            async move {
                while let Some(event) = events.next().await {
                    record.lock().unwrap_or_else(PoisonError::into_inner).take(event);
                }
            }
        });
        Ok(Self { record, task })
    }

    fn look<T>(&self, at: impl FnOnce(&Record) -> T) -> Result<T> {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        // A watch that begins anew has missed versions: no promise can be judged by it.
        ensure!(
            record.broken.is_none(),
            "the witness lost sight: {:?}",
            record.broken
        );
        Ok(at(&record))
    }

    /// Fewest pods that were ready, and not being deleted, at any version of any pod.
    pub fn fewest_ready(&self) -> Result<usize> {
        self.look(|record| record.fewest_ready)
    }

    /// Most pods that were there and not being deleted, at any version of any pod.
    pub fn most(&self) -> Result<usize> {
        self.look(|record| record.most)
    }

    /// When a pod was first seen with an image; none if it never was.
    pub fn first_seen_with(&self, pod: &str, image: &str) -> Result<Option<Instant>> {
        self.look(|record| record.images.get(&(pod.to_owned(), image.to_owned())).copied())
    }

    /// As things stand, by name.
    pub fn now(&self) -> Result<BTreeMap<String, Seen>> {
        self.look(|record| record.now.clone())
    }

    /// All that was seen, for messages.
    #[must_use]
    pub fn story(&self) -> String {
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.story.join("\n")
    }
}

impl Record {
    fn staying(&self) -> impl Iterator<Item = &Seen> {
        self.now.values().filter(|seen| !seen.leaving)
    }

    fn ready(&self) -> usize {
        self.staying().filter(|seen| seen.ready).count()
    }

    fn take(&mut self, event: Result<watcher::Event<Pod>, watcher::Error>) {
        let name = match event {
            Ok(watcher::Event::Apply(pod)) => {
                self.now.insert(pod.name_any(), Seen::of(&pod));
                pod.name_any()
            }
            Ok(watcher::Event::Delete(pod)) => {
                self.now.remove(&pod.name_any());
                pod.name_any()
            }
            Ok(_) => {
                self.broken
                    .get_or_insert_with(|| "the list was read again".to_owned());
                return;
            }
            Err(error) => {
                self.broken = Some(error.to_string());
                return;
            }
        };
        if let Some(seen) = self.now.get(&name) {
            let key = (name.clone(), seen.image.clone());
            self.images.entry(key).or_insert_with(Instant::now);
        }
        let (ready, all) = (self.ready(), self.staying().count());
        self.fewest_ready = self.fewest_ready.min(ready);
        self.most = self.most.max(all);
        self.story
            .push(format!("{name}: {ready}/{all} {:?}", self.now.get(&name)));
    }
}

impl Seen {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let is_ready = |condition: &k8s_openapi::api::core::v1::PodCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        };
        Self {
            uid: pod.uid().unwrap_or_default(),
            ip: status.pod_ip.unwrap_or_default(),
            node: spec.node_name.unwrap_or_default(),
            image: spec
                .containers
                .first()
                .and_then(|main| main.image.clone())
                .unwrap_or_default(),
            restarts: containers.iter().map(|status| status.restart_count).sum(),
            ready: status.conditions.unwrap_or_default().iter().any(is_ready),
            leaving: pod.metadata.deletion_timestamp.is_some(),
        }
    }
}
