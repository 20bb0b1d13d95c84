//! A runtime that plays one: pulls take the time that its script says, on whatever clock the test runs.
//!
//! It keeps content under leases as containerd does, so that a pull that was dropped goes on where it stopped.

mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::reason::Code;
use kruise_planner::task::fnv64;
use kruise_proto::task;

use self::machine::FakeMachine;
use super::containers::Containers;
use super::fake_pods::FakePods;
use super::machine::Machine;
use super::{BlobInfo, ContentStore, LeaseId, Link, Pull, Runtime, RuntimeError};
use crate::clock::Clock;

/// Step of a download.
const STEP: Duration = Duration::from_millis(100);

/// How an image behaves when it is pulled.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Sizes of its layers, fetched one after the other.
    pub layers: Vec<u64>,
    /// Bytes per second; 0 fetches nothing, for ever.
    pub rate: u64,
    /// The first pulls fail in these ways before they fetch anything.
    pub failures: Vec<(Code, String)>,
    /// Names of users that may pull; empty lets everybody.
    pub users: Vec<String>,
    /// Time between the last byte and the answer.
    pub unpack: Duration,
    /// Pulls fail, as on a full disk, while fewer bytes than this are free.
    pub needs: u64,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A pull of this image began, under this lease.
    Began(String, Option<LeaseId>),
    /// Its future was dropped.
    Dropped(String),
    /// It answered that the image is there.
    Pulled(String),
    /// It answered with an error.
    Failed(String),
    /// A lease was made.
    LeaseMade(LeaseId),
    /// A lease was dropped.
    LeaseDropped(LeaseId),
    /// Unfinished downloads were thrown away.
    Discarded,
}

#[derive(Debug, Default)]
struct State {
    images: BTreeMap<String, Image>,
    otherwise: Option<Image>,
    present: BTreeSet<String>,
    fetched: BTreeMap<String, u64>,
    leases: BTreeMap<LeaseId, BTreeSet<String>>,
    documents: BTreeMap<String, Vec<u8>>,
    disk: task::DiskSpace,
    pins: BTreeMap<String, Timestamp>,
    pins_unsupported: bool,
    events: Vec<Event>,
    running: usize,
    most_running: usize,
    away: bool,
}

/// The runtime.
#[derive(Debug)]
pub struct Fake {
    /// Its images and containers beside the pulls.
    pub machine: FakeMachine,
    clock: Clock,
    pods: FakePods,
    state: Mutex<State>,
}

impl Fake {
    /// With no image.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            machine: FakeMachine::default(),
            pods: FakePods::new(clock.clone()),
            clock,
            state: Mutex::default(),
        })
    }

    /// A link to it that is up.
    #[must_use]
    pub fn link(self: &Arc<Self>) -> Link {
        let runtime = Arc::clone(self) as Arc<dyn Runtime>;
        Link::Up {
            runtime,
            info: self.info(),
            disk: None,
        }
    }

    /// Containers of its pods.
    #[must_use]
    pub fn pods(&self) -> &FakePods {
        &self.pods
    }

    /// Puts an image into the registry that it pulls from.
    pub fn image(&self, image: &str, behaviour: Image) {
        self.lock().images.insert(image.to_owned(), behaviour);
    }

    /// How every other image behaves; without this they do not exist.
    pub fn otherwise(&self, behaviour: Image) {
        self.lock().otherwise = Some(behaviour);
    }

    /// Makes an image present.
    pub fn present(&self, image: &str) {
        self.lock().present.insert(image.to_owned());
    }

    /// Lets every call fail, or no longer.
    pub fn away(&self, away: bool) {
        self.lock().away = away;
    }

    /// Space of the file system of images; without this it is unknown.
    pub fn space(&self, free: u64, total: u64) {
        let mut state = self.lock();
        state.disk.bytes_free = free;
        state.disk.bytes_total = total;
    }

    /// Makes it a version that cannot pin images.
    pub fn without_pins(&self) {
        self.lock().pins_unsupported = true;
    }

    /// Images that are pinned, with the end.
    #[must_use]
    pub fn pins(&self) -> BTreeMap<String, Timestamp> {
        self.lock().pins.clone()
    }

    /// What happened so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Most pulls that ever ran at once.
    #[must_use]
    pub fn most_running(&self) -> usize {
        self.lock().most_running
    }

    /// Leases that are there.
    #[must_use]
    pub fn held(&self) -> Vec<LeaseId> {
        self.lock().leases.keys().cloned().collect()
    }

    fn info(&self) -> task::Runtime {
        task::Runtime {
            name: "fake".into(),
            version: "1".into(),
            socket: "/run/fake.sock".into(),
            content_store: true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, call: &'static str) -> Result<(), RuntimeError> {
        if self.lock().away {
            return Err(RuntimeError {
                call,
                code: Code::Away,
                text: "connection refused".into(),
            });
        }
        Ok(())
    }

    /// The way of one pull.
    async fn play(&self, pull: &Pull) -> Result<(), RuntimeError> {
        let name = pull.image.canonical().to_owned();
        let failed = |code, text: &str| RuntimeError {
            call: "PullImage",
            code,
            text: text.to_owned(),
        };
        let image = {
            let mut state = self.lock();
            let State {
                images, otherwise, ..
            } = &mut *state;
            let image = images.get_mut(&name).or(otherwise.as_mut());
            let image = image.ok_or_else(|| failed(Code::NotFound, &format!("{name}: not found")))?;
            if !image.failures.is_empty() {
                let (code, text) = image.failures.remove(0);
                return Err(failed(code, &text));
            }
            image.clone()
        };
        let user = pull.credential.as_ref().map(|credential| &credential.username);
        if !image.users.is_empty() && !user.is_some_and(|user| image.users.contains(user)) {
            return Err(failed(Code::Other, "unexpected status: 401 Unauthorized"));
        }
        if self.lock().disk.bytes_free < image.needs {
            return Err(failed(Code::Other, "write /var/lib/x: no space left on device"));
        }
        self.describe(&name, &image, pull.lease.as_ref());
        for (layer, size) in image.layers.iter().enumerate() {
            self.fetch(&digest(&name, layer), *size, image.rate, pull.lease.as_ref())
                .await?;
        }
        tokio::time::sleep(image.unpack).await;
        self.lock().present.insert(name);
        Ok(())
    }

    /// Stores the manifest of an image.
    fn describe(&self, name: &str, image: &Image, lease: Option<&LeaseId>) {
        let blob = |digest: &str, size: u64| format!(r#"{{"digest":"{digest}","size":{size}}}"#);
        let layers = image
            .layers
            .iter()
            .enumerate()
            .map(|(layer, size)| blob(&digest(name, layer), *size));
        let layers: Vec<String> = layers.collect();
        let config = digest(name, usize::MAX);
        let manifest = format!(
            r#"{{"config":{},"layers":[{}]}}"#,
            blob(&config, 2),
            layers.join(",")
        );
        let manifest_digest = digest(&manifest, 0);
        let mut state = self.lock();
        state.fetched.insert(config.clone(), 2);
        state
            .fetched
            .insert(manifest_digest.clone(), manifest.len() as u64);
        state.documents.insert(manifest_digest.clone(), manifest.into());
        state.documents.insert(config.clone(), b"{}".to_vec());
        if let Some(held) = lease.and_then(|lease| state.leases.get_mut(lease)) {
            held.extend([config, manifest_digest]);
        }
    }

    async fn fetch(
        &self,
        digest: &str,
        size: u64,
        rate: u64,
        lease: Option<&LeaseId>,
    ) -> Result<(), RuntimeError> {
        loop {
            self.check("PullImage")?;
            {
                let mut state = self.lock();
                let offset = *state.fetched.entry(digest.to_owned()).or_default();
                if offset >= size {
                    state
                        .documents
                        .entry(digest.to_owned())
                        .or_insert_with(|| vec![0x1f, 0x8b]);
                    if let Some(held) = lease.and_then(|lease| state.leases.get_mut(lease)) {
                        held.insert(digest.to_owned());
                    }
                    return Ok(());
                }
            }
            tokio::time::sleep(STEP).await;
            if let Some(offset) = self.lock().fetched.get_mut(digest) {
                *offset = size.min(*offset + rate / 10);
            }
        }
    }

    /// Throws away what neither an image nor a lease holds. Good enough here: without any lease, all that is unfinished.
    fn collect(state: &mut State) {
        if state.leases.is_empty() {
            let State {
                fetched, documents, ..
            } = state;
            fetched.retain(|digest, _| documents.contains_key(digest));
        }
    }
}

fn digest(name: &str, part: usize) -> String {
    let hash = fnv64(format!("{name} {part}").as_bytes());
    format!("sha256:{hash:064x}")
}

/// Books a running pull, also when it is dropped.
struct Running<'a> {
    fake: &'a Fake,
    name: String,
    ended: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.fake.lock();
        state.running -= 1;
        if !self.ended {
            state.events.push(Event::Dropped(self.name.clone()));
            Fake::collect(&mut state);
        }
    }
}

impl Runtime for Fake {
    fn version(&self) -> BoxFuture<'_, Result<task::Runtime, RuntimeError>> {
        async { self.check("Version").map(|()| self.info()) }.boxed()
    }

    fn image(&self, image: &ImageRef) -> BoxFuture<'_, Result<Option<String>, RuntimeError>> {
        let name = image.canonical().to_owned();
        async move {
            self.check("ImageStatus")?;
            Ok(self.lock().present.contains(&name).then(|| digest(&name, 0)))
        }
        .boxed()
    }

    fn pull(&self, pull: Pull) -> BoxFuture<'_, Result<(), RuntimeError>> {
        async move {
            self.check("PullImage")?;
            let name = pull.image.canonical().to_owned();
            {
                let mut state = self.lock();
                state.running += 1;
                state.most_running = state.most_running.max(state.running);
                state.events.push(Event::Began(name.clone(), pull.lease.clone()));
            }
            let mut running = Running {
                fake: self,
                name: name.clone(),
                ended: false,
            };
            let answer = self.play(&pull).await;
            running.ended = true;
            drop(running);
            let event = if answer.is_ok() {
                Event::Pulled(name)
            } else {
                Event::Failed(name)
            };
            self.lock().events.push(event);
            answer
        }
        .boxed()
    }

    fn disk(&self) -> BoxFuture<'_, Result<task::DiskSpace, RuntimeError>> {
        async { self.check("ImageFsInfo").map(|()| self.lock().disk) }.boxed()
    }

    fn content(&self) -> Option<&dyn ContentStore> {
        Some(self)
    }

    fn machine(&self) -> Option<&dyn Machine> {
        Some(&self.machine)
    }

    fn containers(&self) -> Option<&dyn Containers> {
        Some(&self.pods)
    }
}

impl ContentStore for Fake {
    fn make_lease(&self, lease: &LeaseId, _expires: Timestamp) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let lease = lease.clone();
        async move {
            self.check("CreateLease")?;
            let mut state = self.lock();
            if !state.leases.contains_key(&lease) {
                state.leases.insert(lease.clone(), BTreeSet::new());
                state.events.push(Event::LeaseMade(lease));
            }
            Ok(())
        }
        .boxed()
    }

    fn drop_lease(&self, lease: &LeaseId, _now: bool) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let lease = lease.clone();
        async move {
            self.check("DeleteLease")?;
            let mut state = self.lock();
            if state.leases.remove(&lease).is_some() {
                state.events.push(Event::LeaseDropped(lease));
                Self::collect(&mut state);
            }
            Ok(())
        }
        .boxed()
    }

    fn leases(&self) -> BoxFuture<'_, Result<BTreeSet<LeaseId>, RuntimeError>> {
        async {
            self.check("ListLeases")
                .map(|()| self.lock().leases.keys().cloned().collect())
        }
        .boxed()
    }

    fn leased(&self, lease: &LeaseId) -> BoxFuture<'_, Result<BTreeSet<String>, RuntimeError>> {
        let lease = lease.clone();
        async move {
            self.check("ListLeaseResources")?;
            Ok(self.lock().leases.get(&lease).cloned().unwrap_or_default())
        }
        .boxed()
    }

    fn discard(&self, _lease: &LeaseId) -> BoxFuture<'_, Result<(), RuntimeError>> {
        async {
            self.check("AbortContent")?;
            let mut state = self.lock();
            let State {
                fetched,
                documents,
                events,
                ..
            } = &mut *state;
            fetched.retain(|digest, _| documents.contains_key(digest));
            events.push(Event::Discarded);
            Ok(())
        }
        .boxed()
    }

    fn blobs(&self, digests: &[&str]) -> BoxFuture<'_, Result<Vec<BlobInfo>, RuntimeError>> {
        let digests: Vec<String> = digests.iter().map(|digest| (*digest).to_owned()).collect();
        async move {
            self.check("ListContent")?;
            let (state, now) = (self.lock(), self.clock.now_wall());
            let complete = digests
                .into_iter()
                .filter(|digest| state.documents.contains_key(digest));
            let info = |digest: String| {
                let size = state.fetched.get(&digest).copied().unwrap_or_default();
                BlobInfo {
                    digest,
                    size,
                    created: now,
                }
            };
            Ok(complete.map(info).collect())
        }
        .boxed()
    }

    fn downloads(&self) -> BoxFuture<'_, Result<BTreeMap<String, u64>, RuntimeError>> {
        async {
            self.check("ListStatuses")?;
            let state = self.lock();
            let running = state
                .fetched
                .iter()
                .filter(|(digest, _)| !state.documents.contains_key(*digest));
            Ok(running
                .map(|(digest, offset)| (digest.clone(), *offset))
                .collect())
        }
        .boxed()
    }

    fn pin(&self, image: &ImageRef, until: Timestamp) -> BoxFuture<'_, Result<bool, RuntimeError>> {
        let name = image.canonical().to_owned();
        async move {
            self.check("UpdateImage")?;
            let mut state = self.lock();
            if !state.pins_unsupported {
                let end = state.pins.entry(name).or_insert(until);
                *end = (*end).max(until);
            }
            Ok(!state.pins_unsupported)
        }
        .boxed()
    }

    fn unpin(&self, now: Timestamp) -> BoxFuture<'_, Result<Option<Timestamp>, RuntimeError>> {
        async move {
            self.check("ListImages")?;
            let mut state = self.lock();
            state.pins.retain(|_, end| *end > now);
            Ok(state.pins.values().min().copied())
        }
        .boxed()
    }

    fn document(&self, digest: &str, _most: u64) -> BoxFuture<'_, Result<Vec<u8>, RuntimeError>> {
        let digest = digest.to_owned();
        async move {
            self.check("ReadContent")?;
            Ok(self.lock().documents.get(&digest).cloned().unwrap_or_default())
        }
        .boxed()
    }
}
