//! Calls that are under way, one per image, and who may share them.
//!
//! Tasks for one image share a call if they log in the same way. A task that fetches in any case shares only one that has not begun yet:
//! what the registry said before the task was ordered is not news.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;
use kruise_api::reference::ImageRef;
use kruise_planner::node::queue::Entry;
use kruise_proto::dispatch::Credential;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::call::{Call, Stage};
use super::gate::Place;
use super::order::{Policy, Work};
use super::shared::Shared;
use crate::runtime::LeaseId;

/// Calls by image.
#[derive(Debug, Default)]
pub(super) struct Calls(Mutex<BTreeMap<String, Weak<Handle>>>);

/// One's share in a call. The call ends with the last of them.
#[derive(Debug)]
pub(super) struct Handle {
    policy: Policy,
    credentials: Vec<Credential>,
    stage: watch::Receiver<Stage>,
    go: Arc<Notify>,
    place: Place,
    abort: AbortHandle,
}

/// What somebody wants.
#[derive(Debug)]
pub(super) struct Want<'a> {
    pub(super) image: &'a ImageRef,
    pub(super) lease: &'a LeaseId,
    pub(super) work: Work,
    pub(super) credentials: Vec<Credential>,
    /// When the task was taken, and bytes that it has brought in.
    pub(super) since: (Timestamp, u64),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Joined {
    /// A share.
    Share(Arc<Handle>),
    /// A call for the image runs that cannot be shared; this tells when it is over.
    Busy(watch::Receiver<Stage>),
}

impl Calls {
    /// A share in the call for an image, which begins if there is none.
    pub(super) fn join(shared: &Arc<Shared>, want: Want<'_>) -> Joined {
        let mut calls = shared.calls.lock();
        calls.retain(|_, call| call.strong_count() > 0);
        let name = want.image.canonical();
        if let Some(open) = calls.get(name).and_then(Weak::upgrade)
            && !matches!(*open.stage.borrow(), Stage::Ended(_))
        {
            if open.suits(&want) {
                let terms = want.work.terms;
                open.place.raise(terms.priority, terms.queue_time);
                return Joined::Share(open);
            }
            return Joined::Busy(open.stage.clone());
        }
        let name = name.to_owned();
        let handle = Arc::new(Handle::begin(shared, want));
        calls.insert(name, Arc::downgrade(&handle));
        Joined::Share(handle)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Handle>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handle {
    fn begin(shared: &Arc<Shared>, want: Want<'_>) -> Self {
        let Want {
            image,
            lease,
            work,
            credentials,
            since: (taken, fetched),
        } = want;
        let (sender, stage) = watch::channel(Stage::Queued);
        let go = Arc::new(Notify::new());
        let entry = Entry {
            registry: image.host().to_owned(),
            priority: work.terms.priority,
            queue_time: work.terms.queue_time,
            requester: work.requested_by.clone(),
        };
        let policy = work.policy;
        let (place, turn) = shared.gate.enter(entry);
        let call = Call {
            shared: Arc::clone(shared),
            image: image.clone(),
            lease: lease.clone(),
            work,
            credentials: credentials.clone(),
            of_node: Mutex::default(),
            wanted: shared.books.open(image, taken, fetched),
            stage: sender,
            go: Arc::clone(&go),
        };
        let gate = Arc::clone(&shared.gate);
        let abort = tokio::spawn(call.run(async move { gate.turn(turn).await })).abort_handle();
        Self {
            policy,
            credentials,
            stage,
            go,
            place,
            abort,
        }
    }

    fn suits(&self, want: &Want<'_>) -> bool {
        let is_news = match want.work.policy {
            Policy::IfNotPresent => true,
            Policy::Always => {
                self.policy == Policy::Always && matches!(*self.stage.borrow(), Stage::Queued | Stage::Ready)
            }
        };
        is_news && self.credentials == want.credentials
    }

    /// Where the call is.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.clone()
    }

    /// Whether it logs in like this.
    pub(super) fn logs_in_with(&self, credentials: &[Credential]) -> bool {
        self.credentials == credentials
    }

    /// An attempt has been written down: the runtime may be called.
    pub(super) fn go(&self) {
        self.go.notify_one();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.abort.abort();
    }
}
